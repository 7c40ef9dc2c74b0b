//! `shunt nic`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use api::Method;
use clap::{Args, Subcommand};
use model::state::{ActualCard, Difference, Nic};
use serde_json::{Value, json};
use sriov::BootFile;
use sriov::discovery::Listing;

use super::cells::{
    attachment, cell, entries, find, told_of, warn_of_device, with_actual, with_state,
};
use super::client::{ChangeArgs, DaemonArgs, encode_segment, must_be_new};
use super::patch::{Number, Patch, attachment_help};
use super::pci::{self, NicsOf};
use super::rules::{Rules, representors};
use crate::complete;
use crate::flat::Fields;
use crate::pages::Title;
use crate::text::{print, table};

/// Show and change NICs.
#[derive(Debug, Args)]
#[command(add = Title("SR-IOV NICs"))]
#[command(after_help = "\
Examples:
  shunt nic list
  shunt nic create nic0 --total-vfs 8 --num-vfs 4 --uplink-socket /run/shunt/wire.sock
  shunt nic set nic0 --uplink xdp:eth1 --uplink-set zero_copy=require
  shunt nic set nic0 --mode switchdev
  shunt nic create card0 --device eth0 --num-vfs 4       a card, through its driver
  shunt nic set nic0 --num-vfs 0          VFs off; from 0 to any number, as in Linux
  shunt nic delete nic0 --dry-run")]
pub(crate) struct Nics {
    #[command(flatten)]
    target: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all NICs: the daemon's, with VFs, switch and readiness for VFs, and the PCI NICs of
    /// this machine. Needs neither root nor a daemon.
    #[command(add = Title("table of NICs"))]
    #[command(after_help = "\
Examples:
  shunt nic list
  shunt nic list --json
  shunt nic list --from shunt-report.json     the PCI NICs of another machine

Column SR-IOV of PCI NICs: yes, no (the card has none), or the reason against VFs. A reason in
brackets is only against VFs in VMs. `shunt nic show eth0` tells cause and remedy.")]
    List {
        #[command(flatten)]
        machine: NicsOf,
    },
    /// Show one NIC: the daemon's as in a file for `shunt apply`, another PCI NIC with all facts,
    /// and with cause and remedy if it cannot have VFs.
    #[command(add = Title("one NIC: settings, or facts of a PCI NIC"))]
    #[command(after_help = "\
Examples:
  shunt nic show nic0
  shunt nic show eth0
  shunt nic show 0000:01:00.0 --json")]
    Show {
        /// Name of the NIC; interface or address of a PCI NIC.
        #[arg(add = complete::nic())]
        nic: String,
        #[command(flatten)]
        machine: NicsOf,
    },
    /// Create a NIC.
    ///
    /// With --device, it is the card of that interface, of kind pci: its VFs are enabled, and its
    /// driver gets their settings. `shunt nic delete` gives the card back as it was.
    #[command(add = Title("a new SR-IOV NIC"))]
    #[command(after_help = "\
Examples:
  shunt nic create nic0 --total-vfs 8 --num-vfs 4
  shunt nic create card0 --device eth0 --num-vfs 4 --drift repair
  shunt nic create old --total-vfs 7 --profile 82576")]
    Create {
        /// Name: 1 to 15 of the characters a-z, 0-9 and -.
        nic: String,
        /// Number of possible VFs, 0 to 255; fixed from then on. Of a card, the default is
        /// --num-vfs.
        #[arg(long, value_name = "N", required_unless_present = "device")]
        total_vfs: Option<u64>,
        /// Interface or PCI address of a card; fixed from then on.
        #[arg(long)]
        device: Option<String>,
        /// Card profile whose limits it has (default ideal; an unknown name lists them); fixed from
        /// then on.
        #[arg(long, add = complete::profile())]
        profile: Option<String>,
        /// Receive queues for adapters without a VF; fixed from then on.
        #[arg(long, value_name = "N")]
        vmq_queues: Option<Number>,
        #[command(flatten)]
        settings: Box<Settings>,
        #[command(flatten)]
        how: ChangeArgs,
    },
    /// Change some settings of a NIC; the others stay.
    #[command(add = Title("settings of a NIC"))]
    #[command(after_help = "\
Examples:
  shunt nic set nic0 --num-vfs 0
  shunt nic set nic0 --bridging vepa --dry-run")]
    Set {
        /// Name of the NIC.
        #[arg(add = complete::nic())]
        nic: String,
        #[command(flatten)]
        settings: Box<Settings>,
        #[command(flatten)]
        how: ChangeArgs,
    },
    /// Show or change the rules of a NIC in mode switchdev, with their counters.
    #[command(add = Title("rules of a NIC in mode switchdev"))]
    #[command(after_help = "\
Examples:
  shunt nic rules nic0
  shunt nic rules nic0 --add 'vf0 vf1 to_mac=02:00:00:00:00:02' --add 'vf1 uplink protocol=tcp to_port=443 push_vlan=100'
  shunt nic rules nic0 --remove 1
  shunt nic rules nic0 --clear")]
    Rules(Rules),
    /// Print the files by which a card has its VFs at boot, or write them.
    ///
    /// systemd-udevd then makes and sets the VFs before anything needs them; `shunt up` finds them
    /// as wanted.
    #[command(add = Title("files for a card's VFs at boot"))]
    #[command(after_help = "\
Examples:
  shunt nic boot-files card0
  shunt nic boot-files card0 --write              below /etc
  shunt nic boot-files card0 --write /mnt/etc")]
    BootFiles {
        /// Name of the NIC.
        #[arg(add = complete::nic())]
        nic: String,
        /// Write the files below this directory.
        #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "/etc")]
        write: Option<PathBuf>,
    },
    /// Remove an unused NIC. A card gets back the state that it had before.
    #[command(add = Title("removal of a NIC"))]
    #[command(after_help = "\
Examples:
  shunt nic delete nic0")]
    Delete {
        /// Name of the NIC.
        #[arg(add = complete::nic())]
        nic: String,
        #[command(flatten)]
        how: ChangeArgs,
    },
}

#[derive(Debug, Args)]
struct Settings {
    /// Number of enabled VFs; changes from or to 0 only, of a card by way of 0.
    #[arg(long, value_name = "N")]
    num_vfs: Option<Number>,
    /// Settings of a card's VFs that others change: report, or repair.
    #[arg(long, add = complete::one_of("Drift"))]
    drift: Option<String>,
    /// Eswitch mode: legacy, the NIC's own bridge, or switchdev, rules of the host and
    /// representors.
    #[arg(long, add = complete::one_of("NicMode"))]
    mode: Option<String>,
    /// Switching between functions: veb, vepa or isolated.
    #[arg(long, add = complete::one_of("Bridging"))]
    bridging: Option<String>,
    #[arg(long, value_name = "KIND:PLACE", conflicts_with = "uplink_socket",
        add = complete::attachment(), help = attachment_help("Attachment of the uplink, or none for none"))]
    uplink: Option<String>,
    /// Another field of the uplink, such as zero_copy=require; none for its default; repeatable.
    #[arg(long, value_name = "FIELD=VALUE", add = complete::attachment_field())]
    uplink_set: Vec<String>,
    /// Vhost-user socket of the uplink.
    #[arg(long, value_name = "PATH")]
    uplink_socket: Option<String>,
    /// Listening side of that socket: server (the daemon listens) or client.
    #[arg(long, value_name = "MODE", add = complete::one_of("SocketMode"))]
    uplink_mode: Option<String>,
    /// Attachment of a guest that has the PF, as --uplink; not with a switch on the NIC.
    #[arg(long, value_name = "KIND:PLACE", conflicts_with = "pf_socket",
        add = complete::attachment())]
    pf_attachment: Option<String>,
    /// Vhost-user socket of a guest that has the PF; not with a switch on the NIC.
    #[arg(long, value_name = "PATH")]
    pf_socket: Option<String>,
    /// MAC address of the PF, if a guest has it.
    #[arg(long, value_name = "MAC")]
    pf_mac: Option<String>,
    /// Limit throughput to so many thousandths of the profile's card; 0 for no limit.
    #[arg(long, value_name = "N")]
    budget_permille: Option<Number>,
}

impl Settings {
    fn patch(&self, patch: Patch) -> Patch {
        let (uplink, none) = match self.uplink.as_deref() {
            Some("none") => (None, Some(Value::Null)),
            uplink => (uplink, None),
        };
        patch
            .set("uplink", none)
            .attachment("uplink", uplink, &self.uplink_set)
            .attachment("pf.attachment", self.pf_attachment.as_deref(), &[])
            .set("num_vfs", self.num_vfs.clone())
            .set("drift", self.drift.as_deref())
            .set("mode", self.mode.as_deref())
            .set("bridging", self.bridging.as_deref())
            .socket("uplink", self.uplink_socket.as_deref())
            .set("uplink.mode", self.uplink_mode.as_deref())
            .socket("pf.attachment", self.pf_socket.as_deref())
            .set("pf.mac", self.pf_mac.as_deref())
            .set("budget_permille", self.budget_permille.clone())
    }
}

impl Nics {
    pub(crate) fn run(self) -> Result<()> {
        let target = &self.target;
        let path = |nic: &str| format!("/v1/nics/{}", encode_segment(nic));
        match &self.command {
            Command::List { machine } => list(target, machine),
            Command::Show { nic, machine } => show(target, nic, machine),
            Command::Create { nic, total_vfs, device, profile, vmq_queues, settings, how } => {
                let body = settings
                    .patch(Patch::default())
                    .set("kind", device.as_ref().map(|_| "pci"))
                    .set("device", device.as_deref())
                    .set("total_vfs", *total_vfs)
                    .set("profile", profile.as_deref())
                    .set("vmq_queues", vmq_queues.clone())
                    .finish();
                let done = format!("created NIC {nic}");
                must_be_new(target, &path(nic))?;
                target.change(Method::PUT, &path(nic), Some(&body), how, &done)?;
                warn(target, nic, how)
            }
            Command::Set { nic, settings, how } => {
                let body = settings.patch(Patch::default()).finish_for(format!("NIC {nic}"))?;
                let done = format!("changed NIC {nic}");
                target.change(Method::PATCH, &path(nic), Some(&body), how, &done)?;
                warn(target, nic, how)
            }
            Command::Rules(rules) => rules.run(target),
            Command::BootFiles { nic, write } => boot_files(target, nic, write.as_deref()),
            Command::Delete { nic, how } => {
                let done = format!("deleted NIC {nic}");
                target.change(Method::DELETE, &path(nic), None, how, &done)
            }
        }
    }
}

/// Warns of a NIC whose uplink or PF has no device, such as an interface that does not exist yet.
fn warn(target: &DaemonArgs, nic: &str, how: &ChangeArgs) -> Result<()> {
    if target.json || how.dry_run {
        return Ok(());
    }
    let answer = target.get("/v1/actual")?;
    let actual = find(&answer["actual"]["nics"], "name", &json!(nic));
    warn_of_device(&format!("the uplink of NIC {nic}"), &actual["uplink"]);
    warn_of_device(&format!("the PF of NIC {nic}"), &actual["pf"]);
    Ok(())
}

/// State of a card, as comments.
fn card(card: &Value) -> String {
    let Ok(card) = serde_json::from_value::<ActualCard>(card.clone()) else {
        return String::new();
    };
    let ActualCard { address, present, interface, driver, numa_node, differences } = card;
    let part = |name: &str, value: Option<String>| value.map(|value| format!(", {name} {value}"));
    let numa_node = numa_node.map(|node| node.to_string());
    let parts =
        [part("interface", interface), part("driver", driver), part("NUMA node", numa_node)];
    let missing = if present { "" } else { " (missing)" };
    let mut text = format!("# card {address}{missing}");
    text.extend(parts.into_iter().flatten());
    text.push('\n');
    for difference in differences {
        text += &format!("# {difference}\n");
    }
    text
}

/// Files by which a card has its VFs at boot.
fn boot_files(target: &DaemonArgs, name: &str, directory: Option<&Path>) -> Result<()> {
    let nic: Nic =
        serde_json::from_value(target.get(&format!("/v1/nics/{}", encode_segment(name)))?)?;
    let actual = target.get("/v1/actual")?;
    let card = &find(&actual["actual"]["nics"], "name", &json!(name))["card"];
    let Some(address) = card["address"].as_str() else {
        bail!("NIC {name} is of kind soft: the daemon has its VFs, at boot too");
    };
    let files = sriov::boot_files(&nic, address.parse()?);
    let mut text = String::new();
    for BootFile { path, text: contents } in &files {
        let path = directory.unwrap_or(Path::new("/etc")).join(path);
        if directory.is_none() {
            text += &format!("# {}\n{contents}\n", path.display());
            continue;
        }
        let parent = path.parent().expect("a file has a directory");
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, contents))
            .with_context(|| format!("cannot write {}", path.display()))?;
        text += &format!("wrote {}\n", path.display());
    }
    let of = |file: &BootFile| json!({"path": file.path, "text": file.text});
    target.show(&files.iter().map(of).collect(), |_| text)
}

/// Shows the daemon's NIC of this name, or the PCI NIC with this interface or address.
fn show(target: &DaemonArgs, name: &str, machine: &NicsOf) -> Result<()> {
    let has_daemon = machine.is_this() && !target.daemon.is_for_none();
    let path = format!("/v1/nics/{}", encode_segment(name));
    if has_daemon && target.has(&path)? {
        return target.show_object("nic", &path, |actual| {
            let nic = find(&actual["nics"], "name", &json!(name));
            let ports = told_of("uplink", &nic["uplink"]) + &told_of("pf", &nic["pf"]);
            card(&nic["card"]) + &ports + &representors(nic)
        });
    }
    let facts = machine.facts()?;
    match pci::find(&facts, name) {
        Some(nic) => Ok(print(&pci::shown(&facts, nic, target.json))?),
        None if has_daemon => target.show_at(&path),
        None => Err(pci::unknown(&facts, name).into()),
    }
}

fn list(target: &DaemonArgs, machine: &NicsOf) -> Result<()> {
    let facts = machine.facts()?;
    let mut listings = Listing::all(&facts);
    let mut joined = Vec::new();
    if machine.is_this() && target.daemon.is_for_none() {
        eprintln!("no daemon runs: only PCI NICs of this machine are listed");
    } else if machine.is_this() {
        joined = of_daemon(target)?;
        for nic in &mut joined {
            let names = [&nic["actual"]["card"]["address"], &nic["device"]];
            let found = names.iter().find_map(|name| pci::find(&facts, name.as_str()?));
            let at = found.and_then(|it| listings.iter().position(|one| one.address == it.address));
            if let Some(at) = at {
                nic["pci"] = json!(listings.remove(at));
            }
        }
    }
    let managed = joined.len();
    joined.extend(listings.iter().map(pci::entry));
    let fields = || {
        let of_daemon = Fields::of("Nic").with("actual", "ActualNic").and(["switch"]);
        pci::with_fields(of_daemon.and_array("differences"))
    };
    target.show_list(fields, &joined, |joined| {
        let (ours, others) = (table_of_daemon(&joined[..managed]), pci::listed(&listings));
        match (managed, listings.len()) {
            (0, _) => others,
            (_, 0) => ours,
            _ => format!("{ours}\n{others}"),
        }
    })
}

/// NICs of the daemon, each with its state in force and its switch.
fn of_daemon(target: &DaemonArgs) -> Result<Vec<Value>> {
    let (state, actual) = (target.get("/v1/state")?, target.get("/v1/actual")?);
    let nics = entries(&state["nic"]).map(|nic| {
        let in_force = find(&actual["actual"]["nics"], "name", &nic["name"]);
        let mut nic = with_actual(nic, in_force);
        let differences = entries(&in_force["card"]["differences"]);
        let read = differences.filter_map(|it| serde_json::from_value(it.clone()).ok());
        nic["differences"] = read.map(|it: Difference| json!(it.to_string())).collect();
        if let Some(total) = in_force["total_vfs"].as_u64().filter(|_| nic["kind"] == "pci") {
            nic["total_vfs"] = json!(total);
        }
        nic["switch"] = find(&state["switch"], "nic", &nic["name"])["name"].clone();
        nic["managed"] = true.into();
        nic
    });
    Ok(nics.collect())
}

fn table_of_daemon(nics: &[Value]) -> String {
    let row = |nic: &Value| {
        let vfs = format!("{}/{}", nic["num_vfs"], nic["total_vfs"]);
        let field = |name: &str| cell(&nic[name]);
        let uplink = with_state(attachment(&nic["uplink"]), &nic["actual"]["uplink"]);
        let (kind, profile) = (field("kind"), field("profile"));
        let support = cell(&nic["actual"]["support"]);
        [field("name"), kind, profile, vfs, field("switch"), support, uplink]
    };
    let header = ["NIC", "kind", "profile", "VFs", "switch", "SR-IOV", "uplink"];
    table(header, nics.iter().map(row).collect())
}
