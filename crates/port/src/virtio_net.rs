//! Virtio-net rings as a port's halves: virtio 1.2, section 5.1.
//!
//! The virtio-net header (section 5.1.6) holds the offload that a guest requests for a frame: a
//! checksum, or segmentation. If no offload was negotiated, it is never read, and a receiver that
//! accepts none gets zeros. Else it is read once, validated, and passed on with the frame. Rings
//! without `VIRTIO_F_VERSION_1` and without mergeable buffers have the legacy header.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use vhost_user::ForeignFd;
use virtq::{DeviceQueue, Position};
use wire::segment::Segment;
use wire::virtio_net::OffloadSet;

use crate::burst::{
    BURST, Burst, Delivered, HeaderBytes, HeaderSnapshot, NetHeader, Polled, VlanEdit,
    snapshot_headers,
};
use crate::burst_buffers::BurstBuffers;
use crate::deliver;
pub use crate::deliver::{HEADER_LEN, HEADER_LEN_LEGACY, ReceiveLayout};
pub use crate::events::{Interrupt, RingEvents};
use crate::half::{Receive, Transmit};
use crate::software_offload::OffloadScratch;
use crate::validate::{FRAME_MIN_TAGGED, FrameRules};

/// A guest's transmit ring.
#[derive(Debug)]
pub struct TransmitRing {
    queue: DeviceQueue,
    events: RingEvents,
    rules: FrameRules,
    /// Set if all frames are discarded.
    discards: bool,
    malformed: u64,
    headers: Box<[HeaderBytes; BURST]>,
    /// Lent by the lane; one per ring would be 8 KiB that are rarely used.
    snapshots: Vec<HeaderSnapshot>,
    has_snapshots: bool,
    offloads: Box<[NetHeader; BURST]>,
    /// Set if a frame of this burst has an offload.
    has_offloads: bool,
}

impl TransmitRing {
    /// Serves `queue`, which is readable and strips the header; it keeps headers if offloads were
    /// negotiated. Frames, or their segments, of more than `frame_bytes_max` bytes are malformed.
    pub fn new(
        queue: DeviceQueue,
        events: RingEvents,
        frame_bytes_max: u32,
        leaves: OffloadSet,
    ) -> TransmitRing {
        TransmitRing {
            queue,
            events,
            rules: FrameRules { frame_bytes_max, leaves },
            discards: false,
            malformed: 0,
            headers: Box::new([[0; 16]; BURST]),
            snapshots: Vec::new(),
            has_snapshots: false,
            offloads: Box::new([NetHeader::PLAIN; BURST]),
            has_offloads: false,
        }
    }

    /// Makes this a disabled ring: "in the disabled state the back-end must [...] process and
    /// discard any TX packets" (vhost-user, "Ring states"). A frame left in the ring would keep TCP
    /// from retransmitting it on another path.
    pub fn discarding(mut self) -> TransmitRing {
        // So every frame is validated.
        self.rules.frame_bytes_max = 0;
        self.discards = true;
        self
    }

    /// Validates the frames of the burst one by one and takes their offloads. The longer snapshots
    /// are both validated and delivered, so the two always match.
    fn validate(&mut self, polled: &mut Polled, has_offloads: bool) {
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
        let virtio_headers = self.queue.virtio_headers();
        for (i, (frame, header)) in frames.iter().zip(self.headers.iter()).enumerate() {
            let requested = virtio_headers.get(i).filter(|_| has_offloads);
            let offload =
                requested.map_or(NetHeader::PLAIN, |header| NetHeader::from_bytes(*header));
            let header = if has_offloads { self.snapshots[i].bytes() } else { header };
            let valid = self.rules.validate((header, frame.len), offload, polled);
            self.malformed |= u64::from(valid.is_none()) << i;
            self.offloads[i] = valid.unwrap_or(NetHeader::PLAIN);
        }
    }
}

impl Transmit for TransmitRing {
    fn swap(&mut self, buffers: &mut BurstBuffers) {
        self.queue.swap_staging(&mut buffers.stage);
        std::mem::swap(&mut self.headers, &mut buffers.headers);
        std::mem::swap(&mut self.snapshots, &mut buffers.snapshots);
        std::mem::swap(&mut self.offloads, &mut buffers.offloads);
        self.has_snapshots = false;
    }

    fn touches_guest(&self) -> bool {
        true
    }

    fn poll(&mut self) -> Polled {
        let n = self.queue.stage(BURST);
        self.malformed = 0;
        self.has_snapshots = false;
        self.has_offloads = false;
        let fault = self.queue.fault();
        let mut polled = Polled { frames: n as u32, fault, ..Polled::default() };
        if n == 0 {
            return polled;
        }
        let (frames, arena) = self.queue.buffers();
        let mut longest = 0;
        let mut odd = 0u64;
        for (i, (frame, header)) in frames.iter().zip(self.headers.iter_mut()).enumerate() {
            polled.bytes += u64::from(frame.len);
            longest = longest.max(frame.len);
            if frame.first.len() >= FRAME_MIN_TAGGED {
                *header = frame.first.read_header();
            } else {
                *header = [0; 16];
                frame.read_bytes(arena, 0, header);
                odd |= 1 << i;
            }
        }
        let virtio_headers = self.queue.virtio_headers();
        let asks = virtio_headers.iter().fold(0, |asks, header| asks | header[0] | header[1]) != 0;
        if odd != 0 || longest > self.rules.frame_bytes_max || asks {
            self.validate(&mut polled, asks);
        }
        polled.backlog = self.queue.has_backlog();
        polled
    }

    fn snapshot_headers(&mut self) {
        if self.has_snapshots {
            return; // only the first snapshot counts
        }
        let (frames, arena) = self.queue.buffers();
        snapshot_headers(&mut self.snapshots, &self.headers[..], frames, arena);
        self.has_snapshots = true;
    }

    fn burst(&self) -> Burst<'_> {
        let (frames, arena) = self.queue.buffers();
        let headers = &self.headers[..frames.len()];
        let snapshots = if self.has_snapshots { &self.snapshots[..frames.len()] } else { &[] };
        let offloads = if self.has_offloads { &self.offloads[..frames.len()] } else { &[] };
        Burst { headers, snapshots, frames, arena, offloads, malformed: self.malformed }
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
    events: RingEvents,
    layout: ReceiveLayout,
    /// Offloads that the guest accepts.
    takes: OffloadSet,
    scratch: OffloadScratch,
}

impl ReceiveRing {
    /// Serves `queue`, which is writable.
    pub fn new(
        queue: DeviceQueue,
        events: RingEvents,
        layout: ReceiveLayout,
        takes: OffloadSet,
    ) -> ReceiveRing {
        ReceiveRing { queue, events, layout, takes, scratch: OffloadScratch::default() }
    }
}

impl Receive for ReceiveRing {
    fn swap(&mut self, buffers: &mut BurstBuffers) {
        self.queue.swap_staging(&mut buffers.stage);
        std::mem::swap(&mut self.scratch, &mut buffers.scratch);
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
                let (frames, bytes) = match (burst.snapshots.is_empty(), burst.offloads.is_empty())
                {
                    (true, true) => deliver::copy_simple(&mut self.queue, burst, left),
                    _ => deliver::copy_simple_snapshot(&mut self.queue, burst, left, self.takes),
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
                true => deliver::copy_any(&mut self.queue, burst, frame, self.layout, edit),
                false => {
                    let (queue, layout) = (&mut self.queue, self.layout);
                    let each =
                        |segment: &Segment<'_>| deliver::copy_segment(queue, segment, layout);
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
