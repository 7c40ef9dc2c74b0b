//! Receive half: frames to the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::segment::Segment;
use xdp::{Flushed, NoRoom, Outbound};

use super::XdpShared;
use crate::burst::{Burst, Delivered, HeaderEdit, VlanEdit};
use crate::burst_buffers::BurstBuffers;
use crate::deliver::SliceWriter;
use crate::half::{Notification, Receive};
use crate::software_offload::OffloadScratch;

/// Sending end of a socket, as a receive half.
#[derive(Debug)]
pub(crate) struct ToWire {
    outbound: Outbound,
    device: Arc<XdpShared>,
    /// Set when the kernel must be called again; the transmit half does that.
    unsent: Arc<AtomicBool>,
}

impl ToWire {
    pub(crate) fn new(
        outbound: Outbound,
        device: Arc<XdpShared>,
        unsent: Arc<AtomicBool>,
    ) -> ToWire {
        ToWire { outbound, device, unsent }
    }

    /// Copies and queues the leading frames of `indices` that are the usual case: one slice,
    /// unchanged, into one chunk. Returns their number and bytes.
    #[inline]
    fn copy_simple(&mut self, burst: &Burst<'_>, indices: &[u8], longest: u32) -> (usize, u64) {
        let mut bytes = 0;
        for (done, index) in indices.iter().enumerate() {
            let frame = usize::from(*index);
            let (source, header) = (&burst.frames[frame], &burst.headers[frame]);
            let len = source.len;
            let fits = (source.first.len() == len) & (16..=longest).contains(&len);
            let room = if fits { self.outbound.claim(len) } else { return (done, bytes) };
            match room.map(|mut room| room.next()) {
                Ok(Some(target)) if target.len() == len => {
                    target.write(0, *header);
                    target.skip(16).copy_from(source.first.skip(16), len - 16);
                }
                _ => return (done, bytes),
            }
            self.outbound.queue(len);
            bytes += u64::from(len);
        }
        (indices.len(), bytes)
    }

    /// Copies and queues any other frame.
    fn copy_any(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        longest: u32,
        scratch: &mut OffloadScratch,
    ) -> Delivered {
        if !burst.offload(frame).is_plain() {
            return self.plain(burst, frame, edit, longest, scratch);
        }
        let len = burst.frames[frame].len;
        let edited = HeaderEdit::new(edit, &burst.headers[frame], len);
        let content = TxContent::Burst { burst, frame, edited };
        send(&mut self.outbound, edited.len_of(len), longest, &content)
    }

    /// Completes the offload of a frame in software and queues the result.
    #[cold]
    fn plain(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        longest: u32,
        scratch: &mut OffloadScratch,
    ) -> Delivered {
        let outbound = &mut self.outbound;
        scratch.deliver(burst, frame, edit, |segment| {
            let len = segment.frame_len() as u32;
            send(outbound, len, longest, &TxContent::Segment(segment))
        })
    }
}

/// Source of a frame to queue.
enum TxContent<'a> {
    /// A frame of the burst, with its edited header.
    Burst { burst: &'a Burst<'a>, frame: usize, edited: HeaderEdit },
    /// A segment made in software.
    Segment(&'a Segment<'a>),
}

/// Copies and queues a frame of `len` bytes.
fn send(outbound: &mut Outbound, len: u32, longest: u32, content: &TxContent<'_>) -> Delivered {
    if len > longest {
        return Delivered { too_small: 1, ..Delivered::default() };
    }
    match outbound.claim(len) {
        Ok(room) => {
            let mut writer = SliceWriter::new(room);
            match content {
                TxContent::Burst { burst, frame, edited } => writer.frame(burst, *frame, *edited),
                TxContent::Segment(segment) => {
                    writer.write(segment.headers);
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
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        if self.device.health.is_lost() {
            delivered.no_buffer = indices.len() as u32;
            return delivered;
        }
        let longest = self.device.frame_bytes_max.load(Ordering::Relaxed);
        // Bytes of a longer snapshot must not be read again.
        let simple =
            edit == VlanEdit::None && burst.snapshots.is_empty() && burst.offloads.is_empty();
        let mut left = indices;
        while !left.is_empty() {
            if simple {
                let (frames, bytes) = self.copy_simple(burst, left, longest);
                delivered.frames += frames as u32;
                delivered.bytes += bytes;
                left = &left[frames..];
            }
            let [index, rest @ ..] = left else { break };
            let (frame, scratch) = (usize::from(*index), &mut buffers.scratch);
            let more = self.copy_any(burst, frame, edit, longest, scratch);
            delivered.add(more);
            if more.no_buffer > 0 {
                delivered.no_buffer += rest.len() as u32;
                break;
            }
            left = rest;
        }
        delivered
    }

    fn publish(&mut self) -> Notification {
        match self.outbound.flush() {
            Ok(Flushed::Nothing) => return Notification::Unneeded,
            Ok(Flushed::Called) => {}
            Ok(Flushed::Again) => self.unsent.store(true, Ordering::Relaxed),
            Err(errno) => self.device.health.lose(errno),
        }
        Notification::Sent
    }
}
