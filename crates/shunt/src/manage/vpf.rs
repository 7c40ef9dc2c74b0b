//! `shunt vpf`.

mod document;
mod enabled;
mod qemu;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Method, Outcome};
use clap::{Args, ValueEnum};
use model::state::{State, Vpf};
use serde_json::{Value, json};

use super::cells::{cell, entries, find};
use super::{Change, Target};
use crate::text::table;
use crate::{UsageError, say};
use document::{Backend, Wanted};
use qemu::How;

/// Give a guest a PF with VFs of its own: make what they need here, and print QEMU's options.
///
/// Without a name: the virtual PFs there are. With a name alone: the options of that one again.
/// Options for the daemon's side change only what they name, and a second time nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt vpf vm7 --vfs 7 --memory 4G       a NIC vm7 with 8 adapters, and QEMU's options for them
  shunt vpf vm7 --vfs 4 --nic nic0 --grant mac,vlan --grant-vlans 100-199 --grant-macs 52:54:00
  shunt vpf vm7 --format libvirt          the same options for virsh edit
  shunt vpf vm8 --model igb --nic nic0    a PF that stock ip link set ... vf works on
  qemu-system-x86_64 -M q35 -m 4G $(shunt vpf vm7 --memory 4G) ...
  shunt vpf                               which VFs guests have enabled and loaded a driver for
  shunt vpf vm7 --qmp /run/vm7.qmp        how many are enabled, by QEMU's word
  shunt vpf vm7 --remove")]
pub(crate) struct Vpfs {
    #[command(flatten)]
    target: Target,
    /// The virtual PF.
    name: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
    #[command(flatten)]
    machine: Machine,
    /// Ask the guest's QEMU, by the socket of its -qmp, how many VFs the guest has enabled: its
    /// sriov_numvfs.
    #[arg(long, value_name = "SOCKET", requires = "name", conflicts_with = "remove")]
    qmp: Option<PathBuf>,
    /// Remove it, and the adapters that were made for it.
    #[arg(long, conflicts_with_all = ["vfs", "nic", "switch", "model", "grant"])]
    remove: bool,
    #[command(flatten)]
    how: Change,
}

/// What is made in the daemon.
#[derive(Debug, Args)]
#[command(next_help_heading = "In the daemon")]
struct Daemon {
    /// How many VFs it has, 0 to 7; igb has 7.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=7))]
    vfs: Option<u16>,
    /// What the guest takes it for: virtio or igb.
    #[arg(long)]
    model: Option<String>,
    /// The NIC whose VFs it has; without it and --switch the one of its name, which is made if need
    /// be.
    #[arg(long, conflicts_with = "switch")]
    nic: Option<String>,
    /// The switch that its functions are on.
    #[arg(long)]
    switch: Option<String>,
    /// What is behind its functions: vhost-user sockets, stream sockets, or taps that QEMU makes.
    /// [default: vhost-user, of igb stream]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Put a vhost-vdpa device of this host's behind a VF, as N=/dev/vhost-vdpa-N; may be given
    /// several times.
    #[arg(long, value_name = "VF=DEVICE")]
    vdpa: Vec<String>,
    /// Where its sockets are. [default: the run directory]
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// The PF's address; those of VFs follow it. [default: made of the name]
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Pairs of a receive and a transmit queue of each function.
    #[arg(long, value_name = "N")]
    queue_pairs: Option<u64>,
    /// Of igb: VLANs that its functions may use, such as 5,100-199.
    #[arg(long, value_name = "LIST")]
    trunks: Option<String>,
    /// Of igb: what all its functions together may not exceed, in Mbit/s.
    #[arg(long, value_name = "MBPS")]
    max_tx_mbps: Option<u64>,
    /// Make no channel by which the guest sees and sets its VFs.
    #[arg(long)]
    no_control: bool,
    /// What the guest may set: all, none, or some of mac, vlan, rate, spoof_check, trust,
    /// link_state.
    #[arg(long, value_name = "LIST")]
    grant: Option<String>,
    /// How addresses that the guest sets begin, such as 52:54:00.
    #[arg(long, value_name = "LIST")]
    grant_macs: Option<String>,
    /// VLANs that the guest may set, such as 5,100-199.
    #[arg(long, value_name = "LIST")]
    grant_vlans: Option<String>,
    /// Kinds of tag beside the host's that those VLANs may have: 802.1q, 802.1ad.
    #[arg(long, value_name = "LIST")]
    grant_vlan_protos: Option<String>,
    /// VFs that the guest may set, such as 0,1; all for all.
    #[arg(long, value_name = "LIST")]
    grant_vfs: Option<String>,
    /// The highest rate that the guest may set, in Mbit/s.
    #[arg(long, value_name = "MBPS")]
    grant_max_tx_mbps: Option<u64>,
    /// The highest assured rate that the guest may set, in Mbit/s.
    #[arg(long, value_name = "MBPS")]
    grant_min_tx_mbps: Option<u64>,
}

/// What QEMU is told beyond that.
#[derive(Debug, Args)]
#[command(next_help_heading = "For QEMU")]
struct Machine {
    /// How the options are written.
    #[arg(long, value_enum, default_value_t = Format::Args)]
    format: Format,
    /// The guest's memory, as for -m: adds memory that the daemon can share, which vhost-user
    /// needs.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// How long QEMU waits before it connects again, in milliseconds; 0 for never.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    reconnect_ms: u32,
    /// A PCIe port that is there already; else one is added.
    #[arg(long, value_name = "ID")]
    bus: Option<String>,
    /// The chassis number of the PCIe port that is added; no other port has it.
    #[arg(long, value_name = "N", default_value_t = 100)]
    chassis: u8,
}

/// How QEMU's options are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One a line, as a shell takes them from $(...).
    Args,
    /// For a libvirt domain.
    Libvirt,
}

impl Vpfs {
    pub(crate) fn run(self) -> Result<()> {
        let Some(name) = &self.name else { return list(&self.target) };
        let reply = self.target.send(Method::GET, "/v1/state", None, None)?;
        let before = reply.body;
        if self.remove {
            let mut document = before;
            document::remove(&mut document, name)?;
            let done = format!("removed virtual PF {name}");
            return self.apply(&document, reply.generation, Some(&done));
        }
        let wanted = self.wanted(name)?;
        if let Some(qmp) = &self.qmp {
            if wanted.is_any() {
                return Err(UsageError(
                    "--qmp only asks; change what is to be changed first".into(),
                )
                .into());
            }
            return self.numvfs(name, qmp);
        }
        let mut document = before.clone();
        if wanted.is_any() {
            wanted.put_into(&mut document)?;
        } else if !entries(&document["vpf"]).any(|vpf| vpf["name"] == *name) {
            let text =
                format!("there is no virtual PF {name}; give --vfs or --model igb to make it");
            return Err(UsageError(text).into());
        }
        if self.how.dry_run || document != before {
            self.apply(&document, reply.generation, None)?;
        }
        if self.how.dry_run {
            return Ok(());
        }
        let state = self.target.get("/v1/state")?;
        let state: State =
            serde_json::from_value(state).context("the daemon's state is no state")?;
        let vpf = state.vpf(name).context("the virtual PF is gone again")?;
        self.print(&state, vpf)
    }

    /// Shows how many VFs the guest has enabled, by its QEMU's word, and how many of them have a
    /// driver, by the daemon's.
    fn numvfs(&self, name: &str, qmp: &Path) -> Result<()> {
        let actual = self.target.get("/v1/actual")?["vpfs"].take();
        let vpf = find(&actual, "name", &json!(name));
        if vpf.is_null() {
            return Err(UsageError(format!("there is no virtual PF {name}")).into());
        }
        let Some(vfs) = enabled::enabled(qmp, name)? else {
            let text = format!(
                "the QEMU at {} has no PF vpf-{name}; name the QEMU that was started with what shunt vpf {name} prints",
                qmp.display()
            );
            return Err(UsageError(text).into());
        };
        let with_driver = vpf["enabled_vfs"].clone();
        let (count, at) = (vfs.len(), vfs.join(", "));
        let answer =
            json!({"name": name, "sriov_numvfs": count, "vfs": vfs, "with_driver": with_driver});
        self.target.show(&answer, |_| {
            let at = if at.is_empty() { String::new() } else { format!(" ({at})") };
            let drivers = match vpf["model"] == "igb" {
                true => String::new(), // they are all behind one port
                false => format!(", {} of them with a driver", cell(&with_driver)),
            };
            format!("{name}: sriov_numvfs {count}{at}{drivers}\n")
        })
    }

    fn wanted(&self, name: &str) -> Result<Wanted<'_>> {
        let run_dir = self.target.run_dir.clone().unwrap_or_else(model::config::default_run_dir);
        let sockets = self.daemon.socket_dir.clone().unwrap_or(run_dir);
        let sockets = std::path::absolute(sockets)?;
        let vdpa = self.daemon.vdpa.iter().map(|text| vdpa(text)).collect::<Result<_>>()?;
        Ok(Wanted { name: name.to_owned(), flags: &self.daemon, sockets, vdpa })
    }

    /// Brings a document into force, which is the state that was read but for this virtual PF, and
    /// says so if there is something to say; with `--dry-run` shows what would be done.
    fn apply(&self, document: &Value, generation: Option<u64>, done: Option<&str>) -> Result<()> {
        let target = &self.target;
        if self.how.dry_run {
            let planned = target.send(
                Method::POST,
                "/v1/apply?dry_run=true&prune=true",
                Some(document),
                generation,
            )?;
            let outcome: Outcome = serde_json::from_value(planned.body.clone())?;
            return target.show(&planned.body, |_| format!("{}\n", outcome.plan));
        }
        let reply =
            target.send(Method::POST, "/v1/apply?prune=true", Some(document), generation)?;
        match done {
            Some(done) => target.show(&reply.body, |_| format!("{done}\n")),
            None => Ok(()),
        }
    }

    fn print(&self, state: &State, vpf: &Vpf) -> Result<()> {
        let Machine { format, memory, reconnect_ms, bus, chassis } = &self.machine;
        let how = How {
            memory: memory.as_deref(),
            reconnect_ms: *reconnect_ms,
            bus: bus.as_deref(),
            chassis: *chassis,
        };
        let options = qemu::options(state, vpf, &how).map_err(UsageError)?;
        for note in qemu::notes(state, vpf, &how) {
            eprintln!("# {note}");
        }
        if self.target.json {
            let words: Vec<&String> = options.iter().flatten().collect();
            let all = json!({"vpf": vpf, "qemu": words, "notes": qemu::notes(state, vpf, &how)});
            return Ok(say(&format!("{all:#}\n"))?);
        }
        Ok(say(&match format {
            Format::Args => qemu::as_lines(&options),
            Format::Libvirt => qemu::as_libvirt(&options),
        })?)
    }
}

/// `0=/dev/vhost-vdpa-0`, a device that is there.
fn vdpa(text: &str) -> Result<(u16, String)> {
    let wrong = |why: String| anyhow::Error::from(UsageError(format!("--vdpa {text}: {why}")));
    let form =
        || wrong("write the number of a VF and a device, such as 0=/dev/vhost-vdpa-0".into());
    let (vf, device) = text.split_once('=').ok_or_else(form)?;
    let vf = vf.parse().map_err(|_| form())?;
    if !Path::new(device).exists() {
        let why = format!(
            "there is no {device} on this host: it takes a vDPA device (vdpa dev add, or a driver with VFs that \
             has it) and the module vhost_vdpa"
        );
        return Err(wrong(why));
    }
    Ok((vf, device.to_owned()))
}

fn list(target: &Target) -> Result<()> {
    let actual = target.get("/v1/actual")?["vpfs"].take();
    target.show(&actual, |vpfs| {
        let row = |vpf: &Value| {
            let channel = match vpf["control"].as_bool() {
                Some(true) => "connected",
                Some(false) => "free",
                None => "-",
            };
            let count = entries(&vpf["vfs"]).count();
            let vfs = match vpf["model"] == "igb" {
                true => "in the guest".to_owned(),
                false => format!("{} of {count}", cell(&vpf["enabled_vfs"])),
            };
            [
                cell(&vpf["name"]),
                cell(&vpf["model"]),
                cell(&vpf["pf"]),
                cell(&vpf["guest"]),
                vfs,
                channel.to_owned(),
            ]
        };
        let header = ["virtual PF", "model", "PF's adapter", "guest", "VFs enabled", "channel"];
        table(header, entries(vpfs).map(row).collect())
    })
}
