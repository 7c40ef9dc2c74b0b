//! `shunt switch fdb`: addresses that a switch knows.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use wire::Mac;

use super::cells::{cell, entries, find};
use super::client::{DaemonArgs, encode_segment};
use crate::complete;
use crate::error::UsageError;
use crate::flat::Fields;
use crate::text::table;

#[derive(Debug, Args)]
pub(super) struct Fdb {
    /// Name of the switch.
    #[arg(add = complete::switch())]
    switch: String,
    /// Only addresses behind this port: an adapter, a tunnel, or uplink.
    #[arg(long, add = complete::switch_port())]
    port: Option<String>,
    /// Only this address.
    #[arg(long, value_parser = mac)]
    mac: Option<Mac>,
    /// Only addresses in this VLAN; 0 for the untagged network.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,
}

fn mac(text: &str) -> Result<Mac, String> {
    let expected = "expected six hex pairs such as \"02:00:00:00:00:01\"";
    text.parse().map_err(|_| expected.to_owned())
}

impl Fdb {
    pub(super) fn run(&self, target: &DaemonArgs) -> Result<()> {
        let path = format!("/v1/switches/{}/fdb", encode_segment(&self.switch));
        let all = target.get(&path)?;
        if let Some(port) = &self.port {
            let state = target.get("/v1/state")?;
            let switch = find(&state["switch"], "name", &json!(self.switch));
            let names = complete::port_names(&state, switch);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if !names.contains(&port.as_str()) {
                let message = format!("is no port of switch {}", self.switch);
                let known = names.iter().copied();
                return Err(UsageError::meant("--port", port, &message, known, &names).into());
            }
        }
        let found = entries(&all).filter(|entry| self.selects(entry)).cloned();
        target.show_list(
            || Fields::of("FdbEntry"),
            &found.collect::<Vec<_>>(),
            |found| {
                let row = |entry: &Value| {
                    ["mac", "vlan", "port", "kind", "age_s"].map(|name| cell(&entry[name]))
                };
                table(["MAC", "VLAN", "port", "kind", "age s"], found.iter().map(row).collect())
            },
        )
    }

    fn selects(&self, entry: &Value) -> bool {
        let mac = self.mac.map(|mac| mac.to_string());
        self.port.as_deref().is_none_or(|port| entry["port"] == *port)
            && mac.is_none_or(|mac| entry["mac"] == *mac)
            && self.vlan.is_none_or(|vlan| entry["vlan"].as_u64().unwrap_or(0) == u64::from(vlan))
    }
}
