//! One guest of the bare loop or the delay device: socket, session, memory and rings.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use guestmem::{GuestMemory, Mapping, Region};
use vhost_user::{
    Backend, BackendConfig, BackendDevice, Connector, ForeignFd, InflightArea, Listener,
    MemoryRegion, ProtocolFeatures, Receiver, Refused, RingSetup, SharedArea, SocketError,
};
use virtq::{Addresses, Content, DeviceQueue, Features, Start};
use wire::virtio_net::feature::{self, has};

use crate::measure::copy_loop::{Ring, Rings};

/// Index of the guest's receive ring (virtio 1.2, section 5.1.2).
const RX: usize = 0;

/// Ring features that a session offers its guest.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Offer {
    /// Packed rings.
    pub(in crate::bench) packed: bool,
    /// Mergeable receive buffers.
    pub(in crate::bench) mergeable: bool,
}

#[derive(Debug)]
enum Socket {
    Listener(Listener),
    Connector(Connector),
}

/// A socket and the session of its guest.
#[derive(Debug)]
pub(in crate::bench) struct Session {
    socket: Socket,
    stream: Option<UnixStream>,
    receiver: Receiver,
    backend: Backend,
    pub(in crate::bench) guest: GuestRings,
}

impl Session {
    /// A session without a guest. The back-end listens on its socket unless it is to `connect`.
    ///
    /// # Errors
    /// Listening on the socket fails.
    pub(in crate::bench) fn new(path: &Path, connect: bool, offer: Offer) -> Result<Session> {
        let socket = match connect {
            true => Socket::Connector(Connector::new(path)),
            false => Socket::Listener(Listener::bind(path)?),
        };
        Ok(Session {
            socket,
            stream: None,
            receiver: Receiver::new(),
            backend: Backend::new(config(offer))?,
            guest: GuestRings::default(),
        })
    }

    /// Accepts a guest or connects to it, and serves its messages; never waits.
    ///
    /// # Errors
    /// The socket can never get a guest.
    pub(in crate::bench) fn poll(&mut self, now: Instant) -> Result<()> {
        let Some(stream) = &self.stream else {
            self.stream = match &mut self.socket {
                Socket::Listener(listener) => listener.accept()?,
                Socket::Connector(connector) => connector.poll(now)?,
            };
            return Ok(());
        };
        loop {
            let served = match self.receiver.poll(stream) {
                Ok(None) => return Ok(()),
                Ok(Some(message)) => match self.backend.handle(message, &mut self.guest) {
                    Ok(None) => Ok(()),
                    Ok(Some(reply)) => {
                        vhost_user::socket::send(stream, &reply).map_err(anyhow::Error::from)
                    }
                    Err(error) => Err(error.into()),
                },
                Err(SocketError::Closed) => break,
                Err(error) => Err(error.into()),
            };
            if let Some(refusal) = self.backend.take_refusal() {
                eprintln!("bare loop: {refusal}");
            }
            if let Err(error) = served {
                eprintln!("bare loop: connection closed: {error:#}");
                break;
            }
        }
        self.stream = None;
        self.receiver = Receiver::new();
        self.backend.disconnect(&mut self.guest);
        Ok(())
    }

    /// `true` while a ring of the guest runs.
    pub(in crate::bench) fn is_running(&self) -> bool {
        self.guest.rings.tx.is_some() || self.guest.rings.rx.is_some()
    }
}

/// Offered features: those of the daemon's rings, and no offloads.
fn config(offer: Offer) -> BackendConfig {
    let mut bits = vec![
        feature::VIRTIO_F_VERSION_1,
        feature::VIRTIO_F_ANY_LAYOUT,
        feature::VIRTIO_F_RING_INDIRECT_DESC,
        feature::VIRTIO_F_RING_EVENT_IDX,
        feature::VIRTIO_F_IN_ORDER,
    ];
    if offer.packed {
        bits.push(feature::VIRTIO_F_RING_PACKED);
    }
    if offer.mergeable {
        bits.push(feature::VIRTIO_NET_F_MRG_RXBUF);
    }
    BackendConfig {
        features: feature::mask(&bits),
        protocol_features: ProtocolFeatures::MQ
            | ProtocolFeatures::REPLY_ACK
            | ProtocolFeatures::RESET_DEVICE
            | ProtocolFeatures::CONFIGURE_MEM_SLOTS
            | ProtocolFeatures::STATUS,
        queue_pairs_max: 1,
        mem_slots_max: guestmem::REGIONS_MAX as u64,
    }
}

/// Memory and rings of a guest.
#[derive(Debug, Default)]
pub(in crate::bench) struct GuestRings {
    pub(in crate::bench) rings: Rings,
    memory: Arc<GuestMemory>,
}

impl GuestRings {
    fn ring(&mut self, index: usize) -> &mut Option<Ring> {
        if index == RX { &mut self.rings.rx } else { &mut self.rings.tx }
    }

    /// Device side of a ring, from `base` on.
    fn queue(&self, index: usize, setup: &RingSetup, base: u32) -> Result<DeviceQueue, Refused> {
        if !has(setup.features, feature::VIRTIO_F_VERSION_1) {
            return Err(Refused::new("the bare loop needs a guest with VIRTIO_F_VERSION_1"));
        }
        let mut features = Features::empty();
        for (bit, ring_feature) in [
            (feature::VIRTIO_F_RING_INDIRECT_DESC, Features::INDIRECT),
            (feature::VIRTIO_F_RING_EVENT_IDX, Features::EVENT_IDX),
            (feature::VIRTIO_F_RING_PACKED, Features::PACKED),
            (feature::VIRTIO_F_IN_ORDER, Features::IN_ORDER),
        ] {
            features.set(ring_feature, has(setup.features, bit));
        }
        let content = match index {
            RX => Content::Writable,
            _ => Content::Readable { header: 0, keep: false },
        };
        let RingSetup { desc, avail, used, size, .. } = *setup;
        let addresses = Addresses { desc, avail, used };
        let memory = self.memory.clone();
        DeviceQueue::new(memory, &addresses, size, features, content, Start::at(base))
            .map_err(refused)
    }

    fn set_regions(&mut self, regions: Vec<Region>) -> Result<(), Refused> {
        self.memory = Arc::new(GuestMemory::new(regions).map_err(refused)?);
        Ok(())
    }
}

fn refused(error: impl std::fmt::Display) -> Refused {
    Refused::new(error.to_string())
}

fn map(region: &MemoryRegion) -> Result<Region, Refused> {
    let MemoryRegion { guest_addr, size, user_addr, mmap_offset, fd } = region;
    let mapping = Mapping::new(fd.as_fd(), *size, *mmap_offset).map_err(refused)?;
    Ok(Region { guest_addr: *guest_addr, user_addr: *user_addr, mapping: Arc::new(mapping) })
}

/// Answer to requests whose protocol feature is not offered.
fn not_offered() -> Refused {
    Refused::new("the bare loop does not offer this")
}

impl BackendDevice for GuestRings {
    fn set_memory(&mut self, regions: Vec<MemoryRegion>) -> Result<(), Refused> {
        self.set_regions(regions.iter().map(map).collect::<Result<_, _>>()?)
    }

    fn add_region(&mut self, region: MemoryRegion) -> Result<(), Refused> {
        let mut regions = self.memory.regions().to_vec();
        regions.push(map(&region)?);
        self.set_regions(regions)
    }

    fn remove_region(&mut self, guest_addr: u64, user_addr: u64, _size: u64) {
        let mut regions = self.memory.regions().to_vec();
        regions.retain(|region| (region.guest_addr, region.user_addr) != (guest_addr, user_addr));
        self.set_regions(regions).expect("fewer regions of a good memory are a good memory");
    }

    fn discards(&self, _index: usize) -> bool {
        false // a bench disables no ring
    }

    fn start_ring(&mut self, index: usize, setup: &RingSetup) -> Result<(), Refused> {
        let ring = Ring { queue: self.queue(index, setup, setup.base)?, call: setup.call.clone() };
        *self.ring(index) = Some(ring);
        Ok(())
    }

    fn renew_ring(&mut self, index: usize, setup: &RingSetup) -> Result<(), Refused> {
        let base = self.ring(index).as_ref().map(|ring| ring.queue.position());
        let base = base.ok_or_else(|| Refused::new("the ring does not run"))?;
        let ring = Ring { queue: self.queue(index, setup, base)?, call: setup.call.clone() };
        *self.ring(index) = Some(ring);
        Ok(())
    }

    fn stop_ring(&mut self, index: usize) -> u32 {
        self.ring(index).take().map_or(0, |ring| ring.queue.position())
    }

    fn set_call(&mut self, index: usize, call: Option<Arc<ForeignFd>>) {
        if let Some(ring) = self.ring(index) {
            ring.call = call;
            ring.interrupt(); // the guest may have missed an earlier one
        }
    }

    fn set_err(&mut self, _index: usize, _err: Option<Arc<ForeignFd>>) {}

    fn reset(&mut self) {}

    fn set_mtu(&mut self, _mtu: u16) -> Result<(), Refused> {
        Err(not_offered())
    }

    fn send_rarp(&mut self, _mac: [u8; 6]) {}

    fn set_status(&mut self, _status: u8) {}

    fn set_log(&mut self, log: Option<SharedArea>) -> Result<(), Refused> {
        log.map_or(Ok(()), |_| Err(not_offered()))
    }

    fn create_inflight(&mut self, _rings: u16, _ring_size: u16) -> Result<SharedArea, Refused> {
        Err(not_offered())
    }

    fn set_inflight(&mut self, records: Option<InflightArea>) -> Result<(), Refused> {
        records.map_or(Ok(()), |_| Err(not_offered()))
    }

    fn clear_inflight(&mut self, _index: usize) {}

    fn save_state(&mut self, _to: ForeignFd) -> Result<(), Refused> {
        Err(not_offered())
    }

    fn load_state(&mut self, _from: ForeignFd) -> Result<(), Refused> {
        Err(not_offered())
    }

    fn check_state(&mut self) -> Result<(), Refused> {
        Err(not_offered())
    }

    fn config(&self) -> Vec<u8> {
        Vec::new()
    }
}
