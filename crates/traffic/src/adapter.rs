//! Guest network adapter: memory, two rings, and a vhost-user front-end in place of a VMM.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use guestmem::{GuestMemory, GuestSlice, Pages, SharedFile};
use rustix::event::{EventfdFlags, eventfd};
use vhost_user::payload::Inflight;
use vhost_user::{Frontend, Listener, ProtocolFeatures, RingConfig, SharedRegion};
use virtq::{BURST, DriverQueue, Features, Segment, Used};
use wire::virtio_net::feature;

use report::RingKind;

/// Entries of each ring.
pub const RING: u16 = 1024;
/// Bytes of each buffer.
pub const BUFFER: u32 = 2048;
/// Distance between buffers: not a power of two, so that they do not share cache sets.
const STRIDE: u64 = 2112;
/// Offset of the first buffer: frames behind their headers are aligned to cache lines.
const FIRST: u64 = 64 - HEADER as u64;
/// Bytes of the virtio-net header before each frame.
pub const HEADER: u32 = 12;
/// Number of buffers: the entries of both rings.
pub const BUFFERS: u32 = 2 * RING as u32;
/// Guest physical address of the memory.
const BASE: u64 = 1 << 32;
/// Longest wait for the daemon's socket to appear.
const WAIT: Duration = Duration::from_secs(10);

/// Ring features to negotiate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Ring layout, and in-order use of buffers.
    pub kind: RingKind,
    /// Notification suppression by event indices.
    pub event_idx: bool,
    /// Inflight records, which the next daemon reads.
    pub inflight: bool,
    /// Mergeable receive buffers.
    pub mergeable: bool,
    /// Indirect tables.
    pub indirect: bool,
}

impl RingOptions {
    /// Rings of a kind, without event indices, inflight records and indirect tables.
    pub fn of(kind: RingKind) -> RingOptions {
        RingOptions { kind, event_idx: false, inflight: false, mergeable: true, indirect: false }
    }

    /// Features of these rings: virtio feature bits and vhost-user protocol features.
    fn features(self) -> (Vec<u32>, Features) {
        let mut bits = Vec::new();
        let mut features = Features::empty();
        for (wanted, bit, feature) in [
            (self.event_idx, feature::VIRTIO_F_RING_EVENT_IDX, Features::EVENT_IDX),
            (self.indirect, feature::VIRTIO_F_RING_INDIRECT_DESC, Features::INDIRECT),
            (self.kind != RingKind::Split, feature::VIRTIO_F_RING_PACKED, Features::PACKED),
            (self.kind == RingKind::PackedInOrder, feature::VIRTIO_F_IN_ORDER, Features::IN_ORDER),
        ] {
            if wanted {
                bits.push(bit);
                features |= feature;
            }
        }
        (bits, features)
    }

    /// Negotiates features with a daemon, and returns those in force.
    fn agree(self, frontend: &mut Frontend) -> Result<u64> {
        let (mut bits, _) = self.features();
        bits.push(feature::VIRTIO_F_VERSION_1);
        bits.extend(self.mergeable.then_some(feature::VIRTIO_NET_F_MRG_RXBUF));
        let mut protocol =
            ProtocolFeatures::REPLY_ACK | ProtocolFeatures::MQ | ProtocolFeatures::STATUS;
        protocol.set(ProtocolFeatures::INFLIGHT_SHMFD, self.inflight);
        let (wanted, agreed) =
            (feature::mask(&bits), frontend.negotiate(feature::mask(&bits), protocol)?);
        ensure!(agreed.features & wanted == wanted, "the daemon does not offer {bits:?}");
        let lacks = protocol - agreed.protocol_features;
        ensure!(lacks.is_empty(), "the daemon does not offer {lacks:?}");
        Ok(agreed.features)
    }
}

/// An attached adapter.
#[derive(Debug)]
pub struct Adapter {
    /// The transmit ring.
    pub tx: DriverQueue,
    /// The receive ring.
    pub rx: DriverQueue,
    /// Buffer held by each descriptor of a ring.
    sending: Box<[u32]>,
    receiving: Box<[u32]>,
    memory: Arc<GuestMemory>,
    kick_tx: OwnedFd,
    kick_rx: OwnedFd,
    call_tx: OwnedFd,
    call_rx: OwnedFd,
    frontend: Frontend,
    options: RingOptions,
    /// Negotiated virtio features.
    pub features: u64,
    /// Inflight records written by the daemon.
    records: Option<(Inflight, OwnedFd)>,
    file: SharedFile,
}

impl Adapter {
    /// Attaches to the daemon's socket with split rings. Waits for the socket to appear.
    pub fn attach(socket: &Path, event_idx: bool, pages: Pages) -> Result<Adapter> {
        Adapter::attach_as(
            socket,
            RingOptions { event_idx, ..RingOptions::of(RingKind::Split) },
            pages,
        )
    }

    /// Attaches with the given ring features.
    pub fn attach_as(socket: &Path, options: RingOptions, pages: Pages) -> Result<Adapter> {
        let shown = || format!("cannot attach to {}", socket.display());
        let frontend = Frontend::connect(socket, WAIT).with_context(shown)?;
        Adapter::on(frontend, options, pages).with_context(shown)
    }

    /// Waits for a switch to connect, and starts the rings on it.
    ///
    /// # Errors
    /// No switch connects in time, or it does not offer the required features.
    pub fn accept(listener: &Listener, options: RingOptions, pages: Pages) -> Result<Adapter> {
        /// ACKNOWLEDGE, DRIVER, FEATURES_OK and DRIVER_OK: DPDK's back-ends wait for the last.
        const STARTED: u8 = 0xf;
        let shown = || format!("no switch connected to {}", listener.path().display());
        let frontend = Frontend::accept(listener, WAIT).with_context(shown)?;
        let mut adapter = Adapter::on(frontend, options, pages).with_context(shown)?;
        adapter.frontend.set_status(STARTED)?;
        Ok(adapter)
    }

    fn on(mut frontend: Frontend, options: RingOptions, pages: Pages) -> Result<Adapter> {
        let agreed = options.agree(&mut frontend)?;
        let rings = DriverQueue::bytes(RING);
        let size = (2 * rings + u64::from(BUFFERS) * STRIDE + FIRST).next_multiple_of(2 << 20);
        let file = SharedFile::create("shunt-lab-guest", size, pages)?;
        let memory = virtq::guest_memory(&file, BASE)?;
        let (_, features) = options.features();
        let rx = DriverQueue::new(memory.clone(), BASE, RING, features)?;
        let tx = DriverQueue::new(memory.clone(), BASE + rings, RING, features)?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let places = || vec![0; usize::from(RING)].into_boxed_slice();
        let (sending, receiving) = (places(), places());
        let mut adapter = Adapter {
            tx,
            rx,
            sending,
            receiving,
            memory,
            kick_tx: event()?,
            kick_rx: event()?,
            call_tx: event()?,
            call_rx: event()?,
            frontend,
            options,
            features: agreed,
            records: None,
            file,
        };
        adapter.start()?;
        Ok(adapter)
    }

    /// Sends memory and rings to the daemon, and starts them.
    fn start(&mut self) -> Result<()> {
        let Adapter { rx, tx, frontend, file, records, .. } = self;
        if self.options.inflight {
            if records.is_none() {
                *records = Some(frontend.get_inflight(2, RING)?);
            }
            if let Some((inflight, fd)) = records {
                frontend.set_inflight(inflight, fd.as_fd())?;
            }
        }
        let size = file.mapping().size() as u64;
        let region =
            SharedRegion { guest_addr: BASE, size, user_addr: BASE, mmap_offset: 0, fd: file.fd() };
        frontend.set_memory(&[region])?;
        for (index, queue, kick, call) in
            [(0, rx, &self.kick_rx, &self.call_rx), (1, tx, &self.kick_tx, &self.call_tx)]
        {
            let addresses = queue.addresses();
            let ring = RingConfig {
                size: RING,
                desc: addresses.desc,
                avail: addresses.avail,
                used: addresses.used,
                base: queue.first_position(),
                kick: Some(kick.as_fd()),
                call: Some(call.as_fd()),
                err: None,
                log: None,
            };
            frontend.start_ring(index, &ring)?;
            frontend.enable_ring(index, true)?;
        }
        Ok(())
    }

    /// Returns `true` if the daemon closed the connection.
    pub fn is_disconnected(&self) -> bool {
        self.frontend.is_closed()
    }

    /// Attaches to the next daemon with memory and rings unchanged.
    ///
    /// # Errors
    /// No daemon listens yet, or the old one has not closed all its sockets: try again.
    pub fn reattach(&mut self, socket: &Path) -> Result<()> {
        let mut frontend = Frontend::connect(socket, Duration::ZERO)?;
        self.features = self.options.agree(&mut frontend)?;
        self.frontend = frontend;
        self.start()
    }

    /// Guest physical address of a buffer.
    pub fn address(&self, buffer: u32) -> u64 {
        BASE + 2 * DriverQueue::bytes(RING) + FIRST + u64::from(buffer) * STRIDE
    }

    /// Bytes of a buffer, header first.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn buffer(&self, buffer: u32) -> GuestSlice<'_> {
        assert!(buffer < BUFFERS);
        self.memory.slice(self.address(buffer), BUFFER).expect("all buffers are in the region")
    }

    /// Posts a receive buffer; `false` if the ring is full.
    pub fn post_receive(&mut self, buffer: u32) -> bool {
        let piece = Segment { addr: self.address(buffer), len: BUFFER, writable: true };
        let id = self.rx.post(piece);
        id.inspect(|id| self.receiving[usize::from(*id)] = buffer).is_some()
    }

    /// Posts the first `len` bytes of a buffer, header included; `false` if the ring is full.
    pub fn post_transmit(&mut self, buffer: u32, len: u32) -> bool {
        let piece = Segment { addr: self.address(buffer), len, writable: false };
        let id = self.tx.post(piece);
        id.inspect(|id| self.sending[usize::from(*id)] = buffer).is_some()
    }

    /// Posts the first `len` bytes of a buffer in so many pieces, by an indirect table that is
    /// written to another buffer and those behind it; `false` if the ring is full.
    pub fn post_in_pieces(&mut self, buffer: u32, len: u32, pieces: u32, table: u32) -> bool {
        let at = |piece: u32| len * piece / pieces;
        let piece = |n: u32| Segment {
            addr: self.address(buffer) + u64::from(at(n)),
            len: at(n + 1) - at(n),
            writable: false,
        };
        let pieces: Vec<Segment> = (0..pieces).map(piece).collect();
        let id = self.tx.post_indirect(&pieces, self.address(table));
        id.inspect(|id| self.sending[usize::from(*id)] = buffer).is_some()
    }

    /// Takes back sent buffers; returns their number.
    pub fn reap_transmit(&mut self, buffers: &mut [u32; BURST]) -> usize {
        let mut used = [Used::default(); BURST];
        let n = self.tx.reap(&mut used);
        for (used, buffer) in used[..n].iter().zip(buffers) {
            *buffer = self.sending[usize::from(used.id)];
        }
        n
    }

    /// Takes received buffers and their lengths, header included; returns their number.
    pub fn reap_receive(&mut self, buffers: &mut [(u32, u32); BURST]) -> usize {
        let mut used = [Used::default(); BURST];
        let n = self.rx.reap(&mut used);
        for (used, buffer) in used[..n].iter().zip(buffers) {
            *buffer = (self.receiving[usize::from(used.id)], used.len);
        }
        n
    }

    /// Publishes posted buffers on both rings, and kicks where the daemon asked for it. Returns
    /// `true` if it kicked the transmit ring.
    pub fn publish(&mut self) -> bool {
        if self.rx.publish() {
            // a full counter is already signalled
            let _ = rustix::io::write(&self.kick_rx, &1u64.to_ne_bytes());
        }
        let kick = self.tx.publish();
        if kick {
            let _ = rustix::io::write(&self.kick_tx, &1u64.to_ne_bytes());
        }
        kick
    }

    /// Asks for an interrupt after each burst, sent or received; returns the eventfds that the
    /// daemon signals.
    pub fn enable_interrupts(&mut self) -> [&OwnedFd; 2] {
        self.tx.enable_notification();
        self.rx.enable_notification();
        [&self.call_tx, &self.call_rx]
    }

    /// Eventfd that the daemon signals for received frames.
    pub fn interrupt(&self) -> &OwnedFd {
        &self.call_rx
    }

    /// Connection, for tests that misuse it.
    pub fn frontend(&mut self) -> &mut Frontend {
        &mut self.frontend
    }

    /// Memory, for tests that misuse it.
    pub fn file(&self) -> &SharedFile {
        &self.file
    }
}
