//! Virtio-net rings as a port's halves: virtio 1.2, section 5.1.
//!
//! The virtio-net header (section 5.1.6) holds the offload that a guest requests for a frame: a
//! checksum, or segmentation. If no offload was negotiated, it is never read, and a receiver that
//! accepts none gets zeros. Else it is read once, validated, and passed on with the frame. Rings
//! without `VIRTIO_F_VERSION_1` and without mergeable buffers have the legacy header.

use std::os::fd::{AsFd, BorrowedFd};

use guestmem::{Buffer, CacheLine, GuestSlice};
use virtq::{DeviceQueue, Fault, Position};
use wire::FrameHeader;
use wire::segment::Segment;
use wire::virtio_net::OffloadSet;

use crate::burst::{
    BURST, BURST_BYTES, Burst, Delivered, HeaderBytes, HeaderSnapshot, NetHeader, Polled, VlanEdit,
};
use crate::burst_buffers::BurstBuffers;
use crate::deliver::{self, header_bytes};
pub use crate::deliver::{HEADER_LEN, HEADER_LEN_LEGACY, ReceiveLayout};
pub use crate::events::{Interrupt, RingEvents};
use crate::half::{GuestRing, Notification, Readiness, Receive, Transmit};
use crate::validate::{FRAME_MIN_TAGGED, FrameRules, Malformed};

/// A guest's transmit ring.
#[derive(Debug)]
pub struct TransmitRing {
    queue: DeviceQueue,
    events: RingEvents,
    rules: FrameRules,
    /// Frames of the burst, the first that are staged; 0 between bursts.
    taken: usize,
    /// Set if all frames are discarded.
    discards: bool,
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
        let rules = FrameRules { frame_bytes_max, leaves };
        TransmitRing { queue, events, rules, taken: 0, discards: false }
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

    /// Frames of the burst, and the arena of their further slices.
    #[inline(always)]
    fn buffers(&self) -> (&[Buffer<'_>], &[GuestSlice<'_>]) {
        let (frames, arena) = self.queue.buffers();
        (&frames[..self.taken], arena)
    }

    /// Ends the burst before the frame that exceeds [`BURST_BYTES`]; that is in the next one.
    #[cold]
    fn cut(&mut self, polled: &mut Polled) {
        let (frames, _) = self.queue.buffers();
        let (mut taken, mut bytes) = (0, 0);
        for frame in frames {
            let longer = bytes + u64::from(frame.len);
            if taken > 0 && longer > BURST_BYTES {
                break;
            }
            (taken, bytes) = (taken + 1, longer);
        }
        self.taken = taken;
        (polled.frames, polled.bytes) = (taken as u32, bytes);
    }

    /// Validates the frames of the burst one by one and takes their offloads. The longer snapshots
    /// are both validated and delivered, so the two always match.
    #[cold]
    fn validate(&self, polled: &mut Polled, buffers: &mut BurstBuffers, has_offloads: bool) {
        if self.discards {
            polled.disabled = polled.frames;
            buffers.malformed = u64::MAX >> (BURST - polled.frames as usize);
            buffers.reasons.fill(Malformed::Disabled);
            return;
        }
        let (frames, arena) = self.buffers();
        buffers.has_offloads = has_offloads;
        if has_offloads {
            buffers.snapshot_frames(frames, arena);
        }
        let virtio_headers = self.queue.virtio_headers();
        for (i, frame) in frames.iter().enumerate() {
            let requested = virtio_headers.get(i).filter(|_| has_offloads);
            let offload =
                requested.map_or(NetHeader::PLAIN, |header| NetHeader::from_bytes(*header));
            let header = match has_offloads {
                true => buffers.snapshots[i].bytes(),
                false => &buffers.headers[i],
            };
            let valid = self.rules.validate((header, frame.len), offload, polled);
            buffers.note_valid(i, valid);
        }
    }
}

impl Transmit for TransmitRing {
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled {
        buffers.clear();
        if self.queue.is_idle() {
            return Polled { fault: self.queue.fault(), ..Polled::default() };
        }
        buffers.note_time();
        let n = self.queue.stage(BURST);
        let mut polled = Polled { frames: n as u32, ..Polled::default() };
        polled.fault = self.queue.fault();
        if n == 0 {
            return polled;
        }
        let (frames, arena) = self.queue.buffers();
        let mut longest = 0;
        let mut odd = false;
        let (mut any, mut all) = (0, u128::MAX);
        for (frame, header) in frames.iter().zip(buffers.headers.iter_mut()) {
            polled.bytes += u64::from(frame.len);
            longest = longest.max(frame.len);
            if frame.first.len() >= FRAME_MIN_TAGGED {
                *header = frame.first.read_header();
            } else {
                *header = [0; 16];
                frame.read_bytes(arena, 0, header);
                odd = true;
            }
            let bits = u128::from_le_bytes(*header);
            any |= bits;
            all &= bits;
        }
        buffers.is_one_flow = FrameHeader(buffers.headers[0]).is_one_flow(any ^ all);
        let virtio_headers = self.queue.virtio_headers();
        let asks = virtio_headers.iter().fold(0, |asks, header| asks | header[0] | header[1]) != 0;
        self.taken = n;
        if polled.bytes > BURST_BYTES {
            self.cut(&mut polled);
        }
        if odd || longest > self.rules.frame_bytes_max || asks {
            self.validate(&mut polled, buffers, asks);
        }
        polled.backlog = self.queue.has_backlog() || self.taken < n;
        buffers.next = Some(NextLines::of(self, &self.queue));
        polled
    }

    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        let (frames, arena) = self.buffers();
        buffers.burst(frames, arena)
    }

    fn complete(&mut self) -> Notification {
        self.queue.add_used_batch(&[0; BURST][..self.taken]);
        self.taken = 0;
        Notification::needed(self.queue.publish())
    }

    fn enable_notification(&mut self) -> Readiness {
        Readiness::ready(self.queue.enable_notification())
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.events.kick.as_ref().map(|kick| kick.as_fd())
    }

    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        Some(self)
    }

    fn frame_rules(&self) -> FrameRules {
        self.rules
    }
}

impl GuestRing for TransmitRing {
    fn events(&mut self) -> &mut RingEvents {
        &mut self.events
    }

    fn disable_notification(&mut self) {
        self.queue.disable_notification();
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
}

impl ReceiveRing {
    /// Serves `queue`, which is writable.
    pub fn new(
        queue: DeviceQueue,
        events: RingEvents,
        layout: ReceiveLayout,
        takes: OffloadSet,
    ) -> ReceiveRing {
        ReceiveRing { queue, events, layout, takes }
    }
}

impl Receive for ReceiveRing {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        debug_assert!(indices.is_sorted_by(|a, b| a < b));
        let mut delivered = Delivered::default();
        let simple = edit == VlanEdit::None && self.layout.header == HEADER_LEN;
        let mut left = indices;
        while let [index, rest @ ..] = left {
            self.queue.stage(left.len());
            if simple {
                let queue = &mut self.queue;
                let (frames, bytes) = if !burst.snapshots.is_empty() || !burst.offloads.is_empty() {
                    copy_simple_snapshot(queue, burst, left, self.takes)
                } else if left.len() == burst.frames.len() {
                    // They ascend, so these are all frames.
                    copy_simple(queue, burst.frames.iter().zip(burst.headers))
                } else {
                    let frame = |index: &u8| {
                        let index = usize::from(*index);
                        Some((burst.frames.get(index)?, burst.headers.get(index)?))
                    };
                    copy_simple(queue, left.iter().map_while(frame))
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
                    buffers.scratch.deliver(burst, frame, edit, each)
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
        buffers.next = Some(NextLines::of(self, &self.queue));
        delivered
    }

    fn publish(&mut self) -> Notification {
        Notification::needed(self.queue.publish())
    }

    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        Some(self)
    }
}

impl GuestRing for ReceiveRing {
    fn events(&mut self) -> &mut RingEvents {
        &mut self.events
    }

    /// The guest kicks when it posts buffers: lanes find them without.
    fn disable_notification(&mut self) {
        self.queue.disable_notification();
    }

    fn stage(&mut self, frames: usize) -> Option<Fault> {
        self.queue.stage(frames);
        self.queue.fault()
    }

    fn stop(&mut self) -> Position {
        self.queue.position()
    }
}

/// Cache lines that the next burst of a guest's ring touches first, one after the other. A lane
/// prefetches them while it serves another ring.
#[derive(Clone, Copy, Debug)]
pub struct NextLines {
    /// Line of the ring's owner, if that sets it: the slot of a transmit ring, the counters of a
    /// receive ring.
    pub owner: CacheLine,
    state: CacheLine,
    state_bytes: usize,
    guest: [CacheLine; 2],
}

impl NextLines {
    /// Those of a ring with this state, which begins with this queue.
    fn of<T>(state: &T, queue: &DeviceQueue) -> NextLines {
        let state = CacheLine::of(state);
        NextLines { owner: state, state, state_bytes: size_of::<T>(), guest: queue.next_lines() }
    }

    /// Prefetches them.
    #[inline]
    pub fn prefetch(&self) {
        self.owner.prefetch_read();
        self.state.prefetch_run(self.state_bytes);
        let [index, entries] = self.guest;
        for line in [index, entries, entries.plus(1)] {
            line.prefetch_read();
        }
    }
}

/// A header without an offload, for one buffer.
const ONE_BUFFER: [u8; HEADER_LEN as usize] = NetHeader::PLAIN.to_bytes();

/// Delivers the leading ones of these frames that are the usual case: one slice, unchanged, into
/// one slice. Returns their number and bytes.
#[inline(always)]
fn copy_simple<'a>(
    queue: &mut DeviceQueue,
    frames: impl Iterator<Item = (&'a Buffer<'a>, &'a HeaderBytes)>,
) -> (usize, u64) {
    let mut lens = [0; BURST];
    let mut bytes = 0;
    let mut done = 0;
    let (buffers, _) = queue.buffers();
    for (((source, header), buffer), used) in frames.zip(buffers).zip(&mut lens) {
        let len = source.len;
        let fits = (source.first.len() == len)
            & (len >= 16)
            & (u64::from(buffer.first.len()) >= u64::from(HEADER_LEN) + u64::from(len));
        if !fits {
            break;
        }
        let target = buffer.first;
        target.write(0, ONE_BUFFER);
        target.write(HEADER_LEN, *header);
        target.skip(HEADER_LEN + 16).copy_from(source.first.skip(16), len - 16);
        *used = HEADER_LEN + len;
        bytes += u64::from(len);
        done += 1;
    }
    queue.add_used_batch(&lens[..done]);
    (done, bytes)
}

/// As [`copy_simple`], for a burst with longer snapshots or with offloads that the receiver accepts
/// (`takes`). Bytes in a snapshot are not read again.
#[inline]
fn copy_simple_snapshot(
    queue: &mut DeviceQueue,
    burst: &Burst<'_>,
    indices: &[u8],
    takes: OffloadSet,
) -> (usize, u64) {
    const SNAPSHOT_LEN: u32 = HeaderSnapshot::LEN as u32;
    let mut lens = [0; BURST];
    let mut bytes = 0;
    let mut done = 0;
    let (buffers, _) = queue.buffers();
    for ((index, buffer), used) in indices.iter().zip(buffers).zip(&mut lens) {
        let frame = usize::from(*index);
        let (Some(source), Some(header)) = (burst.frames.get(frame), burst.headers.get(frame))
        else {
            break;
        };
        let snapshot = burst.snapshots.get(frame).map_or(&header[..], HeaderSnapshot::bytes);
        let len = source.len;
        let taken = len.min(snapshot.len() as u32);
        let offload = burst.offload(frame);
        // A frame that fits in the snapshot may be scattered.
        let fits = (source.first.len() == len || len == taken)
            & offload.fits(takes)
            & (u64::from(buffer.first.len()) >= u64::from(HEADER_LEN) + u64::from(len));
        if !fits {
            break;
        }
        let target = buffer.first;
        target.write(0, header_bytes(offload, 1));
        match burst.snapshots.get(frame) {
            Some(snapshots) if taken == SNAPSHOT_LEN => target.write(HEADER_LEN, snapshots.bytes),
            _ => {
                target.skip(HEADER_LEN).write_bytes(&snapshot[..taken as usize]);
            }
        }
        target.skip(HEADER_LEN + taken).copy_from(source.first.skip(taken), len - taken);
        *used = HEADER_LEN + len;
        bytes += u64::from(len);
        done += 1;
    }
    queue.add_used_batch(&lens[..done]);
    (done, bytes)
}
