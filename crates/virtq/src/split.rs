//! Split rings: virtio 1.2, section 2.7.

mod device;
mod driver;
pub(crate) mod event;
pub(crate) mod ring;

pub(crate) use device::SplitDevice;
pub(crate) use driver::SplitDriver;
