//! Descriptors of a driver's ring: which are free, and which form a buffer in flight.

use std::collections::VecDeque;

use crate::ring::Descriptor;

/// A piece of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Guest physical address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The device writes here.
    pub writable: bool,
}

impl Segment {
    /// As a descriptor without a link.
    #[inline(always)]
    pub(crate) fn descriptor(self) -> Descriptor {
        let flags = if self.writable { Descriptor::WRITE } else { 0 };
        Descriptor { addr: self.addr, len: self.len, flags, next: 0 }
    }
}

/// A buffer that the device gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Id that [`DriverQueue::post`](crate::DriverQueue::post) returned.
    pub id: u16,
    /// Bytes that the device wrote.
    pub len: u32,
}

/// Free descriptors of a ring, and the chains of those in flight.
#[derive(Debug)]
pub(crate) struct DescriptorPool {
    /// Descriptors in no chain.
    free: VecDeque<u16>,
    /// Descriptors are taken in the order of the ring, in which they were freed.
    in_order: bool,
    /// Length of the chain at each head; zero if the head is not in flight.
    lengths: Vec<u16>,
    /// Link of each descriptor in a chain: the device may overwrite those in the table.
    links: Vec<u16>,
    pub(crate) strays: u64,
}

impl DescriptorPool {
    pub(crate) fn new(size: u16, in_order: bool) -> DescriptorPool {
        let free = match in_order {
            true => (0..size).collect(),
            false => (0..size).rev().collect(),
        };
        let none = vec![0; usize::from(size)];
        DescriptorPool { free, in_order, lengths: none.clone(), links: none, strays: 0 }
    }

    /// Takes one descriptor for a buffer of its own.
    #[inline]
    pub(crate) fn take_one(&mut self) -> Option<u16> {
        let head = self.pop()?;
        self.lengths[usize::from(head)] = 1;
        Some(head)
    }

    /// Entries of the ring.
    pub(crate) fn size(&self) -> u16 {
        self.lengths.len() as u16
    }

    /// Free descriptors.
    #[inline]
    pub(crate) fn free_len(&self) -> usize {
        self.free.len()
    }

    #[inline]
    fn pop(&mut self) -> Option<u16> {
        if self.in_order { self.free.pop_front() } else { self.free.pop_back() }
    }

    /// Takes `n` descriptors for a chain.
    pub(crate) fn take(&mut self, n: usize) -> Option<Vec<u16>> {
        if n == 0 || n > self.free.len() {
            return None;
        }
        let heads: Vec<_> = (0..n).filter_map(|_| self.pop()).collect();
        for pair in heads.windows(2) {
            self.links[usize::from(pair[0])] = pair[1];
        }
        self.lengths[usize::from(heads[0])] = n as u16;
        Some(heads)
    }

    /// Number of descriptors of the buffer `head`; zero if it is not in flight.
    #[inline]
    pub(crate) fn length(&self, head: u32) -> u16 {
        self.lengths.get(head as usize).copied().unwrap_or(0)
    }

    /// The descriptors of the buffer `head`.
    pub(crate) fn chain(&self, head: u16) -> impl Iterator<Item = u16> + '_ {
        let length = usize::from(self.length(head.into()));
        let link = |index: &u16| Some(self.links[usize::from(*index)]);
        std::iter::successors(Some(head), link).take(length)
    }

    /// Frees the buffer `head`; returns its number of descriptors, zero if it is not in flight.
    #[inline]
    pub(crate) fn release(&mut self, head: u32) -> u16 {
        let Some(length) = self.lengths.get_mut(head as usize) else {
            return 0;
        };
        let length = std::mem::take(length);
        let mut index = head as u16;
        for _ in 0..length {
            self.free.push_back(index);
            index = self.links[usize::from(index)];
        }
        length
    }
}
