//! Ports: the data plane's end of every attachment and uplink.
//!
//! # Model
//! A port has a transmit half ([`Transmit`]: frames from the guest) and a receive half
//! ([`Receive`]: frames to the guest) for each queue pair. Rx and Tx are seen from the guest. A
//! lane owns the transmit halves of its ports. Any lane may use a receive half, under the lock of
//! that half. [`Receive::deliver`] copies a frame ONCE, from the buffer in which the transmit half
//! found it.
//!
//! Life of a burst:
//! 1. [`Transmit::poll`] takes up to [`BURST`] frames, or [`BURST_BYTES`], and snapshots the first
//!    16 bytes of each.
//! 2. [`BurstBuffers::snapshot_headers`] snapshots 128 bytes, if the tables need more than 16.
//! 3. [`Transmit::burst`] lends them. The lane classifies the snapshot, and the receiver gets the
//!    snapshot's bytes. The copy reads the rest of the frame, and nothing else reads it. So a guest
//!    cannot show one frame to the classifier and another to the receiver.
//! 4. [`Receive::deliver`] copies the chosen frames; [`Receive::publish`] shows them to the guest.
//! 5. [`Transmit::complete`] gives the buffers back.
//!
//! A transmit half may also poll for a device that places frames in a guest's receive buffers
//! itself ([`xdp::GuestQueues`]): its polls take no frames and report the placed ones ([`Placed`]).
//!
//! A new kind of port is one new file beside [`virtio_net`] that implements both traits, or one of
//! them, as [`capture`] does. A port backed by a file descriptor of the kernel takes both halves
//! from `kernel` and implements only receiving and sending of frames, as [`tap`] does.

pub mod bounce;
mod burst;
mod burst_buffers;
pub mod capture;
mod deliver;
mod events;
mod half;
mod handover;
mod kernel;
pub mod notifier;
mod opened;
pub mod packet;
pub mod parked;
pub mod pcap;
mod software_offload;
pub mod stream;
pub mod tap;
pub mod trace;
mod validate;
pub mod virtio_net;
pub mod vxlan;
pub mod xdp;

pub use burst::{
    BURST, BURST_BYTES, Burst, Delivered, HeaderBytes, HeaderSnapshot, NetHeader, Placed, Polled,
    VlanEdit,
};
pub use burst_buffers::BurstBuffers;
pub use events::RingEvents;
pub use half::{DiscardReceive, GuestRing, Notification, Readiness, Receive, Transmit};
pub use handover::{IncompleteHandover, PortHandover};
pub use opened::{Housekeeping, LinkHealth, OpenedDevice, QueuePair};
pub use validate::{FrameRules, Malformed};
pub use vhost_user::ForeignFd;
pub use wire::virtio_net::OffloadSet;

#[cfg(test)]
mod tests;
