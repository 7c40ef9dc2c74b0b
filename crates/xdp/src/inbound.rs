//! Frames from the wire: the receive ring and the fill ring together, handled in bursts.

use std::mem::transmute;
use std::sync::Arc;

use guestmem::{Buffer, GuestSlice};

use crate::handle::SocketHandle;
use crate::ring::{Consumer, Descriptor, Producer};

/// Most frames staged at a time.
pub const STAGED_MAX: usize = 64;
/// Most fragments of a frame in the kernel (`MAX_SKB_FRAGS` and the first).
pub const PIECES_MAX: usize = 18;

/// The receiving half of a socket. It takes up to [`STAGED_MAX`] frames off the ring, lends them,
/// and returns their chunks before it takes more.
#[derive(Debug)]
pub struct Inbound {
    rx: Consumer<Descriptor>,
    fill: Producer<u64>,
    handle: Arc<SocketHandle>,
    staged: Box<[Buffer<'static>; STAGED_MAX]>,
    len: usize,
    /// Fragments of frames after the first.
    arena: Vec<GuestSlice<'static>>,
    /// Chunks of lent or broken frames, to be returned.
    chunks: Vec<u64>,
    /// Free chunks for appended frames, and those in use.
    spare: Vec<u64>,
    added: Vec<u64>,
    broken: u64,
}

/// A frame being assembled from its fragments.
#[derive(Clone, Copy)]
enum Building {
    /// The next fragment begins a frame.
    Nothing,
    /// The next fragment belongs to this frame.
    Frame(Buffer<'static>),
    /// The next fragment belongs to a frame that cannot be lent.
    Broken,
}

impl Inbound {
    pub(crate) fn new(
        rx: Consumer<Descriptor>,
        fill: Producer<u64>,
        handle: Arc<SocketHandle>,
        spare: Vec<u64>,
    ) -> Inbound {
        Inbound {
            rx,
            fill,
            handle,
            staged: Box::new([Buffer::EMPTY; STAGED_MAX]),
            len: 0,
            arena: Vec::with_capacity(STAGED_MAX * PIECES_MAX),
            chunks: Vec::with_capacity(STAGED_MAX * PIECES_MAX),
            added: Vec::with_capacity(spare.len()),
            spare,
            broken: 0,
        }
    }

    /// The socket.
    pub fn handle(&self) -> &Arc<SocketHandle> {
        &self.handle
    }

    /// Takes up to [`STAGED_MAX`] frames off the ring, and returns the number lent. Earlier frames
    /// must have been [given back](Self::give_back).
    #[inline]
    pub fn stage(&mut self) -> usize {
        debug_assert!(self.chunks.is_empty(), "frames are given back first");
        if self.rx.peek(1) == 0 {
            return 0;
        }
        let mut building = Building::Nothing;
        // The last frame may need as many chunks as any.
        let room = self.chunks.capacity() - PIECES_MAX;
        while self.len < STAGED_MAX && self.chunks.len() < room {
            let Some(piece) = self.rx.take() else { break };
            self.chunks.push(self.handle.umem().chunk_of(piece.addr));
            building = self.add(building, &piece);
        }
        while !matches!(building, Building::Nothing) && self.chunks.len() < self.chunks.capacity() {
            // More frames were begun than fit. The kernel does not publish partial frames.
            let Some(piece) = self.rx.take() else { break };
            self.chunks.push(self.handle.umem().chunk_of(piece.addr));
            building = self.add(building, &piece);
        }
        self.broken += u64::from(!matches!(building, Building::Nothing));
        self.rx.release();
        self.len
    }

    /// Adds a fragment; lends the frame if it was the last.
    #[inline]
    fn add(&mut self, building: Building, piece: &Descriptor) -> Building {
        let slice = self.handle.umem().frame(piece);
        // SAFETY: the memory lives as long as the handle, which `self` keeps, and `buffers` lends
        // for its own borrow only.
        let slice = slice.map(|slice| unsafe { slice.forget_lifetime() });
        let frame = match (building, slice) {
            (Building::Nothing, Some(first)) => Buffer {
                rest_start: self.arena.len() as u16,
                ..Buffer::single(first, self.len as u16)
            },
            (Building::Frame(mut frame), Some(slice))
                if usize::from(frame.rest_len) < PIECES_MAX - 1 =>
            {
                self.arena.push(slice);
                frame.rest_len += 1;
                frame.len = frame.len.saturating_add(slice.len());
                frame
            }
            _ if piece.continues() => return Building::Broken,
            _ => {
                self.broken += 1;
                return Building::Nothing;
            }
        };
        if piece.continues() {
            return Building::Frame(frame);
        }
        self.staged[self.len] = frame;
        self.len += 1;
        Building::Nothing
    }

    /// Lends a copy of `frame` after those of the ring; returns `false` without room.
    pub fn append(&mut self, frame: &[u8]) -> bool {
        let size = self.handle.umem().chunks().size as usize;
        let pieces = frame.len().div_ceil(size).max(1);
        let kept = self.spare.len().checked_sub(pieces);
        let Some(kept) = kept.filter(|_| self.len < STAGED_MAX && pieces <= PIECES_MAX) else {
            return false;
        };
        let mut building = Building::Nothing;
        for (i, addr) in self.spare.split_off(kept).into_iter().enumerate() {
            let part = &frame[i * size..frame.len().min((i + 1) * size)];
            let room = self.handle.umem().slice(addr, part.len() as u32);
            room.unwrap_or(GuestSlice::EMPTY).write_bytes(part);
            let options = if i + 1 < pieces { Descriptor::CONTINUES } else { 0 };
            let piece = Descriptor { addr, len: part.len() as u32, options };
            self.added.push(addr);
            building = self.add(building, &piece);
        }
        true
    }

    /// Returns `true` if [`append`](Self::append) has room for a frame.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.len < STAGED_MAX && self.spare.len() >= PIECES_MAX
    }

    /// The lent frames, and their fragments after the first.
    #[inline]
    pub fn buffers(&self) -> (&[Buffer<'_>], &[GuestSlice<'_>]) {
        // SAFETY: only the lifetimes change, from `'static` in storage to that of this borrow,
        // during which the memory cannot be dropped.
        unsafe {
            let staged = &self.staged[..self.len];
            (
                transmute::<&[Buffer<'static>], &[Buffer<'_>]>(staged),
                transmute::<&[GuestSlice<'static>], &[GuestSlice<'_>]>(&self.arena),
            )
        }
    }

    /// Returns the chunks of all lent frames to the kernel.
    #[inline]
    pub fn give_back(&mut self) {
        self.spare.append(&mut self.added);
        self.arena.clear();
        self.len = 0;
        if self.chunks.is_empty() {
            return; // an idle ring's line is left to the kernel
        }
        for chunk in self.chunks.drain(..) {
            // There is room: no more chunks are in use than the ring has entries.
            self.fill.put(chunk);
        }
        self.fill.submit();
    }

    /// Returns `true` if frames wait that are not staged.
    #[inline]
    pub fn has_backlog(&mut self) -> bool {
        self.rx.peek(1) > 0
    }

    /// Returns `true` if the kernel needs [`SocketHandle::wake_rx`] before it receives more.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Frames dropped for an invalid descriptor: a bug of the kernel.
    pub fn broken(&self) -> u64 {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::handle;
    use crate::ring::kit::{other_end, ring};

    /// The last chunks of the memory.
    fn spare() -> Vec<u64> {
        (64..64 + 20).map(|chunk| chunk * 2048).collect()
    }

    /// The kernel's side of the two rings, and ours.
    fn ends(size: u32) -> (Producer<Descriptor>, Consumer<u64>, Inbound) {
        let (rx, fill) = (ring(size), ring(size));
        let kernel = (Producer::over(other_end(&rx)), Consumer::over(other_end(&fill)));
        let inbound =
            Inbound::new(Consumer::over(rx), Producer::over(fill), handle(64 + 20), spare());
        (kernel.0, kernel.1, inbound)
    }

    /// A fragment of `len` bytes in a chunk, behind the kernel's headroom.
    fn piece(chunk: u64, len: u32, continues: bool) -> Descriptor {
        Descriptor { addr: chunk * 2048 + 256, len, options: u32::from(continues) }
    }

    fn receive(rx: &mut Producer<Descriptor>, pieces: &[Descriptor]) {
        assert!(pieces.iter().all(|piece| rx.put(*piece)));
        rx.submit();
    }

    fn given(fill: &mut Consumer<u64>) -> Vec<u64> {
        let given = std::iter::from_fn(|| fill.take()).collect();
        fill.release();
        given
    }

    #[test]
    fn frames_are_lent_and_their_chunks_given_back() {
        let (mut rx, mut fill, mut inbound) = ends(256);
        assert_eq!(inbound.stage(), 0);
        receive(&mut rx, &[piece(3, 60, false), piece(1, 1500, false)]);
        assert_eq!(inbound.stage(), 2);
        let lens: Vec<_> = inbound.buffers().0.iter().map(|frame| frame.len).collect();
        assert_eq!((lens, rx.pending()), (vec![60, 1500], 0));
        assert!(given(&mut fill).is_empty());
        inbound.give_back();
        assert_eq!(given(&mut fill), [3 * 2048, 2048]);
        assert!(inbound.buffers().0.is_empty());
    }

    #[test]
    fn a_burst_ends_where_it_must() {
        let (mut rx, mut fill, mut inbound) = ends(256);
        let many: Vec<_> = (0..STAGED_MAX as u64 + 3).map(|i| piece(i % 64, 60, false)).collect();
        receive(&mut rx, &many);
        assert_eq!((inbound.stage(), inbound.has_backlog()), (STAGED_MAX, true));
        inbound.give_back();
        assert_eq!((inbound.stage(), inbound.has_backlog()), (3, false));
        inbound.give_back();
        assert_eq!(given(&mut fill).len(), STAGED_MAX + 3);
    }

    #[test]
    fn pieces_make_one_frame() {
        let (mut rx, mut fill, mut inbound) = ends(256);
        let frame = [piece(0, 1792, true), piece(1, 1792, true), piece(2, 100, false)];
        receive(&mut rx, &[&frame[..], &[piece(3, 60, false)]].concat());
        assert_eq!(inbound.stage(), 2);
        let umem = inbound.handle().umem();
        umem.slice(2048 + 256, 4).unwrap().write(0, *b"next");
        let (frames, arena) = inbound.buffers();
        assert_eq!((frames[0].len, frames[0].slices(arena).count()), (2 * 1792 + 100, 3));
        let mut seen = [0; 4];
        frames[0].read_bytes(arena, 1792, &mut seen);
        assert_eq!((&seen, frames[1].slices(arena).count()), (b"next", 1));
        inbound.give_back();
        assert_eq!(given(&mut fill).len(), 4);
    }

    #[test]
    fn many_frames_of_many_pieces_lose_no_chunk() {
        let (mut rx, mut fill, mut inbound) = ends(4096);
        let pieces = PIECES_MAX as u64;
        let all: Vec<_> =
            (0..100 * pieces).map(|i| piece(i % 64, 1000, (i + 1) % pieces != 0)).collect();
        receive(&mut rx, &all);
        let mut frames = 0;
        while inbound.stage() > 0 {
            frames += inbound.buffers().0.len();
            assert!(inbound.buffers().0.iter().all(|frame| frame.len == 1000 * pieces as u32));
            inbound.give_back();
        }
        assert_eq!((frames, inbound.broken(), given(&mut fill).len()), (100, 0, all.len()));
    }

    #[test]
    fn frames_that_come_otherwise_are_lent_behind_the_others() {
        let (mut rx, mut fill, mut inbound) = ends(256);
        let long: Vec<u8> = (0..5000).map(|i| i as u8).collect();
        for _ in 0..3 {
            receive(&mut rx, &[piece(3, 60, false)]);
            assert_eq!(inbound.stage(), 1);
            assert!(inbound.has_room() && inbound.append(&long));
            assert!(inbound.append(b"short") && !inbound.has_room());
            let (frames, arena) = inbound.buffers();
            let mut copy = vec![0; long.len()];
            assert_eq!(frames[1].read_bytes(arena, 0, &mut copy), long.len());
            assert_eq!((frames.len(), frames[1].len, frames[2].len), (3, 5000, 5));
            assert_eq!(copy, long);
            inbound.give_back();
            assert_eq!(given(&mut fill), [3 * 2048], "only what is the kernel's");
        }
        let appended = (0..100).take_while(|_| inbound.append(b"frame")).count();
        assert_eq!(appended, 20, "as many as there are chunks for");
    }

    #[test]
    fn what_the_kernel_cannot_mean_is_dropped_and_its_chunks_are_not_lost() {
        let outside = Descriptor { addr: 84 * 2048, len: 60, options: 0 };
        let endless: Vec<_> = (0..40).map(|i| piece(i, 60, i != 39)).collect();
        let cases: [(&str, Vec<Descriptor>); 4] = [
            ("outside", vec![outside]),
            ("outside, then more", vec![Descriptor { options: 1, ..outside }, piece(0, 60, false)]),
            ("more pieces than a frame has", endless),
            ("an end that never comes", vec![piece(0, 60, true)]),
        ];
        for (name, pieces) in cases {
            let (mut rx, mut fill, mut inbound) = ends(256);
            receive(&mut rx, &pieces);
            assert_eq!(inbound.stage(), 0, "{name}");
            inbound.give_back();
            assert_eq!((inbound.broken(), given(&mut fill).len()), (1, pieces.len()), "{name}");
            receive(&mut rx, &[piece(5, 60, false)]);
            assert_eq!(inbound.stage(), 1, "{name}");
        }
    }
}
