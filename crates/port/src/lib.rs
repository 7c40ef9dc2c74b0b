//! Ports: the data plane's end of every attachment and uplink.
//!
//! # Model
//! A port has a transmit half (frames that come from the guest, [`Transmit`]) and a receive half
//! (frames that go to it, [`Receive`]) for each queue pair; Rx and Tx are seen from the guest. A
//! lane owns a port's transmit halves; receive halves are reached by any lane, each under its own
//! lock. A frame is copied ONCE, by [`Receive::deliver`], from where the transmit half found it.
//!
//! Life of a burst:
//! 1. [`Transmit::poll`] takes up to [`BURST`] frames and snapshots the first 16 bytes of each.
//! 2. [`Transmit::snapshot_headers`], where more must be judged, makes that 128 bytes.
//! 3. [`Transmit::burst`] lends them. The snapshot is what is classified and what is written to
//!    the receiver; the rest of the frame is read once more, by the copy, and by nobody else. So
//!    no guest can show one thing to the classifier and another to the receiver.
//! 4. [`Receive::deliver`] copies the chosen frames; [`Receive::publish`] shows them to the guest.
//! 5. [`Transmit::complete`] gives the buffers back.
//!
//! A transmit half may also stand for a device that places frames in a guest's receive buffers by
//! itself ([`xdp::Queues`]): its polls take nothing, and tell what came there ([`Placed`]).
//!
//! A new kind of port is one new file beside [`virtio_net`] that implements both traits, or one of
//! them, as [`capture`] does.
//! One whose far end is a file of the kernel's has most of it in `device`, and says only how frames
//! are taken and sent, as [`tap`] does.

pub mod bounce;
mod burst;
pub mod capture;
mod deliver;
mod device;
mod events;
mod judge;
pub mod kept;
mod legacy;
pub mod notifier;
mod opened;
pub mod packet;
pub mod pcap;
mod plain;
pub mod stream;
pub mod tap;
pub mod virtio_net;
pub mod vxlan;
pub mod xdp;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use virtq::Position;

pub use burst::{BURST, Burst, BurstBuffers, DeepHead, Head, Offload, Placed, Polled, VlanEdit};
pub use vhost_user::ForeignFd;
pub use wire::virtio_net::Accepts;

pub use legacy::{Incomplete, Legacy};
pub use opened::{Housekeeping, LinkHealth, Opened, Pair};

/// What became of the frames handed to [`Receive::deliver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Frames copied.
    pub frames: u32,
    /// Their bytes on the guest's side, without device headers.
    pub bytes: u64,
    /// Frames dropped because the guest had posted no buffer.
    pub no_buffer: u32,
    /// Frames dropped because the buffer the guest had posted is too small, or because what is left
    /// to do on them cannot be done.
    pub too_small: u32,
    /// Copies that a tunnel sent to further peers, beyond the first of each frame.
    pub copies: u32,
    /// The copies' bytes.
    pub copied_bytes: u64,
    /// Frames dropped because [`Receive::allow_copies`] allowed no more copies of them.
    pub over_limit: u32,
    /// Why nothing will be delivered after these, if so.
    pub fault: Option<virtq::Fault>,
}

impl Delivered {
    /// Counts what another delivery did, which was no fault.
    pub(crate) fn add(&mut self, more: Delivered) {
        self.frames += more.frames;
        self.bytes += more.bytes;
        self.no_buffer += more.no_buffer;
        self.too_small += more.too_small;
        self.over_limit += more.over_limit;
    }
}

/// Frames that come from the guest.
pub trait Transmit: Send {
    /// Exchanges the room to work in, before a poll and after its completion.
    fn swap(&mut self, area: &mut BurstBuffers);

    /// Whether it touches memory that a guest can make wait.
    fn touches_guest(&self) -> bool {
        false
    }

    /// Takes up to [`BURST`] frames; whatever was taken before must be complete.
    fn poll(&mut self) -> Polled;

    /// Snapshots up to 128 bytes of each frame of the last [`poll`](Self::poll), which
    /// [`burst`](Self::burst) then lends as [`Burst::deep`] until the next poll. Once a poll.
    fn snapshot_headers(&mut self);

    /// The frames of the last [`poll`](Self::poll).
    fn burst(&self) -> Burst<'_>;

    /// Gives the buffers of the last poll back to the guest; says whether it had to be notified.
    fn complete(&mut self) -> bool;

    /// The first half of [`complete`](Self::complete), for measurements: gives the buffers back;
    /// returns `true` if [`notify`](Self::notify) is to follow.
    fn give_back(&mut self) -> bool {
        self.complete()
    }

    /// The second half: notifies the guest; returns `true` if it was notified.
    fn notify(&self) -> bool {
        true // by `complete`
    }

    /// Asks the guest for a kick at its next frame; says whether one is there already.
    fn enable_notification(&mut self) -> bool;

    /// Asks the guest not to kick, if it can be asked.
    fn disable_notification(&mut self) {}

    /// Readable when the guest kicked; `None` if this port can only be polled.
    fn kick(&self) -> Option<BorrowedFd<'_>>;

    /// Replaces the descriptor that interrupts the guest, if this is a guest's ring.
    fn set_call(&mut self, _call: Option<Arc<ForeignFd>>) {}

    /// Replaces the descriptor that says that the ring is broken, if this is one.
    fn set_error(&mut self, _error: Option<Arc<ForeignFd>>) {}

    /// Tells the front-end, if there is one, that the ring is broken.
    fn raise_error(&self) {}

    /// Stops; where a later owner of the ring goes on, if this is one.
    fn stop(&mut self) -> Position {
        0
    }

    /// What was taken from a device and not handed on, for a process that goes on with it.
    fn remains(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Frames that go to the guest.
pub trait Receive: Send {
    /// Exchanges the room to work in, before a delivery and after it was published.
    fn swap(&mut self, area: &mut BurstBuffers);

    /// Whether it touches memory that a guest can make wait.
    fn touches_guest(&self) -> bool {
        false
    }

    /// Asks the cache for what a delivery of `frames` will read first. A hint: nothing is taken.
    fn prefetch(&self, _frames: usize) {}

    /// The first step of a [`deliver`](Self::deliver) of `frames`, for measurements: takes the
    /// guest's buffers.
    fn stage(&mut self, _frames: usize) {}

    /// Copies the frames of `burst` that `indices` names, in that order, with `edit` made to each.
    /// The guest does not see them before [`publish`](Self::publish).
    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered;

    /// Returns `true` if a frame may be sent several times here, as a tunnel with several peers
    /// does.
    fn makes_copies(&self) -> bool {
        false
    }

    /// Limits the copies, beyond the first of each frame, that the next [`deliver`](Self::deliver)
    /// makes of frames to unknown addresses. The last frame may exceed it; further ones are
    /// dropped.
    fn allow_copies(&mut self, _copies: u32) {}

    /// Delivers some of the frames that wait before this ring, if any do (see [`kept`]), as
    /// [`deliver`](Self::deliver) does; what finds no buffer waits on. Not on the way of a frame.
    fn hand_on(&mut self) -> Delivered {
        Delivered::default()
    }

    /// Shows what was delivered to the guest; says whether it had to be notified.
    fn publish(&mut self) -> bool;

    /// The first half of [`publish`](Self::publish), for measurements: shows what was delivered;
    /// returns `true` if [`notify`](Self::notify) is to follow.
    fn show(&mut self) -> bool {
        self.publish()
    }

    /// The second half: notifies the guest; returns `true` if it was notified.
    fn notify(&self) -> bool {
        true // by `publish`
    }

    /// Replaces the descriptor that interrupts the guest, if this is a guest's ring.
    fn set_call(&mut self, _call: Option<Arc<ForeignFd>>) {}

    /// Replaces the descriptor that says that the ring is broken, if this is one.
    fn set_error(&mut self, _error: Option<Arc<ForeignFd>>) {}

    /// Tells the front-end, if there is one, that the ring is broken.
    fn raise_error(&self) {}

    /// Stops; where a later owner of the ring goes on, if this is one.
    fn stop(&mut self) -> Position {
        0
    }
}

#[cfg(test)]
mod tests;
