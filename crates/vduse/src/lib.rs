//! vDPA devices whose data path is in this process: VDUSE, "vDPA device in user space".
//!
//! # Model
//! The kernel presents a device with virtio's control path, and sends this process the requests
//! that it cannot handle itself. A [`VduseDevice`] is the file of these requests, [`message`] their
//! format, and [`VduseSession`] answers them. A driver on the vDPA bus sets up rings: the host's
//! own virtio-net (virtio-vdpa), or a QEMU guest's (vhost-vdpa). The kernel provides their memory,
//! and a [`RingRunner`] runs the rings.
//!
//! # Trust
//! The kernel is trusted; the data it passes on is not. A driver behind vhost-vdpa writes arbitrary
//! sizes, addresses and features, and its VMM chooses the files of its memory. So ranges are
//! checked like those of vhost-user, and no value is assumed to be sensible.
//!
//! # Limits
//! Network devices, one pair of rings. Linux allows no control queue on a VDUSE network device:
//! `VDUSE_CREATE_DEV` rejects `VIRTIO_NET_F_CTRL_VQ` since 6.10, the first version with network
//! devices. Without one there are no further queue pairs, no receive modes, no filters, and no
//! announcement by the driver.
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

pub use bus::{ChangeBus, add_to_bus, remove_from_bus};
pub use device::{
    ChangeDevices, DeviceSpec, Interrupt, OpenDevice, Origin, VduseDevice, is_name, remove,
};
pub use error::VduseError;
pub use session::{DRIVER_OK, FAILED, FEATURES_OK, RingInfo, RingRunner, RingStart, VduseSession};
pub use sys::IotlbEntry;

use message::{REQUEST_LEN, RESPONSE_LEN};

/// The kernel's side of a device: [`VduseDevice`], or a simulation in tests.
pub trait Kernel {
    /// Takes a request, if there is one.
    ///
    /// # Errors
    /// For all methods: the kernel's error; `EPERM` after the kernel has failed the device.
    fn read(&mut self, request: &mut [u8; REQUEST_LEN]) -> Result<bool, Errno>;

    /// Answers a request.
    ///
    /// # Errors
    /// `ENOENT` if the kernel no longer waits for it.
    fn write(&mut self, response: &[u8; RESPONSE_LEN]) -> Result<(), Errno>;

    /// Virtio feature bits that the driver accepted.
    ///
    /// # Errors
    /// See above.
    fn features(&self) -> Result<u64, Errno>;

    /// The driver's settings of a ring.
    ///
    /// # Errors
    /// See above.
    fn ring(&self, ring: u32) -> Result<RingInfo, Errno>;

    /// Sets the eventfd that counts the kicks of a ring.
    ///
    /// # Errors
    /// See above.
    fn set_kick(&self, ring: u32, kick: BorrowedFd<'_>) -> Result<(), Errno>;

    /// The first range of the driver's memory that has an address from `from` on, and its file.
    ///
    /// # Errors
    /// See above.
    fn region(&self, from: u64) -> Result<Option<(IotlbEntry, OwnedFd)>, Errno>;

    /// Notifies the driver of a configuration change; false if none runs.
    ///
    /// # Errors
    /// See above.
    fn interrupt_config(&self) -> Result<bool, Errno>;

    /// Changes the configuration, from its first byte on; the driver reads it after a notification.
    ///
    /// # Errors
    /// See above.
    fn set_config(&self, config: &[u8]) -> Result<(), Errno>;
}
