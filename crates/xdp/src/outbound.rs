//! Frames to the wire: the transmit ring and the completion ring together, and the free chunks.

use std::sync::Arc;

use guestmem::GuestSlice;
use rustix::io::Errno;

use crate::handle::{SocketHandle, WakeResult};
use crate::inbound::PIECES_MAX;
use crate::ring::{Consumer, Descriptor, Producer};

/// Most system calls of one [`Outbound::flush`]: before Linux 6.17 each sends 32 frames.
const WAKES_MAX: usize = 4;

/// Step between the start offsets of frames in their chunks. Chunks are a power of two apart, so
/// equal offsets would fall into the same few sets of a cache.
const STAGGER: u32 = 64;
const STAGGERED: u64 = 16;

/// The sending half of a socket. Space for a frame is [claimed](Self::claim), written, and
/// [queued](Self::queue); [`flush`](Self::flush) sends the queued frames.
#[derive(Debug)]
pub struct Outbound {
    tx: Producer<Descriptor>,
    completion: Consumer<u64>,
    handle: Arc<SocketHandle>,
    /// The chunk freed last is used next: it is most likely in a cache.
    free: Vec<u64>,
    /// `true` if a frame was queued since the last flush.
    queued: bool,
}

/// Reasons that there is no space for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// All chunks are in use: the device is slower than the sender.
    Full,
    /// The frame exceeds the socket's limit.
    TooLong,
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing to send, or the device proceeds without a call.
    Nothing,
    /// The kernel was called.
    Called,
    /// The kernel was called and has not sent all: call again later.
    Again,
}

impl Outbound {
    /// `free` are the usable chunks: no more than the ring has entries.
    pub(crate) fn new(
        tx: Producer<Descriptor>,
        completion: Consumer<u64>,
        handle: Arc<SocketHandle>,
        free: Vec<u64>,
    ) -> Outbound {
        assert!(free.len() <= tx.size() as usize && free.len() <= completion.size() as usize);
        Outbound { tx, completion, handle, free, queued: false }
    }

    /// The socket.
    pub fn handle(&self) -> &Arc<SocketHandle> {
        &self.handle
    }

    /// Space for a frame of `len` bytes, in order. Until the frame is queued, the same space is
    /// claimed again.
    #[inline]
    pub fn claim(&mut self, len: u32) -> Result<impl Iterator<Item = GuestSlice<'_>> + '_, NoRoom> {
        let pieces = self.pieces(len);
        if !self.queued {
            // At each burst, so that few chunks are in use, and those are in the caches.
            self.reclaim();
        }
        if pieces > 1 && (!self.handle.has_fragments() || pieces > PIECES_MAX) {
            return Err(NoRoom::TooLong);
        }
        if self.free.len() < pieces {
            self.reclaim();
        }
        let kept = self.free.len().checked_sub(pieces).ok_or(NoRoom::Full)?;
        let umem = self.handle.umem();
        let size = umem.chunks().size;
        let mut left = len;
        Ok(self.free[kept..].iter().rev().map(move |addr| {
            let part = left.min(size);
            left -= part;
            umem.slice(place(*addr, part, size), part).unwrap_or(GuestSlice::EMPTY)
        }))
    }

    /// Queues the frame of `len` bytes whose space was claimed and written.
    ///
    /// # Panics
    /// If no space was claimed for it.
    #[inline]
    pub fn queue(&mut self, len: u32) {
        let size = self.handle.umem().chunks().size;
        let mut left = len;
        for _ in 0..self.pieces(len) {
            let addr = self.free.pop().expect("room was claimed");
            let part = left.min(size);
            left -= part;
            let options = if left > 0 { Descriptor::CONTINUES } else { 0 };
            // There is room: no more chunks are in use than the ring has entries.
            let addr = place(addr, part, size);
            self.tx.put(Descriptor { addr, len: part, options });
        }
        self.queued = true;
    }

    /// Publishes the queued frames, and calls the kernel if needed.
    ///
    /// # Errors
    /// As [`SocketHandle::wake_tx`].
    pub fn flush(&mut self) -> Result<Flushed, Errno> {
        if !std::mem::take(&mut self.queued) {
            return Ok(Flushed::Nothing);
        }
        self.tx.submit();
        let mut flushed = Flushed::Nothing;
        for _ in 0..WAKES_MAX {
            if !self.tx.needs_wakeup() {
                return Ok(flushed);
            }
            flushed = match self.handle.wake_tx()? {
                WakeResult::Done => return Ok(Flushed::Called),
                WakeResult::Again => Flushed::Again,
            };
            if self.tx.pending() == 0 {
                return Ok(Flushed::Called);
            }
        }
        Ok(flushed)
    }

    #[inline]
    fn pieces(&self, len: u32) -> usize {
        let size = self.handle.umem().chunks().size;
        if len <= size { 1 } else { len.div_ceil(size) as usize }
    }

    /// Reclaims the chunks of sent frames.
    fn reclaim(&mut self) {
        while let Some(addr) = self.completion.take() {
            self.free.push(self.handle.umem().chunk_of(addr));
        }
        self.completion.release();
    }
}

/// Start address of `len` bytes in a chunk of `size` bytes.
#[inline]
fn place(chunk: u64, len: u32, size: u32) -> u64 {
    match len + STAGGER * STAGGERED as u32 <= size {
        true => chunk + chunk / u64::from(size) % STAGGERED * u64::from(STAGGER),
        false => chunk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::handle;
    use crate::ring::kit::{other_end, ring};

    const CHUNKS: u64 = 8;

    /// The kernel's side of the two rings, and ours.
    fn ends() -> (Consumer<Descriptor>, Producer<u64>, Outbound) {
        let (tx, completion) = (ring(8), ring(8));
        let kernel = (Consumer::over(other_end(&tx)), Producer::over(other_end(&completion)));
        let free = (0..CHUNKS).map(|chunk| chunk * 2048).collect();
        let (tx, completion) = (Producer::over(tx), Consumer::over(completion));
        (kernel.0, kernel.1, Outbound::new(tx, completion, handle(CHUNKS), free))
    }

    fn send(outbound: &mut Outbound, len: u32) -> Result<(), NoRoom> {
        let room: u32 = outbound.claim(len)?.map(|slice| slice.len()).sum();
        assert_eq!(room, len);
        outbound.queue(len);
        Ok(())
    }

    /// The kernel sends all it sees; returns the lengths and their continuation flags.
    fn sent(tx: &mut Consumer<Descriptor>, completion: &mut Producer<u64>) -> Vec<(u32, bool)> {
        let mut sent = Vec::new();
        while let Some(piece) = tx.take() {
            assert!(completion.put(piece.addr));
            sent.push((piece.len, piece.continues()));
        }
        tx.release();
        completion.submit();
        sent
    }

    #[test]
    fn frames_are_sent_when_flushed_and_their_chunks_come_back() {
        let (mut tx, mut completion, mut outbound) = ends();
        assert_eq!(outbound.flush(), Ok(Flushed::Nothing));
        for turn in 0..100 {
            for _ in 0..CHUNKS {
                send(&mut outbound, 60).unwrap();
            }
            assert_eq!(send(&mut outbound, 60), Err(NoRoom::Full), "turn {turn}");
            assert_eq!(sent(&mut tx, &mut completion), []);
            // The ring's flag says that the kernel needs no call.
            assert_eq!(outbound.flush(), Ok(Flushed::Nothing));
            assert_eq!(sent(&mut tx, &mut completion), [(60, false); CHUNKS as usize]);
        }
    }

    #[test]
    fn long_frames_take_several_chunks() {
        let (mut tx, mut completion, mut outbound) = ends();
        send(&mut outbound, 4097).unwrap();
        send(&mut outbound, 4096).unwrap();
        outbound.flush().unwrap();
        let want = [(2048, true), (2048, true), (1, false), (2048, true), (2048, false)];
        assert_eq!(sent(&mut tx, &mut completion), want);
        assert_eq!(send(&mut outbound, 2048 * 18 + 1), Err(NoRoom::TooLong));
        assert_eq!(send(&mut outbound, 2048 * 9), Err(NoRoom::Full));
        send(&mut outbound, 2048 * 8).unwrap();
    }

    #[test]
    fn what_is_claimed_is_what_is_sent() {
        let (mut tx, _completion, mut outbound) = ends();
        let len = 2048 + 10;
        for (i, slice) in outbound.claim(len).unwrap().enumerate() {
            slice.write(0, [b'a' + i as u8; 10]);
        }
        outbound.queue(len);
        outbound.flush().unwrap();
        for want in [b'a', b'b'] {
            let piece = tx.take().unwrap();
            let frame = outbound.handle().umem().frame(&piece).unwrap();
            assert_eq!(frame.read::<10>(0), [want; 10]);
        }
    }
}
