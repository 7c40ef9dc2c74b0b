//! The device's side of a ring of either kind.
//!
//! The kind is matched once a burst. The rest is the ring's own code, in [`split`](crate::split)
//! and [`packed`](crate::packed). Shared code is in [`staging`](crate::staging).

use std::sync::Arc;

use guestmem::{Buffer, GuestMemory, GuestSlice, Ticket};

use crate::chain::ChainHeader;
use crate::fault::Fault;
use crate::inflight::InflightRecord;
use crate::log::WriteLog;
use crate::packed::position::PackedPosition;
use crate::packed::ring::PackedRing;
use crate::packed::{PackedDevice, recover};
use crate::ring::{Addresses, Features, SetupError};
use crate::split::SplitDevice;
use crate::split::ring::SplitRing;
use crate::staging::{BURST, Content, Staging};
use crate::start::{Position, Start};

/// A guest's ring, as the daemon holds it. See the crate's documentation for the life of a buffer.
#[derive(Debug)]
pub struct DeviceQueue {
    kind: Kind,
    staging: Staging,
    /// Packed rings only: a split ring holds its own position.
    inflight: Option<InflightRecord>,
    /// Dirty log, while the front-end logs writes.
    log: Option<Box<WriteLog>>,
}

#[derive(Debug)]
enum Kind {
    Split(SplitDevice),
    Packed(PackedDevice),
}

impl Kind {
    fn new(
        memory: &GuestMemory,
        (addresses, size): (&Addresses, u16),
        features: Features,
        readable: bool,
        start: &Start,
    ) -> Result<Kind, SetupError> {
        let event_idx = features.contains(Features::EVENT_IDX);
        if !features.contains(Features::PACKED) {
            let ring = SplitRing::new(memory, addresses, size)?;
            return Ok(Kind::Split(SplitDevice::new(ring, event_idx)));
        }
        let ring = PackedRing::new(memory, addresses, size)?;
        let recovered = start.inflight.as_ref().and_then(|inflight| recover(&ring, inflight));
        let base = start.base;
        let place = recovered.or_else(|| PackedPosition::of(base, size));
        let place = place.ok_or(SetupError::Base { size, base })?;
        let in_one = readable && features.contains(Features::IN_ORDER);
        Ok(Kind::Packed(PackedDevice::new(ring, place, event_idx, in_one)))
    }
}

/// Calls a method of the ring's own kind.
macro_rules! each {
    ($queue:expr, $device:ident => $call:expr) => {
        match $queue {
            Kind::Split($device) => $call,
            Kind::Packed($device) => $call,
        }
    };
}

impl DeviceQueue {
    /// Takes over a ring at the position of `start`. A split ring continues after its last used
    /// entry.
    pub fn new(
        memory: Arc<GuestMemory>,
        addresses: &Addresses,
        size: u16,
        features: Features,
        content: Content,
        start: Start,
    ) -> Result<DeviceQueue, SetupError> {
        let readable = content != Content::Writable;
        let kind = Kind::new(&memory, (addresses, size), features, readable, &start)?;
        let log = start.log.map(|log| Box::new(WriteLog::new(log, &memory, addresses)));
        let staging = Staging::new(memory, content, features.contains(Features::INDIRECT));
        let mut queue = DeviceQueue { kind, staging, inflight: start.inflight, log };
        if let Some(log) = &queue.log {
            each!(&queue.kind, device => device.log_shown(log));
        }
        queue.disable_notification();
        Ok(queue)
    }

    /// Takes buffers until `want` are staged or the guest has no more; returns the number staged.
    /// At most [`BURST`]. Stops before a chain that breaks the rules; see [`fault`](Self::fault).
    #[inline]
    pub fn stage(&mut self, want: usize) -> usize {
        let have = self.staging.len();
        if have >= want || self.staging.fault.is_some() {
            return have;
        }
        self.take(want.min(BURST))
    }

    fn take(&mut self, want: usize) -> usize {
        self.staging.make_room();
        let wanted = want - self.staging.end;
        each!(&mut self.kind, device => device.take(&mut self.staging, wanted));
        self.staging.end
    }

    /// The staged buffers in order, and the arena of their further slices.
    #[inline]
    pub fn buffers(&self) -> (&[Buffer<'_>], &[GuestSlice<'_>]) {
        self.staging.buffers()
    }

    /// The headers cut off the staged buffers, in order, if headers are kept.
    #[inline]
    pub fn virtio_headers(&self) -> &[ChainHeader] {
        let Staging { keep, headers, position, end, .. } = &self.staging;
        if *keep { &headers[*position..*end] } else { &[] }
    }

    /// Adds a used entry for the next staged buffer, into which `len` bytes were written. The guest
    /// does not see it before [`publish`](Self::publish).
    ///
    /// # Panics
    /// If nothing is staged.
    #[inline]
    pub fn add_used(&mut self, len: u32) {
        let staging = &mut self.staging;
        assert!(staging.position < staging.end);
        let ticket = staging.staged[staging.position & (BURST - 1)].ticket;
        each!(&mut self.kind, device => device.add_used(ticket, len));
        if self.log.is_some() {
            self.log_buffers(&[len]);
        }
        self.staging.position += 1;
    }

    /// Adds used entries for as many staged buffers as there are `lens`, each with that many bytes
    /// written.
    ///
    /// # Panics
    /// If fewer are staged.
    #[inline]
    pub fn add_used_batch(&mut self, lens: &[u32]) {
        let staging = &mut self.staging;
        let staged = &staging.staged[staging.position..staging.end][..lens.len()];
        each!(&mut self.kind, device => device.add_used_batch(staged, lens));
        if self.log.is_some() {
            self.log_buffers(lens);
        }
        self.staging.position += lens.len();
    }

    /// Logs the writes to the first staged buffers.
    #[cold]
    fn log_buffers(&self, lens: &[u32]) {
        let Some(log) = &self.log else { return };
        let memory = self.staging.translator.memory();
        let (buffers, arena) = self.staging.buffers();
        for (buffer, len) in buffers.iter().zip(lens) {
            log.buffer(memory, (buffer, arena), *len);
        }
    }

    /// Removes the first `n` staged buffers unused, for an owner that holds more buffers than can
    /// be staged. It must [use](Self::add_used_set_aside) them in this order, before any staged
    /// ones. They stay the guest's: a later owner of the ring takes them again.
    ///
    /// # Panics
    /// If fewer are staged.
    #[inline]
    pub fn set_aside(&mut self, n: usize) {
        assert!(n <= self.staging.len());
        self.staging.position += n;
    }

    /// Adds a used entry for the oldest buffer that was set aside, by its [ticket](Buffer::ticket),
    /// with `len` bytes written.
    ///
    /// # Panics
    /// If the queue logs its writes: writes by others are not known here.
    #[inline]
    pub fn add_used_set_aside(&mut self, ticket: Ticket, len: u32) {
        assert!(self.log.is_none(), "writes to set-aside buffers cannot be logged");
        each!(&mut self.kind, device => device.add_used(ticket, len));
    }

    /// Adds used entries for all staged buffers, with no bytes written.
    #[inline]
    pub fn add_used_all(&mut self) {
        self.add_used_batch(&[0; BURST][..self.staging.len()]);
    }

    /// Publishes all used entries; returns `true` if the guest wants a notification.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.log.is_some() {
            return self.publish_and_log();
        }
        self.show()
    }

    #[inline(always)]
    fn show(&mut self) -> bool {
        match &mut self.kind {
            Kind::Split(device) => device.publish(),
            Kind::Packed(device) => device.publish(self.inflight.as_ref()),
        }
    }

    #[cold]
    fn publish_and_log(&mut self) -> bool {
        let from = self.position();
        let notify = self.show();
        if let Some(log) = &self.log {
            each!(&self.kind, device => device.log_published(log, from));
        }
        notify
    }

    /// Asks the guest for a kick at the next available buffer; returns `true` if one is available
    /// already (the caller must not sleep).
    ///
    /// Always `false` after a fault: a broken ring must not keep a lane awake.
    pub fn enable_notification(&mut self) -> bool {
        if self.staging.fault.is_some() {
            return false;
        }
        if self.staging.len() > 0 {
            return true;
        }
        let ready = each!(&mut self.kind, device => device.enable_notification());
        self.log_event_suppression();
        ready
    }

    /// Asks the guest not to kick: the ring is polled.
    pub fn disable_notification(&mut self) {
        each!(&mut self.kind, device => device.disable_notification());
        self.log_event_suppression();
    }

    /// Logs the write of the event suppression.
    fn log_event_suppression(&self) {
        if let Some(log) = &self.log {
            each!(&self.kind, device => device.log_event_suppression(log));
        }
    }

    /// The rule that the guest broke, if any. From then on no buffer is taken from the ring.
    #[inline]
    pub fn fault(&self) -> Option<Fault> {
        self.staging.fault
    }

    /// Position at which a later owner continues: after the last published used entry. Staged
    /// buffers stay the guest's.
    pub fn position(&self) -> Position {
        each!(&self.kind, device => device.position())
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        each!(&self.kind, device => device.size())
    }

    /// Returns `true` if a [`stage`](Self::stage) would find nothing: no buffer is available, and
    /// no memory was truncated since the last one.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        !self.has_backlog() && !self.staging.may_be_truncated()
    }

    /// Returns `true` if more buffers are available than were taken. Reads the ring again if the
    /// last read found no more: a guest that keeps its ring full has posted others meanwhile.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        each!(&self.kind, device => device.has_backlog())
    }
}
