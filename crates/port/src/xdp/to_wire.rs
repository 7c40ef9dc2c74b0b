//! Frames to the wire: the receive half.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::segment::Segment;
use xdp::{Flushed, NoRoom, Outbound};

use super::Device;
use crate::burst::{Burst, BurstBuffers, Front, VlanEdit};
use crate::deliver::Writer;
use crate::plain::Scratch;
use crate::{Delivered, Receive};

/// The sending end of a socket, as a receive half.
#[derive(Debug)]
pub(crate) struct ToWire {
    outbound: Outbound,
    device: Arc<Device>,
    /// Set when the kernel must be called again; the other half does that.
    unsent: Arc<AtomicBool>,
    scratch: Scratch,
}

impl ToWire {
    pub(crate) fn new(outbound: Outbound, device: Arc<Device>, unsent: Arc<AtomicBool>) -> ToWire {
        ToWire { outbound, device, unsent, scratch: Scratch::default() }
    }

    /// Copies and queues the leading frames of `indices` that are the usual case: one slice,
    /// unchanged, into one chunk. Returns their number and bytes.
    #[inline]
    fn in_one_piece(&mut self, burst: &Burst<'_>, indices: &[u8], longest: u32) -> (usize, u64) {
        let mut bytes = 0;
        for (done, index) in indices.iter().enumerate() {
            let frame = usize::from(*index);
            let (source, head) = (&burst.frames[frame], &burst.heads[frame]);
            let len = source.len;
            let fits = (source.first.len() == len) & (16..=longest).contains(&len);
            let room = if fits { self.outbound.claim(len) } else { return (done, bytes) };
            match room.map(|mut room| room.next()) {
                Ok(Some(target)) if target.len() == len => {
                    target.write(0, *head);
                    target.skip(16).copy_from(source.first.skip(16), len - 16);
                }
                _ => return (done, bytes),
            }
            self.outbound.queue(len);
            bytes += u64::from(len);
        }
        (indices.len(), bytes)
    }

    /// Every other frame.
    fn in_pieces(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        longest: u32,
    ) -> Delivered {
        if !burst.offload(frame).is_plain() {
            return self.plain(burst, frame, edit, longest);
        }
        let len = burst.frames[frame].len;
        let front = Front::new(edit, &burst.heads[frame], len);
        let content = Content::Burst { burst, frame, front };
        send(&mut self.outbound, front.len_of(len), longest, &content)
    }

    /// The frames that one comes to, of which something is left to be done.
    #[cold]
    fn plain(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        longest: u32,
    ) -> Delivered {
        let outbound = &mut self.outbound;
        self.scratch.deliver(burst, frame, edit, |segment| {
            let len = segment.frame_len() as u32;
            send(outbound, len, longest, &Content::Segment(segment))
        })
    }
}

/// What is written to a frame's room.
enum Content<'a> {
    /// A frame of the burst, its front edited.
    Burst { burst: &'a Burst<'a>, frame: usize, front: Front },
    /// A frame of our own making.
    Segment(&'a Segment<'a>),
}

/// Copies and queues a frame of `len` bytes.
fn send(outbound: &mut Outbound, len: u32, longest: u32, content: &Content<'_>) -> Delivered {
    if len > longest {
        return Delivered { too_small: 1, ..Delivered::default() };
    }
    match outbound.claim(len) {
        Ok(room) => {
            let mut writer = Writer::new(room);
            match content {
                Content::Burst { burst, frame, front } => writer.frame(burst, *frame, *front),
                Content::Segment(segment) => {
                    writer.write(segment.head);
                    writer.write(segment.payload);
                }
            }
        }
        Err(NoRoom::Full) => return Delivered { no_buffer: 1, ..Delivered::default() },
        Err(NoRoom::TooLong) => return Delivered { too_small: 1, ..Delivered::default() },
    }
    outbound.queue(len);
    Delivered { frames: 1, bytes: u64::from(len), ..Delivered::default() }
}

impl Receive for ToWire {
    fn swap(&mut self, area: &mut BurstBuffers) {
        std::mem::swap(&mut self.scratch, &mut area.scratch);
    }

    fn prefetch(&self, frames: usize) {
        self.outbound.prefetch(frames);
    }

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered {
        let mut delivered = Delivered::default();
        if self.device.condition.is_lost() {
            delivered.no_buffer = indices.len() as u32;
            return delivered;
        }
        let longest = self.device.frame_bytes_max.load(Ordering::Relaxed);
        // What was snapshot further must not be read again.
        let simple = edit == VlanEdit::None && burst.deep.is_empty() && burst.offloads.is_empty();
        let mut left = indices;
        while !left.is_empty() {
            if simple {
                let (frames, bytes) = self.in_one_piece(burst, left, longest);
                delivered.frames += frames as u32;
                delivered.bytes += bytes;
                left = &left[frames..];
            }
            let [index, rest @ ..] = left else { break };
            let more = self.in_pieces(burst, usize::from(*index), edit, longest);
            delivered.add(more);
            if more.no_buffer > 0 {
                delivered.no_buffer += rest.len() as u32;
                break;
            }
            left = rest;
        }
        delivered
    }

    fn publish(&mut self) -> bool {
        match self.outbound.flush() {
            Ok(Flushed::Nothing) => false,
            Ok(Flushed::Called) => true,
            Ok(Flushed::Again) => {
                self.unsent.store(true, Ordering::Relaxed);
                true
            }
            Err(errno) => {
                self.device.condition.lose(errno);
                true
            }
        }
    }
}
