//! What one descriptor chain describes: slices of guest memory, in order.

use crate::slice::GuestSlice;

/// What a ring must know of a buffer to give it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// The ring's name for it: in a split ring the chain's first descriptor, in a packed ring what
    /// the driver called it.
    pub id: u16,
    /// Descriptors of the ring that it takes, which a packed ring skips when it is used.
    pub descriptors: u16,
}

/// A list of slices. Nearly every frame is one slice, so the first is held inline, and the others
/// are named by their place in the owner's arena.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    /// The first slice.
    pub first: GuestSlice<'a>,
    /// Bytes of all slices together.
    pub len: u32,
    /// Where the other slices begin in the arena that came with the buffer.
    pub rest_start: u16,
    /// How many other slices there are.
    pub rest_len: u16,
    /// How its ring knows it.
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

    /// All its slices in order; `arena` is the one that came with the buffer.
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

    /// Copies bytes from `offset` on into `bytes`, across slices; says how many there were.
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
