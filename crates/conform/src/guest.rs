//! A guest that sends given frames and returns the received ones.
//!
//! Its memory and rings outlive a connection, like a virtual machine's when the host's daemon
//! restarts: frames posted meanwhile are still there after the next attachment. One queue pair,
//! single-segment buffers, polling only.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use guestmem::{GuestMemory, Pages, SharedFile};
use rustix::event::{EventfdFlags, eventfd};
use vhost_user::{Frontend, Listener, ProtocolFeatures, RingConfig, SharedRegion};
use virtq::{DriverQueue, Features, Segment, Used};
use wire::Mac;
use wire::virtio_net::{self as net, feature};

use super::subject::GuestConfig;

/// Entries of each ring, and the maximum number of frames waiting in it.
pub(super) const RING: u16 = 256;
/// Size of a buffer in bytes.
const BUFFER: u32 = 2048;
const HEADER: u32 = net::HEADER_LEN as u32;
/// Guest physical address of the memory.
const BASE: u64 = 1 << 32;
/// Time limit for the other side to appear.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RX: u8 = 0;
const TX: u8 = 1;

/// A test guest.
#[derive(Debug)]
pub(super) struct TestGuest {
    frontend: Option<Frontend>,
    tx: DriverQueue,
    rx: DriverQueue,
    memory: Arc<GuestMemory>,
    file: SharedFile,
    kick: OwnedFd,
    call: OwnedFd,
    /// Free buffers, and posted ones by descriptor.
    free: Vec<u64>,
    sending: Vec<u64>,
    receiving: Vec<u64>,
}

impl TestGuest {
    /// A guest that is not attached, with all its receive buffers posted.
    ///
    /// # Errors
    /// Out of memory or file descriptors.
    pub(super) fn new() -> Result<TestGuest> {
        let rings = DriverQueue::bytes(RING);
        let size = 2 * rings + 2 * u64::from(RING) * u64::from(BUFFER);
        let file = SharedFile::create("shunt-conform-guest", size, Pages::Ordinary)?;
        let memory = virtq::guest_memory(&file, BASE)?;
        let ring = |at| DriverQueue::new(memory.clone(), at, RING, Features::EVENT_IDX);
        let (rx, tx) = (ring(BASE)?, ring(BASE + rings)?);
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (kick, call) = (event()?, event()?);
        let buffer = |i: u16| BASE + 2 * rings + u64::from(i) * u64::from(BUFFER);
        let mut guest = TestGuest {
            frontend: None,
            tx,
            rx,
            memory,
            file,
            kick,
            call,
            free: (0..RING).map(buffer).collect(),
            sending: vec![0; RING.into()],
            receiving: vec![0; RING.into()],
        };
        (RING..2 * RING).for_each(|i| guest.post_receive(buffer(i)));
        guest.rx.publish();
        Ok(guest)
    }

    /// Connects to a socket, which may take a while to appear.
    ///
    /// # Errors
    /// No listener, or missing features.
    pub(super) fn connect(&mut self, socket: &Path) -> Result<()> {
        let shown = || format!("cannot attach to {}", socket.display());
        let frontend = Frontend::connect(socket, CONNECT_TIMEOUT).with_context(shown)?;
        self.start(frontend).with_context(shown)
    }

    /// Waits for the other side to connect.
    ///
    /// # Errors
    /// No connection, or missing features.
    pub(super) fn accept(&mut self, listener: &Listener) -> Result<()> {
        let frontend = Frontend::accept(listener, CONNECT_TIMEOUT)
            .context("no device connected to the guest")?;
        self.start(frontend).context("cannot negotiate with the connected device")
    }

    fn start(&mut self, mut frontend: Frontend) -> Result<()> {
        let wanted = [
            feature::VIRTIO_F_VERSION_1,
            feature::VIRTIO_NET_F_MRG_RXBUF,
            feature::VIRTIO_F_RING_EVENT_IDX,
        ];
        let status = feature::mask(&[feature::VIRTIO_NET_F_STATUS, feature::VIRTIO_NET_F_MAC]);
        let wanted = feature::mask(&wanted);
        let protocol = ProtocolFeatures::REPLY_ACK
            | ProtocolFeatures::MQ
            | ProtocolFeatures::CONFIG
            | ProtocolFeatures::STATUS;
        let agreed = frontend.negotiate(wanted | status, protocol)?.features;
        ensure!(agreed & wanted == wanted, "the device lacks VERSION_1, MRG_RXBUF or EVENT_IDX");
        let size = self.file.mapping().size() as u64;
        let fd = self.file.fd();
        let region = SharedRegion { guest_addr: BASE, size, user_addr: BASE, mmap_offset: 0, fd };
        frontend.set_memory(&[region])?;
        for (index, queue) in [(RX, &self.rx), (TX, &self.tx)] {
            let at = queue.addresses();
            let ring = RingConfig {
                size: RING,
                desc: at.desc,
                avail: at.avail,
                used: at.used,
                base: 0, // the daemon goes on from the used index in our memory
                kick: Some(self.kick.as_fd()),
                call: Some(self.call.as_fd()),
                err: None,
                log: None,
            };
            frontend.start_ring(index, &ring)?;
            frontend.enable_ring(index, true)?;
        }
        self.frontend = Some(frontend);
        Ok(())
    }

    /// Stops the rings, like a driver on unload, and disconnects.
    pub(super) fn leave(&mut self) {
        if let Some(mut frontend) = self.frontend.take() {
            // The daemon may be gone already.
            let _ = frontend.stop_ring(RX).and_then(|_| frontend.stop_ring(TX));
        }
    }

    /// Breaks the connection, as the kernel does for a killed process.
    pub(super) fn die(&mut self) {
        self.frontend = None;
    }

    /// `true` while the connection exists.
    pub(super) fn is_attached(&self) -> bool {
        self.frontend.as_ref().is_some_and(|frontend| !frontend.is_closed())
    }

    /// Configuration of the device, as the guest reads it.
    ///
    /// # Errors
    /// The guest is not attached, or the device does not answer.
    pub(super) fn view(&mut self) -> Result<GuestConfig> {
        let frontend = self.frontend.as_mut().context("the guest is not attached")?;
        let config = frontend.config(0, 8)?;
        let (mac, status) = config.split_first_chunk().context("a short configuration")?;
        let status = u16::from_le_bytes(*status.first_chunk().context("a short configuration")?);
        Ok(GuestConfig { mac: Mac(*mac), link_up: status & 1 != 0 })
    }

    /// Posts a frame.
    ///
    /// # Errors
    /// The frame is too long, or too many are in flight.
    pub(super) fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.reap();
        let bytes = [&[0; HEADER as usize], frame].concat();
        let len = bytes.len() as u32;
        ensure!(len <= BUFFER, "a frame of {} bytes does not fit into a buffer", frame.len());
        let addr = self.free.pop().context("more frames in flight than the ring holds")?;
        let place = self.memory.slice(addr, len).context("a buffer outside the memory")?;
        place.write_bytes(&bytes);
        let id = self.tx.post(Segment { addr, len, writable: false });
        self.sending[usize::from(id.context("the ring is full")?)] = addr;
        if self.tx.publish() {
            self.kick();
        }
        Ok(())
    }

    fn kick(&self) {
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes()); // full: it is kicked already
    }

    /// Sent frames whose buffers have not been returned.
    pub(super) fn in_flight(&mut self) -> usize {
        self.reap();
        usize::from(RING) - self.tx.room()
    }

    fn reap(&mut self) {
        for used in reap(&mut self.tx) {
            self.free.push(self.sending[usize::from(used.id)]);
        }
    }

    /// Received frames.
    ///
    /// # Errors
    /// A frame violates the virtio rules.
    pub(super) fn take(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        // Collects all entries first: a buffer that is posted again reuses one of their numbers.
        let used = reap(&mut self.rx).into_iter();
        let places: Vec<(u64, u32)> =
            used.map(|used| (self.receiving[usize::from(used.id)], used.len)).collect();
        for (addr, len) in places {
            ensure!((HEADER..=BUFFER).contains(&len), "a received frame has {len} bytes");
            let mut bytes = vec![0; len as usize];
            self.memory.slice(addr, len).context("outside the memory")?.read_bytes(&mut bytes);
            frames.push(bytes.split_off(HEADER as usize));
            self.post_receive(addr);
        }
        if self.rx.publish() {
            self.kick();
        }
        Ok(frames)
    }

    fn post_receive(&mut self, addr: u64) {
        // There are as many buffers as entries, so each returned one fits.
        if let Some(id) = self.rx.post(Segment { addr, len: BUFFER, writable: true }) {
            self.receiving[usize::from(id)] = addr;
        }
    }
}

fn reap(queue: &mut DriverQueue) -> Vec<Used> {
    let mut used = vec![Used::default(); RING.into()];
    let n = queue.reap(&mut used);
    used.truncate(n);
    used
}
