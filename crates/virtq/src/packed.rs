//! Packed rings: virtio 1.2, section 2.8.

mod device;
mod driver;
pub(crate) mod event;
pub(crate) mod position;
pub(crate) mod ring;

pub(crate) use device::{PackedDevice, recover};
pub(crate) use driver::PackedDriver;
