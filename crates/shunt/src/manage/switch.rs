//! `shunt switch`.

use anyhow::Result;
use api::Method;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::acl::Acl;
use super::cells::{cell, entries};
use super::client::{ChangeArgs, DaemonArgs, encode_segment, must_be_new};
use super::fdb::Fdb;
use super::patch::OnOff;
use super::patch::{Number, Patch, list as listed, switched};
use super::tunnel::{Tunnel, tunnels};
use crate::complete;
use crate::flat::Fields;
use crate::pages::Title;
use crate::text::table;

/// Show and change switches and their ports.
#[derive(Debug, Args)]
#[command(add = Title("software switches and their ports"))]
#[command(after_help = "\
Examples:
  shunt switch create sw0 --nic nic0 --iov          --iov cannot be set later
  shunt switch ports sw0
  shunt switch port sw0 web --dhcp-guard on --router-guard on
  shunt switch acl sw0 web --add 'deny protocol=udp to_port=67-68'
  shunt switch acl sw0 web --remove 1
  shunt switch fdb sw0")]
pub(crate) struct Switches {
    #[command(flatten)]
    target: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all switches.
    #[command(add = Title("table of switches"))]
    #[command(after_help = "\
Examples:
  shunt switch list")]
    List,
    /// Show one switch, as in a file for `shunt apply`.
    #[command(add = Title("one switch, as in a state file"))]
    #[command(after_help = "\
Examples:
  shunt switch show sw0")]
    Show {
        /// Name of the switch.
        #[arg(add = complete::switch())]
        switch: String,
    },
    /// Create a switch.
    #[command(add = Title("a new software switch"))]
    #[command(after_help = "\
Examples:
  shunt switch create sw0 --nic nic0 --iov")]
    Create {
        /// Name: 1 to 15 of the characters a-z, 0-9 and -.
        switch: String,
        /// NIC that it is attached to.
        #[arg(long, add = complete::nic())]
        nic: String,
        /// Allow VFs for its adapters; fixed from then on.
        #[arg(long)]
        iov: bool,
        /// Ageing time of learned addresses, in seconds.
        #[arg(long, value_name = "S")]
        ageing_s: Option<Number>,
        #[command(flatten)]
        how: ChangeArgs,
    },
    /// Change settings of a switch.
    #[command(add = Title("settings of a switch"))]
    #[command(after_help = "\
Examples:
  shunt switch set sw0 --ageing-s 60")]
    Set {
        /// Name of the switch.
        #[arg(add = complete::switch())]
        switch: String,
        /// Ageing time of learned addresses, in seconds.
        #[arg(long, value_name = "S")]
        ageing_s: Option<Number>,
        #[command(flatten)]
        how: ChangeArgs,
    },
    /// Remove an unused switch.
    #[command(add = Title("removal of a switch"))]
    #[command(after_help = "\
Examples:
  shunt switch delete sw0")]
    Delete {
        /// Name of the switch.
        #[arg(add = complete::switch())]
        switch: String,
        #[command(flatten)]
        how: ChangeArgs,
    },
    /// List the ports of a switch with settings of their own.
    #[command(add = Title("table of switch ports"))]
    #[command(after_help = "\
Examples:
  shunt switch ports sw0")]
    Ports {
        /// Name of the switch.
        #[arg(add = complete::switch())]
        switch: String,
    },
    /// Change some settings of a port; the others stay.
    #[command(add = Title("settings of a switch port"))]
    #[command(after_help = "\
Examples:
  shunt switch port sw0 web --dhcp-guard on --isolated on
  shunt switch port sw0 uplink --trunks 5,100-199 --native-vlan 5
  shunt switch port sw0 web --reset")]
    Port(Box<Port>),
    /// Show the rules of a port with their counts, or change them.
    #[command(add = Title("rules of a switch port, with their counts"))]
    #[command(after_help = "\
Examples:
  shunt switch acl sw0 web
  shunt switch acl sw0 web --add 'deny protocol=udp to_port=67-68'
  shunt switch acl sw0 web --remove 1
  shunt switch acl sw0 web --clear --add 'allow from_ip=10.0.0.0/8' --add deny")]
    Acl(Acl),
    /// List the addresses that a switch knows: learned and static ones.
    #[command(add = Title("table of the addresses that a switch knows"))]
    #[command(after_help = "\
Examples:
  shunt switch fdb sw0
  shunt switch fdb sw0 --port uplink
  shunt switch fdb sw0 --mac 02:00:00:00:00:01 --json")]
    Fdb(Fdb),
    /// List the tunnels of a switch: VXLAN, to switches on other hosts.
    #[command(add = Title("table of the tunnels of a switch"))]
    #[command(after_help = "\
Examples:
  shunt switch tunnels sw0")]
    Tunnels {
        /// Name of the switch.
        #[arg(add = complete::switch())]
        switch: String,
    },
    /// Create, change or remove a tunnel; settings without a flag stay.
    #[command(add = Title("a VXLAN tunnel of a switch"))]
    #[command(after_help = "\
Examples:
  shunt switch tunnel sw0 far --vni 7 --peers 10.0.0.2,10.0.0.3
  shunt switch tunnel sw0 far --vlan 5
  shunt switch tunnel sw0 far --delete")]
    Tunnel(Box<Tunnel>),
}

#[derive(Debug, Args)]
struct Port {
    /// Name of the switch.
    #[arg(add = complete::switch())]
    switch: String,
    /// Adapter or tunnel at the port, or uplink.
    #[arg(add = complete::switch_port())]
    adapter: String,
    /// Uplink only: VLANs that may be tagged, such as 5,100-199; none for all.
    #[arg(long, value_name = "VLANS")]
    trunks: Option<String>,
    /// Uplink only: VLAN of untagged frames, one of the trunks; none or 0 for no VLAN.
    #[arg(long, value_name = "ID")]
    native_vlan: Option<Number>,
    /// Maximum number of learned addresses; not with spoof check.
    #[arg(long, value_name = "N")]
    max_macs: Option<Number>,
    /// Deliver unknown unicast frames to it.
    #[arg(long)]
    unknown_unicast: Option<OnOff>,
    /// Let it reach only ports that are not isolated.
    #[arg(long)]
    isolated: Option<OnOff>,
    /// Drop DHCP server messages from it.
    #[arg(long)]
    dhcp_guard: Option<OnOff>,
    /// Drop router advertisements and redirects from it.
    #[arg(long)]
    router_guard: Option<OnOff>,
    /// Reset all its settings.
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    how: ChangeArgs,
}

impl Port {
    fn patch(&self) -> Patch {
        let native = self.native_vlan.clone().map(Number::or_none);
        Patch::default()
            .set("trunks", self.trunks.as_deref().map(listed))
            .set("native_vlan", native)
            .set("max_macs", self.max_macs.clone())
            .set("unknown_unicast", switched(self.unknown_unicast))
            .set("isolated", switched(self.isolated))
            .set("dhcp_guard", switched(self.dhcp_guard))
            .set("router_guard", switched(self.router_guard))
    }
}

impl Switches {
    pub(crate) fn run(self) -> Result<()> {
        let target = &self.target;
        let path = |switch: &str| format!("/v1/switches/{}", encode_segment(switch));
        match &self.command {
            Command::List => list(target),
            Command::Show { switch } => {
                target.show_object("switch", &path(switch), |_| String::new())
            }
            Command::Create { switch, nic, iov, ageing_s, how } => {
                let body = Patch::default()
                    .set("nic", Some(nic.as_str()))
                    .set("iov", Some(*iov))
                    .set("ageing_s", ageing_s.clone())
                    .finish();
                must_be_new(target, &path(switch))?;
                let done = format!("created switch {switch}");
                target.change(Method::PUT, &path(switch), Some(&body), how, &done)
            }
            Command::Set { switch, ageing_s, how } => {
                let body = Patch::default()
                    .set("ageing_s", ageing_s.clone())
                    .finish_for(format!("switch {switch}"))?;
                let done = format!("changed switch {switch}");
                target.change(Method::PATCH, &path(switch), Some(&body), how, &done)
            }
            Command::Delete { switch, how } => {
                let done = format!("deleted switch {switch}");
                target.change(Method::DELETE, &path(switch), None, how, &done)
            }
            Command::Ports { switch } => ports(target, &format!("{}/ports", path(switch))),
            Command::Port(port) => {
                let Port { switch, adapter, how, reset, .. } = &**port;
                let path = port_path(switch, adapter);
                if *reset {
                    let done = format!("reset the port of {adapter} on {switch}");
                    return target.change(Method::DELETE, &path, None, how, &done);
                }
                let body =
                    port.patch().finish_for(format!("port of {adapter} on switch {switch}"))?;
                let done = format!("changed the port of {adapter} on {switch}");
                target.change(Method::PATCH, &path, Some(&body), how, &done)
            }
            Command::Acl(acl) => acl.run(target),
            Command::Fdb(fdb) => fdb.run(target),
            Command::Tunnels { switch } => tunnels(target, switch),
            Command::Tunnel(tunnel) => tunnel.run(target),
        }
    }
}

pub(super) fn port_path(switch: &str, adapter: &str) -> String {
    format!("/v1/switches/{}/ports/{}", encode_segment(switch), encode_segment(adapter))
}

fn list(target: &DaemonArgs) -> Result<()> {
    let state = target.get("/v1/state")?;
    let counted = entries(&state["switch"]).cloned().map(|mut switch| {
        let here = entries(&state["adapter"]).filter(|one| one["switch"] == switch["name"]);
        switch["adapters"] = here.count().into();
        switch
    });
    let fields = || Fields::of("Switch").and(["adapters"]);
    target.show_list(fields, &counted.collect::<Vec<_>>(), |switches| {
        let row = |switch: &Value| {
            ["name", "nic", "iov", "adapters", "ageing_s"].map(|name| cell(&switch[name]))
        };
        let header = ["switch", "NIC", "iov", "adapters", "ageing s"];
        table(header, switches.iter().map(row).collect())
    })
}

fn ports(target: &DaemonArgs, path: &str) -> Result<()> {
    let ports = target.get(path)?;
    let counted = entries(&ports).cloned().map(|mut port| {
        port["rules"] = entries(&port["acl"]).count().into();
        port
    });
    let fields = || Fields::of("SwitchPort").and(["rules"]);
    target.show_list(fields, &counted.collect::<Vec<_>>(), |ports| {
        let row = |port: &Value| {
            let field = |name: &str| cell(&port[name]);
            let guards =
                [("dhcp_guard", "dhcp"), ("router_guard", "router"), ("isolated", "isolated")];
            let guards: Vec<&str> = guards
                .iter()
                .filter(|(name, _)| port[*name] == true)
                .map(|(_, word)| *word)
                .collect();
            let guards = if guards.is_empty() { "-".to_owned() } else { guards.join(",") };
            let unknown = field("unknown_unicast");
            let (trunks, native) = (field("trunks"), field("native_vlan"));
            [field("adapter"), trunks, native, guards, unknown, field("max_macs"), field("rules")]
        };
        let header = ["port", "trunks", "native", "guards", "unknown", "max MACs", "rules"];
        table(header, ports.iter().map(row).collect())
    })
}
