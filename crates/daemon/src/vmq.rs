//! Receive queues of the uplink's interface, each steered to one adapter on path `vmq`.
//!
//! # Model
//! If the uplink's interface has more receive queues than the uplink has queue pairs, the NIC's
//! queue `q` is the interface's queue `queue_pairs + q`. If the guest and the adapter's settings
//! allow it, that queue alone fills the guest's last receive ring. It places frames in the guest's
//! memory ([`port::xdp::GuestQueues::place`]), and frames from software go to the other rings.
//! Otherwise the queue's frames are taken like the uplink's others
//! ([`port::xdp::GuestQueues::take`]), and the ring is an ordinary one. No frame is lost either
//! way.
//!
//! If the guest makes placing impossible, that holds until its ring restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Half, Port};
use port::virtio_net::RingEvents;
use port::xdp::{DirectSpec, DirectStatus, FlowRule, GuestQueues};
use vhost_user::{Refused, RingSetup};
use virtq::{Content, Position};
use wire::{Mac, ethernet};

use super::ring::RingParameters;

/// Minimum time until a guest's memory is shared again, and the same as a multiple of the time it
/// took. A guest may restart its ring at any rate, and all sockets wait meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_FACTOR: u32 = 20;

/// Ports for an uplink queue, beside the adapter's own. Each shares the label of another port, to
/// which its counters are added.
#[derive(Debug, Clone)]
pub(super) struct VmqPorts {
    /// Counts placed frames, as the adapter's.
    pub(super) placed: Arc<Port>,
    /// Source of the other frames, as the uplink's.
    pub(super) copied: Arc<Port>,
}

/// Queue assignment of an adapter.
#[derive(Debug, Clone, Default)]
pub(super) enum VmqAssignment {
    /// The adapter is not on path `vmq`, or its uplink is not an AF_XDP interface.
    #[default]
    Unassigned,
    /// The interface has no queue for it.
    Unavailable(String),
    /// A queue is assigned.
    Assigned(AssignedQueue),
}

/// A queue assigned to an adapter.
#[derive(Debug, Clone)]
pub(super) struct AssignedQueue {
    pub(super) queues: GuestQueues,
    /// Index among the queues beyond the uplink's.
    pub(super) index: u32,
    pub(super) mac: Mac,
    pub(super) ports: VmqPorts,
    /// Setting that prevents placing, whatever the guest does.
    pub(super) refusal: Option<String>,
}

impl VmqAssignment {
    fn is(&self, other: &VmqAssignment) -> bool {
        match (self, other) {
            (VmqAssignment::Unassigned, VmqAssignment::Unassigned) => true,
            (VmqAssignment::Unavailable(obstacle), VmqAssignment::Unavailable(other)) => {
                obstacle == other
            }
            (VmqAssignment::Assigned(one), VmqAssignment::Assigned(other)) => {
                one.queues.is(&other.queues)
                    && (one.index, one.mac, &one.refusal)
                        == (other.index, other.mac, &other.refusal)
                    && Arc::ptr_eq(&one.ports.placed, &other.ports.placed)
            }
            _ => false,
        }
    }
}

/// A guest's last receive ring, and the uplink queue that may fill it.
#[derive(Debug)]
pub(super) struct Vmq {
    port: Arc<Port>,
    /// Queue pair of the ring.
    pair: usize,
    assignment: VmqAssignment,
    /// Flow rule that steers the adapter's frames to its queue, or the error of setting it.
    rule: Result<FlowRule, String>,
    /// The ring, while it runs.
    ring: Option<RingParameters>,
    /// Longest frame of the guest, in bytes without the Ethernet header.
    mtu: u16,
    /// Set while frames are placed.
    direct: Option<Arc<DirectStatus>>,
    /// Obstacle to placing on the guest's side.
    obstacle: Option<String>,
    /// The same, until it is reported, if it is a limit of pinned memory.
    limit_met: Option<String>,
    /// Bytes that the kernel pins while frames are placed.
    pinned_bytes: u64,
    /// Earliest time to share memory again, and a flag that this is awaited.
    next: Option<Instant>,
    is_waiting: bool,
    /// Last description logged.
    described: Option<String>,
}

impl Vmq {
    /// State for a port whose last queue pair is `pair`, and whose guest has this MTU.
    pub(super) fn new(port: Arc<Port>, pair: usize, mtu: u16) -> Vmq {
        let (assignment, rule) = (VmqAssignment::Unassigned, Err(String::new()));
        Vmq {
            port,
            pair,
            assignment,
            rule,
            ring: None,
            mtu,
            direct: None,
            obstacle: None,
            limit_met: None,
            pinned_bytes: 0,
            next: None,
            is_waiting: false,
            described: None,
        }
    }

    /// Returns `true` for the queue pair of the ring.
    pub(super) fn is(&self, pair: usize) -> bool {
        pair == self.pair
    }

    /// Starts the ring.
    pub(super) fn start(&mut self, ring: RingParameters) -> Result<(), Refused> {
        self.leave();
        (self.ring, self.obstacle) = (Some(ring), None);
        self.enter()
    }

    /// Replaces parts of a running ring. If frames are placed it is detached briefly, and frames
    /// wait in the queue.
    pub(super) fn renew(&mut self, ring: RingParameters) -> Result<(), Refused> {
        if self.direct.is_some() {
            let base = self.leave();
            self.ring = Some(RingParameters { setup: RingSetup { base, ..ring.setup }, ..ring });
            return self.enter();
        }
        let renewed = self.port.renew_receive(self.pair, |old| -> Result<_, Refused> {
            Ok(Box::new(ring.receive_at(old.stop())?))
        })?;
        if !renewed {
            return Err(Refused::new("the ring does not run any more"));
        }
        let logged = self.ring.replace(ring).is_some_and(|former| former.logs());
        // The log may have prevented placing. If something else does, leave the ring attached:
        // detaching it would drop frames.
        self.is_waiting |= logged && self.may_place();
        Ok(())
    }

    /// Stops the ring; returns its position. No thread touches it after this call.
    pub(super) fn stop(&mut self) -> Position {
        let next = self.leave();
        (self.ring, self.obstacle) = (None, None);
        self.enter_or_log();
        next
    }

    /// Changes eventfds of the running ring.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut RingSetup)) {
        let Some(ring) = &mut self.ring else { return };
        change(&mut ring.setup);
        let RingEvents { call, error, .. } = ring.events();
        let change = |events: &mut RingEvents| {
            events.set_call(call);
            events.set_error(error);
        };
        match (&self.direct, &self.assignment) {
            (Some(_), VmqAssignment::Assigned(assigned)) => {
                assigned.ports.placed.change_events(Half::Transmit, 0, change);
            }
            _ => self.port.change_events(Half::Receive, self.pair, change),
        }
    }

    /// Assigns a queue, another one, or none.
    pub(super) fn assign(&mut self, assignment: VmqAssignment) {
        if !self.assignment.is(&assignment) {
            self.leave();
            (self.assignment, self.obstacle) = (assignment, None);
            // Remove the old rule first: both may be equal.
            self.rule = Err(String::new());
            if let VmqAssignment::Assigned(AssignedQueue { queues, index, mac, .. }) =
                &self.assignment
            {
                self.rule = queues.steer(*index, mac.0).map_err(|error| error.to_string());
            }
            self.enter_or_log();
        }
    }

    /// Checks if placing has ended, or has become possible.
    pub(super) fn poll(&mut self, now: Instant) {
        if self.is_waiting && self.next.is_none_or(|next| now >= next) {
            self.leave();
            self.enter_or_log();
        }
        if let Some(over) = self.direct.as_ref().and_then(|direct| direct.ended()) {
            self.leave();
            self.obstacle = Some(over.to_string());
            self.enter_or_log();
        }
    }

    /// Text of a limit of pinned memory that was met since the last call.
    pub(super) fn take_limit(&mut self) -> Option<String> {
        self.limit_met.take()
    }

    /// Bytes that the kernel pins.
    pub(super) fn pinned_bytes(&self) -> u64 {
        if self.direct.is_some() { self.pinned_bytes } else { 0 }
    }

    /// Describes how frames of the adapter's queue reach the guest; `None` without a queue.
    pub(super) fn describe(&self) -> Option<String> {
        let assigned = match &self.assignment {
            VmqAssignment::Unassigned => return None,
            VmqAssignment::Unavailable(obstacle) => return Some(format!("copied: {obstacle}")),
            VmqAssignment::Assigned(assigned) => assigned,
        };
        let (queue, interface) =
            (assigned.queues.number(assigned.index), assigned.queues.interface());
        let steering = match &self.rule {
            Ok(_) => String::new(),
            Err(error) => format!("; {error}"),
        };
        if self.direct.is_some() {
            return Some(format!("placed by queue {queue} of {interface}{steering}"));
        }
        let idle = match &self.ring {
            None => "the guest does not run its last queue pair",
            Some(ring) if ring.logs() => "the guest is being migrated",
            Some(_) => "its ring started less than a second ago",
        };
        let obstacle = assigned.refusal.as_deref().or(self.obstacle.as_deref()).unwrap_or(idle);
        Some(format!("copied from queue {queue} of {interface}: {obstacle}{steering}"))
    }

    /// As [`enter`](Self::enter), with errors logged.
    fn enter_or_log(&mut self) {
        if let Err(refused) = self.enter() {
            tracing::error!("{}: its last receive ring stopped: {refused}", self.port.label);
        }
    }

    /// Attaches the ring and the queue's frames as currently possible.
    fn enter(&mut self) -> Result<(), Refused> {
        let mut attached = Ok(());
        if !self.place() {
            if let Some(ring) = &self.ring {
                let receive = ring.receive();
                attached = receive.map(|ring| self.port.attach_receive(self.pair, Box::new(ring)));
            }
            self.take();
        }
        let now = self.describe();
        if now != self.described {
            if let Some(now) = &now {
                // Debug level, since a guest can cause any number of changes; the API reports the
                // state.
                tracing::debug!("{}: frames of its queue are {now}", self.port.label);
            }
            self.described = now;
        }
        attached
    }

    /// Returns `true` if no obstacle to placing is known.
    fn may_place(&self) -> bool {
        // The kernel would not log its writes.
        let may_be_written = self.ring.as_ref().is_some_and(|ring| !ring.logs());
        let has_queue = matches!(&self.assignment, VmqAssignment::Assigned(assigned) if assigned.refusal.is_none());
        has_queue && may_be_written && self.obstacle.is_none()
    }

    /// Starts placing frames, if possible; returns `true` if it does.
    fn place(&mut self) -> bool {
        self.is_waiting = false;
        if !self.may_place() {
            return false;
        }
        let (VmqAssignment::Assigned(assigned), Some(ring)) = (&self.assignment, &self.ring) else {
            return false;
        };
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            self.is_waiting = true;
            return false;
        }
        let Ok(queue) = ring.queue(Content::Writable) else { return false };
        let spec = DirectSpec {
            queue,
            events: ring.events(),
            header: ring.header(),
            memory: ring.memory.clone(),
            mac: assigned.mac.0,
            frame_bytes_max: u32::from(self.mtu) + ethernet::HEADER_LEN as u32,
        };
        let placed = assigned.queues.place(assigned.index, spec);
        self.next = Some(now + PAUSE.max(now.elapsed() * PAUSE_FACTOR));
        match placed {
            Ok((half, direct)) => {
                assigned.ports.placed.attach_transmit(0, half);
                self.direct = Some(direct);
                let regions = ring.memory.regions().iter().map(|region| region.mapping.size());
                self.pinned_bytes = regions.max().unwrap_or(0) as u64;
                true
            }
            Err(error) => {
                self.limit_met = error.is_limit_of_memory().then(|| error.to_string());
                self.obstacle = Some(error.to_string());
                false
            }
        }
    }

    /// Takes the queue's frames like the uplink's others.
    fn take(&mut self) {
        let VmqAssignment::Assigned(assigned) = &self.assignment else { return };
        match assigned.queues.take(assigned.index) {
            Ok(half) => assigned.ports.copied.attach_transmit(0, half),
            Err(error) => {
                let queue = assigned.queues.number(assigned.index);
                let label = &self.port.label;
                tracing::debug!("{label}: frames of queue {queue} stay with the host: {error}");
            }
        }
    }

    /// Detaches the ring and the queue's frames; returns the ring's position.
    fn leave(&mut self) -> Position {
        let placed = match (self.direct.take(), &self.assignment) {
            (Some(_), VmqAssignment::Assigned(assigned)) => {
                assigned.ports.placed.detach_transmit(0)
            }
            _ => None,
        };
        if let VmqAssignment::Assigned(assigned) = &self.assignment {
            drop(assigned.ports.copied.detach_transmit(0));
        }
        let next = match placed {
            Some(mut half) => half.stop(),
            None => match self.port.detach_receive(self.pair) {
                Some(mut ring) => ring.stop(),
                None => return self.ring.as_ref().map_or(0, |ring| ring.setup.base),
            },
        };
        if let Some(ring) = &mut self.ring {
            ring.setup.base = next;
        }
        next
    }
}
