//! Frames as the kernel takes them: in pieces, from where the sender has them.
//!
//! The first piece is ours: what stands in front of the frame, and the frame's own front with its
//! edit. Behind it comes what else was snapshot, and then the sender's memory.

use guestmem::io::Piece;

use super::Sink;
use crate::burst::{Burst, DeepHead, Front, VlanEdit};

/// Most bytes in front of a frame: a virtio-net header.
pub(crate) const PREFIX_MAX: usize = 12;
/// Frames that are handed to the kernel together.
pub(crate) const BATCH: usize = 16;
/// Most slices behind the first of a frame that goes as it is; others are copied together.
pub(crate) const SLICES_MAX: usize = 4;
/// Our own bytes, a snapshot, and all slices.
const PIECES_MAX: usize = 3 + SLICES_MAX;

/// A frame for a [`Sink`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pieces: [Piece<'a>; PIECES_MAX],
    count: usize,
    /// The frame's first bytes, 14 at the least, without what stands in front.
    pub(crate) head: &'a [u8],
    /// Bytes of the frame.
    pub(crate) len: u32,
}

impl<'a> Outgoing<'a> {
    const EMPTY: Outgoing<'static> =
        Outgoing { pieces: [Piece::EMPTY; PIECES_MAX], count: 0, head: &[], len: 0 };

    /// A frame of our own making, behind `front`.
    pub(crate) fn plain(front: &'a [u8], head: &'a [u8], payload: &'a [u8]) -> Outgoing<'a> {
        let mut frame = Outgoing { head, ..Outgoing::EMPTY };
        for bytes in [front, head, payload] {
            frame.push(Piece::bytes(bytes));
        }
        frame.len = (head.len() + payload.len()) as u32;
        frame
    }

    #[inline]
    fn push(&mut self, piece: Piece<'a>) {
        if let (false, Some(place)) = (piece.is_empty(), self.pieces.get_mut(self.count)) {
            *place = piece;
            self.count += 1;
        }
    }

    /// All its bytes, with what stands in front.
    #[inline]
    pub(crate) fn pieces(&self) -> &[Piece<'a>] {
        &self.pieces[..self.count]
    }
}

/// What is ours of up to [`BATCH`] frames.
pub(crate) struct Batch<'p> {
    indices: &'p [u8],
    /// What stands in front, and the frame's front.
    own: [[u8; PREFIX_MAX + 20]; BATCH],
    fronts: [Front; BATCH],
    prefix: usize,
}

impl<'p> Batch<'p> {
    /// Of frames that go as they are.
    pub(crate) fn new<S: Sink>(
        sink: &S,
        burst: &Burst<'_>,
        indices: &'p [u8],
        edit: VlanEdit,
    ) -> Batch<'p> {
        let indices = &indices[..indices.len().min(BATCH)];
        let none = Front { bytes: [0; 20], len: 0, replaces: 0 };
        let (own, fronts) = ([[0; PREFIX_MAX + 20]; BATCH], [none; BATCH]);
        let mut batch = Batch { indices, own, fronts, prefix: S::PREFIX };
        for ((own, front), index) in batch.own.iter_mut().zip(&mut batch.fronts).zip(indices) {
            let frame = usize::from(*index);
            let len = burst.frames[frame].len;
            *front = Front::new(edit, &burst.heads[frame], len);
            let offload = front.offload(burst.offload(frame)).unwrap_or_default();
            let (prefix, rest) = own.split_at_mut(PREFIX_MAX);
            prefix.copy_from_slice(&sink.prefix(offload, front.len_of(len)));
            rest.copy_from_slice(&front.bytes);
        }
        batch
    }

    /// The frames.
    pub(crate) fn frames<'a>(&'a self, burst: &Burst<'a>) -> Frames<'a> {
        let mut frames = Frames { frames: [Outgoing::EMPTY; BATCH], len: self.indices.len() };
        let ours = self.own.iter().zip(&self.fronts).zip(self.indices);
        for (outgoing, ((own, front), index)) in frames.frames.iter_mut().zip(ours) {
            let frame = usize::from(*index);
            let source = &burst.frames[frame];
            let own = &own[..PREFIX_MAX + front.len as usize];
            outgoing.head = &own[PREFIX_MAX..];
            outgoing.len = front.len_of(source.len);
            outgoing.push(Piece::bytes(&own[PREFIX_MAX - self.prefix..]));
            let snapshot = burst.deep.get(frame).map_or(&[][..], DeepHead::bytes);
            let snapshot = &snapshot[..snapshot.len().min(source.len as usize)];
            let behind = snapshot.get(front.replaces as usize..).unwrap_or(&[]);
            outgoing.push(Piece::bytes(behind));
            let mut skip = front.replaces + behind.len() as u32;
            for slice in source.slices(burst.arena) {
                outgoing.push(Piece::slice(slice.skip(skip)));
                skip = skip.saturating_sub(slice.len());
            }
        }
        frames
    }
}

/// A batch, ready to be sent.
pub(crate) struct Frames<'a> {
    frames: [Outgoing<'a>; BATCH],
    len: usize,
}

impl<'a> Frames<'a> {
    pub(crate) fn as_slice(&self) -> &[Outgoing<'a>] {
        &self.frames[..self.len]
    }
}
