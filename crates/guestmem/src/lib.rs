//! Shared guest memory: regions, translation, volatile copies, truncation guard.
//!
//! # Model
//! A front-end (a VMM) hands over file descriptors. Each becomes a [`Mapping`]; the mappings with
//! their guest addresses form one immutable [`GuestMemory`]. [`GuestMemory::slice`] checks a whole
//! range of guest addresses and returns a [`GuestSlice`], the only way to access the memory. A
//! [`Buffer`] is a list of slices: one descriptor chain. During a migration, writes to guest memory
//! are recorded in a [`DirtyLog`].
//!
//! # Rules
//! - There are no references to plain data in guest memory, only raw pointers: the guest may change
//!   a byte at any time. Words of rings are read by volatile and atomic accesses. Headers and
//!   frames are copied, by plain moves of up to 16 bytes or by `memcpy`. The guest is no thread of
//!   this program, and a copy of bytes is valid whatever they are. Moves may overlap, and read a
//!   byte twice; so nothing is decided on bytes that stay in guest memory: what decides is the copy
//!   of this process, made once and checked.
//! - A range must be inside one region; adjacent regions are never joined.
//! - A front-end may shrink the file behind a mapping at any time. The [`guard`] turns the SIGBUS
//!   that follows into zero pages and a flag, so that only the owner's rings stop.
//!
//! # Limits
//! At most [`REGIONS_MAX`] regions per memory and [`guard::MAPPINGS_MAX`] mappings per process;
//! slices below 4 GiB. A [`Quota`] limits foreign memory.
//!
//! This crate holds `unsafe` code: mapping files, the signal handler, the copies themselves, and
//! the system calls that copy from or into guest memory ([`io`]).
#![allow(unsafe_code)] // This is the room for it: see the crate's rules above.

mod dirty;
mod error;
pub mod guard;
pub mod io;
mod mapping;
mod memory;
mod memory_file;
mod pages;
mod pool;
mod quota;
mod slice;

pub use dirty::{DirtyLog, PAGE as LOG_PAGE};
pub use error::MapError;
pub use mapping::{CounterMapping, MappedPages, Mapping, SharedFile, Unmapper};
pub use memory::{GuestMemory, MemoryError, REGIONS_MAX, Region, Translator};
pub use memory_file::is_memory_file;
pub use pages::Pages;
pub use pool::{FramePool, STAGED_MAX};
pub use quota::Quota;
pub use slice::{Buffer, CacheLine, GuestSlice, LastHit, Ticket};

#[cfg(test)]
mod tests;
