//! Virtqueues: split and packed rings, the device's side and the driver's side.
//!
//! Follows virtio 1.2, sections 2.7 (split virtqueues) and 2.8 (packed virtqueues), with
//! `VIRTIO_F_INDIRECT_DESC`, `VIRTIO_F_EVENT_IDX`, `VIRTIO_F_IN_ORDER` and `VIRTIO_F_VERSION_1`.
//!
//! # Model
//! - [`DeviceQueue`] is the daemon's end of a guest's ring. It works in bursts. [`stage`] takes up
//!   to [`BURST`] chains off the available ring, reads every descriptor once, checks and translates
//!   it, and keeps the result. The owner works on the staged [`Buffer`]s. Buffers are used strictly
//!   in the order in which they were made available, so `VIRTIO_F_IN_ORDER` may always be offered.
//!   [`publish`] shows all used entries to the guest: in a split ring by one store, in a packed
//!   ring by up to one a buffer, the first descriptor last.
//! - [`DriverQueue`] is the guest's end, for the lab's guests and for tests.
//! - A guest that breaks the rules of the ring stops the ring; the [`Fault`] names the rule.
//!
//! Buffers are used in order, before the next are taken. So one [`Position`] is the whole state of
//! a ring, and a new owner [starts](Start) there. The position of a split ring is in the guest's
//! memory; that of a packed ring can be recorded ([`InflightRecord`]).
//!
//! # Limits
//! Rings of up to 32768 entries, [`CHAIN_BYTES_MAX`] bytes a chain, and [`CHAIN_MAX`] descriptors,
//! or [`WRITABLE_CHAIN_MAX`] to write to.
//!
//! [`stage`]: DeviceQueue::stage
//! [`publish`]: DeviceQueue::publish
//! [`Buffer`]: guestmem::Buffer
//!
//! This crate contains `unsafe` code: the rings are raw shared memory.
#![allow(unsafe_code)] // This is the room for it: rings in shared memory.

mod chain;
mod crash;
mod device;
mod driver;
mod fault;
mod inflight;
mod log;
mod packed;
mod pool;
mod ring;
mod shared;
mod split;
mod start;

pub use chain::{CHAIN_BYTES_MAX, CHAIN_MAX, ChainHeader, WRITABLE_CHAIN_MAX};
pub use device::{BURST, Content, DeviceQueue};
pub use driver::{DriverQueue, guest_memory};
pub use fault::Fault;
pub use inflight::InflightRecord;
pub use log::Log;
pub use pool::{Segment, Used};
pub use ring::{Addresses, Features, RING_SIZE_MAX, SetupError};
pub use start::{Position, Start};

#[cfg(test)]
mod tests;
