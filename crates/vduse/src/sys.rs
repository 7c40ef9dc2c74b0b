//! The ioctls of `/dev/vduse/control` and `/dev/vduse/NAME`, one function each.
//!
//! Model: each function takes what it needs by value or by a reference of the right type, so that
//! no caller can hand the kernel memory of a wrong shape. Layouts and numbers: `linux/vduse.h`,
//! version 0 of the interface, which every later kernel still speaks to who asks for no other.

// Every function here is one system call with memory that the kernel reads or writes.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::Ioctl;
use rustix::io::Errno;

/// Bytes of a device's name, with the zero behind it.
pub(crate) const NAME_SIZE: usize = 256;
/// Most bytes of a device's configuration that one request carries here.
pub(crate) const CONFIG_MAX: usize = 256;

const WRITE: Ioctl = 1;
const READ: Ioctl = 2;

/// The number of a request, as `linux/ioctl.h` makes it for most machines.
const fn number(direction: Ioctl, number: Ioctl, size: usize) -> Ioctl {
    const BASE: Ioctl = 0x81;
    (direction << 30) | ((size as Ioctl) << 16) | (BASE << 8) | number
}

/// `struct vduse_dev_config`, and room for the configuration behind it.
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

/// `struct vduse_config_data`, and room for the data behind it.
#[repr(C)]
struct ConfigData {
    offset: u32,
    length: u32,
    buffer: [u8; CONFIG_MAX],
}

/// `struct vduse_iotlb_entry`: where a range of the device's addresses is in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IotlbEntry {
    /// Of its first byte in the file.
    pub offset: u64,
    /// Its first address.
    pub start: u64,
    /// Its last address.
    pub last: u64,
    /// What the device may do there: 1 read, 2 write.
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

/// Makes a device: of the control file.
pub(crate) fn create(fd: BorrowedFd<'_>, config: &DeviceConfig) -> Result<(), Errno> {
    let request = number(WRITE, 0x02, DEVICE_CONFIG_SIZE);
    debug_assert!(config.config_size as usize <= CONFIG_MAX);
    // SAFETY: the kernel reads the struct and `config_size` bytes behind its fixed part, which are
    // there.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const *config) })
}

/// Removes a device: of the control file.
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
    // SAFETY: a result that is no error is a new descriptor, which nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// What the driver took of the features that were offered.
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

/// Says to the driver that the configuration changed; `EINVAL` if none runs.
pub(crate) fn interrupt_config(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request has no argument.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), number(0, 0x13, 0)) })
}

/// Gives a ring its largest size, in entries.
pub(crate) fn set_up_ring(fd: BorrowedFd<'_>, index: u32, max_size: u16) -> Result<(), Errno> {
    let config = VqConfig { index, max_size, reserved: [0; 13] };
    let request = number(WRITE, 0x14, size_of::<VqConfig>());
    // SAFETY: the kernel reads the struct.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const config) })
}

/// What the driver made of a ring.
pub(crate) fn ring_info(fd: BorrowedFd<'_>, index: u32) -> Result<VqInfo, Errno> {
    let mut info = VqInfo { index, ..VqInfo::default() };
    let request = number(READ | WRITE, 0x15, size_of::<VqInfo>());
    // SAFETY: the kernel reads and writes the struct.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut info) })?;
    Ok(info)
}

/// Has the driver's kicks of a ring counted by an eventfd, whose counter the kernel holds from now
/// on.
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
