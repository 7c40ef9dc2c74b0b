//! Memory for frames, cut into chunks (UMEM).
//!
//! # Model
//! The memory is the caller's: our own, or a guest's. The kernel pins it when a socket registers
//! it. From then on it writes received frames into chunks from the fill ring, and reads frames at
//! addresses from the transmit ring. So it is shared memory like a guest's, and accessed only
//! through [`GuestSlice`]s of checked ranges.
//!
//! Follows the kernel's documentation of AF_XDP, sections "UMEM" and "XDP_UMEM_REG".

use std::sync::Arc;

use guestmem::{GuestSlice, Mapping};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use crate::error::XdpError;
use crate::ring::Descriptor;

/// Bytes that the kernel keeps free before every received frame (`XDP_PACKET_HEADROOM`).
pub const KERNEL_HEADROOM: u32 = 256;
/// Smallest chunk.
const CHUNK_MIN: u32 = 2048;

/// With unaligned chunks an address has an offset in these bits.
const OFFSET_SHIFT: u32 = 48;
const BASE_MASK: u64 = (1 << OFFSET_SHIFT) - 1;

/// Division of a memory into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Size of each: 2048 bytes to a page. A power of two unless unaligned.
    pub size: u32,
    /// Bytes to keep free before a received frame, besides [`KERNEL_HEADROOM`].
    pub headroom: u32,
    /// `true` if chunks may begin anywhere (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`, Linux 5.4), as a
    /// guest's buffers do, instead of at multiples of their size.
    pub unaligned: bool,
}

/// A memory cut into chunks.
#[derive(Clone, Debug)]
pub struct Umem {
    memory: Arc<Mapping>,
    chunks: Chunks,
}

impl Umem {
    /// Checks rules that the kernel enforces without a message. All of `memory` is used; a rest at
    /// its end is no chunk.
    pub fn new(memory: Arc<Mapping>, chunks: Chunks) -> Result<Umem, XdpError> {
        let page = rustix::param::page_size();
        let Chunks { size: chunk, headroom, unaligned } = chunks;
        let size = memory.size() as u64;
        let start = memory.slice(0, 1).and_then(|first| first.aligned_array::<u8>(1));
        let problem = if chunk < CHUNK_MIN || chunk as usize > page {
            Some("a chunk has 2048 bytes to one page")
        } else if !unaligned && !chunk.is_power_of_two() {
            Some("aligned chunks are a power of two")
        } else if headroom >= chunk - KERNEL_HEADROOM {
            Some("the headroom leaves no room for a frame")
        } else if size < u64::from(chunk) {
            Some("there is not one chunk in it")
        } else if !start.is_some_and(|start| start.addr().is_multiple_of(page)) {
            Some("it must begin with a page")
        } else {
            None
        };
        match problem {
            Some(reason) => Err(XdpError::BadUmem { size, chunk, reason }),
            None => Ok(Umem { memory, chunks }),
        }
    }

    /// Division into chunks.
    pub fn chunks(&self) -> Chunks {
        self.chunks
    }

    /// Number of adjacent chunks.
    pub fn count(&self) -> u32 {
        let count = self.size() / u64::from(self.chunks.size);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Address of the adjacent chunk `index`.
    pub fn address(&self, index: u32) -> u64 {
        u64::from(index) * u64::from(self.chunks.size)
    }

    /// Most bytes of a frame or fragment that a chunk can receive.
    pub fn room(&self) -> u32 {
        self.chunks.size - KERNEL_HEADROOM - self.chunks.headroom
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }

    /// Total bytes of the chunks.
    fn size(&self) -> u64 {
        let chunk = u64::from(self.chunks.size);
        self.memory.size() as u64 / chunk * chunk
    }

    /// Memory of a descriptor; `None` if it is not all inside, which only a bug can cause.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> Option<GuestSlice<'_>> {
        self.memory.slice(self.place(descriptor.addr), descriptor.len as usize)
    }

    /// `len` bytes at `addr`, to be written and sent.
    #[inline]
    pub fn slice(&self, addr: u64, len: u32) -> Option<GuestSlice<'_>> {
        self.memory.slice(addr, len as usize)
    }

    /// Returns `true` if a chunk that begins there is all inside.
    #[inline]
    pub(crate) fn has_chunk(&self, addr: u64) -> bool {
        addr.checked_add(self.chunks.size.into()).is_some_and(|end| end <= self.size())
    }

    /// The offset in an unaligned chunk's descriptor: the distance of a frame from the chunk's
    /// start.
    pub(crate) fn offset_in(addr: u64) -> u64 {
        addr >> OFFSET_SHIFT
    }

    /// Fill ring entry for the chunk of a received descriptor.
    #[inline]
    pub fn chunk_of(&self, addr: u64) -> u64 {
        if self.chunks.unaligned {
            addr & BASE_MASK
        } else {
            addr & !(u64::from(self.chunks.size) - 1)
        }
    }

    /// Byte offset of an address, with its chunk offset added.
    #[inline]
    fn place(&self, addr: u64) -> u64 {
        if self.chunks.unaligned { (addr & BASE_MASK) + (addr >> OFFSET_SHIFT) } else { addr }
    }

    /// Argument for registering the memory with the kernel.
    pub(crate) fn registration(&self) -> XdpUmemReg {
        let start = self.memory.slice(0, 1).and_then(|first| first.aligned_array::<u8>(1));
        let unaligned = XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
        XdpUmemReg {
            addr: start.map_or(0, |start| start.addr() as u64),
            len: self.size(),
            chunk_size: self.chunks.size,
            headroom: self.chunks.headroom,
            flags: if self.chunks.unaligned { unaligned } else { XdpUmemRegFlags::empty() },
            tx_metadata_len: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use guestmem::{Pages, SharedFile};

    use super::*;

    const CHUNKS: Chunks = Chunks { size: 2048, headroom: 0, unaligned: false };

    fn memory(size: u64, offset: u64) -> Arc<Mapping> {
        let file = SharedFile::create("umem", size + offset, Pages::Ordinary).unwrap();
        Arc::new(Mapping::new(file.fd(), size, offset).unwrap())
    }

    #[test]
    fn what_the_kernel_would_refuse_is_refused_with_a_reason() {
        let reason = |size, offset, chunks| match Umem::new(memory(size, offset), chunks) {
            Err(XdpError::BadUmem { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        let page = rustix::param::page_size() as u32;
        for size in [0, 1024, 2047, page + 1, 2 * page] {
            let text = reason(1 << 20, 0, Chunks { size, ..CHUNKS });
            assert_eq!(text, "a chunk has 2048 bytes to one page");
        }
        let odd = Chunks { size: 3000, ..CHUNKS };
        assert_eq!(reason(1 << 20, 0, odd), "aligned chunks are a power of two");
        let full = Chunks { headroom: 2048 - 256, ..CHUNKS };
        assert_eq!(reason(1 << 20, 0, full), "the headroom leaves no room for a frame");
        assert_eq!(reason(2047, 0, CHUNKS), "there is not one chunk in it");
        assert_eq!(reason(1 << 20, 512, CHUNKS), "it must begin with a page");
    }

    #[test]
    fn frames_are_inside_or_nothing() {
        let umem = Umem::new(memory(5000, 0), CHUNKS).unwrap();
        assert_eq!((umem.count(), umem.room(), umem.address(1)), (2, 1792, 2048));
        assert_eq!(umem.registration().len, 4096);
        let frame = |addr, len| umem.frame(&Descriptor { addr, len, options: 0 });
        assert_eq!(frame(2048 + 256, 1792).unwrap().len(), 1792);
        assert!(frame(4990, 11).is_none());
        assert!(frame(u64::MAX, 1).is_none());
        assert!(frame(1 << 50, 60).is_none());
        assert_eq!(umem.chunk_of(2048 + 256), 2048);
    }

    #[test]
    fn unaligned_addresses_have_an_offset() {
        let chunks = Chunks { size: 3000, headroom: 12, unaligned: true };
        let umem = Umem::new(memory(9000, 0), chunks).unwrap();
        let addr = 100 | 268 << 48;
        let mark = umem.slice(368, 4).unwrap();
        mark.write(0, *b"mark");
        let frame = umem.frame(&Descriptor { addr, len: 60, options: 0 }).unwrap();
        assert_eq!(frame.read::<4>(0), *b"mark");
        assert_eq!(umem.chunk_of(addr), 100);
        assert!(umem.frame(&Descriptor { addr: 8999 | 1 << 48, len: 1, options: 0 }).is_none());
    }
}
