//! Frames to send, in pieces that the kernel takes from their sender's memory.
//!
//! The first piece is our own: the prefix and the edited header. Behind it come the rest of the
//! snapshot and the sender's memory.

use guestmem::io::Piece;
use rustix::io::Errno;
use wire::virtio_net::OffloadSet;

use crate::burst::{Burst, HeaderEdit, HeaderSnapshot, NetHeader, VlanEdit};

/// Maximum bytes of a prefix: a virtio-net header.
pub(crate) const PREFIX_MAX: usize = 12;
/// Frames passed to the kernel together.
pub(crate) const BATCH: usize = 16;
/// Maximum slices behind the first of a frame sent without a copy; others are copied together.
pub(crate) const SLICES_MAX: usize = 4;
/// Our own bytes, a snapshot, and all slices.
const PIECES_MAX: usize = 3 + SLICES_MAX;

/// A sink for frames to send.
pub(crate) trait TxSink: Send {
    /// Bytes of the prefix of each frame, up to [`PREFIX_MAX`].
    const PREFIX: usize;

    /// Offloads that it accepts.
    fn takes(&self) -> OffloadSet;

    /// Prefix of a frame of `len` bytes; only its last [`PREFIX`](Self::PREFIX) bytes are used.
    fn prefix(&self, offload: NetHeader, len: u32) -> [u8; PREFIX_MAX];

    /// Sends frames in order; returns the number taken, and the reason for refusing the next.
    fn send(&mut self, frames: &[TxFrame<'_>]) -> (usize, Option<TxRefusal>);

    /// As [`Receive::replicates`](crate::Receive::replicates).
    fn replicates(&self) -> bool {
        false
    }

    /// As [`Receive::allow_copies`](crate::Receive::allow_copies).
    fn allow_copies(&mut self, _copies: u32) {}

    /// Takes the number of copies since the last call, and their bytes.
    fn take_copies(&mut self) -> (u32, u64) {
        (0, 0)
    }
}

/// Reason for which a frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxRefusal {
    /// The queue is full.
    NoRoom,
    /// This frame can never be sent; others may be.
    Frame,
    /// This frame cannot be sent now; others may be.
    Unreachable,
    /// The sender's limit allows no more copies of this frame; others may be sent.
    Copies,
    /// The device failed permanently.
    Lost(Errno),
}

/// A frame for a [`TxSink`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxFrame<'a> {
    pieces: [Piece<'a>; PIECES_MAX],
    count: usize,
    /// The frame's first bytes, at least 14, without the prefix.
    pub(crate) header: &'a [u8],
    /// Bytes of the frame, without the prefix.
    pub(crate) len: u32,
}

impl<'a> TxFrame<'a> {
    const EMPTY: TxFrame<'static> =
        TxFrame { pieces: [Piece::EMPTY; PIECES_MAX], count: 0, header: &[], len: 0 };

    /// A segment made in software, behind `prefix`.
    pub(crate) fn plain(prefix: &'a [u8], header: &'a [u8], payload: &'a [u8]) -> TxFrame<'a> {
        let mut frame = TxFrame { header, ..TxFrame::EMPTY };
        for bytes in [prefix, header, payload] {
            frame.push(Piece::bytes(bytes));
        }
        frame.len = (header.len() + payload.len()) as u32;
        frame
    }

    #[inline]
    fn push(&mut self, piece: Piece<'a>) {
        if let (false, Some(place)) = (piece.is_empty(), self.pieces.get_mut(self.count)) {
            *place = piece;
            self.count += 1;
        }
    }

    /// Pieces of the prefix and the frame.
    #[inline]
    pub(crate) fn pieces(&self) -> &[Piece<'a>] {
        &self.pieces[..self.count]
    }
}

/// Prefixes and edited headers of up to [`BATCH`] frames.
pub(crate) struct TxBatch<'p> {
    indices: &'p [u8],
    /// Prefix and edited header of each frame.
    own: [[u8; PREFIX_MAX + 20]; BATCH],
    edits: [HeaderEdit; BATCH],
    prefix: usize,
}

impl<'p> TxBatch<'p> {
    /// Prepares frames to be sent without a copy.
    pub(crate) fn new<S: TxSink>(
        sink: &S,
        burst: &Burst<'_>,
        indices: &'p [u8],
        edit: VlanEdit,
    ) -> TxBatch<'p> {
        let indices = &indices[..indices.len().min(BATCH)];
        let none = HeaderEdit { bytes: [0; 20], len: 0, replaces: 0 };
        let (own, edits) = ([[0; PREFIX_MAX + 20]; BATCH], [none; BATCH]);
        let mut batch = TxBatch { indices, own, edits, prefix: S::PREFIX };
        for ((own, edited), index) in batch.own.iter_mut().zip(&mut batch.edits).zip(indices) {
            let frame = usize::from(*index);
            let len = burst.frames[frame].len;
            *edited = HeaderEdit::new(edit, &burst.headers[frame], len);
            let offload = edited.offload(burst.offload(frame)).unwrap_or_default();
            let (prefix, rest) = own.split_at_mut(PREFIX_MAX);
            prefix.copy_from_slice(&sink.prefix(offload, edited.len_of(len)));
            rest.copy_from_slice(&edited.bytes);
        }
        batch
    }

    /// Lends the frames in pieces.
    pub(crate) fn frames<'a>(&'a self, burst: &Burst<'a>) -> Frames<'a> {
        let mut frames = Frames { frames: [TxFrame::EMPTY; BATCH], len: self.indices.len() };
        let ours = self.own.iter().zip(&self.edits).zip(self.indices);
        for (outgoing, ((own, edited), index)) in frames.frames.iter_mut().zip(ours) {
            let frame = usize::from(*index);
            let source = &burst.frames[frame];
            let own = &own[..PREFIX_MAX + edited.len as usize];
            outgoing.header = &own[PREFIX_MAX..];
            outgoing.len = edited.len_of(source.len);
            outgoing.push(Piece::bytes(&own[PREFIX_MAX - self.prefix..]));
            let snapshot = burst.snapshots.get(frame).map_or(&[][..], HeaderSnapshot::bytes);
            let snapshot = &snapshot[..snapshot.len().min(source.len as usize)];
            let behind = snapshot.get(edited.replaces as usize..).unwrap_or(&[]);
            outgoing.push(Piece::bytes(behind));
            let mut skip = edited.replaces + behind.len() as u32;
            for slice in source.slices(burst.arena) {
                outgoing.push(Piece::slice(slice.skip(skip)));
                skip = skip.saturating_sub(slice.len());
            }
        }
        frames
    }
}

/// Frames of a batch, ready to be sent.
pub(crate) struct Frames<'a> {
    frames: [TxFrame<'a>; BATCH],
    len: usize,
}

impl<'a> Frames<'a> {
    pub(crate) fn as_slice(&self) -> &[TxFrame<'a>] {
        &self.frames[..self.len]
    }
}
