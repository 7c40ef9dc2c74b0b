//! Failover pair of a VM: an adapter, and a VF or another device, as one interface of the guest.
//!
//! # Model
//! The adapter is the standby: QEMU's virtio-net device with `failover=on`. The primary is a device
//! with `failover_pair_id`, plugged into the running guest. Linux (`net_failover`) makes them one
//! interface, which uses the primary while there is one, and hears nothing from the standby then.
//! So frames to the guest must go to one of the two:
//! - An adapter that names a VF of a card is on path `vf` or `synthetic`.
//! - Any other is on path `synthetic`. With `link_state = "disable"` its frames go to the wire.
//!
//! [`attach`] moves the frames first, since a VF has its address from the card's filter, and then
//! plugs. If the guest does not take the primary in time, the frames go back. [`detach`] unplugs
//! first: the guest hears nothing from the standby until it has released the primary. The other
//! order takes the VF's address while the guest has it. Then igbvf of Linux 6.12 adopts another, by
//! which `net_failover` does not find the pair, and the guest never releases the VF. If the guest
//! does not release it in time, nothing has changed. The daemon announces the adapter when it
//! returns to the switch.
//!
//! # Limits
//! QEMU keeps a primary back until the guest's driver accepts `VIRTIO_NET_F_STANDBY`, and cannot be
//! asked before (`x-query-virtio-status` ends QEMU 11.1 if no driver runs).
//! QEMU tells that the guest has taken a device by its mapped registers, not that its link is up.
//! A guest may answer an unplug late, and has no primary then: [`status`] says so.
//!
//! Tested with QEMU 11.1. Sources: `docs/system/virtio-net-failover.rst` of QEMU, and
//! `Documentation/networking/net_failover.rst` of Linux.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::Client;
use host::qmp::QmpError;
use host::qmp::pci::{BRIDGES_MAX, is_mapped};
use model::state::{ActualAdapter, Attachment, LinkState, PathInForce, Problem, State};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::daemon::{DaemonClient, HOLD_S};
use super::error::MigrateError;
use super::printable::printable;
use super::qemu::{POLL, Qemu, list, text};
use super::report::StepReport;

/// QOM path of the devices that have an id.
const DEVICES: &str = "/machine/peripheral";
/// Time for a guest to take or to release a primary, by default, in seconds.
pub const TIMEOUT_S: u64 = 10;
/// Most seconds for it.
pub const TIMEOUT_S_MAX: u64 = 600;
/// Most devices that are looked at.
const DEVICES_MAX: usize = 1024;

/// Parameters of a failover pair.
#[derive(Debug)]
pub struct PairSpec {
    /// Name of the adapter, the standby.
    pub adapter: String,
    /// Its daemon.
    pub daemon: Client,
    /// Name of that daemon in errors: `source`, `target`, or empty if there is only one.
    pub site: &'static str,
    /// QMP socket of the guest's QEMU.
    pub qmp: PathBuf,
    /// Time for the guest to take or to release the primary.
    pub timeout: Duration,
    /// Only check what a change needs.
    pub dry_run: bool,
    /// Request to go back.
    pub interrupted: Arc<AtomicBool>,
}

/// Device of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairDevice {
    /// The VF, or another device that is plugged and unplugged.
    Primary,
    /// The adapter's virtio-net device.
    Standby,
}

impl fmt::Display for PairDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == PairDevice::Primary { "primary" } else { "standby" })
    }
}

/// State of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairStatus {
    /// Name of the adapter.
    pub adapter: String,
    /// Id of the standby in QEMU.
    pub standby: String,
    /// The guest's driver of the standby runs.
    pub connected: bool,
    /// Id of the primary in QEMU, if it is plugged.
    pub primary: Option<String>,
    /// The guest's driver has enabled the primary.
    pub in_use: bool,
    /// Device to which frames for the guest go.
    pub frames_to: PairDevice,
    /// Command to run if the guest gets no frames.
    pub remedy: Option<String>,
}

/// Report of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairReport {
    /// The state after it.
    #[serde(flatten)]
    pub status: PairStatus,
    /// Steps, in order.
    pub steps: Vec<StepReport>,
}

/// State of a pair, without changes.
///
/// # Errors
/// Daemon or QEMU does not answer, or they have no such pair.
pub fn status(spec: &PairSpec) -> Result<PairStatus, MigrateError> {
    checked(spec)?; // a wrong adapter is told before QEMU is asked
    let mut qemu = Qemu::connect(&spec.qmp)?;
    Ok(Pair::open(spec, &mut qemu, &mut |_| ())?.status)
}

/// Plugs a primary, QEMU's device with these properties, and moves the guest to it. One that is
/// plugged already is used instead. Calls `on_step` after each step.
///
/// # Errors
/// As [`status`]; or the guest cannot have it, or does not take it: frames go to the standby.
pub fn attach(
    spec: &PairSpec,
    primary: &Map<String, Value>,
    on_step: &mut dyn FnMut(&StepReport),
) -> Result<PairReport, MigrateError> {
    checked(spec)?; // a wrong adapter is told before QEMU is asked
    attach_by(spec, &mut Qemu::connect(&spec.qmp)?, primary, on_step)
}

/// As [`attach`], by a connection to QEMU, which serves one client.
pub(super) fn attach_by(
    spec: &PairSpec,
    qemu: &mut Qemu,
    primary: &Map<String, Value>,
    on_step: &mut dyn FnMut(&StepReport),
) -> Result<PairReport, MigrateError> {
    let mut pair = Pair::open(spec, qemu, on_step)?;
    pair.must_run()?;
    pair.must_be_connected()?;
    let plugged = pair.status.primary.clone();
    if let (Some(id), PairDevice::Primary) = (&plugged, pair.status.frames_to) {
        let remedy = format!("remove it first: shunt vm detach {}", spec.adapter);
        let problem = Problem::new("", (), format!("has the primary {id} already"), remedy);
        return Err(problem.of(format!("adapter {}", spec.adapter)).into());
    }
    if spec.dry_run {
        return pair.end();
    }
    pair.send_frames_to(PairDevice::Primary)?;
    let taken = match &plugged {
        Some(id) => pair.wait_until_taken(id),
        None => pair.plug(primary).and_then(|id| pair.wait_until_taken(&id)),
    };
    if let Err(failed) = taken {
        let failed = pair.go_back(PairDevice::Standby, failed);
        if let (None, Some(id)) = (plugged, &pair.status.primary) {
            // It is not in use; QEMU removes it when the guest answers, or at its reset.
            let _ = pair.qemu.execute("device_del", json!({"id": id}));
        }
        return Err(failed);
    }
    pair.end()
}

/// Unplugs the primary, and moves the guest to the standby. Calls `on_step` after each step.
///
/// # Errors
/// As [`status`]; or the guest does not release the primary, and nothing has changed.
pub fn detach(
    spec: &PairSpec,
    on_step: &mut dyn FnMut(&StepReport),
) -> Result<PairReport, MigrateError> {
    checked(spec)?; // a wrong adapter is told before QEMU is asked
    detach_by(spec, &mut Qemu::connect(&spec.qmp)?, on_step)
}

/// As [`detach`], by a connection to QEMU.
pub(super) fn detach_by(
    spec: &PairSpec,
    qemu: &mut Qemu,
    on_step: &mut dyn FnMut(&StepReport),
) -> Result<PairReport, MigrateError> {
    let mut pair = Pair::open(spec, qemu, on_step)?;
    let primary = pair.status.primary.clone();
    if primary.is_some() {
        pair.must_run()?;
    }
    if spec.dry_run {
        return pair.end();
    }
    if let Some(Err(failed)) = primary.map(|id| pair.unplug(&id)) {
        // One that hangs still has the device; without one there is no guest that has it.
        let is_gone = pair.inspect().is_err()
            && !matches!(Qemu::connect(&spec.qmp), Ok(_) | Err(QmpError::Late { .. }));
        return Err(match is_gone {
            true => pair.go_back(PairDevice::Standby, failed),
            false => {
                let to = pair.status.frames_to;
                MigrateError::new(format!("{failed}; frames go to the {to} as before"))
            }
        });
    }
    pair.send_frames_to(PairDevice::Standby).map_err(|failed| {
        let adapter = &spec.adapter;
        let next = format!("the guest gets no frames; move them with: shunt vm detach {adapter}");
        MigrateError::new(format!("{failed}; the primary is unplugged, and {next}"))
    })?;
    pair.end()
}

/// A pair as it is.
pub(super) struct FoundPair {
    pub(super) status: PairStatus,
    /// The adapter names a VF of a card, so its frames follow its path; otherwise its link.
    pub(super) by_path: bool,
    /// The primary as a device of QEMU, if frames go to it.
    pub(super) primary: Option<Map<String, Value>>,
}

/// Finds the pair of an adapter, by a connection to QEMU.
pub(super) fn find(spec: &PairSpec, qemu: &mut Qemu) -> Result<FoundPair, MigrateError> {
    let mut ignored = |_: &StepReport| ();
    let mut pair = Pair::open(spec, qemu, &mut ignored)?;
    let id = pair.status.primary.clone().filter(|_| pair.status.frames_to == PairDevice::Primary);
    let primary = id.map(|id| pair.device_of(&id)).transpose()?;
    let Pair { status, by_path, .. } = pair;
    Ok(FoundPair { status, by_path, primary })
}

struct Pair<'a> {
    spec: &'a PairSpec,
    qemu: &'a mut Qemu,
    by_path: bool,
    mac: String,
    status: PairStatus,
    steps: Vec<StepReport>,
    on_step: &'a mut dyn FnMut(&StepReport),
}

impl<'a> Pair<'a> {
    fn open(
        spec: &'a PairSpec,
        qemu: &'a mut Qemu,
        on_step: &'a mut dyn FnMut(&StepReport),
    ) -> Result<Pair<'a>, MigrateError> {
        let (by_path, mac, status) = checked(spec)?;
        let mut pair = Pair { spec, qemu, by_path, mac, status, steps: Vec::new(), on_step };
        pair.inspect()?;
        Ok(pair)
    }

    /// Reads the pair's devices from QEMU.
    fn inspect(&mut self) -> Result<(), MigrateError> {
        let devices = self.qemu.execute("qom-list", json!({"path": DEVICES}))?;
        let named = |it: &Value| (text(&it["name"]), text(&it["type"]));
        let devices: Vec<(String, String)> = list(&devices).take(DEVICES_MAX).map(named).collect();
        let (mut standby, mut macs) = (None, Vec::new());
        for (id, _) in devices.iter().filter(|(_, kind)| kind.contains("virtio-net-pci")) {
            let mac = text(&self.property(id, "mac")?).to_lowercase();
            if mac == self.mac {
                standby = Some(id.clone());
            }
            macs.push(format!("{mac} ({id})"));
        }
        let Some(standby) = standby else {
            let has = if macs.is_empty() { "none".to_owned() } else { macs.join(", ") };
            let message = format!("has no virtio-net device with an id and {}: {has}", self.mac);
            let remedy =
                "name the QMP socket of the guest with that adapter, or give the device an id";
            let qmp = self.spec.qmp.to_string_lossy();
            return Err(Problem::new("--qmp", &*qmp, message, remedy).into());
        };
        if self.property(&standby, "failover")? != true {
            let message = format!("is no standby: its device {standby} has no failover=on");
            let remedy = "start QEMU with -device virtio-net-pci,failover=on,...";
            let problem = Problem::new("", (), message, remedy);
            return Err(problem.of(format!("adapter {}", self.spec.adapter)).into());
        }
        self.status.primary = None;
        for (id, _) in devices.iter().filter(|(id, _)| *id != standby) {
            if text(&self.property(id, "failover_pair_id")?) == standby {
                self.status.primary = Some(id.clone());
            }
        }
        self.status.standby = standby;
        self.status.in_use = match self.status.primary.clone() {
            Some(id) => self.is_taken(&id)?,
            None => false,
        };
        let adapter = &self.spec.adapter;
        self.status.remedy = match (self.status.frames_to, self.status.in_use) {
            (PairDevice::Standby, true) => Some(format!("shunt vm attach {adapter}")),
            (PairDevice::Primary, false) => Some(format!("shunt vm detach {adapter}")),
            _ => None,
        };
        Ok(())
    }

    /// Property of a device; null if it has none of that name.
    fn property(&mut self, id: &str, name: &str) -> Result<Value, QmpError> {
        let path = format!("{DEVICES}/{id}");
        match self.qemu.execute("qom-get", json!({"path": path, "property": name})) {
            Err(error) if error.is_refusal() => Ok(Value::Null),
            other => other,
        }
    }

    /// `true` if the guest's driver has enabled this device.
    fn is_taken(&mut self, id: &str) -> Result<bool, QmpError> {
        let buses = self.qemu.ask("query-pci")?;
        let found = list(&buses).find_map(|bus| device(bus, id, 0));
        Ok(found.is_some_and(|(found, _)| is_mapped(found)))
    }

    /// A plugged device, with the properties with which it can be plugged again.
    fn device_of(&mut self, id: &str) -> Result<Map<String, Value>, QmpError> {
        let mut found = Map::from_iter([("id".to_owned(), json!(id))]);
        let kind = text(&self.property(id, "type")?);
        found.insert("driver".to_owned(), json!(kind));
        for name in ["host", "netdev", "mac", "romfile"] {
            let value = self.property(id, name)?;
            found.extend(value.is_string().then(|| (name.to_owned(), value)));
        }
        let buses = self.qemu.ask("query-pci")?;
        let bridge = list(&buses).find_map(|bus| device(bus, id, 0)).map(|(_, above)| above);
        let bus = bridge.map(|bridge| bridge["qdev_id"].clone()).filter(Value::is_string);
        found.extend(bus.map(|bus| ("bus".to_owned(), bus)));
        Ok(found)
    }

    fn must_run(&mut self) -> Result<(), MigrateError> {
        let status = self.qemu.status()?;
        if status == "running" {
            return Ok(());
        }
        let problem = Problem::new("", (), format!("is {status}"), "resume it: it has to answer");
        Err(problem.of(format!("guest of adapter {}", self.spec.adapter)).into())
    }

    fn must_be_connected(&self) -> Result<(), MigrateError> {
        if self.status.connected {
            return Ok(());
        }
        let (message, remedy) =
            ("has not started the adapter's device", "wait until it has booted");
        let problem = Problem::new("", (), message, remedy);
        Err(problem.of(format!("guest of adapter {}", self.spec.adapter)).into())
    }

    /// Moves the frames for the guest.
    fn send_frames_to(&mut self, to: PairDevice) -> Result<(), MigrateError> {
        if self.status.frames_to == to {
            return Ok(());
        }
        let begun = Instant::now();
        let is_primary = to == PairDevice::Primary;
        let change = match (self.by_path, is_primary) {
            (true, true) => json!({"path": "vf"}),
            (true, false) => json!({"path": "synthetic"}),
            (false, true) => json!({"link_state": "disable"}),
            (false, false) => json!({"link_state": "auto"}),
        };
        daemon(self.spec).change(&self.spec.adapter, &change)?;
        self.status.frames_to = to;
        if self.by_path && is_primary {
            let given = in_force(self.spec);
            let ActualAdapter { path, reason, .. } =
                given.map_err(|failed| self.go_back(PairDevice::Standby, failed))?;
            if path != PathInForce::Vf {
                let text = format!("{} gets no VF: {reason}", self.spec.adapter);
                return Err(self.go_back(PairDevice::Standby, MigrateError::new(text)));
            }
        }
        let text = match is_primary {
            true => "frames for the guest go to the wire, to the primary",
            false => "frames for the guest go to the standby, and it is announced",
        };
        self.done("frames", text.to_owned(), begun);
        Ok(())
    }

    /// Undoes the move of the frames; returns the error with what came of it.
    fn go_back(&mut self, to: PairDevice, failed: MigrateError) -> MigrateError {
        match self.send_frames_to(to) {
            Ok(()) => MigrateError::new(format!("{failed}; frames go to the {to} again")),
            Err(also) => MigrateError::new(format!("{failed}; and frames do not go back: {also}")),
        }
    }

    /// Plugs the primary; returns its id.
    fn plug(&mut self, device: &Map<String, Value>) -> Result<String, MigrateError> {
        let begun = Instant::now();
        let mut device = device.clone();
        let id = device.get("id").map(text);
        let id = id.unwrap_or_else(|| format!("primary-{}", self.spec.adapter));
        device.insert("id".to_owned(), json!(id));
        device.insert("failover_pair_id".to_owned(), json!(self.status.standby));
        let driver = text(device.get("driver").unwrap_or(&Value::Null));
        if !driver.starts_with("vfio-") {
            device.entry("mac").or_insert_with(|| json!(self.mac)); // a VF has it from its PF
        }
        self.qemu.execute("device_add", Value::Object(device))?;
        self.inspect()?;
        if self.status.primary.as_ref() != Some(&id) {
            return Err(MigrateError::new(format!(
                "QEMU keeps {id} back: the guest's driver has not accepted VIRTIO_NET_F_STANDBY \
                 (Linux 4.18, net_failover); QEMU plugs it when a driver does"
            )));
        }
        self.done("plug", format!("{driver} is plugged as {id}"), begun);
        Ok(id)
    }

    fn wait_until_taken(&mut self, id: &str) -> Result<(), MigrateError> {
        let begun = Instant::now();
        while !self.is_taken(id)? {
            if self.spec.interrupted.load(Ordering::Relaxed) {
                return Err(MigrateError::new("interrupted"));
            }
            self.must_have_time(begun, || {
                format!(
                    "the guest does not take {id}; check hot plug and the device's driver in the \
                     guest (dmesg)"
                )
            })?;
            std::thread::sleep(POLL);
        }
        self.done("guest", format!("the guest uses {id}"), begun);
        Ok(())
    }

    /// Unplugs the primary, and waits for the guest. An unplug cannot be cancelled, so an
    /// interruption does not end the wait.
    fn unplug(&mut self, id: &str) -> Result<(), MigrateError> {
        let begun = Instant::now();
        match self.qemu.execute("device_del", json!({"id": id})) {
            Err(QmpError::Refused { class, .. }) if class == "DeviceNotFound" => {}
            // An earlier request may still wait for the guest.
            Err(QmpError::Refused { text, .. }) if !text.contains("in the process of unplug") => {
                let text = format!("QEMU does not unplug {id}: {text}");
                return Err(MigrateError::new(printable(&text)));
            }
            Err(error) if !error.is_refusal() => return Err(error.into()),
            _ => self.wait_until_deleted(id, begun)?,
        }
        self.done("unplug", format!("{id} is unplugged"), begun);
        Ok(())
    }

    fn wait_until_deleted(&mut self, id: &str, begun: Instant) -> Result<(), MigrateError> {
        loop {
            let event = self.qemu.next_event(POLL)?;
            let of_it = event.filter(|event| event.data["device"] == id);
            match of_it.as_ref().map(|event| event.name.as_str()) {
                Some("DEVICE_DELETED") => return Ok(()),
                Some("DEVICE_UNPLUG_GUEST_ERROR") => {
                    let text = format!("the guest rejects the unplug of {id}; see its dmesg");
                    return Err(MigrateError::new(text));
                }
                _ => {}
            }
            let late = self.must_have_time(begun, || {
                format!("the guest does not release {id}; check hot plug in the guest (dmesg)")
            });
            if let Err(late) = late {
                // The event may be lost.
                self.inspect()?;
                return if self.status.primary.is_some() { Err(late) } else { Ok(()) };
            }
        }
    }

    fn must_have_time(
        &self,
        begun: Instant,
        late: impl FnOnce() -> String,
    ) -> Result<(), MigrateError> {
        let limit = self.spec.timeout;
        match begun.elapsed() < limit {
            true => Ok(()),
            false => Err(MigrateError::new(format!("after {} ms {}", limit.as_millis(), late()))),
        }
    }

    fn done(&mut self, step: &str, text: String, begun: Instant) {
        let done = StepReport::new(step, text, begun);
        (self.on_step)(&done);
        self.steps.push(done);
    }

    fn end(mut self) -> Result<PairReport, MigrateError> {
        self.inspect()?;
        Ok(PairReport { status: self.status, steps: self.steps })
    }
}

/// Checks the adapter; returns whether its frames follow its path, its MAC address, and the status
/// without QEMU's part.
fn checked(spec: &PairSpec) -> Result<(bool, String, PairStatus), MigrateError> {
    let state: State = daemon(spec).state()?;
    let Some(adapter) = state.adapter(&spec.adapter) else {
        let names = state.adapters.iter().map(|one| one.name.as_str());
        let problem = Problem::not_one_of("", &*spec.adapter, "is no adapter", names);
        return Err(problem.into());
    };
    let wrong = |field: &str, value: Value, message: &str, remedy: &str| {
        let problem = Problem::new(field, value, message, remedy);
        Err(problem.of(format!("adapter {}", spec.adapter)).into())
    };
    if !matches!(adapter.attachment, Attachment::VhostUser(_)) {
        let kind = json!(adapter.attachment.kind().word());
        let remedy = "use an adapter of kind vhost-user";
        return wrong("attachment.kind", kind, "is no device of a VM", remedy);
    }
    if adapter.switch.is_none() {
        let remedy = "use an adapter of a switch";
        return wrong("switch", Value::Null, "is missing: it has no other path", remedy);
    }
    let by_path = adapter.vf.is_some() && state.nic_of(adapter).is_some_and(|it| it.is_pci());
    let in_force = in_force(spec)?;
    let path = in_force.path;
    if !by_path && path != PathInForce::Synthetic {
        let remedy = format!("shunt adapter set {} --path synthetic", spec.adapter);
        let message = "is its path, and its device the only one on it";
        return wrong("path", json!(path), message, &remedy);
    }
    let to_primary = match by_path {
        true => path == PathInForce::Vf,
        false => adapter.settings.link_state == LinkState::Disable,
    };
    let status = PairStatus {
        adapter: spec.adapter.clone(),
        standby: String::new(),
        connected: in_force.connected,
        primary: None,
        in_use: false,
        frames_to: if to_primary { PairDevice::Primary } else { PairDevice::Standby },
        remedy: None,
    };
    Ok((by_path, adapter.mac.to_string(), status))
}

fn daemon(spec: &PairSpec) -> DaemonClient<'_> {
    DaemonClient { client: &spec.daemon, name: spec.site, id: "", hold_s: HOLD_S }
}

/// The adapter in force.
fn in_force(spec: &PairSpec) -> Result<ActualAdapter, MigrateError> {
    let now = daemon(spec).in_force()?;
    let found = now.actual.adapters.into_iter().find(|one| one.name == spec.adapter);
    found.ok_or_else(|| MigrateError::new(format!("adapter {} is gone", spec.adapter)))
}

/// The device with this id on a bus, or behind its bridges; and the bus or bridge above it.
fn device<'v>(above: &'v Value, id: &str, depth: usize) -> Option<(&'v Value, &'v Value)> {
    let devices = if depth == 0 { &above["devices"] } else { &above["pci_bridge"]["devices"] };
    list(devices).find_map(|one| {
        let behind = || device(one, id, depth + 1);
        if one["qdev_id"] == id {
            Some((one, above))
        } else {
            (depth < BRIDGES_MAX).then(behind)?
        }
    })
}
