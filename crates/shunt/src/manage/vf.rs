//! `shunt vf`.

use anyhow::Result;
use api::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::cells::{cell, entries, find, rates};
use super::client::{ChangeArgs, DaemonArgs, encode_segment, release_path};
use super::patch::{FunctionFlags, OnOff, Patch, or_none, switched};
use crate::complete;
use crate::flat::Fields;
use crate::pages::Title;
use crate::text::table;

/// Show and change VFs, with the flags of `ip link set PF vf N`.
///
/// A VF configured here is the operator's: an adapter gets it only by number, and then with these
/// settings instead of its own, except for the addresses. A VF that was assigned to an adapter
/// cannot be set here: use `shunt adapter set`.
#[derive(Debug, Args)]
#[command(add = Title("VFs of a NIC"))]
#[command(after_help = "\
Examples:
  shunt vf list nic0
  shunt vf set nic0 3 --mac 02:00:00:00:00:03 --vlan 100 --qos 5 --spoof-check on
  shunt vf set nic0 3 --max-tx-mbps 1000  the minimum stays unchanged
  shunt vf reset nic0 3                   back to the defaults, and free for adapters
  shunt vf reset nic0 3 --owner 17        only if owner 17 still has it")]
pub(crate) struct Vfs {
    #[command(flatten)]
    target: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the VFs of a NIC: their adapters and settings.
    #[command(add = Title("table of the VFs of a NIC"))]
    #[command(after_help = "\
Examples:
  shunt vf list nic0")]
    List {
        /// Name of the NIC.
        #[arg(add = complete::nic())]
        nic: String,
    },
    /// Show the settings of a VF, as in its entry of a NIC.
    #[command(add = Title("one VF, as in a state file"))]
    #[command(after_help = "\
Examples:
  shunt vf show nic0 3")]
    Show {
        /// Name of the NIC.
        #[arg(add = complete::nic())]
        nic: String,
        /// VF number.
        #[arg(add = complete::vf())]
        vf: u64,
    },
    /// Change some settings of a VF; the others stay.
    #[command(add = Title("settings of a VF"))]
    #[command(after_help = "\
Examples:
  shunt vf set nic0 3 --mac 02:00:00:00:00:03 --vlan 100 --spoof-check on
  shunt vf set nic0 3 --trunks 5,100-199 --trust on
  shunt vf set nic0 3 --link-state disable")]
    Set(Box<Set>),
    /// Reset all settings of a VF.
    #[command(add = Title("default settings of a VF"))]
    #[command(after_help = "\
Examples:
  shunt vf reset nic0 3
  shunt vf reset nic0 3 --owner 17")]
    Reset {
        /// Name of the NIC.
        #[arg(add = complete::nic())]
        nic: String,
        /// VF number.
        #[arg(add = complete::vf())]
        vf: u64,
        /// Only if this is still its owner's token (`shunt vf list --json`).
        #[arg(long, value_name = "TOKEN")]
        owner: Option<u64>,
        #[command(flatten)]
        how: ChangeArgs,
    },
}

#[derive(Debug, Args)]
struct Set {
    /// Name of the NIC.
    #[arg(add = complete::nic())]
    nic: String,
    /// VF number.
    #[arg(add = complete::vf())]
    vf: u64,
    /// Administrative MAC address.
    #[arg(long)]
    mac: Option<String>,
    /// Driver of a card's VF: vfio-pci for a VM; none leaves it to others.
    #[arg(long, add = complete::one_of("VfDriver"))]
    driver: Option<String>,
    /// Let the guest of a card's VF read the PF's RSS key and table.
    #[arg(long)]
    query_rss: Option<OnOff>,
    #[command(flatten)]
    settings: FunctionFlags,
    #[command(flatten)]
    how: ChangeArgs,
}

impl Set {
    fn patch(&self) -> Patch {
        let own = Patch::default()
            .set("mac", self.mac.as_deref())
            .set("driver", self.driver.as_deref().map(or_none))
            .set("query_rss", switched(self.query_rss));
        self.settings.patch(own)
    }
}

impl Vfs {
    pub(crate) fn run(self) -> Result<()> {
        let target = &self.target;
        let path = |nic: &str, vf: u64| format!("/v1/nics/{}/vfs/{vf}", encode_segment(nic));
        match &self.command {
            Command::List { nic } => list(target, nic),
            Command::Show { nic, vf } => target.show_at(&path(nic, *vf)),
            Command::Set(set) => {
                let Set { nic, vf, how, .. } = &**set;
                let body = set.patch().finish_for(format!("VF {vf} of NIC {nic}"))?;
                let done = format!("changed VF {vf} of {nic}");
                target.change(Method::PATCH, &path(nic, *vf), Some(&body), how, &done)
            }
            Command::Reset { nic, vf, owner, how } => {
                let path = release_path(path(nic, *vf), *owner);
                let done = format!("reset VF {vf} of {nic}");
                target.change(Method::DELETE, &path, None, how, &done)
            }
        }
    }
}

/// Settings of an adapter for the table of VFs.
fn settings_of(adapter: &Value) -> Value {
    let shown = ["mac", "vlan", "spoof_check", "trust", "link_state", "min_tx_mbps", "max_tx_mbps"];
    let given =
        shown.iter().filter_map(|name| Some(((*name).to_owned(), adapter.get(name)?.clone())));
    Value::Object(given.collect())
}

/// A VF of a card with the settings that its driver reports.
fn in_force(vf: &Value) -> Value {
    let mut vf = vf.clone();
    let Some(reported) = vf["reported"].as_object().cloned() else { return vf };
    for (name, value) in reported {
        let text = value.as_str().unwrap_or_default();
        vf[name.as_str()] = match name.as_str() {
            "vlan" => json!({"id": text.split(' ').next().filter(|id| *id != "none")}),
            "mac" if text == "none" => Value::Null,
            "min_tx_mbps" | "max_tx_mbps" => json!(text.parse::<u32>().ok()),
            _ => value,
        };
    }
    vf
}

fn list(target: &DaemonArgs, nic: &str) -> Result<()> {
    let wished = target.get(&format!("/v1/nics/{}", encode_segment(nic)))?;
    let actual = target.get("/v1/actual")?;
    let adapters = target.get("/v1/adapters")?;
    let behind: Vec<&Value> =
        entries(&actual["vpfs"]).flat_map(|vpf| entries(&vpf["vfs"])).collect();
    let total = wished["total_vfs"].as_u64().unwrap_or(0);
    let enabled = wished["num_vfs"].as_u64().unwrap_or(0);
    let of = |index: u64| {
        let own = find(&wished["vf"], "index", &json!(index)).clone();
        let owner = actual["owners"].get(format!("{nic}/vf{index}")).cloned();
        let holder = owner.as_ref().map_or(Value::Null, |owner| owner["holder"].clone());
        let adapter = find(&adapters, "name", &holder);
        // Settings of the VF itself win over the adapter's; the address is always the adapter's.
        let mut vf = if own.is_null() { settings_of(adapter) } else { own };
        if let Some(mac) = adapter.get("mac") {
            vf["mac"] = mac.clone();
        }
        // Behind a virtual PF, the guest may also have changed settings.
        if let Some(behind) = behind.iter().find(|vf| !holder.is_null() && vf["adapter"] == holder)
            && let (Some(vf), Some(settings)) = (vf.as_object_mut(), behind["settings"].as_object())
        {
            vf.extend(settings.clone());
            vf.insert("set_by_guest".into(), behind["set_by_guest"].clone());
        }
        let in_force = find(&actual["actual"]["adapters"], "name", &holder);
        vf["guest"] = in_force["guest"].clone();
        let nic = find(&actual["actual"]["nics"], "name", &wished["name"]);
        vf["reported"] = find(&nic["vfs"], "index", &json!(index))["reported"].clone();
        vf["index"] = json!(index);
        vf["enabled"] = json!(index < enabled);
        vf["owner"] = owner.unwrap_or_default();
        vf
    };
    let vfs: Vec<Value> = (0..total).map(of).collect();
    let fields = || {
        let of_nic = Fields::of("Vf").with("owner", "Owner");
        of_nic.and(["enabled", "guest"]).and_array("set_by_guest").and_array("reported")
    };
    target.show_list(fields, &vfs, |vfs| {
        let row = |vf: &Value| {
            let vf = &in_force(vf);
            let holder = match vf["owner"]["holder"].as_str() {
                Some("") => "operator".to_owned(),
                Some(name) => name.to_owned(),
                None => if vf["enabled"] == true { "free" } else { "disabled" }.to_owned(),
            };
            let word = |field: &str, usual: &str| match &vf[field] {
                Value::Null => usual.to_owned(),
                given => cell(given),
            };
            [
                cell(&vf["index"]),
                holder,
                cell(&vf["mac"]),
                cell(&vf["vlan"]["id"]),
                word("spoof_check", "on"),
                word("trust", "off"),
                word("link_state", "auto"),
                rates(vf),
                cell(&vf["guest"]),
            ]
        };
        let header =
            ["VF", "adapter", "MAC", "VLAN", "spoof check", "trust", "link", "Mbit/s", "guest"];
        table(header, vfs.iter().map(row).collect())
    })
}
