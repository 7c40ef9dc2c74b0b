//! The queues of an interface behind those of its port, each for one guest's frames.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use guestmem::{GuestMemory, Mapping, Pages, SharedFile};
use host::netns;
use virtq::DeviceQueue;
use xdp::{
    Chunks, FlowRule, Interface, KERNEL_HEADROOM, Placer, Socket, SocketSpec, Steered, Umem,
    ZeroCopy,
};

use super::direct::{Direct, Over, Placing};
use super::from_wire::FromWire;
use super::{Device, Spec, XdpError, bind, kernel};
use crate::Transmit;
use crate::virtio_net::{Events, HEADER_LEN};

/// Bytes of a chunk around a guest's buffer.
const CHUNK: u32 = 2048;
/// Bytes of a region that is shared with the kernel at most: it takes a second, and a sixteenth of
/// it once more.
const MEMORY_MAX: u64 = 16 << 30;
/// Bytes of a memory that nobody uses.
const IDLE_MEMORY: u64 = 64 << 10;

/// Queues of an interface whose port is open. Once it is lost they are, too.
#[derive(Clone, Debug)]
pub struct Queues {
    /// Not held: the halves alone keep the program on the interface.
    device: Weak<Device>,
    interface: Interface,
    spec: Spec,
    first: u32,
}

/// Whose frames are placed, and where.
#[derive(Debug)]
pub struct DirectSpec {
    /// The guest's receive ring, which has no other owner.
    pub queue: DeviceQueue,
    /// Its events.
    pub events: Events,
    /// Bytes of the device's header.
    pub header: u32,
    /// The memory that it is in.
    pub memory: Arc<GuestMemory>,
    /// Only untagged frames for this address are placed; the host gets the others.
    pub mac: [u8; 6],
    /// The longest frame that is placed, bytes.
    pub frame_bytes_max: u32,
}

/// A queue of an interface, as who places frames needs it.
#[derive(Debug)]
pub(crate) struct Place {
    interface: Interface,
    netns: Option<String>,
    queue: u32,
}

impl Place {
    /// Leaves the queue's frames to the host.
    pub(super) fn leave(&self, device: &Device) {
        let Some(redirect) = device.redirect() else { return };
        // Fails only where the program is gone.
        let _ = redirect.remove(self.queue);
        let _ = redirect.steer(self.queue, None);
    }

    /// Waits until the device has let go of a memory: the kernel takes that from it only after the
    /// socket was closed, and before the queue can be had again.
    pub(super) fn await_device(&self) {
        let idle = || -> Result<Socket, XdpError> {
            let memory = memory(&self.interface, IDLE_MEMORY)?;
            let chunks = Chunks { size: CHUNK, headroom: 0, unaligned: false };
            let spec = socket_spec(self.queue, 64, ZeroCopy::Never);
            Ok(Socket::bind(&self.interface, Umem::new(memory, chunks)?, &spec)?)
        };
        // Fails where the interface is gone, which then writes nowhere.
        let _ = netns::within(self.netns.as_deref(), idle);
    }
}

impl Queues {
    pub(super) fn new(
        device: &Arc<Device>,
        interface: Interface,
        spec: &Spec,
        first: u32,
    ) -> Queues {
        Queues { device: Arc::downgrade(device), interface, spec: spec.clone(), first }
    }

    /// Whether these are the same queues of the same port.
    pub fn is(&self, other: &Queues) -> bool {
        self.device.ptr_eq(&other.device)
    }

    /// Whether their port is open.
    pub fn are_open(&self) -> bool {
        self.device().is_ok()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.interface.rx_queues - self.first
    }

    /// The number that the interface has for the queue `index` of these.
    pub fn number(&self, index: u32) -> u32 {
        self.first + index
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    /// Has frames of queue `index` placed in a guest's buffers, for as long as the half lives. To
    /// be polled by a lane; where it is plugged in does not matter.
    ///
    /// The kernel pins all of the largest region of the guest's memory for it.
    ///
    /// # Errors
    /// [`XdpError`]; nothing was placed or used, and the ring may have another owner.
    pub fn place(
        &self,
        index: u32,
        spec: DirectSpec,
    ) -> Result<(Box<dyn Transmit>, Arc<Direct>), XdpError> {
        let device = self.device()?;
        let (header, frame) = (spec.header, spec.frame_bytes_max);
        if header != HEADER_LEN {
            return Err(Over::Legacy.into());
        }
        let most = CHUNK - KERNEL_HEADROOM;
        if frame > most {
            return Err(Over::TooLong { frame, most }.into());
        }
        let chunks = Chunks { size: CHUNK, headroom: 0, unaligned: true };
        let regions = spec.memory.regions().iter();
        let largest = regions.max_by_key(|region| region.mapping.size()).ok_or(Over::Memory)?;
        let umem = Umem::new(largest.mapping.clone(), chunks).map_err(|_| Over::Memory)?;
        spare(&largest.mapping)?;
        let queue = self.number(index);
        let ring = u32::from(spec.queue.size()).next_power_of_two();
        let socket_spec = socket_spec(queue, ring, zero_copy(self.spec.zero_copy));
        let socket = self.within(|| Ok(Socket::bind(&self.interface, umem, &socket_spec)?))?;
        let placer = Placer::new(socket, header, frame);
        let (interface, netns) = (self.interface.clone(), self.spec.netns.clone());
        let place = Place { interface, netns, queue };
        let placing = Placing::new((spec.queue, spec.events), placer, device.clone(), Some(place));
        let mut placing =
            placing.map_err(|source| kernel(self.interface(), "watching a socket", source))?;
        placing.post();
        if let Some(over) = placing.direct().over() {
            return Err(over.into());
        }
        if let (Some(redirect), Some(socket)) = (device.redirect(), placing.socket()) {
            redirect.steer(queue, Some(Steered { mac: spec.mac, longest: frame }))?;
            redirect.insert(queue, socket)?;
        }
        let direct = placing.direct().clone();
        Ok((Box::new(placing), direct))
    }

    /// Has the interface's driver bring frames for `mac` by queue `index`, for as long as the
    /// result lives. Where the driver cannot, somebody else has to.
    ///
    /// # Errors
    /// [`XdpError`]: the driver does not.
    pub fn steer(&self, index: u32, mac: [u8; 6]) -> Result<FlowRule, XdpError> {
        let queue = self.number(index);
        self.within(|| Ok(FlowRule::add(&self.interface, mac, queue)?))
    }

    /// The frames of queue `index` as one more transmit half of the interface's port.
    ///
    /// # Errors
    /// [`XdpError`].
    pub fn take(&self, index: u32) -> Result<Box<dyn Transmit>, XdpError> {
        let device = self.device()?;
        let queue = self.number(index);
        let socket = self.within(|| bind(&self.interface, &self.spec, queue))?;
        if let Some(redirect) = device.redirect() {
            redirect.insert(queue, &socket.handle)?;
        }
        let (inbound, _) = socket.split(0);
        let unsent = Arc::new(AtomicBool::new(false));
        let half = FromWire::new(inbound, device, unsent, self.spec.busy_poll_us > 0);
        Ok(Box::new(half))
    }

    fn device(&self) -> Result<Arc<Device>, XdpError> {
        let device = self.device.upgrade().filter(|device| !device.condition.is_lost());
        device.ok_or(XdpError::Over(Over::Lost))
    }

    fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, XdpError> + Send,
    ) -> Result<T, XdpError> {
        netns::within(self.spec.netns.as_deref(), work)?
    }
}

/// Refuses a memory that cannot be pinned without hurting others: a front-end may hand over one
/// that is much larger than what there is. Besides, the kernel keeps some 120 bytes for each chunk.
fn spare(memory: &Mapping) -> Result<(), Over> {
    const MIB: u64 = 1 << 20;
    let size = memory.size() as u64;
    if size > MEMORY_MAX {
        return Err(Over::TooLarge { has: size >> 30, most: MEMORY_MAX >> 30 });
    }
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let free = free.unwrap_or(0) * 1024;
    let need = size - memory.resident().unwrap_or(0).min(size) + size / 16;
    match need > free / 2 {
        true => Err(Over::Sparse { need: need / MIB, free: free / MIB }),
        false => Ok(()),
    }
}

/// With zero-copy a device writes whatever comes by the queue to the guest's memory, before the
/// program can tell whose it is: only who says so vouches for what is steered there.
fn zero_copy(uplink: ZeroCopy) -> ZeroCopy {
    match uplink {
        ZeroCopy::Require => ZeroCopy::Require,
        ZeroCopy::Auto | ZeroCopy::Never => ZeroCopy::Never,
    }
}

fn socket_spec(queue: u32, ring: u32, zero_copy: ZeroCopy) -> SocketSpec {
    SocketSpec { queue, ring, zero_copy, fragments: false, busy_poll: None }
}

fn memory(interface: &Interface, bytes: u64) -> Result<Arc<Mapping>, XdpError> {
    let memory = SharedFile::create("shunt-xdp", bytes, Pages::Ordinary)
        .and_then(|file| Mapping::new(file.fd(), bytes, 0));
    let memory = memory.map_err(|source| {
        let interface = interface.name.clone();
        XdpError::Memory { interface, source }
    })?;
    Ok(Arc::new(memory))
}
