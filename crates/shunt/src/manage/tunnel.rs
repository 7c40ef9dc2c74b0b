//! `shunt switch tunnel` and `tunnels`.

use anyhow::Result;
use api::Method;
use clap::Args;
use serde_json::Value;

use super::cells::{cell, entries, find, with_actual};
use super::client::{ChangeArgs, DaemonArgs, encode_segment};
use super::patch::{Number, Patch, list};
use crate::complete;
use crate::flat::Fields;
use crate::text::table;

#[derive(Debug, Args)]
pub(super) struct Tunnel {
    /// Name of the switch.
    #[arg(add = complete::switch())]
    switch: String,
    /// Name of the tunnel's port.
    #[arg(add = complete::tunnel())]
    tunnel: String,
    /// VXLAN network identifier, the same on every host, 1 to 16777215.
    #[arg(long, value_name = "N")]
    vni: Option<Number>,
    /// VLAN of the switch that it carries; 0 for untagged frames.
    #[arg(long, value_name = "ID")]
    vlan: Option<Number>,
    /// Addresses of the other hosts, separated by commas: all IPv4, or all IPv6.
    #[arg(long, value_name = "ADDRESSES")]
    peers: Option<String>,
    /// Local address for the tunnel; any for the one that the routes give.
    #[arg(long, value_name = "ADDRESS")]
    local: Option<String>,
    /// UDP port, local and remote.
    #[arg(long, value_name = "PORT")]
    port: Option<Number>,
    /// MTU of the network between the hosts, in bytes; 0 for no limit.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<Number>,
    /// Remove the tunnel.
    #[arg(long, conflicts_with_all = ["vni", "vlan", "peers", "local", "port", "mtu"])]
    delete: bool,
    #[command(flatten)]
    how: ChangeArgs,
}

impl Tunnel {
    pub(super) fn run(&self, target: &DaemonArgs) -> Result<()> {
        let Tunnel { switch, tunnel, how, .. } = self;
        let path =
            format!("/v1/switches/{}/tunnels/{}", encode_segment(switch), encode_segment(tunnel));
        if self.delete {
            let done = format!("deleted tunnel {tunnel} of {switch}");
            return target.change(Method::DELETE, &path, None, how, &done);
        }
        let body = self.patch().finish_for(format!("tunnel {tunnel} of switch {switch}"))?;
        let done = format!("changed tunnel {tunnel} of {switch}");
        target.change(Method::PATCH, &path, Some(&body), how, &done)
    }

    fn patch(&self) -> Patch {
        let local = self.local.as_deref().map(|local| match local {
            "any" => Value::Null,
            address => address.into(),
        });
        Patch::default()
            .set("vni", self.vni.clone())
            .set("vlan", self.vlan.clone().map(Number::or_none))
            .set("peers", self.peers.as_deref().map(list))
            .set("local", local)
            .set("port", self.port.clone())
            .set("mtu", self.mtu.clone().map(Number::or_none))
    }
}

/// Prints the tunnels of a switch.
pub(super) fn tunnels(target: &DaemonArgs, switch: &str) -> Result<()> {
    let tunnels = target.get(&format!("/v1/switches/{}/tunnels", encode_segment(switch)))?;
    let actual = target.get("/v1/actual")?;
    let here = entries(&actual["actual"]["tunnels"]).filter(|one| one["switch"] == *switch);
    let here: Value = here.cloned().collect();
    let joined = entries(&tunnels)
        .map(|tunnel| with_actual(tunnel, find(&here, "name", &tunnel["name"])))
        .collect::<Vec<_>>();
    let fields = || Fields::of("Vxlan").with("actual", "ActualTunnel");
    target.show_list(fields, &joined, |tunnels| {
        let row = |tunnel: &Value| {
            let state = cell(&tunnel["actual"]["device"]["state"]);
            let [name, vni, vlan, local, port, mtu, peers] =
                ["name", "vni", "vlan", "local", "port", "mtu", "peers"]
                    .map(|name| cell(&tunnel[name]));
            [name, vni, vlan, local, port, mtu, peers, state]
        };
        let header = ["tunnel", "VNI", "VLAN", "local", "port", "MTU", "peers", "state"];
        table(header, tunnels.iter().map(row).collect())
    })
}
