//! Memory of our own into which the kernel puts frames: the receive memory of an interface's port.
//!
//! Model: a mapped file of our own, and a list of the frames in it that are in use, lent like the
//! buffers of a guest's ring. Frames from an interface and from a guest then look alike to the code
//! that forwards them.

use std::mem::transmute;

use crate::error::MapError;
use crate::mapping::{Mapping, SharedFile};
use crate::pages::Pages;
use crate::slice::{Buffer, GuestSlice};

/// Largest number of frames lent at a time: one burst.
pub const STAGED_MAX: usize = 64;

/// Receive memory, and the frames in it that are lent.
#[derive(Debug)]
pub struct FramePool {
    memory: SharedFile,
    staged: Box<[Buffer<'static>; STAGED_MAX]>,
    len: usize,
}

impl FramePool {
    /// A pool of `bytes` bytes of zeros.
    ///
    /// # Errors
    /// As [`SharedFile::create`].
    pub fn create(name: &str, bytes: u64, pages: Pages) -> Result<FramePool, MapError> {
        let memory = SharedFile::create(name, bytes, pages)?;
        Ok(FramePool { memory, staged: Box::new([Buffer::EMPTY; STAGED_MAX]), len: 0 })
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

    /// Ends all loans.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Lends the frame of `len` bytes at `offset`; its buffer id is its index. Returns `false` if
    /// the frame is not all inside, or [`STAGED_MAX`] are lent.
    #[inline]
    pub fn lend(&mut self, offset: u64, len: u32) -> bool {
        let id = self.len as u16;
        let Some(slice) = self.memory.mapping().slice(offset, len as usize) else {
            return false;
        };
        // SAFETY: the memory lives as long as `self`, and `buffers` lends for its own borrow only.
        let slice = unsafe { slice.forget_lifetime() };
        match self.staged.get_mut(self.len) {
            Some(place) => *place = Buffer::single(slice, id),
            None => return false,
        }
        self.len += 1;
        true
    }

    /// The lent frames, in order.
    #[inline]
    pub fn buffers(&self) -> &[Buffer<'_>] {
        // SAFETY: only the lifetime changes, from `'static` in storage to that of this borrow,
        // during which the memory cannot be dropped.
        unsafe { transmute::<&[Buffer<'static>], &[Buffer<'_>]>(&self.staged[..self.len]) }
    }
}
