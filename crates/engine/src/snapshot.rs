//! Forwarding snapshot: the state that decides where the frames of one NIC go, shared by lanes.
//!
//! # Model
//! A snapshot holds the NIC's classifier, the switch on its PF if there is one, and the location of
//! each port ([`PortLocation`]). It is immutable; any change makes a new snapshot, swapped in one
//! step. A lane forwards a whole burst by one snapshot. So each frame of an adapter that moves from
//! a VF to the switch takes one of the two paths: none is lost, none is duplicated. A ring stays on
//! its lane, so none is reordered.
//!
//! The switch and the NIC meet at the PF: the switch's port 0 is its uplink. Frames that the NIC
//! sends to the PF enter the switch there. Frames that the switch sends to its uplink enter the NIC
//! from the PF.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bridge::nic::{Budget, Share};
use bridge::{PortId, VlanEdit};

use crate::capture::CapturePoint;
use crate::port::Port;

/// Number of the next snapshot; 0 is none.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Location of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortLocation {
    /// In the NIC: the uplink, the PF that a guest sees, or a VF.
    Function(PortId),
    /// In the switch.
    Switch(PortId),
    /// In a NIC in switchdev mode: the uplink, the PF or a VF, at the far end of its pipe.
    Piped(PortId),
    /// At the near end of that function's pipe, as the host's representor.
    Representor(PortId),
}

/// Path on which a port sends or receives a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortPath {
    Uplink,
    Pf,
    Vf,
    Vmq,
    Synthetic,
    Representor,
}

impl PortPath {
    /// All paths, by their number.
    pub(crate) const ALL: [PortPath; 6] = [
        PortPath::Uplink,
        PortPath::Pf,
        PortPath::Vf,
        PortPath::Vmq,
        PortPath::Synthetic,
        PortPath::Representor,
    ];

    /// Name, as in `/v1/actual`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            PortPath::Uplink => "uplink",
            PortPath::Pf => "pf",
            PortPath::Vf => "vf",
            PortPath::Vmq => "vmq",
            PortPath::Synthetic => "synthetic",
            PortPath::Representor => "representor",
        }
    }
}

/// A port and its location.
#[derive(Clone, Debug)]
pub struct Plug {
    /// The port.
    pub port: Arc<Port>,
    /// Its location; no other port has it.
    pub location: PortLocation,
    /// Its share of the lane's capacity, for a location in the switch; a function's is in the
    /// table.
    pub share: Share,
}

/// The switch of a NIC.
#[derive(Debug)]
pub struct SwitchSpec {
    /// Settings of the switch.
    pub table: Arc<bridge::switch::Table>,
    /// Learned state; the same in successive snapshots.
    pub state: Arc<bridge::switch::State>,
    /// Hits of its ACL rules, by [`bridge::switch::Table::counter`].
    pub hits: Arc<AclHits>,
    /// Mirror ports of the switch, which belong to no guest.
    pub monitors: Vec<(PortId, Arc<Port>)>,
}

/// Parts of a snapshot.
#[derive(Debug)]
pub struct SnapshotSpec {
    /// The NIC's classifier.
    pub table: Arc<bridge::nic::Table>,
    /// The switch on its PF.
    pub switch: Option<SwitchSpec>,
    /// Every port that sends or receives.
    pub plugs: Vec<Plug>,
    /// Ports that only send, on behalf of the port at that location.
    pub senders: Vec<(PortId, Arc<Port>)>,
    /// Receive queues of the NIC, with the port of each.
    pub queues: Vec<(PortId, Arc<Port>)>,
    /// Ports of [`bridge::nic::MirrorTarget::Capture`], by number; `None` for an unused number.
    pub monitors: Vec<Option<Arc<Port>>>,
    /// Hits of the rules of a NIC in switchdev mode, by rule number.
    pub rules: Vec<Arc<RuleHits>>,
    /// Model of a real card's capacity, if it is emulated.
    pub budget: Option<Arc<Mutex<Budget>>>,
}

impl SnapshotSpec {
    /// Functions only.
    pub fn new(table: impl Into<Arc<bridge::nic::Table>>, plugs: Vec<Plug>) -> SnapshotSpec {
        let table = table.into();
        let (senders, queues, monitors, rules) = Default::default();
        SnapshotSpec { table, switch: None, plugs, senders, queues, monitors, rules, budget: None }
    }
}

/// Hits of each ACL rule of a switch. Lanes add to them now and then. Successive tables share the
/// counters of rules that stay.
#[derive(Debug, Default)]
pub struct AclHits(Box<[Arc<AtomicU64>]>);

impl AclHits {
    /// Zeros for `rules` rules.
    pub fn new(rules: usize) -> AclHits {
        AclHits((0..rules).map(|_| Arc::default()).collect())
    }

    /// These counters, by rule.
    pub fn of(counters: Vec<Arc<AtomicU64>>) -> AclHits {
        AclHits(counters.into())
    }

    /// Frames that matched rule `rule`.
    pub fn get(&self, rule: usize) -> u64 {
        self.0.get(rule).map_or(0, |hits| hits.load(Ordering::Relaxed))
    }

    /// Adds counts of a former daemon.
    pub fn restore(&self, rule: usize, frames: u64) {
        if let Some(hits) = self.0.get(rule) {
            hits.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// Adds and clears the counts of a lane.
    pub(crate) fn add(&self, counted: &mut [u64]) {
        for (hits, counted) in self.0.iter().zip(counted) {
            if *counted > 0 {
                hits.fetch_add(std::mem::take(counted), Ordering::Relaxed);
            }
        }
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Hits of a rule of a NIC in switchdev mode. Lanes add to them once a burst.
#[derive(Debug, Default)]
pub struct RuleHits {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl RuleHits {
    /// Frames and bytes, before their tags were edited.
    pub fn get(&self) -> (u64, u64) {
        (self.frames.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Adds counts of a former daemon.
    pub fn restore(&self, frames: u64, bytes: u64) {
        self.add(frames, bytes);
    }

    pub(crate) fn add(&self, frames: u64, bytes: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The switch, as lanes use it.
#[derive(Clone, Debug)]
pub(crate) struct SwitchSnapshot {
    pub(crate) table: Arc<bridge::switch::Table>,
    pub(crate) state: Arc<bridge::switch::State>,
    pub(crate) hits: Arc<AclHits>,
    /// By the switch's port number; none at the uplink.
    ports: Vec<Option<Arc<Port>>>,
    /// Frames from the NIC need more than 16 header bytes.
    pub(crate) uplink_needs_snapshots: bool,
}

impl SwitchSnapshot {
    fn new(spec: SwitchSpec, plugs: &[Plug]) -> SwitchSnapshot {
        let plugged = plugs.iter().filter_map(|plug| match plug.location {
            PortLocation::Switch(id) => Some((id, plug.port.clone())),
            PortLocation::Function(_) | PortLocation::Piped(_) | PortLocation::Representor(_) => {
                None
            }
        });
        let ports = by_index(plugged.chain(spec.monitors).map(|(id, port)| (id.index(), port)));
        let uplink_needs_snapshots = spec.table.needs_snapshots(PortId::UPLINK);
        let SwitchSpec { table, state, hits, .. } = spec;
        SwitchSnapshot { table, state, hits, ports, uplink_needs_snapshots }
    }

    #[inline]
    pub(crate) fn port(&self, id: PortId) -> Option<&Arc<Port>> {
        self.ports.get(id.index())?.as_ref()
    }

    /// Returns `true` if frames from a port need more than 16 header bytes: for its filters, or
    /// since the uplink removes a tag and shows the bytes below it.
    pub(crate) fn needs_snapshots(&self, from: PortId) -> bool {
        self.table.needs_snapshots(from) || self.table.has_native(PortId::UPLINK)
    }
}

/// Forwarding state of a NIC; see the module's documentation.
#[derive(Clone, Debug)]
pub struct ForwardingSnapshot {
    number: u64,
    pub(crate) table: Arc<bridge::nic::Table>,
    pub(crate) switch: Option<SwitchSnapshot>,
    /// By the NIC's port number; none at the PF if there is a switch.
    ports: Vec<Option<Arc<Port>>>,
    /// By the function's port number; in switchdev mode only.
    representors: Vec<Option<Arc<Port>>>,
    /// By the rule's number; likewise.
    pub(crate) rules: Vec<Arc<RuleHits>>,
    monitors: Vec<Option<Arc<Port>>>,
    /// By the port's number; with the effective shares.
    plugs: Vec<Option<Plug>>,
    pub(crate) budget: Option<Arc<Mutex<Budget>>>,
    /// Captures of its ports.
    pub(crate) captures: Vec<Arc<CapturePoint>>,
    /// See [`may_be_direct`].
    may_be_direct: bool,
}

/// Returns `true` if frames may go directly: there is nothing to mirror, to charge or to record.
fn may_be_direct(
    table: &bridge::nic::Table,
    budget: Option<&Arc<Mutex<Budget>>>,
    captures: &[Arc<CapturePoint>],
) -> bool {
    !table.is_mirrored() && budget.is_none() && captures.is_empty()
}

/// Puts values into a list by their index.
fn by_index<T>(all: impl Iterator<Item = (usize, T)>) -> Vec<Option<T>> {
    let mut slots = Vec::new();
    for (index, thing) in all {
        if slots.len() <= index {
            slots.resize_with(index + 1, || None);
        }
        slots[index] = Some(thing);
    }
    slots
}

impl ForwardingSnapshot {
    /// Makes the snapshot.
    pub fn new(spec: SnapshotSpec) -> ForwardingSnapshot {
        let plugs = spec.plugs.iter().map(|plug| {
            let share = match plug.location {
                PortLocation::Function(id) | PortLocation::Piped(id) => spec.table.share(id),
                PortLocation::Switch(_) | PortLocation::Representor(_) => plug.share,
            };
            (plug.port.number, Plug { share, ..plug.clone() })
        });
        let senders = spec.senders.iter().map(|(id, port)| {
            let (port, location) = (port.clone(), PortLocation::Function(*id));
            (port.number, Plug { port, location, share: spec.table.share(*id) })
        });
        let plugs = by_index(plugs.chain(senders));
        let functions = spec.plugs.iter().filter_map(|plug| match plug.location {
            PortLocation::Function(id) | PortLocation::Piped(id) => Some((id, plug.port.clone())),
            PortLocation::Switch(_) | PortLocation::Representor(_) => None,
        });
        let representors = spec.plugs.iter().filter_map(|plug| match plug.location {
            PortLocation::Representor(of) => Some((of.index(), plug.port.clone())),
            _ => None,
        });
        let ports = by_index(functions.chain(spec.queues).map(|(id, port)| (id.index(), port)));
        let may_be_direct = may_be_direct(&spec.table, spec.budget.as_ref(), &[]);
        ForwardingSnapshot {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            switch: spec.switch.map(|switch| SwitchSnapshot::new(switch, &spec.plugs)),
            table: spec.table,
            ports,
            representors: by_index(representors),
            rules: spec.rules,
            monitors: spec.monitors,
            plugs,
            budget: spec.budget,
            captures: Vec::new(),
            may_be_direct,
        }
    }

    /// A copy with these captures.
    pub(crate) fn with_captures(&self, captures: &[Arc<CapturePoint>]) -> ForwardingSnapshot {
        ForwardingSnapshot {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            captures: captures.to_vec(),
            may_be_direct: may_be_direct(&self.table, self.budget.as_ref(), captures),
            ..self.clone()
        }
    }

    /// A snapshot with no port plugged in: all frames are dropped.
    pub(crate) fn empty() -> ForwardingSnapshot {
        let nothing =
            bridge::nic::NicConfig { uplink_up: false, ..bridge::nic::NicConfig::default() };
        let table = bridge::nic::Table::build(&nothing).expect("a NIC without functions is valid");
        ForwardingSnapshot::new(SnapshotSpec::new(table, Vec::new()))
    }

    /// A copy for a trace: the same tables, a copy of what the switch has learned, no budget and no
    /// captures, rules with counters of their own, and in place of each port the one that `shadow`
    /// gives.
    pub(crate) fn shadow(
        &self,
        shadow: &mut dyn FnMut(&Arc<Port>) -> Arc<Port>,
    ) -> ForwardingSnapshot {
        let mut all = |ports: &[Option<Arc<Port>>]| -> Vec<Option<Arc<Port>>> {
            ports.iter().map(|port| port.as_ref().map(&mut *shadow)).collect()
        };
        let switch = self.switch.as_ref().map(|switch| SwitchSnapshot {
            table: switch.table.clone(),
            state: Arc::new(switch.state.copy()),
            hits: Arc::new(AclHits::new(switch.hits.len())),
            ports: all(&switch.ports),
            uplink_needs_snapshots: switch.uplink_needs_snapshots,
        });
        let (ports, representors) = (all(&self.ports), all(&self.representors));
        let monitors = all(&self.monitors);
        let mut plug = |plug: &Plug| Plug { port: shadow(&plug.port), ..plug.clone() };
        ForwardingSnapshot {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            table: self.table.clone(),
            switch,
            ports,
            representors,
            rules: self.rules.iter().map(|_| Arc::default()).collect(),
            monitors,
            plugs: self.plugs.iter().map(|place| place.as_ref().map(&mut plug)).collect(),
            budget: None,
            captures: Vec::new(),
            may_be_direct: may_be_direct(&self.table, None, &[]),
        }
    }

    /// A number that no other snapshot has.
    #[inline]
    pub const fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    fn plug(&self, port: &Port) -> Option<&Plug> {
        let plug = self.plugs.get(port.number)?.as_ref()?;
        // Numbers are reused, and this may be the location of a former port.
        std::ptr::eq(&*plug.port, port).then_some(plug)
    }

    /// Location of a port, if it is plugged in.
    #[inline]
    pub fn location(&self, port: &Port) -> Option<PortLocation> {
        self.plug(port).map(|plug| plug.location)
    }

    /// A port's share of the capacity.
    pub(crate) fn share(&self, port: &Port) -> Share {
        self.plug(port).map_or_else(Share::default, |plug| plug.share)
    }

    /// Broadcasts and multicasts a second that a function may send; 0 for no limit. The switch has
    /// meters of its own.
    pub(crate) fn storm_limit(&self, port: &Port) -> u32 {
        match self.location(port) {
            Some(PortLocation::Function(id) | PortLocation::Piped(id)) => {
                self.table.storm_limit(id)
            }
            Some(PortLocation::Switch(_) | PortLocation::Representor(_)) | None => 0,
        }
    }

    /// Port of the NIC at which the port's frames enter it: the PF for ports of the switch and for
    /// representors.
    pub(crate) fn enters(&self, port: &Port) -> PortId {
        match self.location(port) {
            Some(PortLocation::Function(id) | PortLocation::Piped(id)) => id,
            Some(PortLocation::Switch(_) | PortLocation::Representor(_)) | None => PortId::PF,
        }
    }

    /// Link state of the port, as its guest is told.
    pub fn is_up(&self, port: &Port) -> bool {
        match (self.location(port), &self.switch) {
            (Some(PortLocation::Function(id) | PortLocation::Piped(id)), _) => self.table.is_up(id),
            (Some(PortLocation::Representor(of)), _) => self.table.has(of),
            (Some(PortLocation::Switch(id)), Some(switch)) => switch.table.has(id),
            (Some(PortLocation::Switch(_)), None) | (None, _) => false,
        }
    }

    /// Path on which a port sends or receives; `by_queue` if the NIC chose a receive queue. `None`
    /// for a port without a location, such as one that only receives copies.
    pub(crate) fn path(&self, port: &Port, by_queue: bool) -> Option<PortPath> {
        Some(match self.location(port)? {
            PortLocation::Function(PortId::UPLINK) | PortLocation::Piped(PortId::UPLINK) => {
                PortPath::Uplink
            }
            PortLocation::Function(PortId::PF) | PortLocation::Piped(PortId::PF) => PortPath::Pf,
            PortLocation::Function(_) | PortLocation::Piped(_) => PortPath::Vf,
            PortLocation::Switch(_) if by_queue => PortPath::Vmq,
            PortLocation::Switch(_) => PortPath::Synthetic,
            PortLocation::Representor(_) => PortPath::Representor,
        })
    }

    /// Number of the VF of a port, or of the one that it represents.
    pub(crate) fn vf(&self, port: &Port) -> Option<u16> {
        match self.location(port)? {
            PortLocation::Function(id)
            | PortLocation::Piped(id)
            | PortLocation::Representor(id) => id.vf_index(),
            PortLocation::Switch(_) => None,
        }
    }

    /// Returns `true` if the switch is on this function.
    #[inline]
    pub(crate) fn switches(&self, id: PortId) -> bool {
        id == PortId::PF && self.switch.is_some()
    }

    /// The port at a function or behind a queue.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&Arc<Port>> {
        self.ports.get(id.index())?.as_ref()
    }

    /// The port to which frames of a function go on to another unchanged, past the switch, with
    /// nothing to mirror or to charge; `None` if they need more than a copy.
    #[inline]
    pub(crate) fn direct(&self, from: PortId, to: PortId) -> Option<&Arc<Port>> {
        let is_direct = self.may_be_direct
            && !self.switches(to)
            && self.table.edit(from, to) == Some(VlanEdit::None);
        self.port(to).filter(|_| is_direct)
    }

    /// The port at the near end of a function's pipe.
    #[inline]
    pub(crate) fn representor(&self, of: PortId) -> Option<&Arc<Port>> {
        self.representors.get(of.index())?.as_ref()
    }

    /// The port of a capture, by number.
    pub(crate) fn monitor(&self, number: u16) -> Option<&Arc<Port>> {
        self.monitors.get(usize::from(number))?.as_ref()
    }
}
