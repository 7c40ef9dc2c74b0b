//! Memory of our own into which the kernel puts frames: what an interface's port receives into.
//!
//! Model: a file of our own, mapped, and a list of frames in it that are on their way, lent as a
//! ring lends the buffers of its guest. So a frame that came from an interface and one that came
//! from a guest look alike to whoever carries them.

use std::mem::transmute;

use crate::buffer::Buffer;
use crate::mapping::{MapError, Mapping, Pages, SharedFile};
use crate::slice::GuestSlice;

/// Most frames that a pool lends at a time: those of a burst.
pub const STAGED_MAX: usize = 64;

/// Memory of our own, and the frames in it that are lent.
#[derive(Debug)]
pub struct Pool {
    memory: SharedFile,
    staged: Box<[Buffer<'static>; STAGED_MAX]>,
    len: usize,
}

impl Pool {
    /// A pool of `bytes` bytes of zeros, in large pages where the kernel gathers such.
    ///
    /// # Errors
    /// As [`SharedFile::create`].
    pub fn create(name: &str, bytes: u64) -> Result<Pool, MapError> {
        let memory = SharedFile::create(name, bytes, Pages::Gathered)?;
        Ok(Pool { memory, staged: Box::new([Buffer::EMPTY; STAGED_MAX]), len: 0 })
    }

    /// The memory.
    pub fn memory(&self) -> &Mapping {
        self.memory.mapping()
    }

    /// `len` bytes from `offset`; `None` if they are not all inside.
    #[inline]
    pub fn slice(&self, offset: u64, len: u32) -> Option<GuestSlice<'_>> {
        self.memory().slice(offset, len as usize)
    }

    /// Lends nothing any more.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Lends the frame of `len` bytes at `offset`; its buffer's id is its place. Says whether it
    /// could: not if the frame is not all inside, or [`STAGED_MAX`] are lent.
    #[inline]
    pub fn lend(&mut self, offset: u64, len: u32) -> bool {
        let id = self.len as u16;
        let Some(slice) = self.memory.mapping().slice(offset, len as usize) else {
            return false;
        };
        // SAFETY: the memory is as old as `self`, and `buffers` lends for its own borrow only.
        let slice = unsafe { slice.forget_lifetime() };
        match self.staged.get_mut(self.len) {
            Some(place) => *place = Buffer::single(slice, id),
            None => return false,
        }
        self.len += 1;
        true
    }

    /// The frames that are lent, in the order in which they were.
    #[inline]
    pub fn buffers(&self) -> &[Buffer<'_>] {
        // SAFETY: only the lifetime changes: from "for ever", which was a lie for storage, to that
        // of this borrow, during which the memory cannot be dropped.
        unsafe { transmute::<&[Buffer<'static>], &[Buffer<'_>]>(&self.staged[..self.len]) }
    }
}
