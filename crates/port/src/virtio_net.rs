//! Virtio-net rings as a port's halves: virtio 1.2, section 5.1.
//!
//! The device's header (section 5.1.6) is not carried over yet: no offload is offered, so what a
//! guest writes there has no meaning, is never read, and the receiver gets zeros. Rings whose
//! guest did not negotiate `VIRTIO_F_VERSION_1` nor mergeable buffers have the legacy header.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use virtq::DeviceQueue;

use crate::burst::{Area, BURST, Burst, DeepHead, Head, Polled, deepen};
use crate::deliver;
pub use crate::events::Events;
use crate::{Delivered, Receive, Transmit, VlanEdit};

/// Bytes of the header with `num_buffers`: VERSION_1 or MRG_RXBUF.
pub const HEADER_LEN: u32 = 12;
/// Bytes of the legacy header.
pub const HEADER_LEN_LEGACY: u32 = 10;

/// Shortest frame: two addresses and a type. Shorter ones are runts.
const FRAME_MIN: u32 = 14;
/// A tagged frame has a type behind its tag.
const FRAME_MIN_TAGGED: u32 = 18;

/// A guest's transmit ring.
#[derive(Debug)]
pub struct TransmitRing {
    queue: DeviceQueue,
    events: Events,
    frame_bytes_max: u32,
    malformed: u64,
    heads: Box<[Head; BURST]>,
    /// Lent by the lane; a ring's own would be 8 KiB that are rarely used.
    deep: Vec<DeepHead>,
    is_deep: bool,
}

impl TransmitRing {
    /// `queue` is readable, and cuts the header off. Frames of more than `frame_bytes_max` bytes
    /// are malformed.
    pub fn new(queue: DeviceQueue, events: Events, frame_bytes_max: u32) -> TransmitRing {
        let heads = Box::new([[0; 16]; BURST]);
        let (deep, is_deep) = (Vec::new(), false);
        TransmitRing { queue, events, frame_bytes_max, malformed: 0, heads, deep, is_deep }
    }
}

impl Transmit for TransmitRing {
    fn swap(&mut self, area: &mut Area) {
        self.queue.swap_stage(&mut area.stage);
        std::mem::swap(&mut self.heads, &mut area.heads);
        std::mem::swap(&mut self.deep, &mut area.deep);
        self.is_deep = false;
    }

    fn poll(&mut self) -> Polled {
        let n = self.queue.stage(BURST);
        self.malformed = 0;
        self.is_deep = false;
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
        if odd != 0 || longest > self.frame_bytes_max {
            for (i, (frame, head)) in frames.iter().zip(self.heads.iter()).enumerate() {
                let runt = frame.len < FRAME_MIN || frame.len < FRAME_MIN_TAGGED && is_tagged(head);
                let oversize = frame.len > self.frame_bytes_max;
                polled.runts += u32::from(runt);
                polled.oversize += u32::from(oversize);
                self.malformed |= u64::from(runt || oversize) << i;
            }
        }
        polled.backlog = self.queue.has_backlog();
        polled
    }

    fn deepen(&mut self) {
        // Changes nothing but for a ring that works without a lane's room.
        self.deep.resize(BURST, DeepHead::EMPTY);
        let (frames, arena) = self.queue.buffers();
        for ((frame, head), deep) in frames.iter().zip(self.heads.iter()).zip(&mut self.deep) {
            deepen(deep, head, frame, arena);
        }
        self.is_deep = true;
    }

    fn burst(&self) -> Burst<'_> {
        let (frames, arena) = self.queue.buffers();
        let heads = &self.heads[..frames.len()];
        let deep = if self.is_deep { &self.deep[..frames.len()] } else { &[] };
        Burst { heads, deep, frames, arena, offloads: &[], malformed: self.malformed }
    }

    fn complete(&mut self) -> bool {
        self.queue.use_all();
        self.queue.publish() && self.events.notify()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.events.kick.as_ref().map(|kick| kick.as_fd())
    }

    fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.events.call = call;
    }

    fn set_error(&mut self, error: Option<Arc<OwnedFd>>) {
        self.events.error = error;
    }

    fn raise_error(&self) {
        self.events.raise_error();
    }

    fn stop(&mut self) -> u16 {
        self.queue.next_index()
    }
}

fn is_tagged(head: &Head) -> bool {
    wire::vlan::is_tpid(u16::from_be_bytes([head[12], head[13]]))
}

/// A guest's receive ring.
#[derive(Debug)]
pub struct ReceiveRing {
    queue: DeviceQueue,
    events: Events,
    header_len: u32,
    mergeable: bool,
}

impl ReceiveRing {
    /// `queue` is writable. With `mergeable`, a frame may use several buffers
    /// (`VIRTIO_NET_F_MRG_RXBUF`).
    pub fn new(
        queue: DeviceQueue,
        events: Events,
        header_len: u32,
        mergeable: bool,
    ) -> ReceiveRing {
        ReceiveRing { queue, events, header_len, mergeable }
    }
}

impl Receive for ReceiveRing {
    fn swap(&mut self, area: &mut Area) {
        self.queue.swap_stage(&mut area.stage);
    }

    fn prefetch(&self, frames: usize) {
        self.queue.prefetch(frames);
    }

    fn deliver(&mut self, burst: &Burst<'_>, picks: &[u8], edit: VlanEdit) -> Delivered {
        let mut delivered = Delivered::default();
        let rule = deliver::Rule { header: self.header_len, mergeable: self.mergeable, edit };
        let simple = edit == VlanEdit::None && self.header_len == HEADER_LEN;
        let mut left = picks;
        while let [pick, rest @ ..] = left {
            self.queue.stage(left.len());
            if simple {
                let (frames, bytes) = if burst.deep.is_empty() {
                    deliver::in_one_piece(&mut self.queue, burst, left)
                } else {
                    deliver::in_one_deep_piece(&mut self.queue, burst, left)
                };
                delivered.frames += frames as u32;
                delivered.bytes += bytes;
                if frames > 0 {
                    left = &left[frames..];
                    continue;
                }
            }
            match deliver::in_pieces(&mut self.queue, burst, usize::from(*pick), rule) {
                Ok(bytes) => {
                    delivered.frames += 1;
                    delivered.bytes += u64::from(bytes);
                }
                Err(deliver::NoRoom::TooSmall) => delivered.too_small += 1,
                Err(deliver::NoRoom::Empty) => {
                    delivered.no_buffer += left.len() as u32;
                    break;
                }
            }
            left = rest;
        }
        delivered.fault = self.queue.fault();
        delivered
    }

    fn publish(&mut self) -> bool {
        self.queue.publish() && self.events.notify()
    }

    fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.events.call = call;
    }

    fn set_error(&mut self, error: Option<Arc<OwnedFd>>) {
        self.events.error = error;
    }

    fn raise_error(&self) {
        self.events.raise_error();
    }

    fn stop(&mut self) -> u16 {
        self.queue.next_index()
    }
}
