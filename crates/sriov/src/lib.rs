//! SR-IOV NICs of this machine, through the kernel's own interfaces: sysfs, netlink, devlink.
//!
//! # Model
//! - A [`PciAddress`] names a function of the PCI bus.
//! - A [`PciNic`] is a NIC whose VFs Shunt makes and sets, and gives back as they were.
//! - [`facts`] are read from the machine; [`support`] and [`discovery`] judge and list them.
//! - A [`Sysfs`] is a tree like `/sys`: that of this machine, or a copy of another machine's.
//!
//! Follows `Documentation/ABI/testing/sysfs-bus-pci` and `Documentation/PCI/pci-iov-howto.rst` of
//! Linux.

mod address;
mod boot_files;
mod change;
mod devlink;
pub mod discovery;
mod driver;
mod error;
pub mod facts;
mod netdev;
mod nic;
mod owners;
mod pf;
mod record;
mod refusals;
pub mod support;
mod sysfs;
mod vf;

pub use address::{InvalidAddress, PciAddress};
pub use boot_files::{BootFile, boot_files};
pub use change::{BindDriver, ChangeVf, ChangeVfs, EswitchMode, VfsAnswer};
pub use devlink::{
    Devlink, DevlinkDevice, DevlinkInfo, DevlinkPort, DevlinkRate, DevlinkVersion, RateChange,
    RateOwner,
};
pub use driver::{Binding, VFIO_PCI};
pub use error::{OwnedBy, SriovError, VfOwner};
pub use model::state::VfCounters;
pub use netdev::{NetdevError, PlaceNetdev, VfNetdev};
pub use nic::{ObservedNic, PciNic, WantedNic};
pub use pf::vf as vf_address;
pub use record::recorded;
pub use refusals::{REFUSALS, Refusal};
pub use sysfs::Sysfs;
pub use vf::{VfSetting, VfState, read_vfs};
