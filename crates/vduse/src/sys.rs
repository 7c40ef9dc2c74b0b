//! The ioctls of `/dev/vduse/control` and `/dev/vduse/NAME`, one function each.
//!
//! Model: each function takes its data by value or by a reference of the right type, so that no
//! caller can pass memory of a wrong layout. Layouts and numbers: `linux/vduse.h`, version 0 of the
//! interface, which later kernels still support.

// Each function here is one system call with memory that the kernel reads or writes.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::Ioctl;
use rustix::io::Errno;

/// Bytes of a device's name, with the terminating zero.
pub(crate) const NAME_SIZE: usize = 256;
/// Most configuration bytes in one request.
pub(crate) const CONFIG_MAX: usize = 256;

const WRITE: Ioctl = 1;
const READ: Ioctl = 2;

/// The number of a request, as `linux/ioctl.h` computes it for most machines.
const fn number(direction: Ioctl, number: Ioctl, size: usize) -> Ioctl {
    const BASE: Ioctl = 0x81;
    (direction << 30) | ((size as Ioctl) << 16) | (BASE << 8) | number
}

/// `struct vduse_dev_config`, with room for the configuration after it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DeviceConfig {
    pub(crate) name: [u8; NAME_SIZE],
    pub(crate) vendor_id: u32,
    pub(crate) device_id: u32,
    pub(crate) features: u64,
    pub(crate) vq_num: u32,
    pub(crate) vq_align: u32,
    pub(crate) reserved: [u32; 13],
    pub(crate) config_size: u32,
    pub(crate) config: [u8; CONFIG_MAX],
}

/// `struct vduse_config_data`, with room for the data after it.
#[repr(C)]
struct ConfigData {
    offset: u32,
    length: u32,
    buffer: [u8; CONFIG_MAX],
}

/// `struct vduse_iotlb_entry`: a range of device addresses in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IotlbEntry {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// First address.
    pub start: u64,
    /// Last address.
    pub last: u64,
    /// Access that the device has: 1 read, 2 write.
    pub perm: u8,
}

/// `struct vduse_vq_config`.
#[repr(C)]
struct VqConfig {
    index: u32,
    max_size: u16,
    reserved: [u16; 13],
}

/// `struct vduse_vq_info`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct VqInfo {
    pub(crate) index: u32,
    pub(crate) num: u32,
    pub(crate) desc: u64,
    pub(crate) driver: u64,
    pub(crate) device: u64,
    /// Split: the available index. Packed: wrap counter and index of the next available descriptor,
    /// then of the next used.
    pub(crate) state: [u16; 4],
    pub(crate) ready: u8,
}

/// `struct vduse_vq_eventfd`.
#[repr(C)]
struct VqEventfd {
    index: u32,
    fd: i32,
}

const DEVICE_CONFIG_SIZE: usize = std::mem::offset_of!(DeviceConfig, config);
const CONFIG_DATA_SIZE: usize = std::mem::offset_of!(ConfigData, buffer);

const _: () = assert!(DEVICE_CONFIG_SIZE == 336);
const _: () = assert!(CONFIG_DATA_SIZE == 8);
const _: () = assert!(size_of::<IotlbEntry>() == 32);
const _: () = assert!(size_of::<VqConfig>() == 32);
const _: () = assert!(size_of::<VqInfo>() == 48);
const _: () = assert!(size_of::<VqEventfd>() == 8);

/// Creates a device, on the control file.
pub(crate) fn create(fd: BorrowedFd<'_>, config: &DeviceConfig) -> Result<(), Errno> {
    let request = number(WRITE, 0x02, DEVICE_CONFIG_SIZE);
    debug_assert!(config.config_size as usize <= CONFIG_MAX);
    // SAFETY: the kernel reads the struct and `config_size` bytes behind its fixed part, which are
    // there.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const *config) })
}

/// Removes a device, on the control file.
pub(crate) fn destroy(fd: BorrowedFd<'_>, name: &[u8; NAME_SIZE]) -> Result<(), Errno> {
    // SAFETY: the kernel reads NAME_SIZE bytes.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), number(WRITE, 0x03, NAME_SIZE), name.as_ptr()) })
}

/// The first range that has an address of `entry.start..=entry.last`, and its file; `EINVAL` if
/// there is none.
pub(crate) fn iotlb_fd(fd: BorrowedFd<'_>, entry: &mut IotlbEntry) -> Result<OwnedFd, Errno> {
    let request = number(READ | WRITE, 0x10, size_of::<IotlbEntry>());
    // SAFETY: the kernel reads and writes the struct.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut *entry) };
    done(result)?;
    // SAFETY: a result that is not an error is a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Features that the driver accepted.
pub(crate) fn features(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut features = 0u64;
    // SAFETY: the kernel writes eight bytes.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), number(READ, 0x11, 8), &raw mut features) })?;
    Ok(features)
}

/// Changes the configuration from its first byte on.
pub(crate) fn set_config(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let mut data = ConfigData { offset: 0, length: bytes.len() as u32, buffer: [0; CONFIG_MAX] };
    data.buffer.get_mut(..bytes.len()).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
    let request = number(WRITE, 0x12, CONFIG_DATA_SIZE);
    // SAFETY: the kernel reads the struct's head and `length` bytes behind it, which are there.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const data) })
}

/// Notifies the driver of a configuration change; `EINVAL` if none runs.
pub(crate) fn interrupt_config(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request has no argument.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), number(0, 0x13, 0)) })
}

/// Sets the largest size of a ring, in entries.
pub(crate) fn set_up_ring(fd: BorrowedFd<'_>, index: u32, max_size: u16) -> Result<(), Errno> {
    let config = VqConfig { index, max_size, reserved: [0; 13] };
    let request = number(WRITE, 0x14, size_of::<VqConfig>());
    // SAFETY: the kernel reads the struct.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const config) })
}

/// Settings that the driver made for a ring.
pub(crate) fn ring_info(fd: BorrowedFd<'_>, index: u32) -> Result<VqInfo, Errno> {
    let mut info = VqInfo { index, ..VqInfo::default() };
    let request = number(READ | WRITE, 0x15, size_of::<VqInfo>());
    // SAFETY: the kernel reads and writes the struct.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut info) })?;
    Ok(info)
}

/// Sets the eventfd that counts the driver's kicks of a ring; the kernel keeps a reference.
pub(crate) fn set_kick(fd: BorrowedFd<'_>, index: u32, kick: BorrowedFd<'_>) -> Result<(), Errno> {
    let eventfd = VqEventfd { index, fd: kick.as_raw_fd() };
    let request = number(WRITE, 0x16, size_of::<VqEventfd>());
    // SAFETY: the kernel reads the struct.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const eventfd) })
}

/// Interrupts the driver for a ring; `EINVAL` if none runs.
pub(crate) fn interrupt(fd: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    // SAFETY: the kernel reads four bytes.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), number(WRITE, 0x17, 4), &raw const index) })
}

fn done(result: libc::c_int) -> Result<(), Errno> {
    match result {
        0.. => Ok(()),
        _ => {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            Err(Errno::from_raw_os_error(errno))
        }
    }
}
