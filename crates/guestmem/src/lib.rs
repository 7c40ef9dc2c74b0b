//! Shared guest memory: regions, translation, volatile copies, truncation guard.
//!
//! # Model
//! A front-end (a VMM) hands over file descriptors. Each becomes a [`Mapping`]; the mappings with
//! their guest addresses form one immutable [`GuestMemory`]. An address that a guest writes is
//! turned into a [`GuestSlice`] by [`GuestMemory::slice`], which checks the whole range, and a
//! slice is the only way to touch the memory behind it. A [`Buffer`] is a list of slices: what one
//! descriptor chain describes. While a guest is moved, what is written to its memory is said in a
//! [`DirtyLog`].
//!
//! # Rules
//! - There are no references into guest memory. Every access is a volatile or atomic access, or
//!   one `memcpy` whose result nobody branches on: the guest may change a byte at any time.
//! - A range is inside one region or it is refused; neighbours are never joined.
//! - A front-end may shrink the file behind a mapping at any time. The [`guard`] turns the SIGBUS
//!   that follows into zero pages and a flag, so that only the owner's rings stop.
//!
//! # Limits
//! [`REGIONS_MAX`] regions per memory, [`guard::MAPPINGS_MAX`] mappings per process, slices below
//! 4 GiB, and of foreign memory what a [`Quota`] allows.
//!
//! This crate holds `unsafe` code: mapping files, the signal handler, the copies themselves, and
//! the system calls that copy from or into guest memory ([`io`]).
#![allow(unsafe_code)] // This is the room for it: see the crate's rules above.

mod buffer;
mod copy;
mod dirty;
pub mod guard;
pub mod io;
mod kind;
mod mapping;
mod memory;
mod pool;
mod quota;
mod slice;

pub use buffer::{Buffer, Ticket};
pub use copy::prefetch_read as prefetch;
pub use dirty::{DirtyLog, PAGE as LOG_PAGE};
pub use kind::is_memory;
pub use mapping::{Free, MapError, Mapped, Mapping, Pages, ReadOnlyWords, SharedFile};
pub use memory::{GuestMemory, LastHit, MemoryError, REGIONS_MAX, Region, Translator};
pub use pool::{Pool, STAGED_MAX};
pub use quota::Quota;
pub use slice::GuestSlice;

#[cfg(test)]
mod tests;
