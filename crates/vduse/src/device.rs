//! Devices as files: created through `/dev/vduse/control`, served through `/dev/vduse/NAME`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use host::launcher::{Answer, Request, ask, check_named};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};
use serde::{Deserialize, Serialize};

use crate::message::{Position, REQUEST_LEN, RESPONSE_LEN};
use crate::sys::{self, DeviceConfig, IotlbEntry, NAME_SIZE};
use crate::{Kernel, RingInfo, VduseError};

/// Longest name in bytes that `vdpa` and `virtio` show in full.
const NAME_MAX: usize = 63;
/// `VIRTIO_ID_NET`.
const NETWORK: u32 = 1;

/// Properties of a device to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// Name on the vDPA bus.
    pub name: String,
    /// Virtio feature bits offered.
    pub features: u64,
    /// Number of rings.
    pub rings: u32,
    /// Largest ring size, in entries.
    pub ring_size_max: u16,
    /// Initial configuration space, at most 256 bytes.
    pub config: Vec<u8>,
}

/// Returns `true` if a device can have the name.
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    name != "control"
        && (1..=NAME_MAX).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.as_bytes().iter().all(allowed)
}

fn name_bytes(name: &str) -> Result<[u8; NAME_SIZE], VduseError> {
    if !is_name(name) {
        return Err(VduseError::Name(name.to_owned()));
    }
    let mut bytes = [0; NAME_SIZE];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}

/// A device that this process serves. Dropping it leaves the device, for another process to open.
#[derive(Debug)]
pub struct VduseDevice {
    name: String,
    file: OwnedFd,
    rings: u32,
}

/// Origin of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Created now.
    Made,
    /// Found on the vDPA bus, perhaps with a running driver: see [`VduseDevice::check`].
    Found,
}

impl VduseDevice {
    /// Creates the device, or opens the one of that name if it is on the vDPA bus. One that exists
    /// but is not on the bus is recreated.
    ///
    /// Its file may take up to `appears` to show under `/dev`, since udev may have rules to
    /// process.
    ///
    /// # Errors
    /// [`VduseError`] names the problem and the remedy.
    pub fn open(spec: &DeviceSpec, appears: Duration) -> Result<(VduseDevice, Origin), VduseError> {
        let name = spec.name.as_str();
        let origin = match create(spec) {
            Err(VduseError::Call { source: Errno::EXIST, .. }) => match destroy(name)? {
                Ok(()) => create(spec).map(|()| Origin::Made),
                Err(Errno::BUSY) => Ok(Origin::Found),
                Err(source) => Err(call("VDUSE_DESTROY_DEV", name, source)),
            },
            created => created.map(|()| Origin::Made),
        };
        let origin = origin?;
        let file = open_file(name, appears).map_err(|source| match source {
            Errno::NOENT => VduseError::NoFile(name.to_owned()),
            Errno::BUSY => VduseError::Busy(name.to_owned()),
            source => call("open", name, source),
        })?;
        let device = VduseDevice { name: name.to_owned(), file, rings: spec.rings };
        if origin == Origin::Made {
            device.set_up(spec.ring_size_max)?;
        }
        Ok((device, origin))
    }

    fn set_up(&self, ring_size_max: u16) -> Result<(), VduseError> {
        (0..self.rings).try_for_each(|ring| {
            let done = sys::set_up_ring(self.file.as_fd(), ring, ring_size_max);
            done.map_err(|source| call("VDUSE_VQ_SETUP", &self.name, source))
        })
    }

    /// Checks that a device that was found has the properties of `spec`, so that it can be served.
    ///
    /// # Errors
    /// The property that differs.
    pub fn check(&self, spec: &DeviceSpec) -> Result<(), VduseError> {
        let other = |why| VduseError::Other { name: self.name.clone(), why };
        match sys::features(self.file.as_fd()) {
            // The kernel refuses every request to a failed device with this error.
            Err(Errno::PERM) => return Err(other("which was not served for too long")),
            Err(source) => return Err(call("VDUSE_DEV_GET_FEATURES", &self.name, source)),
            Ok(taken) if taken & !spec.features != 0 => return Err(other("with other features")),
            Ok(_) => {}
        }
        let last = sys::ring_info(self.file.as_fd(), spec.rings - 1);
        let past = sys::ring_info(self.file.as_fd(), spec.rings);
        match (last.is_ok(), past.is_err()) {
            (true, true) => Ok(()),
            _ => Err(other("with another number of rings")),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interrupt of the driver for a ring.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn interrupt(&self, ring: u32) -> Result<Interrupt, VduseError> {
        let file = self.file.try_clone().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::MFILE, Errno::from_raw_os_error);
            call("dup", &self.name, errno)
        })?;
        Ok(Interrupt { file, ring })
    }
}

impl AsFd for VduseDevice {
    /// Readable when there is a request; in error state after the kernel has failed the device.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Interrupts the driver for one ring.
///
/// The kernel is asked by an ioctl: version 0 of the interface has no eventfd for it. It does not
/// wait: the driver's handler runs in a kernel thread, or counts up an eventfd.
#[derive(Debug)]
pub struct Interrupt {
    file: OwnedFd,
    ring: u32,
}

impl Interrupt {
    /// Raises the interrupt; false if no driver runs.
    pub fn raise(&self) -> bool {
        sys::interrupt(self.file.as_fd(), self.ring).is_ok()
    }
}

/// Removes a device that no process serves and that is not on the vDPA bus.
///
/// # Errors
/// It is on the bus, or in use.
pub fn remove(name: &str) -> Result<(), VduseError> {
    destroy(name)?.map_err(|source| call("VDUSE_DESTROY_DEV", name, source))
}

/// Does something by `/dev/vduse/control`; the first error is that of opening it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ChangeDevices {
    /// Creates a device.
    Create(DeviceSpec),
    /// Destroys a device that is not on the bus.
    Destroy(String),
}

impl Request for ChangeDevices {
    const NAME: &'static str = "change-vduse-devices";
    const DOES: &'static str = "creates or destroys a VDUSE network device";
    type Reply = Result<Result<(), i32>, i32>;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let (ChangeDevices::Create(DeviceSpec { name, .. }) | ChangeDevices::Destroy(name)) = self;
        check_named(&["vduse"], name)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Self::Reply> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let control = match open("/dev/vduse/control", flags, Mode::empty()) {
            Ok(control) => control,
            Err(errno) => return Ok((Err(errno.raw_os_error()), Vec::new())),
        };
        let done = match self {
            ChangeDevices::Create(spec) => {
                let config = device_config(&spec).map_err(|_| Errno::INVAL)?;
                sys::create(control.as_fd(), &config)
            }
            ChangeDevices::Destroy(name) => {
                let bytes = name_bytes(&name).map_err(|_| Errno::INVAL)?;
                sys::destroy(control.as_fd(), &bytes)
            }
        };
        Ok((Ok(done.map_err(Errno::raw_os_error)), Vec::new()))
    }
}

fn change(request: ChangeDevices) -> Result<Result<(), Errno>, VduseError> {
    let (done, _) = ask(request, &[]).map_err(VduseError::Control)?;
    match done {
        Ok(done) => Ok(done.map_err(Errno::from_raw_os_error)),
        Err(errno) => Err(match Errno::from_raw_os_error(errno) {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => VduseError::NoModule,
            source => VduseError::Control(source),
        }),
    }
}

fn create(spec: &DeviceSpec) -> Result<(), VduseError> {
    device_config(spec)?;
    change(ChangeDevices::Create(spec.clone()))?.map_err(|source| match source {
        Errno::PERM => VduseError::NoRight(spec.name.clone()),
        Errno::INVAL => VduseError::NotPossible(spec.name.clone()),
        source => call("VDUSE_CREATE_DEV", &spec.name, source),
    })
}

fn device_config(spec: &DeviceSpec) -> Result<DeviceConfig, VduseError> {
    let mut config = DeviceConfig {
        name: name_bytes(&spec.name)?,
        vendor_id: 0,
        device_id: NETWORK,
        features: spec.features,
        vq_num: spec.rings,
        vq_align: rustix::param::page_size() as u32,
        reserved: [0; 13],
        config_size: spec.config.len() as u32,
        config: [0; sys::CONFIG_MAX],
    };
    let room = config.config.get_mut(..spec.config.len());
    let room = room.ok_or_else(|| VduseError::NotPossible(spec.name.clone()))?;
    room.copy_from_slice(&spec.config);
    Ok(config)
}

fn destroy(name: &str) -> Result<Result<(), Errno>, VduseError> {
    match is_name(name) {
        true => change(ChangeDevices::Destroy(name.to_owned())),
        false => Ok(Err(Errno::INVAL)),
    }
}

/// Opens the file of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenDevice {
    name: String,
}

impl Request for OpenDevice {
    const NAME: &'static str = "open-vduse-device";
    const DOES: &'static str = "opens a VDUSE device";
    type Reply = ();

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_named(&["vduse"], &self.name)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        if !is_name(&self.name) {
            return Err(Errno::INVAL);
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(((), vec![open(format!("/dev/vduse/{}", self.name), flags, Mode::empty())?]))
    }
}

fn open_file(name: &str, appears: Duration) -> Result<OwnedFd, Errno> {
    let begin = Instant::now();
    loop {
        let opened = ask(OpenDevice { name: name.to_owned() }, &[]);
        match opened.and_then(|(_, fds)| fds.into_iter().next().ok_or(Errno::BADMSG)) {
            Err(Errno::NOENT) if begin.elapsed() < appears => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

fn call(call: &'static str, name: &str, source: Errno) -> VduseError {
    VduseError::Call { call, name: name.to_owned(), source }
}

impl Kernel for VduseDevice {
    fn read(&mut self, request: &mut [u8; REQUEST_LEN]) -> Result<bool, Errno> {
        match read(&self.file, &mut request[..]) {
            Ok(len) if len == REQUEST_LEN => Ok(true),
            Ok(_) => Err(Errno::BADMSG),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn write(&mut self, response: &[u8; RESPONSE_LEN]) -> Result<(), Errno> {
        match write(&self.file, response) {
            Ok(len) if len == RESPONSE_LEN => Ok(()),
            Ok(_) => Err(Errno::BADMSG),
            Err(errno) => Err(errno),
        }
    }

    fn features(&self) -> Result<u64, Errno> {
        sys::features(self.file.as_fd())
    }

    fn ring(&self, ring: u32) -> Result<RingInfo, Errno> {
        let info = sys::ring_info(self.file.as_fd(), ring)?;
        Ok(RingInfo {
            size: info.num,
            desc: info.desc,
            avail: info.driver,
            used: info.device,
            position: Position(info.state),
            ready: info.ready != 0,
        })
    }

    fn set_kick(&self, ring: u32, kick: BorrowedFd<'_>) -> Result<(), Errno> {
        sys::set_kick(self.file.as_fd(), ring, kick)
    }

    fn region(&self, from: u64) -> Result<Option<(IotlbEntry, OwnedFd)>, Errno> {
        let mut entry = IotlbEntry { start: from, last: u64::MAX, ..IotlbEntry::default() };
        match sys::iotlb_fd(self.file.as_fd(), &mut entry) {
            Ok(file) => Ok(Some((entry, file))),
            Err(Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn interrupt_config(&self) -> Result<bool, Errno> {
        match sys::interrupt_config(self.file.as_fd()) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn set_config(&self, config: &[u8]) -> Result<(), Errno> {
        sys::set_config(self.file.as_fd(), config)
    }
}
