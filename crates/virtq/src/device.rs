//! The device's side of a ring of either kind.
//!
//! The kind is matched once a burst. The rest is the ring's own code, in [`split`](crate::split)
//! and [`packed`](crate::packed), which puts checked buffers into [`Staging`].

use std::mem::transmute;
use std::sync::Arc;

use guestmem::{Buffer, CacheLine, GuestMemory, GuestSlice, LastHit, Ticket, Translator};

use crate::chain::{CHAIN_BYTES_MAX, CHAIN_MAX, Chain, ChainFormat, ChainHeader, HEADER_MAX};
use crate::fault::Fault;
use crate::inflight::InflightRecord;
use crate::log::WriteLog;
use crate::packed::{PackedDevice, PackedPosition, PackedRing, recover};
use crate::ring::{Addresses, Features, SetupError};
use crate::split::{SplitDevice, SplitRing};
use crate::start::{Position, Start};

/// Most buffers handled together.
pub const BURST: usize = 64;

/// Slices beyond the first of all staged chains: room for a burst of usual ones, and always for
/// one of the longest.
const ARENA: usize = 2 * CHAIN_MAX;

/// Direction and headers of a ring's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The device reads them. Each begins with a header, which staging cuts off.
    Readable {
        /// Bytes.
        header: u32,
        /// The header is kept for
        /// [`DeviceQueue::virtio_headers`](crate::DeviceQueue::virtio_headers); else it is not
        /// read.
        keep: bool,
    },
    /// The device writes to them.
    Writable,
}

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
    /// At most [`BURST`]. Stops before a chain that breaks the rules, or if the memory was
    /// truncated; see [`fault`](Self::fault). Buffers that are staged already stay usable.
    #[inline]
    pub fn stage(&mut self, want: usize) -> usize {
        self.staging.notice_truncation();
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

    /// Cache lines of the guest that the next [`stage`](Self::stage) reads first.
    #[inline]
    pub fn next_lines(&self) -> [CacheLine; 2] {
        each!(&self.kind, device => device.next_lines())
    }

    /// Returns `true` if a [`stage`](Self::stage) would find nothing: none is staged, no buffer is
    /// available, and no memory was truncated since the last one.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        !self.has_backlog() && !self.staging.may_be_truncated() && self.staging.len() == 0
    }

    /// Returns `true` if more buffers are available than were taken. Reads the ring again if the
    /// last read found no more: a guest that keeps its ring full has posted others meanwhile.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        each!(&self.kind, device => device.has_backlog())
    }
}

/// Buffers taken and not yet used, and the state of their checks.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) format: ChainFormat,
    /// Headers are kept.
    pub(crate) keep: bool,
    pub(crate) fault: Option<Fault>,
    truncations: u32,
    /// `staged[position..end]`, with their `headers` if those are kept, are taken and not yet used.
    pub(crate) position: usize,
    pub(crate) end: usize,
    pub(crate) staged: Box<[Buffer<'static>; BURST]>,
    pub(crate) headers: Box<[ChainHeader; BURST]>,
    arena: Vec<GuestSlice<'static>>,
    pub(crate) translator: Translator,
}

impl Staging {
    pub(crate) fn new(memory: Arc<GuestMemory>, content: Content, indirect: bool) -> Staging {
        let (writable, prefix, keep) = match content {
            Content::Readable { header, keep } => (false, header, keep),
            Content::Writable => (true, 0, false),
        };
        Staging {
            format: ChainFormat { writable, prefix, indirect },
            keep,
            fault: None,
            truncations: guestmem::guard::truncations().wrapping_sub(1),
            position: 0,
            end: 0,
            staged: Box::new([Buffer::EMPTY; BURST]),
            headers: Box::new([[0; _]; BURST]),
            arena: Vec::with_capacity(ARENA),
            translator: Translator::new(memory),
        }
    }

    /// Staged and not used.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.end - self.position
    }

    /// Returns `true` if another chain may be taken: no fault, and room for its slices.
    #[inline(always)]
    pub(crate) fn takes_more(&self) -> bool {
        self.fault.is_none() && self.arena.len() <= ARENA - CHAIN_MAX
    }

    /// Writes a chain of one descriptor, the range (`addr`, `len`), and its header to a free place.
    /// Returns `false` if it is not the usual case. The caller counts it.
    #[inline(always)]
    pub(crate) fn put_simple<const WRITABLE: bool, const KEEP: bool>(
        (format, window): (ChainFormat, LastHit<'_>),
        (place, header): (&mut Buffer<'static>, &mut ChainHeader),
        (addr, len, id): (u64, u32, u16),
    ) -> bool {
        let prefix = if WRITABLE { 0 } else { format.prefix };
        if len <= prefix || len > CHAIN_BYTES_MAX {
            return false;
        }
        let Some(slice) = window.slice(addr, len) else { return false };
        if KEEP {
            *header = header_of(&slice, prefix);
        }
        // SAFETY: the translator keeps the memory, and `buffers` lends staged buffers only while
        // the queue is borrowed.
        let slice = unsafe { slice.skip(prefix).forget_lifetime() };
        *place = Buffer::single(slice, id);
        // Of a frame to send, the lines of its first 65 bytes. Of a receive buffer, two lines,
        // since the frame's length is unknown: of a short one at the end of its region the second
        // is outside, which a prefetch may be. The hardware prefetches longer runs by itself.
        if WRITABLE {
            slice.prefetch_write(0);
            slice.prefetch_write(64);
        } else {
            slice.prefetch_read(0);
            slice.prefetch_read((slice.len() - 1).min(64));
        }
        true
    }

    /// Stages the chain that `follow` walks, or records its fault; returns the chain's ticket.
    #[cold]
    pub(crate) fn put_chain(
        &mut self,
        follow: impl FnOnce(&mut Chain<'_>) -> Result<Ticket, Fault>,
    ) -> Option<Ticket> {
        let mut chain = Chain::new(&mut self.arena, &mut self.translator, self.format);
        match follow(&mut chain) {
            Ok(ticket) => {
                let at = self.end & (BURST - 1);
                let header = self.keep.then_some(&mut self.headers[at]);
                self.staged[at] = chain.finish(header, ticket);
                self.end += 1;
                Some(ticket)
            }
            Err(fault) => {
                self.fault = Some(fault);
                None
            }
        }
    }

    /// Moves the staged buffers to the front, so that a whole burst fits behind them.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        if self.position == 0 && self.arena.is_empty() {
            return;
        }
        self.staged.copy_within(self.position..self.end, 0);
        if self.keep {
            self.headers.copy_within(self.position..self.end, 0);
        }
        self.end -= self.position;
        self.position = 0;
        if !self.arena.is_empty() {
            self.make_room_in_arena();
        }
    }

    /// Drops the slices of used buffers. Without it, a ring that always has a buffer left over
    /// would fill the arena with them and never stage again.
    #[cold]
    fn make_room_in_arena(&mut self) {
        let staged = &mut self.staged[..self.end];
        let first = staged.iter().find(|buffer| buffer.rest_len > 0);
        let unused = first.map_or(self.arena.len(), |buffer| usize::from(buffer.rest_start));
        self.arena.drain(..unused);
        for buffer in staged {
            buffer.rest_start = buffer.rest_start.saturating_sub(unused as u16);
        }
    }

    /// Returns `true` if some memory was truncated since the last
    /// [`notice_truncation`](Self::notice_truncation).
    #[inline(always)]
    pub(crate) fn may_be_truncated(&self) -> bool {
        guestmem::guard::truncations() != self.truncations
    }

    /// Stops the ring if its memory was truncated since the last check.
    #[inline]
    pub(crate) fn notice_truncation(&mut self) {
        if self.may_be_truncated() {
            self.truncations = guestmem::guard::truncations();
            if self.translator.memory().is_truncated() {
                self.fault = Some(Fault::Truncated);
            }
        }
    }

    /// The staged buffers in order, and the arena of their further slices.
    #[inline]
    pub(crate) fn buffers(&self) -> (&[Buffer<'_>], &[GuestSlice<'_>]) {
        let staged = &self.staged[self.position..self.end];
        // SAFETY: only lifetimes change: from `'static`, which is for storage only, to that of this
        // borrow, during which the memory can be neither dropped nor replaced.
        unsafe {
            (
                transmute::<&[Buffer<'static>], &[Buffer<'_>]>(staged),
                transmute::<&[GuestSlice<'static>], &[GuestSlice<'_>]>(self.arena.as_slice()),
            )
        }
    }
}

/// Reads the header of `prefix` bytes at the front of a slice, once.
#[inline(always)]
fn header_of(slice: &GuestSlice<'_>, prefix: u32) -> ChainHeader {
    if prefix == HEADER_MAX && slice.len() >= HEADER_MAX {
        return slice.read(0);
    }
    let mut header = [0; _];
    slice.first(prefix).read_bytes(&mut header);
    header
}

// Buffers must stay small: they are read for every frame.
const _: () = assert!(size_of::<Buffer<'_>>() <= 32);
