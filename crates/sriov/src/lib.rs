//! SR-IOV NICs of this machine, through the kernel's own interfaces: sysfs, netlink, devlink.
//!
//! # Model
//! - A [`PciAddress`] names a function of the PCI bus.
//! - A [`Sysfs`] is a tree like `/sys`: that of this machine, or a copy of another machine's.
//!
//! Follows `Documentation/ABI/testing/sysfs-bus-pci` and `Documentation/PCI/pci-iov-howto.rst` of
//! Linux.

mod address;
mod sysfs;

pub use address::{InvalidAddress, PciAddress};
pub use sysfs::Sysfs;
