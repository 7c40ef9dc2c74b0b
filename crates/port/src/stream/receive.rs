//! Frames for the peer.

use std::sync::Arc;

use wire::segment::Segment;

use super::line::{Line, Out};
use crate::burst::{Burst, BurstBuffers, Front, VlanEdit};
use crate::plain::{Scratch, append};
use crate::{Delivered, Receive};

/// The receive half.
#[derive(Debug)]
pub(super) struct ToStream {
    line: Arc<Line>,
    scratch: Scratch,
}

impl ToStream {
    pub(super) fn new(line: Arc<Line>) -> ToStream {
        ToStream { line, scratch: Scratch::default() }
    }
}

/// Takes a frame on which nothing is left to do.
fn push(out: &mut Out, burst: &Burst<'_>, frame: usize, edit: VlanEdit) -> Delivered {
    let front = Front::new(edit, &burst.heads[frame], burst.frames[frame].len);
    let len = front.len_of(burst.frames[frame].len);
    counted(out.push(len, |bytes| append(burst, frame, &front, bytes)), len)
}

/// Takes a frame of our own making.
fn push_plain(out: &mut Out, segment: &Segment<'_>) -> Delivered {
    let len = (segment.head.len() + segment.payload.len()) as u32;
    let write = |bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(segment.head);
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
    fn swap(&mut self, area: &mut BurstBuffers) {
        std::mem::swap(&mut self.scratch, &mut area.scratch);
    }

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered {
        let mut delivered = Delivered::default();
        let mut out = self.line.out();
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
                    self.scratch.deliver(burst, frame, edit, each)
                }
            });
        }
        delivered
    }

    /// Nobody is notified: the kernel wakes the peer.
    fn publish(&mut self) -> bool {
        let mut out = self.line.out();
        self.line.flush(&mut out);
        false
    }
}
