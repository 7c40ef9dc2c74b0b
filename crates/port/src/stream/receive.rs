//! Frames for the peer.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use wire::segment::Segment;

use super::line::{Line, Out};
use crate::burst::{Area, Burst, Front, VlanEdit};
use crate::plain::{Scratch, Unfit, append};
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

/// Takes the frames that one comes to on which something is.
#[cold]
fn push_plain(
    out: &mut Out,
    scratch: &mut Scratch,
    burst: &Burst<'_>,
    frame: usize,
    edit: VlanEdit,
) -> Delivered {
    let mut delivered = Delivered::default();
    let done = scratch.resolve(burst, frame, edit, |segment| {
        let Segment { head, payload, .. } = segment;
        let len = (head.len() + payload.len()) as u32;
        let taken = out.push(len, |bytes| {
            bytes.extend_from_slice(head);
            bytes.extend_from_slice(payload);
        });
        delivered.add(counted(taken, len));
        if taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match done {
        // The first for which there was no room is counted.
        Ok((all, taken)) if taken < all => delivered.no_buffer += (all - taken - 1) as u32,
        Ok(_) => {}
        Err(Unfit) => delivered.too_small += 1,
    }
    delivered
}

fn counted(taken: bool, len: u32) -> Delivered {
    match taken {
        true => Delivered { frames: 1, bytes: u64::from(len), ..Delivered::default() },
        false => Delivered { no_buffer: 1, ..Delivered::default() },
    }
}

impl Receive for ToStream {
    fn swap(&mut self, area: &mut Area) {
        std::mem::swap(&mut self.scratch, &mut area.scratch);
    }

    fn prefetch(&self, _: usize) {}

    fn deliver(&mut self, burst: &Burst<'_>, picks: &[u8], edit: VlanEdit) -> Delivered {
        let mut delivered = Delivered::default();
        let mut out = self.line.out();
        if !out.is_connected() {
            delivered.no_buffer = picks.len() as u32;
            return delivered;
        }
        for pick in picks {
            let frame = usize::from(*pick);
            delivered.add(match burst.offload(frame).is_plain() {
                true => push(&mut out, burst, frame, edit),
                false => push_plain(&mut out, &mut self.scratch, burst, frame, edit),
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

    fn set_call(&mut self, _: Option<Arc<OwnedFd>>) {}

    fn set_error(&mut self, _: Option<Arc<OwnedFd>>) {}

    fn raise_error(&self) {}

    fn stop(&mut self) -> u16 {
        0
    }
}
