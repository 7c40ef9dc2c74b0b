//! Receive queues of the uplink's interface that are steered to one adapter each, on path `vmq`.
//!
//! # Model
//! Where the uplink's interface has more receive queues than the uplink has queue pairs, the NIC's
//! queue `q` is the interface's queue `queue_pairs + q`. If the guest and the adapter's settings
//! allow it, the guest's last receive ring is filled by that queue alone: frames are placed in the
//! guest's memory ([`port::xdp::GuestQueues::place`]), and what comes by software goes to its other
//! rings. Else the queue's frames come as the uplink's other frames do
//! ([`port::xdp::GuestQueues::take`]), and the ring is one like the others. So none of them is lost
//! either way.
//!
//! What the guest does to make it impossible holds until its ring starts anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Port;
use port::virtio_net::RingEvents;
use port::xdp::{DirectSpec, DirectStatus, FlowRule, GuestQueues};
use vhost_user::{Refused, RingSetup};
use virtq::{Content, Position};
use wire::{Mac, ethernet};

use super::ring::Ring;

/// How long a guest's memory is not shared again, and how many times as long as that took: a guest
/// may start its ring as often as it likes, and all sockets wait meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_FACTOR: u32 = 20;

/// Ports for a queue of the interface, beside the adapter's own. Both have labels of others, with
/// whose counters theirs are added up.
#[derive(Debug, Clone)]
pub(super) struct Ports {
    /// Where frames that are placed are counted, as the adapter's.
    pub(super) placed: Arc<Port>,
    /// Where frames come from that are not, as the uplink's.
    pub(super) copied: Arc<Port>,
}

/// What is wanted for an adapter.
#[derive(Debug, Clone, Default)]
pub(super) enum Wish {
    /// It is not on path `vmq`, or its uplink is no AF_XDP interface.
    #[default]
    Nothing,
    /// There is no queue of the interface for it.
    NoQueue(String),
    /// There is one.
    Queue(Steered),
}

/// A queue that is an adapter's.
#[derive(Debug, Clone)]
pub(super) struct Steered {
    pub(super) queues: GuestQueues,
    /// Among those behind the uplink's.
    pub(super) index: u32,
    pub(super) mac: Mac,
    pub(super) ports: Ports,
    /// Why frames cannot be placed, whatever the guest does.
    pub(super) refusal: Option<String>,
}

impl Wish {
    fn is(&self, other: &Wish) -> bool {
        match (self, other) {
            (Wish::Nothing, Wish::Nothing) => true,
            (Wish::NoQueue(why), Wish::NoQueue(other)) => why == other,
            (Wish::Queue(one), Wish::Queue(other)) => {
                one.queues.is(&other.queues)
                    && (one.index, one.mac, &one.refusal)
                        == (other.index, other.mac, &other.refusal)
                    && Arc::ptr_eq(&one.ports.placed, &other.ports.placed)
            }
            _ => false,
        }
    }
}

/// A guest's last receive ring, and the queue of the interface that may fill it.
#[derive(Debug)]
pub(super) struct Vmq {
    port: Arc<Port>,
    /// The ring's queue pair.
    pair: usize,
    wish: Wish,
    /// The driver's rule that brings the adapter's frames by its queue, or why there is none.
    rule: Result<FlowRule, String>,
    /// While it runs.
    ring: Option<Ring>,
    /// The longest frame of the guest's, without its Ethernet header.
    mtu: u16,
    /// While frames are placed there.
    direct: Option<Arc<DirectStatus>>,
    /// Why they are not, as far as that is the guest's doing.
    why: Option<String>,
    /// When memory may be shared again, and whether that is awaited.
    next: Option<Instant>,
    waits: bool,
    /// What was said last.
    said: Option<String>,
}

impl Vmq {
    /// Of a port whose last queue pair is `pair`, and whose guest has this MTU.
    pub(super) fn new(port: Arc<Port>, pair: usize, mtu: u16) -> Vmq {
        let (wish, rule) = (Wish::Nothing, Err(String::new()));
        Vmq {
            port,
            pair,
            wish,
            rule,
            ring: None,
            mtu,
            direct: None,
            why: None,
            next: None,
            waits: false,
            said: None,
        }
    }

    /// Whether a ring is the one.
    pub(super) fn is(&self, pair: usize) -> bool {
        pair == self.pair
    }

    /// The ring runs from now on.
    pub(super) fn start(&mut self, ring: Ring) -> Result<(), Refused> {
        self.leave();
        (self.ring, self.why) = (Some(ring), None);
        self.enter()
    }

    /// The ring goes on with something changed. Where frames are placed it is taken out for a
    /// moment, in which they wait in the queue.
    pub(super) fn renew(&mut self, ring: Ring) -> Result<(), Refused> {
        if self.direct.is_some() {
            let base = self.leave();
            self.ring = Some(Ring { setup: RingSetup { base, ..ring.setup }, ..ring });
            return self.enter();
        }
        let renewed = self.port.renew_receive(self.pair, |old| -> Result<_, Refused> {
            Ok(Box::new(ring.receive_at(old.stop())?))
        })?;
        if !renewed {
            return Err(Refused::new("the ring is not there any more"));
        }
        let logged = self.ring.replace(ring).is_some_and(|former| former.logs());
        // It may have been the log that kept frames from being placed. Where something else does,
        // the ring stays as it is: it would be taken out and put back, and what comes meanwhile is
        // dropped.
        self.waits |= logged && self.may_place();
        Ok(())
    }

    /// Nobody touches the ring any more when this returns; where its next owner goes on.
    pub(super) fn stop(&mut self) -> Position {
        let next = self.leave();
        (self.ring, self.why) = (None, None);
        self.carry_on();
        next
    }

    /// The ring while it runs: its descriptors may be replaced.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut RingSetup)) {
        let Some(ring) = &mut self.ring else { return };
        change(&mut ring.setup);
        let RingEvents { call, error, .. } = ring.events();
        match (&self.direct, &self.wish) {
            (Some(_), Wish::Queue(steered)) => {
                steered.ports.placed.set_transmit_call(0, call);
                steered.ports.placed.set_transmit_error(0, error);
            }
            _ => {
                self.port.set_receive_call(self.pair, call);
                self.port.set_receive_error(self.pair, error);
            }
        }
    }

    /// Gives the adapter a queue of the interface, another one, or none.
    pub(super) fn set_wish(&mut self, wish: Wish) {
        if !self.wish.is(&wish) {
            self.leave();
            (self.wish, self.why) = (wish, None);
            // The old one is removed first: they may be the same.
            self.rule = Err(String::new());
            if let Wish::Queue(Steered { queues, index, mac, .. }) = &self.wish {
                self.rule = queues.steer(*index, mac.0).map_err(|error| error.to_string());
            }
            self.carry_on();
        }
    }

    /// Sees whether frames can still be placed, or can be now.
    pub(super) fn look(&mut self, now: Instant) {
        if self.waits && self.next.is_none_or(|next| now >= next) {
            self.leave();
            self.carry_on();
        }
        if let Some(over) = self.direct.as_ref().and_then(|direct| direct.ended()) {
            self.leave();
            self.why = Some(over.to_string());
            self.carry_on();
        }
    }

    /// How frames of the adapter's queue reach the guest, if it has one or could.
    pub(super) fn describe(&self) -> Option<String> {
        let steered = match &self.wish {
            Wish::Nothing => return None,
            Wish::NoQueue(why) => return Some(format!("copied: {why}")),
            Wish::Queue(steered) => steered,
        };
        let (queue, interface) = (steered.queues.number(steered.index), steered.queues.interface());
        let steering = match &self.rule {
            Ok(_) => String::new(),
            Err(error) => format!("; {error}"),
        };
        if self.direct.is_some() {
            return Some(format!("placed by queue {queue} of {interface}{steering}"));
        }
        let idle = match &self.ring {
            None => "the guest does not run its last queue pair",
            Some(ring) if ring.logs() => "the guest is being moved",
            Some(_) => "its ring started a moment ago",
        };
        let why = steered.refusal.as_deref().or(self.why.as_deref()).unwrap_or(idle);
        Some(format!("copied from queue {queue} of {interface}: {why}{steering}"))
    }

    /// As [`enter`](Self::enter), where nobody can be told that it fails.
    fn carry_on(&mut self) {
        if let Err(refused) = self.enter() {
            tracing::error!("{}: its last receive ring stopped: {refused}", self.port.label);
        }
    }

    /// Puts the ring where it belongs now, and the queue's frames.
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
        if now != self.said {
            if let Some(now) = &now {
                // A guest can have it changed as often as it likes; the API tells how it is.
                tracing::debug!("{}: frames of its queue are {now}", self.port.label);
            }
            self.said = now;
        }
        attached
    }

    /// Whether nothing is known that keeps frames from being placed.
    fn may_place(&self) -> bool {
        // The kernel would not log what it writes.
        let may_be_written = self.ring.as_ref().is_some_and(|ring| !ring.logs());
        let has_queue = matches!(&self.wish, Wish::Queue(steered) if steered.refusal.is_none());
        has_queue && may_be_written && self.why.is_none()
    }

    /// Has frames placed, if they may be; says whether they are.
    fn place(&mut self) -> bool {
        self.waits = false;
        if !self.may_place() {
            return false;
        }
        let (Wish::Queue(steered), Some(ring)) = (&self.wish, &self.ring) else { return false };
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            self.waits = true;
            return false;
        }
        let Ok(queue) = ring.queue(Content::Writable) else { return false };
        let spec = DirectSpec {
            queue,
            events: ring.events(),
            header: ring.header(),
            memory: ring.memory.clone(),
            mac: steered.mac.0,
            frame_bytes_max: u32::from(self.mtu) + ethernet::HEADER_LEN as u32,
        };
        let placed = steered.queues.place(steered.index, spec);
        self.next = Some(now + PAUSE.max(now.elapsed() * PAUSE_FACTOR));
        match placed {
            Ok((half, direct)) => {
                steered.ports.placed.attach_transmit(0, half);
                self.direct = Some(direct);
                true
            }
            Err(error) => {
                self.why = Some(error.to_string());
                false
            }
        }
    }

    /// Takes the queue's frames as the uplink's others are taken.
    fn take(&mut self) {
        let Wish::Queue(steered) = &self.wish else { return };
        match steered.queues.take(steered.index) {
            Ok(half) => steered.ports.copied.attach_transmit(0, half),
            Err(error) => {
                let queue = steered.queues.number(steered.index);
                let label = &self.port.label;
                tracing::debug!("{label}: frames of queue {queue} stay with the host: {error}");
            }
        }
    }

    /// Takes the ring and the queue's frames out; where the ring goes on.
    fn leave(&mut self) -> Position {
        let placed = match (self.direct.take(), &self.wish) {
            (Some(_), Wish::Queue(steered)) => steered.ports.placed.detach_transmit(0),
            _ => None,
        };
        if let Wish::Queue(steered) = &self.wish {
            drop(steered.ports.copied.detach_transmit(0));
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
