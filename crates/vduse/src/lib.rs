//! vDPA devices of the host's own kernel whose data path is in this process: VDUSE, "vDPA device in
//! user space".
//!
//! # Model
//! The kernel shows a device with virtio's control path, and asks this process for what it cannot
//! do itself: a [`Device`] is the file of that, [`message`] what is asked, [`Session`] who answers.
//! A driver on the vDPA bus, which is the host's own virtio-net (virtio-vdpa) or that of a guest of
//! QEMU's (vhost-vdpa), makes rings; their memory comes from the kernel, and the rings go to a
//! [`Guest`].
//!
//! # Who is hostile
//! The kernel is trusted; what it passes on is not. A driver behind vhost-vdpa writes whatever it
//! likes into sizes, addresses and features, and its VMM chooses the files of its memory. So ranges
//! are checked as those of vhost-user are, and nothing here is believed to be sensible.
//!
//! # Limits
//! Network devices, one pair of rings. Linux lets no network device of VDUSE have a control queue
//! (`VIRTIO_NET_F_CTRL_VQ` is refused by `VDUSE_CREATE_DEV`, since 6.10, which is when it began to
//! let there be network devices at all). Without one there are no further queue pairs, no receive
//! modes, no filters, and no announcement by the driver.
//!
//! Follows `linux/vduse.h`, version 0, and `Documentation/userspace-api/vduse.rst`. The only
//! `unsafe` code is in `sys`.

mod bus;
mod device;
mod error;
mod memory;
pub mod message;
mod session;
mod sys;
#[cfg(test)]
mod tests;

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

pub use bus::{add_to_bus, remove_from_bus};
pub use device::{Device, Interrupt, Origin, Spec, is_name, remove};
pub use error::VduseError;
pub use session::{DRIVER_OK, FAILED, FEATURES_OK, Guest, RingInfo, RingStart, Session};
pub use sys::IotlbEntry;

use message::{REQUEST_LEN, RESPONSE_LEN};

/// The kernel's end of a device: [`Device`], or a test's.
pub trait Kernel {
    /// Takes a request, if there is one.
    ///
    /// # Errors
    /// As all of these: the kernel's word; `EPERM` once it has given the device up.
    fn read(&mut self, request: &mut [u8; REQUEST_LEN]) -> Result<bool, Errno>;

    /// Answers one.
    ///
    /// # Errors
    /// `ENOENT` if nobody waits for it any more.
    fn write(&mut self, response: &[u8; RESPONSE_LEN]) -> Result<(), Errno>;

    /// Virtio's feature bits that the driver took.
    ///
    /// # Errors
    /// See above.
    fn features(&self) -> Result<u64, Errno>;

    /// What the driver made of a ring.
    ///
    /// # Errors
    /// See above.
    fn ring(&self, ring: u32) -> Result<RingInfo, Errno>;

    /// Has kicks of a ring counted there from now on.
    ///
    /// # Errors
    /// See above.
    fn set_kick(&self, ring: u32, kick: BorrowedFd<'_>) -> Result<(), Errno>;

    /// The first range of the driver's memory that has an address from `from` on, and its file.
    ///
    /// # Errors
    /// See above.
    fn region(&self, from: u64) -> Result<Option<(IotlbEntry, OwnedFd)>, Errno>;

    /// Says to the driver that the configuration changed; false if none runs.
    ///
    /// # Errors
    /// See above.
    fn interrupt_config(&self) -> Result<bool, Errno>;

    /// Changes the configuration, from its first byte on; the driver reads it when it is told.
    ///
    /// # Errors
    /// See above.
    fn set_config(&self, config: &[u8]) -> Result<(), Errno>;
}
