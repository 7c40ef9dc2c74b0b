//! Frames placed in somebody's own buffers: the receive ring and the fill ring over a guest's
//! memory.
//!
//! # Model
//! The memory is a region of a guest's, cut into unaligned chunks. A buffer of the guest's is
//! [posted](Placer::post) as the chunk in which a frame would begin where the guest wants it:
//! behind a header that the caller writes. The kernel, or the device, puts each frame in the oldest
//! posted buffer, so [`Placer::take`] knows where the next one must be; an answer that says
//! otherwise ends the use of the socket.
//!
//! What is written to a chunk: in copy mode the frame, byte for byte, and nothing else (the
//! kernel's `__xsk_rcv`: one copy of the frame's length to the chunk's start, [`KERNEL_HEADROOM`]
//! and the memory's headroom further; the headroom is left alone, for no program here puts metadata
//! there). A frame that the program redirects must be no longer than the posted buffers, which
//! [`crate::Redirect::steer`] sees to. With zero-copy the device writes before any program looks:
//! up to [`Umem::room`] bytes, of whatever frame comes by that queue; so a buffer must have as
//! many.

use std::collections::VecDeque;
use std::sync::Arc;

use guestmem::GuestSlice;

use crate::ring::{Consumer, Descriptor, Producer};
use crate::socket::{Handle, Socket};
use crate::umem::{KERNEL_HEADROOM, Umem};

/// Takes frames in posted buffers.
#[derive(Debug)]
pub struct Placer {
    rx: Consumer<Descriptor>,
    fill: Producer<u64>,
    handle: Arc<Handle>,
    /// Bytes that each buffer has in front of the frame.
    header: u32,
    /// The longest frame that may come, bytes.
    longest: u32,
    /// Where the posted buffers begin, in order.
    posted: VecDeque<u64>,
}

/// Why a buffer cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is in another region of the memory.
    Elsewhere,
    /// It is so near to the start or to the end of its region that no chunk fits around it.
    AtEdge,
    /// It has fewer bytes than these, which are needed.
    TooSmall(u32),
}

/// The kernel's answer is not the frame that must come next. No buffer may be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

impl Placer {
    /// Over a socket without a chunk in its fill ring, whose memory has unaligned chunks. Frames of
    /// at most `longest` bytes will be placed behind `header` bytes.
    ///
    /// # Panics
    /// If chunks are aligned, or have no room for such a frame.
    pub fn new(socket: Socket, header: u32, longest: u32) -> Placer {
        Placer::over(socket.rx, socket.fill, socket.handle, (header, longest))
    }

    fn over(
        rx: Consumer<Descriptor>,
        fill: Producer<u64>,
        handle: Arc<Handle>,
        (header, longest): (u32, u32),
    ) -> Placer {
        let umem = handle.umem();
        assert!(umem.chunks().unaligned && longest <= umem.room() && rx.size() >= fill.size());
        assert!(header <= KERNEL_HEADROOM);
        let posted = VecDeque::with_capacity(fill.size() as usize);
        Placer { rx, fill, handle, header, longest, posted }
    }

    /// The socket.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Buffers that are posted and have no frame yet.
    pub fn posted(&self) -> usize {
        self.posted.len()
    }

    /// How many more may be posted. The kernel may show a frame before it shows that the place of
    /// its buffer in the ring is free, so it is the ring that is asked.
    #[inline]
    pub fn room(&mut self) -> usize {
        let places = self.fill.size() - self.posted.len() as u32;
        self.fill.reserve(places) as usize
    }

    /// Bytes that a buffer must have: those that may be written, header included.
    pub fn need(&self) -> u32 {
        let written = match self.handle.is_zero_copy() {
            true => self.handle.umem().room(),
            false => self.longest,
        };
        self.header + written
    }

    /// Posts a buffer, if there is room and a frame may be put there; the kernel does not see it
    /// before [`submit`](Self::submit).
    ///
    /// # Errors
    /// Why no frame may be put there. Nothing is posted.
    #[inline]
    pub fn post(&mut self, buffer: GuestSlice<'_>) -> Result<(), Unfit> {
        let umem = self.handle.umem();
        let at = umem.memory().offset_of(&buffer).ok_or(Unfit::Elsewhere)?;
        if buffer.len() < self.need() {
            return Err(Unfit::TooSmall(self.need()));
        }
        let chunk = (at + u64::from(self.header)).checked_sub(self.lead()).ok_or(Unfit::AtEdge)?;
        if !umem.has_chunk(chunk) {
            return Err(Unfit::AtEdge);
        }
        assert!(self.fill.put(chunk), "no more is posted than there is room for");
        self.posted.push_back(at);
        Ok(())
    }

    /// Shows the kernel what was posted.
    #[inline]
    pub fn submit(&mut self) {
        self.fill.submit();
    }

    /// The next frame: its buffer, from its start, and the frame's length. Nothing if none came.
    ///
    /// # Errors
    /// What came is not what must.
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

    /// Gives the kernel the places of what was taken.
    #[inline]
    pub fn release(&mut self) {
        self.rx.release();
    }

    /// Whether frames wait that were not taken.
    #[inline]
    pub fn has_backlog(&mut self) -> bool {
        self.rx.peek(1) > 0
    }

    /// Whether the kernel waits for [`Handle::wake_rx`] before it receives more.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// How far behind the start of its chunk a frame is.
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

    /// The kernel's end of the two rings, and ours, over a memory of 64 KiB.
    fn ends(size: u32) -> (Producer<Descriptor>, Consumer<u64>, Placer) {
        let (rx, fill) = (ring(size), ring(size));
        let kernel = (Producer::over(other_end(&rx)), Consumer::over(other_end(&fill)));
        let (rx, fill, handle) = (Consumer::over(rx), Producer::over(fill), unaligned_handle(32));
        (kernel.0, kernel.1, Placer::over(rx, fill, handle, (HEADER, LONGEST)))
    }

    fn post(placer: &mut Placer, at: u64, len: u32) -> Result<(), Unfit> {
        let memory = placer.handle().umem().memory().clone();
        let posted = placer.post(memory.slice(at, len as usize).unwrap());
        placer.submit();
        posted
    }

    /// The kernel's copy of a frame to a chunk, and what it tells.
    fn receive(
        (rx, fill): (&mut Producer<Descriptor>, &mut Consumer<u64>),
        handle: &Handle,
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
            (4096, need - 1, Unfit::TooSmall(need)),
            (0, 4096, Unfit::AtEdge),
            (256 - 12 - 1, 4096, Unfit::AtEdge),
            (end - 2048 + 244 + 1, need, Unfit::AtEdge),
        ] {
            assert_eq!(post(&mut placer, at, len), Err(why), "{at} {len}");
        }
        let other = unaligned_handle(32);
        let slice = other.umem().slice(4096, 2048).unwrap();
        assert_eq!(placer.post(slice), Err(Unfit::Elsewhere));
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
