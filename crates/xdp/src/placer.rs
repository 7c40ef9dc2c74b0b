//! Frames received directly into another owner's buffers: the receive ring and the fill ring over a
//! guest's memory.
//!
//! # Model
//! The memory is a region of a guest's, cut into unaligned chunks. A guest buffer is
//! [posted](Placer::post) as the chunk whose frame starts at the right offset in the buffer: behind
//! a header that the caller writes. The kernel, or the device, puts each frame in the oldest posted
//! buffer, so [`Placer::take`] knows the next position; any other position ends the use of the
//! socket.
//!
//! Writes to a chunk in copy mode: only the frame. The kernel's `__xsk_rcv` makes one copy of the
//! frame's length to the chunk's start plus [`KERNEL_HEADROOM`] and the memory's headroom. The
//! headroom is not written, since no program here puts metadata there. A redirected frame must be
//! no longer than the posted buffers, which [`crate::Redirect::steer`] ensures. With zero-copy the
//! device writes before any program runs: up to [`Umem::room`] bytes of any frame on that queue, so
//! a buffer must be that long.

use std::collections::VecDeque;
use std::sync::Arc;

use guestmem::GuestSlice;

use crate::handle::SocketHandle;
use crate::ring::{Consumer, Descriptor, Producer};
use crate::socket::Socket;
use crate::umem::{KERNEL_HEADROOM, Umem};

/// Receives frames into posted buffers.
#[derive(Debug)]
pub struct Placer {
    rx: Consumer<Descriptor>,
    fill: Producer<u64>,
    handle: Arc<SocketHandle>,
    /// Bytes of each buffer before the frame.
    header: u32,
    /// Longest frame accepted, bytes.
    longest: u32,
    /// Addresses of the posted buffers, in order.
    posted: VecDeque<u64>,
}

/// Reasons that a buffer cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferError {
    /// It is in another region of the memory.
    Elsewhere,
    /// It is so near to the start or the end of its region that no chunk fits around it.
    AtEdge,
    /// It is shorter than this number of bytes.
    TooSmall(u32),
}

/// The kernel placed a frame outside its expected buffer. No buffer may be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

impl Placer {
    /// Uses a socket with an empty fill ring, whose memory has unaligned chunks. Frames of at most
    /// `longest` bytes will be placed behind `header` bytes.
    ///
    /// # Panics
    /// If chunks are aligned, or have no room for such a frame.
    pub fn new(socket: Socket, header: u32, longest: u32) -> Placer {
        Placer::over(socket.rx, socket.fill, socket.handle, (header, longest))
    }

    fn over(
        rx: Consumer<Descriptor>,
        fill: Producer<u64>,
        handle: Arc<SocketHandle>,
        (header, longest): (u32, u32),
    ) -> Placer {
        let umem = handle.umem();
        assert!(umem.chunks().unaligned && longest <= umem.room() && rx.size() >= fill.size());
        assert!(header <= KERNEL_HEADROOM);
        let posted = VecDeque::with_capacity(fill.size() as usize);
        Placer { rx, fill, handle, header, longest, posted }
    }

    /// The socket.
    pub fn handle(&self) -> &Arc<SocketHandle> {
        &self.handle
    }

    /// Posted buffers without a frame.
    pub fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Number of buffers that may still be posted. The kernel may publish a frame before it frees
    /// the buffer's entry in the fill ring, so the count comes from that ring.
    #[inline]
    pub fn room(&mut self) -> usize {
        let places = self.fill.size() - self.posted.len() as u32;
        self.fill.reserve(places) as usize
    }

    /// Bytes that a buffer must have, header included.
    pub fn need(&self) -> u32 {
        let written = match self.handle.is_zero_copy() {
            true => self.handle.umem().room(),
            false => self.longest,
        };
        self.header + written
    }

    /// Posts a buffer, if there is room and a frame may be placed in it; the kernel sees it after
    /// [`submit`](Self::submit).
    ///
    /// # Errors
    /// The reason that no frame may be placed there. Nothing is posted.
    #[inline]
    pub fn post(&mut self, buffer: GuestSlice<'_>) -> Result<(), BufferError> {
        let umem = self.handle.umem();
        let at = umem.memory().offset_of(&buffer).ok_or(BufferError::Elsewhere)?;
        if buffer.len() < self.need() {
            return Err(BufferError::TooSmall(self.need()));
        }
        let chunk =
            (at + u64::from(self.header)).checked_sub(self.lead()).ok_or(BufferError::AtEdge)?;
        if !umem.has_chunk(chunk) {
            return Err(BufferError::AtEdge);
        }
        assert!(self.fill.put(chunk), "no more is posted than there is room for");
        self.posted.push_back(at);
        Ok(())
    }

    /// Publishes the posted buffers.
    #[inline]
    pub fn submit(&mut self) {
        self.fill.submit();
    }

    /// The next frame: its buffer, from its start, and the frame's length; `None` if there is none.
    ///
    /// # Errors
    /// The kernel placed a frame elsewhere.
    #[inline]
    pub fn take(&mut self) -> Result<Option<(GuestSlice<'_>, u32)>, Misplaced> {
        let Some(came) = self.rx.take() else { return Ok(None) };
        let at = self.posted.pop_front().ok_or(Misplaced)?;
        let umem = self.handle.umem();
        let chunk = at + u64::from(self.header) - self.lead();
        let right = umem.chunk_of(came.addr) == chunk
            && Umem::offset_in(came.addr) == self.lead()
            && came.len <= self.longest
            && !came.continues();
        let buffer = umem.slice(at, self.header + came.len).filter(|_| right);
        buffer.map(|buffer| Some((buffer, came.len))).ok_or(Misplaced)
    }

    /// Frees the ring entries of the frames taken.
    #[inline]
    pub fn release(&mut self) {
        self.rx.release();
    }

    /// Returns `true` if received frames wait.
    #[inline]
    pub fn has_backlog(&mut self) -> bool {
        self.rx.peek(1) > 0
    }

    /// Returns `true` if the kernel needs [`SocketHandle::wake_rx`] before it receives more.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Offset of a frame from the start of its chunk.
    #[inline]
    fn lead(&self) -> u64 {
        u64::from(KERNEL_HEADROOM + self.handle.umem().chunks().headroom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::unaligned_handle;
    use crate::ring::kit::{other_end, ring};

    const HEADER: u32 = 12;
    const LONGEST: u32 = 1514;

    /// The kernel's side of the two rings, and ours, over a memory of 64 KiB.
    fn ends(size: u32) -> (Producer<Descriptor>, Consumer<u64>, Placer) {
        let (rx, fill) = (ring(size), ring(size));
        let kernel = (Producer::over(other_end(&rx)), Consumer::over(other_end(&fill)));
        let (rx, fill, handle) = (Consumer::over(rx), Producer::over(fill), unaligned_handle(32));
        (kernel.0, kernel.1, Placer::over(rx, fill, handle, (HEADER, LONGEST)))
    }

    fn post(placer: &mut Placer, at: u64, len: u32) -> Result<(), BufferError> {
        let memory = placer.handle().umem().memory().clone();
        let posted = placer.post(memory.slice(at, len as usize).unwrap());
        placer.submit();
        posted
    }

    /// The kernel's copy of a frame to a chunk, and its descriptor.
    fn receive(
        (rx, fill): (&mut Producer<Descriptor>, &mut Consumer<u64>),
        handle: &SocketHandle,
        frame: &[u8],
    ) -> Descriptor {
        let chunk = fill.take().unwrap();
        fill.release();
        let place = handle.umem().slice(chunk + 256, frame.len() as u32).unwrap();
        place.write_bytes(frame);
        let addr = chunk | 256 << 48;
        let came = Descriptor { addr, len: frame.len() as u32, options: 0 };
        assert!(rx.put(came));
        rx.submit();
        came
    }

    #[test]
    fn frames_come_behind_the_header_and_nothing_around_them_changes() {
        let (mut rx, mut fill, mut placer) = ends(4);
        let handle = placer.handle().clone();
        let memory = handle.umem().memory().clone();
        memory.slice(0, 1 << 16).unwrap().write_bytes(&[0xaa; 1 << 16]);
        let at = 3001; // as a guest likes it
        post(&mut placer, at, HEADER + LONGEST).unwrap();
        assert!(matches!(placer.take(), Ok(None)));
        let frame = [0x55; LONGEST as usize];
        receive((&mut rx, &mut fill), &handle, &frame);
        let (buffer, len) = placer.take().unwrap().unwrap();
        assert_eq!((buffer.len(), len), (HEADER + LONGEST, LONGEST));
        let mut all = vec![0; 1 << 16];
        memory.slice(0, 1 << 16).unwrap().read_bytes(&mut all);
        let from = (at + u64::from(HEADER)) as usize;
        assert_eq!(all[from..from + frame.len()], frame);
        all[from..from + frame.len()].fill(0xaa);
        assert!(all.iter().all(|byte| *byte == 0xaa));
    }

    #[test]
    fn buffers_are_used_in_order_and_their_room_again() {
        let (mut rx, mut fill, mut placer) = ends(2);
        let handle = placer.handle().clone();
        for round in 0..5u64 {
            for buffer in [2048, 8192] {
                post(&mut placer, buffer + round, 1600).unwrap();
            }
            assert_eq!((placer.room(), placer.posted()), (0, 2));
            for want in [2048, 8192] {
                receive((&mut rx, &mut fill), &handle, &[7; 60]);
                let (buffer, _) = placer.take().unwrap().unwrap();
                assert_eq!(handle.umem().memory().offset_of(&buffer), Some(want + round));
                placer.release();
            }
        }
        assert!(!placer.has_backlog());
    }

    #[test]
    fn buffers_where_no_frame_may_be_put_are_refused() {
        let (_rx, mut fill, mut placer) = ends(8);
        let need = HEADER + LONGEST;
        let end = 32 * 2048;
        for (at, len, why) in [
            (4096, need - 1, BufferError::TooSmall(need)),
            (0, 4096, BufferError::AtEdge),
            (256 - 12 - 1, 4096, BufferError::AtEdge),
            (end - 2048 + 244 + 1, need, BufferError::AtEdge),
        ] {
            assert_eq!(post(&mut placer, at, len), Err(why), "{at} {len}");
        }
        let other = unaligned_handle(32);
        let slice = other.umem().slice(4096, 2048).unwrap();
        assert_eq!(placer.post(slice), Err(BufferError::Elsewhere));
        placer.submit();
        assert_eq!((placer.posted(), fill.take()), (0, None));
        for at in [244, end - 2048 + 244] {
            post(&mut placer, at, need).unwrap();
        }
        assert_eq!((fill.take(), fill.take()), (Some(0), Some(end - 2048)));
    }

    #[test]
    fn an_answer_that_is_not_the_next_frame_is_a_fault() {
        let chunk = 4096 + 12 - 256;
        let good = Descriptor { addr: chunk | 256 << 48, len: 60, options: 0 };
        for (name, came) in [
            ("another buffer", Descriptor { addr: (chunk + 2048) | 256 << 48, ..good }),
            ("another place in it", Descriptor { addr: chunk | 272 << 48, ..good }),
            ("longer than agreed", Descriptor { len: LONGEST + 1, ..good }),
            ("a piece", Descriptor { options: Descriptor::CONTINUES, ..good }),
            ("outside", Descriptor { addr: u64::MAX, ..good }),
        ] {
            let (mut rx, _fill, mut placer) = ends(4);
            post(&mut placer, 4096, 2048).unwrap();
            post(&mut placer, 4096 + 2048, 2048).unwrap();
            assert!(rx.put(came));
            rx.submit();
            assert!(placer.take().is_err(), "{name}");
        }
        let (mut rx, _fill, mut placer) = ends(4);
        assert!(rx.put(good));
        rx.submit();
        assert!(placer.take().is_err(), "nothing was posted");
    }
}
