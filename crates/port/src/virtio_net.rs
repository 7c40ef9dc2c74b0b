//! Virtio-net rings as a port's halves: virtio 1.2, section 5.1.
//!
//! The device's header (section 5.1.6) says what a guest left to be done on a frame: a checksum, or
//! segments. Where it agreed on none of that it is never read, and a receiver that takes nothing of
//! the kind gets zeros. Else it is read once and judged, and goes on with the frame. Rings whose
//! guest did not negotiate `VIRTIO_F_VERSION_1` nor mergeable buffers have the legacy header.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use vhost_user::ForeignFd;
use virtq::{DeviceQueue, Position};
use wire::segment::Segment;
use wire::virtio_net::Accepts;

use crate::burst::{BURST, Burst, BurstBuffers, DeepHead, Head, Offload, Polled, snapshot_headers};
use crate::deliver;
pub use crate::deliver::Layout;
pub use crate::events::{Events, Interrupt};
use crate::judge::{FRAME_MIN_TAGGED, Rules};
use crate::plain::Scratch;
use crate::{Delivered, Receive, Transmit, VlanEdit};

/// Bytes of the header with `num_buffers`: VERSION_1 or MRG_RXBUF.
pub const HEADER_LEN: u32 = 12;
/// Bytes of the legacy header.
pub const HEADER_LEN_LEGACY: u32 = 10;

/// A guest's transmit ring.
#[derive(Debug)]
pub struct TransmitRing {
    queue: DeviceQueue,
    events: Events,
    rules: Rules,
    /// Whether nothing passes at all.
    discards: bool,
    malformed: u64,
    heads: Box<[Head; BURST]>,
    /// Lent by the lane; a ring's own would be 8 KiB that are rarely used.
    deep: Vec<DeepHead>,
    is_deep: bool,
    offloads: Box<[Offload; BURST]>,
    /// Whether something is left to be done on a frame of this burst.
    has_offloads: bool,
}

impl TransmitRing {
    /// `queue` is readable, cuts the header off, and keeps it if the guest may leave something to
    /// be done. Frames, or their segments, of more than `frame_bytes_max` bytes are malformed.
    pub fn new(
        queue: DeviceQueue,
        events: Events,
        frame_bytes_max: u32,
        leaves: Accepts,
    ) -> TransmitRing {
        TransmitRing {
            queue,
            events,
            rules: Rules { frame_bytes_max, leaves },
            discards: false,
            malformed: 0,
            heads: Box::new([[0; 16]; BURST]),
            deep: Vec::new(),
            is_deep: false,
            offloads: Box::new([Offload::PLAIN; BURST]),
            has_offloads: false,
        }
    }

    /// The ring while it is disabled: "in the disabled state the back-end must [...] process and
    /// discard any TX packets" (vhost-user, "Ring states"). A frame that stayed in it would keep
    /// TCP from sending it again by another.
    pub fn discarding(mut self) -> TransmitRing {
        // No frame is that short, so that each is judged.
        self.rules.frame_bytes_max = 0;
        self.discards = true;
        self
    }

    /// Judges the frames of the burst one by one, and takes up what is left to do on them: by
    /// longer snapshots, which are also what is delivered, so that the two always fit.
    fn judge(&mut self, polled: &mut Polled, has_offloads: bool) {
        if self.discards {
            polled.disabled = polled.frames;
            self.malformed = u64::MAX >> (BURST - polled.frames as usize);
            return;
        }
        self.has_offloads = has_offloads;
        if has_offloads {
            self.snapshot_headers();
        }
        let (frames, _) = self.queue.buffers();
        let headers = self.queue.headers();
        for (i, (frame, head)) in frames.iter().zip(self.heads.iter()).enumerate() {
            let header = headers.get(i).filter(|_| has_offloads);
            let offload = header.map_or(Offload::PLAIN, |header| Offload::from_bytes(*header));
            let head = if has_offloads { self.deep[i].bytes() } else { head };
            let judged = self.rules.judge((head, frame.len), offload, polled);
            self.malformed |= u64::from(judged.is_none()) << i;
            self.offloads[i] = judged.unwrap_or(Offload::PLAIN);
        }
    }
}

impl Transmit for TransmitRing {
    fn swap(&mut self, area: &mut BurstBuffers) {
        self.queue.swap_staging(&mut area.stage);
        std::mem::swap(&mut self.heads, &mut area.heads);
        std::mem::swap(&mut self.deep, &mut area.deep);
        std::mem::swap(&mut self.offloads, &mut area.offloads);
        self.is_deep = false;
    }

    fn touches_guest(&self) -> bool {
        true
    }

    fn poll(&mut self) -> Polled {
        let n = self.queue.stage(BURST);
        self.malformed = 0;
        self.is_deep = false;
        self.has_offloads = false;
        let fault = self.queue.fault();
        let mut polled = Polled { frames: n as u32, fault, ..Polled::default() };
        if n == 0 {
            return polled;
        }
        let (frames, arena) = self.queue.buffers();
        let mut longest = 0;
        let mut odd = 0u64;
        for (i, (frame, head)) in frames.iter().zip(self.heads.iter_mut()).enumerate() {
            polled.bytes += u64::from(frame.len);
            longest = longest.max(frame.len);
            if frame.first.len() >= FRAME_MIN_TAGGED {
                *head = frame.first.read_head();
            } else {
                *head = [0; 16];
                frame.read_bytes(arena, 0, head);
                odd |= 1 << i;
            }
        }
        let headers = self.queue.headers();
        let asks = headers.iter().fold(0, |asks, header| asks | header[0] | header[1]) != 0;
        if odd != 0 || longest > self.rules.frame_bytes_max || asks {
            self.judge(&mut polled, asks);
        }
        polled.backlog = self.queue.has_backlog();
        polled
    }

    fn snapshot_headers(&mut self) {
        if self.is_deep {
            return; // the first snapshot is the one that counts
        }
        let (frames, arena) = self.queue.buffers();
        snapshot_headers(&mut self.deep, &self.heads[..], frames, arena);
        self.is_deep = true;
    }

    fn burst(&self) -> Burst<'_> {
        let (frames, arena) = self.queue.buffers();
        let heads = &self.heads[..frames.len()];
        let deep = if self.is_deep { &self.deep[..frames.len()] } else { &[] };
        let offloads = if self.has_offloads { &self.offloads[..frames.len()] } else { &[] };
        Burst { heads, deep, frames, arena, offloads, malformed: self.malformed }
    }

    fn complete(&mut self) -> bool {
        self.give_back() && self.notify()
    }

    fn give_back(&mut self) -> bool {
        self.queue.add_used_all();
        self.queue.publish()
    }

    fn notify(&self) -> bool {
        self.events.notify()
    }

    fn enable_notification(&mut self) -> bool {
        self.queue.enable_notification()
    }

    fn disable_notification(&mut self) {
        self.queue.disable_notification();
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.events.kick.as_ref().map(|kick| kick.as_fd())
    }

    fn set_call(&mut self, call: Option<Arc<ForeignFd>>) {
        self.events.set_call(call);
    }

    fn set_error(&mut self, error: Option<Arc<ForeignFd>>) {
        self.events.set_error(error);
    }

    fn raise_error(&self) {
        self.events.raise_error();
    }

    fn stop(&mut self) -> Position {
        self.queue.position()
    }
}

/// A guest's receive ring.
#[derive(Debug)]
pub struct ReceiveRing {
    queue: DeviceQueue,
    events: Events,
    layout: Layout,
    /// What may be left to be done on a frame.
    takes: Accepts,
    scratch: Scratch,
}

impl ReceiveRing {
    /// `queue` is writable.
    pub fn new(queue: DeviceQueue, events: Events, layout: Layout, takes: Accepts) -> ReceiveRing {
        ReceiveRing { queue, events, layout, takes, scratch: Scratch::default() }
    }
}

impl Receive for ReceiveRing {
    fn swap(&mut self, area: &mut BurstBuffers) {
        self.queue.swap_staging(&mut area.stage);
        std::mem::swap(&mut self.scratch, &mut area.scratch);
    }

    fn touches_guest(&self) -> bool {
        true
    }

    fn prefetch(&self, frames: usize) {
        self.queue.prefetch(frames);
    }

    fn stage(&mut self, frames: usize) {
        self.queue.stage(frames);
    }

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered {
        let mut delivered = Delivered::default();
        let simple = edit == VlanEdit::None && self.layout.header == HEADER_LEN;
        let mut left = indices;
        while let [index, rest @ ..] = left {
            self.queue.stage(left.len());
            if simple {
                let (frames, bytes) = match (burst.deep.is_empty(), burst.offloads.is_empty()) {
                    (true, true) => deliver::in_one_piece(&mut self.queue, burst, left),
                    _ => deliver::in_one_deep_piece(&mut self.queue, burst, left, self.takes),
                };
                delivered.frames += frames as u32;
                delivered.bytes += bytes;
                if frames > 0 {
                    left = &left[frames..];
                    continue;
                }
            }
            let frame = usize::from(*index);
            let more = match burst.offload(frame).fits(self.takes) {
                true => deliver::in_pieces(&mut self.queue, burst, frame, self.layout, edit),
                false => {
                    let (queue, layout) = (&mut self.queue, self.layout);
                    let each = |segment: &Segment<'_>| deliver::plain(queue, segment, layout);
                    self.scratch.deliver(burst, frame, edit, each)
                }
            };
            delivered.add(more);
            if more.no_buffer > 0 {
                delivered.no_buffer += rest.len() as u32;
                break;
            }
            left = rest;
        }
        delivered.fault = self.queue.fault();
        delivered
    }

    fn publish(&mut self) -> bool {
        self.show() && self.notify()
    }

    fn show(&mut self) -> bool {
        self.queue.publish()
    }

    fn notify(&self) -> bool {
        self.events.notify()
    }

    fn set_call(&mut self, call: Option<Arc<ForeignFd>>) {
        self.events.set_call(call);
    }

    fn set_error(&mut self, error: Option<Arc<ForeignFd>>) {
        self.events.set_error(error);
    }

    fn raise_error(&self) {
        self.events.raise_error();
    }

    fn stop(&mut self) -> Position {
        self.queue.position()
    }
}
