//! Receive half: frames for the peer.

use std::sync::Arc;

use wire::segment::Segment;

use super::connection::{SendBuffer, StreamConnection};
use crate::burst::{Burst, Delivered, HeaderEdit, VlanEdit};
use crate::burst_buffers::BurstBuffers;
use crate::half::{Notification, Receive};
use crate::software_offload::append;

/// Receive half of a stream-socket port.
#[derive(Debug)]
pub(super) struct ToStream {
    stream: Arc<StreamConnection>,
}

impl ToStream {
    pub(super) fn new(stream: Arc<StreamConnection>) -> ToStream {
        ToStream { stream }
    }
}

/// Appends a frame without an offload.
fn push(out: &mut SendBuffer, burst: &Burst<'_>, frame: usize, edit: VlanEdit) -> Delivered {
    let edited = HeaderEdit::new(edit, &burst.headers[frame], burst.frames[frame].len);
    let len = edited.len_of(burst.frames[frame].len);
    counted(out.push(len, |bytes| append(burst, frame, &edited, bytes)), len)
}

/// Appends a segment made in software.
fn push_plain(out: &mut SendBuffer, segment: &Segment<'_>) -> Delivered {
    let len = (segment.headers.len() + segment.payload.len()) as u32;
    let write = |bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(segment.headers);
        bytes.extend_from_slice(segment.payload);
    };
    counted(out.push(len, write), len)
}

fn counted(taken: bool, len: u32) -> Delivered {
    match taken {
        true => Delivered { frames: 1, bytes: u64::from(len), ..Delivered::default() },
        false => Delivered { no_buffer: 1, ..Delivered::default() },
    }
}

impl Receive for ToStream {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        let mut out = self.stream.out();
        if !out.is_connected() {
            delivered.no_buffer = indices.len() as u32;
            return delivered;
        }
        for index in indices {
            let frame = usize::from(*index);
            delivered.add(match burst.offload(frame).is_plain() {
                true => push(&mut out, burst, frame, edit),
                false => {
                    let each = |segment: &Segment<'_>| push_plain(&mut out, segment);
                    buffers.scratch.deliver(burst, frame, edit, each)
                }
            });
        }
        delivered
    }

    /// No notification: the kernel wakes the peer.
    fn publish(&mut self) -> Notification {
        let mut out = self.stream.out();
        self.stream.flush(&mut out);
        Notification::Unneeded
    }
}
