//! `shunt vpf`.

mod document;
mod enabled;
mod qemu;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{ApplyOutcome, Method};
use clap::{Args, ValueEnum};
use model::state::{Problem, State, Vpf};
use serde_json::{Value, json};

use super::cells::{cell, entries, find};
use super::client::{ChangeArgs, DaemonArgs};
use crate::complete;
use crate::error::UsageError;
use crate::flat::Fields;
use crate::pages::Title;
use crate::text::{print, table};
use document::{VpfArgs, VpfRequest};
use qemu::QemuArgs;

/// Give a guest a PF with VFs: configure the daemon, and print QEMU's options.
///
/// Without a name, lists the virtual PFs. With only a name, prints its options again. Options of
/// the daemon's side change only the settings they name; repeating them changes nothing.
#[derive(Debug, Args)]
#[command(add = Title("virtual PFs: PFs with VFs for guests"))]
#[command(after_help = "\
Examples:
  shunt vpf vm7 --vfs 7 --memory 4G       a NIC vm7 with 8 adapters, and QEMU's options for them
  shunt vpf vm7 --vfs 4 --nic nic0 --grant mac,vlan --grant-vlans 100-199 --grant-macs 52:54:00
  shunt vpf vm7 --format libvirt          the same options for virsh edit
  shunt vpf vm8 --model igb --nic nic0    a PF that stock ip link set ... vf works on
  qemu-system-x86_64 -M q35 -m 4G $(shunt vpf vm7 --memory 4G) ...
  shunt vpf                               enabled VFs, and those with a driver
  shunt vpf vm7 --qmp /run/vm7.qmp        number of enabled VFs, from QEMU
  shunt vpf vm7 --remove")]
pub(crate) struct Vpfs {
    #[command(flatten)]
    target: DaemonArgs,
    /// Name of the virtual PF.
    #[arg(add = complete::vpf())]
    name: Option<String>,
    #[command(flatten)]
    daemon: VpfArgs,
    #[command(flatten)]
    machine: Machine,
    /// Ask the guest's QEMU, at the socket of its -qmp, for the number of enabled VFs: the guest's
    /// sriov_numvfs.
    #[arg(long, value_name = "SOCKET", requires = "name", conflicts_with = "remove")]
    qmp: Option<PathBuf>,
    /// Remove it, and the adapters that were made for it.
    #[arg(long, conflicts_with_all = ["vfs", "nic", "switch", "model", "grant"])]
    remove: bool,
    #[command(flatten)]
    how: ChangeArgs,
}

/// Further options of QEMU.
#[derive(Debug, Args)]
#[command(next_help_heading = "For QEMU")]
struct Machine {
    /// Output format of the options.
    #[arg(long, value_enum, default_value_t = Format::Args)]
    format: Format,
    /// Guest memory, as for -m: adds shared memory, which vhost-user needs.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Time before QEMU reconnects, in milliseconds; 0 for never.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    reconnect_ms: u32,
    /// Existing PCIe port; by default one is added.
    #[arg(long, value_name = "ID")]
    bus: Option<String>,
    /// Chassis number of the added PCIe port; must be unique.
    #[arg(long, value_name = "N", default_value_t = 100)]
    chassis: u8,
}

/// Output format of QEMU's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One per line, for a shell's $(...).
    Args,
    /// XML for a libvirt domain.
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
                let remedy = "make changes in a command of their own";
                return Err(UsageError::option("--qmp", (), "only reads", remedy).into());
            }
            return self.numvfs(name, qmp);
        }
        let mut document = before.clone();
        if wanted.is_any() {
            wanted.put_into(&mut document)?;
        } else if !entries(&document["vpf"]).any(|vpf| vpf["name"] == *name) {
            return Err(missing(name, "give --vfs or --model igb to make it").into());
        }
        if self.how.dry_run || document != before {
            self.apply(&document, reply.generation, None)?;
        }
        if self.how.dry_run {
            return Ok(());
        }
        let state = self.target.get("/v1/state")?;
        let state: State =
            serde_json::from_value(state).context("the daemon's answer is not a state")?;
        let vpf = state.vpf(name).context("the virtual PF was removed meanwhile")?;
        self.print(&state, vpf)
    }

    /// Prints the number of VFs that the guest has enabled (from QEMU), and of those with a driver
    /// (from the daemon).
    fn numvfs(&self, name: &str, qmp: &Path) -> Result<()> {
        let actual = self.target.get("/v1/actual")?["vpfs"].take();
        let vpf = find(&actual, "name", &json!(name));
        if vpf.is_null() {
            return Err(missing(name, "see shunt vpf").into());
        }
        let Some(vfs) = enabled::enabled(qmp, name)? else {
            let message = format!("is of a QEMU without the PF vpf-{name}");
            let remedy =
                format!("name the QEMU that was started with the options of shunt vpf {name}");
            let qmp = qmp.to_string_lossy();
            return Err(UsageError::option("--qmp", &*qmp, &message, remedy).into());
        };
        let with_driver = vpf["enabled_vfs"].clone();
        let (count, at) = (vfs.len(), vfs.join(", "));
        let answer =
            json!({"name": name, "sriov_numvfs": count, "vfs": vfs, "with_driver": with_driver});
        self.target.show(&answer, |_| {
            let at = if at.is_empty() { String::new() } else { format!(" ({at})") };
            let drivers = match vpf["model"] == "igb" {
                true => String::new(), // all are behind one port
                false => format!(", {} of them with a driver", cell(&with_driver)),
            };
            format!("{name}: sriov_numvfs {count}{at}{drivers}\n")
        })
    }

    fn wanted(&self, name: &str) -> Result<VpfRequest<'_>> {
        let sockets = match &self.daemon.socket_dir {
            Some(dir) => dir.clone(),
            None => self.target.daemon.path()?.to_owned(),
        };
        let sockets = std::path::absolute(sockets)?;
        let vdpa = self.daemon.vdpa.iter().map(|text| vdpa(text)).collect::<Result<_>>()?;
        Ok(VpfRequest { name: name.to_owned(), flags: &self.daemon, sockets, vdpa })
    }

    /// Applies a document, the given state with a changed virtual PF, and prints `done`, if any;
    /// with `--dry-run` prints the plan.
    fn apply(&self, document: &Value, generation: Option<u64>, done: Option<&str>) -> Result<()> {
        let target = &self.target;
        if self.how.dry_run {
            let planned = target.send(
                Method::POST,
                "/v1/apply?dry_run=true&prune=true",
                Some(document),
                generation,
            )?;
            let outcome: ApplyOutcome = serde_json::from_value(planned.body.clone())?;
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
        let how = QemuArgs {
            memory: memory.as_deref(),
            reconnect_ms: *reconnect_ms,
            bus: bus.as_deref(),
            chassis: *chassis,
        };
        let options = qemu::options(state, vpf, &how).map_err(UsageError::from)?;
        for note in qemu::notes(state, vpf, &how) {
            eprintln!("# {note}");
        }
        if self.target.json {
            let words: Vec<&String> = options.iter().flatten().collect();
            let all = json!({"vpf": vpf, "qemu": words, "notes": qemu::notes(state, vpf, &how)});
            return Ok(print(&format!("{all:#}\n"))?);
        }
        Ok(print(&match format {
            Format::Args => qemu::as_lines(&options),
            Format::Libvirt => qemu::as_libvirt(&options),
        })?)
    }
}

/// There is no virtual PF of this name.
fn missing(name: &str, remedy: &str) -> UsageError {
    let problem = Problem::new("", (), "does not exist", remedy);
    UsageError(problem.of(format!("virtual PF {name}")).into())
}

/// Parses `0=/dev/vhost-vdpa-0`; the device must exist.
fn vdpa(text: &str) -> Result<(u16, String)> {
    let wrong = |why: &str, remedy: &str| -> anyhow::Error {
        UsageError::option("--vdpa", text, why, remedy).into()
    };
    let form =
        || wrong("is not allowed", "write a VF number and a device, such as 0=/dev/vhost-vdpa-0");
    let (vf, device) = text.split_once('=').ok_or_else(form)?;
    let vf = vf.parse().map_err(|_| form())?;
    if !Path::new(device).exists() {
        let remedy = "make the vDPA device (vdpa dev add, or a driver with VFs that has it), and \
                      load the module vhost_vdpa";
        return Err(wrong(&format!("names no device: there is no {device}"), remedy));
    }
    Ok((vf, device.to_owned()))
}

fn list(target: &DaemonArgs) -> Result<()> {
    let actual = target.get("/v1/actual")?["vpfs"].take();
    let counted = entries(&actual).cloned().map(|mut vpf| {
        vpf["vfs"] = entries(&vpf["vfs"]).count().into();
        vpf
    });
    let fields = || Fields::of("ActualVpf").and(["vfs"]);
    target.show_list(fields, &counted.collect::<Vec<_>>(), |vpfs| {
        let row = |vpf: &Value| {
            let channel = match vpf["control"].as_bool() {
                Some(true) => "connected",
                Some(false) => "free",
                None => "-",
            };
            let vfs = match vpf["model"] == "igb" {
                true => "in the guest".to_owned(),
                false => format!("{} of {}", cell(&vpf["enabled_vfs"]), cell(&vpf["vfs"])),
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
        table(header, vpfs.iter().map(row).collect())
    })
}
