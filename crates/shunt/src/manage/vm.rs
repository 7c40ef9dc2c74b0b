//! `shunt vm`: failover pairs of VMs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use api::Method;
use clap::{Args, Subcommand};
use migrate::failover::{self, PairReport, PairSpec, PairStatus};
use model::state::{Adapter, Attachment, Problem, SocketMode, State};
use serde_json::{Map, Value, json};
use sriov::{PciAddress, Sysfs};

use super::client::DaemonArgs;
use crate::complete;
use crate::error::UsageError;
use crate::migrate::{tell_step, told};
use crate::pages::Title;
use crate::text::{cell, print, table};

/// Plug a VF into a running VM beside its adapter, and unplug it.
///
/// The guest has the adapter (virtio-net with failover=on, the standby) and the VF (the primary)
/// as one interface. The frames for the guest move before the VF is plugged, and after it is
/// unplugged. If the guest does not answer in time, they are where they were.
#[derive(Debug, Args)]
#[command(add = Title("failover pairs of virtual machines"))]
#[command(after_help = "\
Examples:
  shunt vm attach web --qmp /run/web.qmp --bus slot1     plug the VF, and move the guest to it
  shunt vm detach web --qmp /run/web.qmp                 unplug it: the guest is on the switch
  shunt vm status web --qmp /run/web.qmp                 the pair, and where its frames go
  shunt vm xml web                                       the pair for libvirt

With libvirt, which has the QMP monitor, see docs/libvirt.md.")]
pub(crate) struct Vms {
    #[command(flatten)]
    target: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plug a VF into a running VM, and move the guest to it.
    ///
    /// The VF must be bound to vfio-pci. A primary that is plugged already is used instead.
    #[command(add = Title("a VF for a running virtual machine"))]
    #[command(after_help = "\
Examples:
  shunt vm attach web --qmp /run/web.qmp --bus slot1
  shunt vm attach web --qmp /run/web.qmp --bus slot1 --vf 0000:01:10.0
  shunt vm attach web --qmp /run/web.qmp --bus slot1 --primary e1000e,netdev=n1")]
    Attach {
        #[command(flatten)]
        pair: PairArgs,
        /// Free PCIe root port of the VM: the id of its pcie-root-port.
        #[arg(long, value_name = "ID")]
        bus: Option<String>,
        /// PCI address of the VF. Default: that of the adapter's VF.
        #[arg(long, value_name = "ADDRESS", conflicts_with = "primary", value_parser = address)]
        vf: Option<PciAddress>,
        /// Device instead of a VF, as for QEMU's -device, or as JSON.
        #[arg(long, value_name = "DEVICE")]
        primary: Option<String>,
    },
    /// Unplug the VF, and move the guest to the switch.
    #[command(add = Title("removal of a VF from a running virtual machine"))]
    #[command(after_help = "\
Examples:
  shunt vm detach web --qmp /run/web.qmp
  shunt vm detach web --qmp /run/web.qmp --timeout 30")]
    Detach {
        #[command(flatten)]
        pair: PairArgs,
    },
    /// Show the pair of a running VM.
    #[command(add = Title("failover pair of a running virtual machine"))]
    #[command(after_help = "\
Examples:
  shunt vm status web --qmp /run/web.qmp --json")]
    Status {
        /// Name of the adapter.
        #[arg(add = complete::adapter())]
        adapter: String,
        /// QMP socket of the VM's QEMU.
        #[arg(long, value_name = "SOCKET")]
        qmp: PathBuf,
    },
    /// Print the pair as interfaces of libvirt.
    #[command(add = Title("failover pair as XML for libvirt"))]
    #[command(after_help = "\
Examples:
  shunt vm xml web
  shunt vm xml web --vf 0000:01:10.0")]
    Xml {
        /// Name of the adapter.
        #[arg(add = complete::adapter())]
        adapter: String,
        /// PCI address of the VF. Default: that of the adapter's VF.
        #[arg(long, value_name = "ADDRESS", value_parser = address)]
        vf: Option<PciAddress>,
    },
}

fn address(text: &str) -> Result<PciAddress, String> {
    text.parse().map_err(|_| "expected a PCI address such as 0000:01:10.2".to_owned())
}

/// The pair of a change.
#[derive(Debug, Args)]
struct PairArgs {
    /// Name of the adapter.
    #[arg(add = complete::adapter())]
    adapter: String,
    /// QMP socket of the VM's QEMU.
    #[arg(long, value_name = "SOCKET")]
    qmp: PathBuf,
    /// Longest wait for the guest, in seconds.
    #[arg(long, value_name = "S", default_value_t = failover::TIMEOUT_S,
          value_parser = clap::value_parser!(u64).range(1..=failover::TIMEOUT_S_MAX))]
    timeout: u64,
    /// Change nothing; check the pair, and show it.
    #[arg(long)]
    dry_run: bool,
}

impl Vms {
    pub(crate) fn run(self) -> Result<()> {
        let target = &self.target;
        match self.command {
            Command::Attach { pair, bus, vf, primary } => {
                let device = match &primary {
                    Some(primary) => device_of("--primary", primary)?,
                    None => match vfio_device(target, &pair.adapter, vf) {
                        Ok(device) => device,
                        // None is needed if the VM has a primary already.
                        Err(error) => {
                            match failover::status(&spec(target, &pair)?).map_err(told)? {
                                PairStatus { primary: None, .. } => return Err(error),
                                _ => Map::new(),
                            }
                        }
                    },
                };
                let device = with_bus(device, bus);
                let attach =
                    |spec: &PairSpec| failover::attach(spec, &device, &mut tell_step(target.json));
                changed(target, &pair, attach)
            }
            Command::Detach { pair } => {
                let detach = |spec: &PairSpec| failover::detach(spec, &mut tell_step(target.json));
                changed(target, &pair, detach)
            }
            Command::Status { adapter, qmp } => {
                let pair = PairArgs { adapter, qmp, timeout: 1, dry_run: true };
                let status = failover::status(&spec(target, &pair)?).map_err(told)?;
                target.show(&serde_json::to_value(&status)?, |_| shown(&status))
            }
            Command::Xml { adapter, vf } => {
                let state = state(target)?;
                let adapter = adapter_of(&state, &adapter)?;
                let vf = match vf {
                    Some(vf) => vf,
                    None => vf_of(target, &state, adapter)?,
                };
                let xml = xml(adapter, vf)?;
                target.show(&json!({"xml": xml}), |_| xml.clone())
            }
        }
    }
}

fn spec(target: &DaemonArgs, pair: &PairArgs) -> Result<PairSpec> {
    Ok(PairSpec {
        adapter: pair.adapter.clone(),
        daemon: target.daemon.client()?,
        site: "",
        qmp: pair.qmp.clone(),
        timeout: Duration::from_secs(pair.timeout),
        dry_run: pair.dry_run,
        interrupted: migrate::interrupted_by_signals()?,
    })
}

/// Makes a change, and prints the pair after it.
fn changed(
    target: &DaemonArgs,
    pair: &PairArgs,
    change: impl FnOnce(&PairSpec) -> Result<PairReport, migrate::MigrateError>,
) -> Result<()> {
    let report = change(&spec(target, pair)?).map_err(told)?;
    match (target.json, pair.dry_run) {
        (true, _) => target.show(&serde_json::to_value(&report)?, |_| String::new()),
        (false, true) => Ok(print(&shown(&report.status))?),
        (false, false) => Ok(()), // the steps are printed
    }
}

fn shown(status: &PairStatus) -> String {
    let yes = |it: bool| if it { "yes" } else { "no" }.to_owned();
    let row = [
        status.adapter.clone(),
        status.standby.clone(),
        yes(status.connected),
        cell(&json!(status.primary)),
        yes(status.in_use),
        status.frames_to.to_string(),
    ];
    let header = ["adapter", "standby", "connected", "primary", "in use", "frames to"];
    let remedy = status.remedy.as_ref();
    let remedy = remedy.map(|it| format!("the guest gets no frames; {it} --qmp SOCKET\n"));
    table(header, vec![row]) + &remedy.unwrap_or_default()
}

fn state(target: &DaemonArgs) -> Result<State> {
    Ok(serde_json::from_value(target.send(Method::GET, "/v1/state", None, None)?.body)?)
}

fn adapter_of<'s>(state: &'s State, name: &str) -> Result<&'s Adapter, UsageError> {
    let names = || state.adapters.iter().map(|one| one.name.as_str());
    let wrong = || Problem::not_one_of("<ADAPTER>", name, "is no adapter", names()).into();
    state.adapter(name).ok_or_else(wrong)
}

/// PCI address of the VF that an adapter names, on a card of the daemon.
fn vf_of(target: &DaemonArgs, state: &State, adapter: &Adapter) -> Result<PciAddress> {
    let wrong = |message: &str, remedy: &str| {
        let problem = Problem::new("--vf", (), message, remedy);
        UsageError::from(problem.of(format!("adapter {}", adapter.name)))
    };
    let nic = state.nic_of(adapter).filter(|nic| nic.is_pci());
    let Some((nic, index)) = nic.zip(adapter.vf) else {
        let remedy = "give the address of the VF, or name a VF of a NIC of kind pci with vf";
        return Err(wrong("is missing: the adapter names no VF of a card", remedy).into());
    };
    let nics = target.get("/v1/actual")?["actual"]["nics"].take();
    let nics = nics.as_array().into_iter().flatten();
    let card =
        nics.filter(|one| one["name"] == *nic.name).map(|one| one["card"]["address"].clone());
    let card = card.filter_map(|address| address.as_str()?.parse().ok()).next();
    let vf = card.and_then(|card| sriov::vf_address(&Sysfs::default(), card, index));
    Ok(vf.ok_or_else(|| {
        let message = format!("is missing: VF {index} of {} is not there", nic.name);
        wrong(&message, &format!("see shunt nic show {}, or give the address", nic.name))
    })?)
}

/// QEMU's device for a VF.
fn vfio_device(
    target: &DaemonArgs,
    adapter: &str,
    vf: Option<PciAddress>,
) -> Result<Map<String, Value>> {
    let state = state(target)?;
    let own = vf_of(target, &state, adapter_of(&state, adapter)?);
    let vf = match (vf, own) {
        (Some(vf), Ok(own)) if vf != own => {
            let message = format!("is not the VF that the settings of adapter {adapter} are on");
            let remedy = format!("name {own}, or leave it out");
            return Err(UsageError::option("--vf", vf.to_string(), &message, remedy).into());
        }
        (Some(vf), _) => vf,
        (None, own) => own?,
    };
    let device = json!({"driver": "vfio-pci", "host": vf.to_string()});
    Ok(device.as_object().cloned().unwrap_or_default())
}

fn with_bus(mut device: Map<String, Value>, bus: Option<String>) -> Map<String, Value> {
    device.extend(bus.map(|bus| ("bus".to_owned(), bus.into())));
    device
}

/// A device of QEMU: `driver,property=value,...`, or JSON. QMP wants numbers and booleans as such.
pub(crate) fn device_of(option: &str, text: &str) -> Result<Map<String, Value>, UsageError> {
    let wrong = || {
        let remedy = "write DRIVER,PROPERTY=VALUE,..., or a JSON object with driver";
        UsageError::option(option, text, "is no device", remedy)
    };
    if text.starts_with('{') {
        let device: Map<String, Value> = serde_json::from_str(text).map_err(|_| wrong())?;
        return if device.get("driver").is_some_and(Value::is_string) {
            Ok(device)
        } else {
            Err(wrong())
        };
    }
    let mut parts = text.split(',');
    let driver = parts.next().filter(|driver| !driver.is_empty() && !driver.contains('='));
    let mut device = Map::new();
    device.insert("driver".to_owned(), driver.ok_or_else(wrong)?.into());
    for part in parts {
        let (name, value) =
            part.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        let value = match value {
            "on" => true.into(),
            "off" => false.into(),
            _ => value.parse::<u64>().map_or_else(|_| value.into(), Value::from),
        };
        device.insert(name.to_owned(), value);
    }
    Ok(device)
}

/// The pair as interfaces of libvirt.
fn xml(adapter: &Adapter, vf: PciAddress) -> Result<String, UsageError> {
    let Attachment::VhostUser(its) = &adapter.attachment else {
        let kind = json!(adapter.attachment.kind().word());
        let remedy = "use an adapter of kind vhost-user";
        let problem = Problem::new("attachment.kind", kind, "is no device of a VM", remedy);
        return Err(problem.of(format!("adapter {}", adapter.name)).into());
    };
    let Adapter { mac, settings, .. } = adapter;
    let name = adapter.name.replace('.', "_"); // libvirt's aliases have no dot
    let socket = report::escape_xml(&its.socket);
    // Libvirt's mode is QEMU's side.
    let source = match its.mode {
        SocketMode::Client => format!("<source type='unix' path='{socket}' mode='server'/>"),
        SocketMode::Server => format!(
            "<source type='unix' path='{socket}' mode='client'>\n    \
             <reconnect enabled='yes' timeout='1'/>\n  </source>"
        ),
    };
    let queues = match its.queue_pairs {
        1 => String::new(),
        pairs => format!("\n  <driver queues='{pairs}'/>"),
    };
    // Libvirt sets the VLAN of the VF too.
    let vlan = settings.vlan.map_or_else(String::new, |vlan| {
        format!("\n  <vlan>\n    <tag id='{}'/>\n  </vlan>", vlan.id)
    });
    let PciAddress { domain, bus, device, function } = vf;
    Ok(format!(
        "<interface type='vhostuser'>
  <mac address='{mac}'/>
  {source}
  <model type='virtio'/>{queues}
  <teaming type='persistent'/>
  <alias name='ua-{name}'/>
</interface>
<interface type='hostdev' managed='yes'>
  <mac address='{mac}'/>
  <source>
    <address type='pci' domain='0x{domain:04x}' bus='0x{bus:02x}' slot='0x{device:02x}' \
         function='0x{function}'/>
  </source>{vlan}
  <teaming type='transient' persistent='ua-{name}'/>
</interface>
"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_as_qemu_wants_it() {
        let device = |text: &str| device_of("--primary", text).map(Value::Object).map_err(|_| ());
        let wanted = json!({"driver": "e1000e", "netdev": "n1", "romfile": "", "x": true, "n": 7});
        assert_eq!(device("e1000e,netdev=n1,romfile=,x=on,n=7"), Ok(wanted));
        assert_eq!(device(r#"{"driver": "a", "b": "on"}"#), Ok(json!({"driver": "a", "b": "on"})));
        for wrong in ["", "mac=1", "e1000e,", "e1000e,mac", "e1000e,=1", "{", r#"{"id": "a"}"#] {
            assert_eq!(device(wrong), Err(()), "{wrong}");
        }
    }

    #[test]
    fn the_pair_of_libvirt_has_both_devices_and_their_tie() {
        let vf = "0000:01:10.2".parse().unwrap();
        let of = |change: Value| {
            let mut document = model::testing::document();
            let adapter = document["adapter"][0].as_object_mut().unwrap();
            adapter.extend(change.as_object().unwrap().clone());
            xml(&model::testing::state(&document).adapters[0], vf)
        };
        let plain = of(json!({})).unwrap();
        assert!(plain.contains("path='/run/shunt/web.sock' mode='client'>"), "{plain}");
        assert!(plain.contains("bus='0x01' slot='0x10' function='0x2'/>"), "{plain}");
        assert_eq!(plain.matches("<mac address='02:00:00:00:01:01'/>").count(), 2, "{plain}");
        assert!(plain.contains("<alias name='ua-web'/>") && plain.contains("persistent='ua-web'"));
        assert!(!plain.contains("queues") && !plain.contains("vlan"), "{plain}");
        let socket = json!({"socket": "/run/a&'b.sock", "mode": "client", "queue_pairs": 4});
        let other = of(json!({"attachment": socket, "vlan": {"id": 7}})).unwrap();
        assert!(other.contains("path='/run/a&amp;&#39;b.sock' mode='server'/>"), "{other}");
        assert!(
            other.contains("<driver queues='4'/>") && other.contains("<tag id='7'/>"),
            "{other}"
        );
        assert!(of(json!({"attachment": "tap:web0"})).is_err());
    }
}
