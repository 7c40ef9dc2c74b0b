//! Buffers: the slices of guest memory that one descriptor chain describes, in order.

use crate::slice::GuestSlice;

/// Identifies a buffer to its ring when it is returned as used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// Id in the ring. Split ring: the chain's first descriptor. Packed ring: the driver's buffer
    /// id.
    pub id: u16,
    /// Ring descriptors that the chain takes; a packed ring advances by this number.
    pub descriptors: u16,
}

/// A list of slices. Nearly every frame is one slice, so the first is held inline; the others are
/// in the owner's arena.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    /// The first slice.
    pub first: GuestSlice<'a>,
    /// Total bytes of all slices.
    pub len: u32,
    /// Index of the second slice in the arena that belongs to the buffer.
    pub rest_start: u16,
    /// Number of slices after the first.
    pub rest_len: u16,
    /// Identifies the buffer to its ring.
    pub ticket: Ticket,
}

impl<'a> Buffer<'a> {
    /// A buffer of no bytes.
    pub const EMPTY: Buffer<'static> = Buffer {
        first: GuestSlice::EMPTY,
        len: 0,
        rest_start: 0,
        rest_len: 0,
        ticket: Ticket { id: 0, descriptors: 0 },
    };

    /// A buffer of one slice, which is one descriptor.
    #[inline]
    pub fn single(first: GuestSlice<'a>, id: u16) -> Buffer<'a> {
        let ticket = Ticket { id, descriptors: 1 };
        Buffer { first, len: first.len(), rest_start: 0, rest_len: 0, ticket }
    }

    /// All slices in order; `arena` is the one that belongs to the buffer.
    pub fn slices<'b>(
        &self,
        arena: &'b [GuestSlice<'a>],
    ) -> impl Iterator<Item = GuestSlice<'a>> + 'b
    where
        'a: 'b,
    {
        let start = usize::from(self.rest_start);
        let rest = arena.get(start..start + usize::from(self.rest_len)).unwrap_or(&[]);
        std::iter::once(self.first).chain(rest.iter().copied())
    }

    /// Copies bytes from `offset` on into `bytes`, across slices; returns the number copied.
    pub fn read_bytes(&self, arena: &[GuestSlice<'a>], mut offset: u32, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for slice in self.slices(arena) {
            let part = slice.skip(offset);
            offset = offset.saturating_sub(slice.len());
            done += part.read_bytes(&mut bytes[done..]) as usize;
        }
        done
    }
}
