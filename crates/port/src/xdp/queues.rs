//! Queues of an interface behind those of its port, each for one guest's frames.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use guestmem::{GuestMemory, Mapping, Pages, SharedFile};
use host::netns;
use virtq::DeviceQueue;
use xdp::{
    Chunks, FlowRule, Interface, KERNEL_HEADROOM, Placer, Socket, SocketSpec, SteeringRule, Umem,
    ZeroCopy,
};

use super::direct::{DirectError, DirectRing, DirectStatus};
use super::from_wire::FromWire;
use super::{XdpPortError, XdpShared, XdpSpec, bind, kernel};
use crate::half::Transmit;
use crate::virtio_net::{HEADER_LEN, RingEvents};

/// Bytes of a chunk around a guest's buffer.
const CHUNK: u32 = 2048;
/// Maximum bytes of a region shared with the kernel: 16 GiB take a second, and a sixteenth more
/// memory.
pub const PINNED_BYTES_MAX: u64 = 16 << 30;
/// Bytes of an idle UMEM.
const IDLE_MEMORY: u64 = 64 << 10;

/// Queues of an interface whose port is open. They are lost with the port.
#[derive(Clone, Debug)]
pub struct GuestQueues {
    /// Weak: only the halves keep the program on the interface.
    device: Weak<XdpShared>,
    interface: Interface,
    spec: XdpSpec,
    first: u32,
}

/// Frames to place, and the ring that receives them.
#[derive(Debug)]
pub struct DirectSpec {
    /// The guest's receive ring, which must have no other owner.
    pub queue: DeviceQueue,
    /// Event descriptors of the ring.
    pub events: RingEvents,
    /// Bytes of the virtio-net header.
    pub header: u32,
    /// Guest memory that holds the ring.
    pub memory: Arc<GuestMemory>,
    /// MAC address: only untagged frames for it are placed; the host gets all others.
    pub mac: [u8; 6],
    /// Longest frame placed, bytes.
    pub frame_bytes_max: u32,
}

/// A queue of an interface, used for direct placement.
#[derive(Debug)]
pub(crate) struct DirectQueue {
    interface: Interface,
    netns: Option<String>,
    queue: u32,
}

impl DirectQueue {
    /// Leaves the queue's frames to the host.
    pub(super) fn leave(&self, device: &XdpShared) {
        let Some(redirect) = device.redirect() else { return };
        // Fails only if the program was removed.
        let _ = redirect.remove(self.queue);
        let _ = redirect.steer(self.queue, None);
    }

    /// Waits until the device no longer uses a memory. The kernel revokes it only after the socket
    /// was closed, and before the queue can be bound again.
    pub(super) fn await_device(&self) {
        let idle = || -> Result<Socket, XdpPortError> {
            let memory = memory(&self.interface, IDLE_MEMORY)?;
            let chunks = Chunks { size: CHUNK, headroom: 0, unaligned: false };
            let spec = socket_spec(self.queue, 64, ZeroCopy::Never);
            Ok(Socket::bind(&self.interface, Umem::new(memory, chunks)?, &spec)?)
        };
        // Fails if the interface was removed, and then nothing writes.
        let _ = netns::within(self.netns.as_deref(), idle);
    }
}

impl GuestQueues {
    pub(super) fn new(
        device: &Arc<XdpShared>,
        interface: Interface,
        spec: &XdpSpec,
        first: u32,
    ) -> GuestQueues {
        GuestQueues { device: Arc::downgrade(device), interface, spec: spec.clone(), first }
    }

    /// Returns `true` if both are the same queues of the same port.
    pub fn is(&self, other: &GuestQueues) -> bool {
        self.device.ptr_eq(&other.device)
    }

    /// Returns `true` if their port is open.
    pub fn are_open(&self) -> bool {
        self.device().is_ok()
    }

    /// Number of queues.
    pub fn count(&self) -> u32 {
        self.interface.rx_queues - self.first
    }

    /// Number of queue `index` on the interface.
    pub fn number(&self, index: u32) -> u32 {
        self.first + index
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    /// Places frames of queue `index` in a guest's buffers for as long as the half lives. A lane
    /// must poll the half, attached to any port.
    ///
    /// The kernel pins the largest region of the guest's memory for it.
    ///
    /// # Errors
    /// [`XdpPortError`]; nothing was placed or used, and the ring may get another owner.
    pub fn place(
        &self,
        index: u32,
        spec: DirectSpec,
    ) -> Result<(Box<dyn Transmit>, Arc<DirectStatus>), XdpPortError> {
        let device = self.device()?;
        let (header, frame) = (spec.header, spec.frame_bytes_max);
        if header != HEADER_LEN {
            return Err(DirectError::Legacy.into());
        }
        let most = CHUNK - KERNEL_HEADROOM;
        if frame > most {
            return Err(DirectError::TooLong { frame, most }.into());
        }
        let chunks = Chunks { size: CHUNK, headroom: 0, unaligned: true };
        let regions = spec.memory.regions().iter();
        let largest =
            regions.max_by_key(|region| region.mapping.size()).ok_or(DirectError::Memory)?;
        let umem = Umem::new(largest.mapping.clone(), chunks).map_err(|_| DirectError::Memory)?;
        spare(&largest.mapping)?;
        let queue = self.number(index);
        let ring = u32::from(spec.queue.size()).next_power_of_two();
        let socket_spec = socket_spec(queue, ring, zero_copy(self.spec.zero_copy));
        let socket = self.within(|| Ok(Socket::bind(&self.interface, umem, &socket_spec)?))?;
        let placer = Placer::new(socket, header, frame);
        let (interface, netns) = (self.interface.clone(), self.spec.netns.clone());
        let interface_queue = DirectQueue { interface, netns, queue };
        let placing = DirectRing::new(
            (spec.queue, spec.events),
            placer,
            device.clone(),
            Some(interface_queue),
        );
        let mut placing =
            placing.map_err(|source| kernel(self.interface(), "watching a socket", source))?;
        placing.post();
        if let Some(ended) = placing.direct().ended() {
            return Err(ended.into());
        }
        if let (Some(redirect), Some(socket)) = (device.redirect(), placing.socket()) {
            redirect.steer(queue, Some(SteeringRule { mac: spec.mac, longest: frame }))?;
            redirect.insert(queue, socket)?;
        }
        let direct = placing.direct().clone();
        Ok((Box::new(placing), direct))
    }

    /// Steers frames for `mac` to queue `index` by a flow rule of the driver, for as long as the
    /// result lives. If the driver cannot, the operator must steer them.
    ///
    /// # Errors
    /// [`XdpPortError`]: the driver has no such rules.
    pub fn steer(&self, index: u32, mac: [u8; 6]) -> Result<FlowRule, XdpPortError> {
        let queue = self.number(index);
        self.within(|| Ok(FlowRule::add(&self.interface, mac, queue)?))
    }

    /// Receives the frames of queue `index` by one more transmit half of the interface's port.
    ///
    /// # Errors
    /// [`XdpPortError`].
    pub fn take(&self, index: u32) -> Result<Box<dyn Transmit>, XdpPortError> {
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

    fn device(&self) -> Result<Arc<XdpShared>, XdpPortError> {
        let device = self.device.upgrade().filter(|device| !device.health.is_lost());
        device.ok_or(XdpPortError::DirectError(DirectError::Lost))
    }

    fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, XdpPortError> + Send,
    ) -> Result<T, XdpPortError> {
        netns::within(self.spec.netns.as_deref(), work)?
    }
}

/// Rejects a memory that is too large to pin: a front-end may share far more than there is. The
/// kernel also allocates some 120 bytes for each chunk.
fn spare(memory: &Mapping) -> Result<(), DirectError> {
    const MIB: u64 = 1 << 20;
    let size = memory.size() as u64;
    if size > PINNED_BYTES_MAX {
        return Err(DirectError::TooLarge { has: size >> 30, most: PINNED_BYTES_MAX >> 30 });
    }
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let free = free.unwrap_or(0) * 1024;
    let need = size - memory.resident().unwrap_or(0).min(size) + size / 16;
    match need > free / 2 {
        true => Err(DirectError::Sparse { need: need / MIB, free: free / MIB }),
        false => Ok(()),
    }
}

/// Zero-copy mode for a guest's queue. A zero-copy device writes every frame of the queue to the
/// guest's memory, before the program can check its address. So only an explicit `require` vouches
/// for the steering.
fn zero_copy(uplink: ZeroCopy) -> ZeroCopy {
    match uplink {
        ZeroCopy::Require => ZeroCopy::Require,
        ZeroCopy::Auto | ZeroCopy::Never => ZeroCopy::Never,
    }
}

fn socket_spec(queue: u32, ring: u32, zero_copy: ZeroCopy) -> SocketSpec {
    SocketSpec { queue, ring, zero_copy, fragments: false, busy_poll: None }
}

fn memory(interface: &Interface, bytes: u64) -> Result<Arc<Mapping>, XdpPortError> {
    let memory = SharedFile::create("shunt-xdp", bytes, Pages::Ordinary)
        .and_then(|file| Mapping::new(file.fd(), bytes, 0));
    let memory = memory.map_err(|source| {
        let interface = interface.name.clone();
        XdpPortError::Memory { interface, source }
    })?;
    Ok(Arc::new(memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of a sparse file: addresses, and no memory.
    fn sparse(bytes: u64) -> Mapping {
        let file = SharedFile::create("sparse", bytes, Pages::Ordinary).unwrap();
        Mapping::new(file.fd(), bytes, 0).unwrap()
    }

    #[test]
    fn memory_beyond_the_limit_is_not_pinned() {
        assert_eq!(spare(&sparse(4096)), Ok(()));
        let most = PINNED_BYTES_MAX >> 30;
        let error = spare(&sparse(PINNED_BYTES_MAX + (1 << 30))).unwrap_err();
        assert_eq!(error, DirectError::TooLarge { has: most + 1, most });
        assert!(XdpPortError::from(error).is_limit_of_memory());
        assert!(!XdpPortError::from(DirectError::Lost).is_limit_of_memory());
    }
}
