//! A guest with one queue pair, and the front-end's side of its adapter.
//!
//! Its memory and rings outlive a connection, as a virtual machine's do.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use guestmem::{GuestMemory, LOG_PAGE, Mapping, Pages, SharedFile};
use rustix::event::{EventfdFlags, eventfd};
use vhost_user::payload::Inflight;
use vhost_user::{
    Features, Flags, Frontend, Listener, Message, Negotiated, ProtocolFeatures, Receiver, Request,
    RingConfig, SharedRegion,
};
use virtq::{DriverQueue, Segment, Used};

use crate::host::{WAIT, until};

/// Entries of each ring, and so buffers in each direction.
pub(crate) const RING: u16 = 256;
/// Indices of the rings.
pub(crate) const RX: u8 = 0;
pub(crate) const TX: u8 = 1;
const BUFFER: u32 = 2048;
const HEADER: u32 = 12;
/// Guest physical address of the memory, and its address in the front-end.
const GUEST: u64 = 1 << 32;
const USER: u64 = 0x7f00_0000_0000;
/// Guest physical address and front-end address of the memory that can be added.
pub(crate) const MORE_GUEST: u64 = 4 << 32;
const MORE_USER: u64 = 0x7e00_0000_0000;
pub(crate) const MORE: u64 = 64 << 10;

/// All protocol features of the daemon.
pub(crate) const PROTOCOL: ProtocolFeatures = ProtocolFeatures::SUPPORTED;

pub(crate) struct Guest {
    frontend: Option<(Frontend, UnixStream)>,
    pub(crate) wanted: Features,
    pub(crate) tx: DriverQueue,
    pub(crate) rx: DriverQueue,
    memory: Arc<GuestMemory>,
    file: SharedFile,
    more: SharedFile,
    kick: OwnedFd,
    /// In-flight records of its rings, once requested.
    records: Option<(Inflight, OwnedFd)>,
    pub(crate) call: OwnedFd,
    pub(crate) error: OwnedFd,
    /// Free buffers, and posted ones by descriptor.
    tx_free: Vec<u64>,
    tx_at: Vec<u64>,
    rx_at: Vec<u64>,
}

pub(crate) fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Resets an eventfd.
pub(crate) fn is_signalled(event: &OwnedFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

fn region(file: &SharedFile, guest_addr: u64, user_addr: u64) -> guestmem::Region {
    let size = file.mapping().size() as u64;
    let mapping = Arc::new(Mapping::new(file.fd(), size, 0).unwrap());
    guestmem::Region { guest_addr, user_addr, mapping }
}

impl Guest {
    /// A guest with the usual features, and all its receive buffers posted.
    pub(crate) fn new() -> Guest {
        Guest::wanting(Features::VERSION_1 | Features::MRG_RXBUF | Features::EVENT_IDX)
    }

    pub(crate) fn wanting(wanted: Features) -> Guest {
        let ring_bytes = DriverQueue::bytes(RING);
        let size = 2 * ring_bytes + 2 * u64::from(RING) * u64::from(BUFFER);
        let file = SharedFile::create("guest", size, Pages::Ordinary).unwrap();
        let more = SharedFile::create("more", MORE, Pages::Ordinary).unwrap();
        let regions = vec![region(&file, GUEST, USER), region(&more, MORE_GUEST, MORE_USER)];
        let memory = Arc::new(GuestMemory::new(regions).unwrap());
        let mut features = virtq::Features::empty();
        features.set(virtq::Features::EVENT_IDX, wanted.contains(Features::EVENT_IDX));
        features.set(virtq::Features::PACKED, wanted.contains(Features::RING_PACKED));
        features.set(virtq::Features::IN_ORDER, wanted.contains(Features::IN_ORDER));
        let ring = |at| DriverQueue::new(memory.clone(), at, RING, features).unwrap();
        let (rx, tx) = (ring(USER), ring(USER + ring_bytes));
        let buffers = GUEST + 2 * ring_bytes;
        let buffer = |i: u16| buffers + u64::from(i) * u64::from(BUFFER);
        let mut guest = Guest {
            frontend: None,
            wanted,
            tx,
            rx,
            memory,
            file,
            more,
            kick: event(),
            records: None,
            call: event(),
            error: event(),
            tx_free: (0..RING).map(buffer).collect(),
            tx_at: vec![0; RING.into()],
            rx_at: vec![0; RING.into()],
        };
        for i in 0..RING {
            guest.post_receive(buffer(RING + i));
        }
        guest.rx.publish();
        guest
    }

    fn post_receive(&mut self, addr: u64) {
        let id = self.rx.post(Segment { addr, len: BUFFER, writable: true }).unwrap();
        self.rx_at[usize::from(id)] = addr;
    }

    /// Connects to a socket, negotiates, and starts both rings at their positions.
    pub(crate) fn connect(&mut self, socket: &Path) {
        self.reach(socket);
        self.set_up();
    }

    /// Connects to a socket and does nothing more.
    pub(crate) fn reach(&mut self, socket: &Path) {
        let mut stream = None;
        until("the daemon to listen", || {
            stream = UnixStream::connect(socket).ok();
            stream.is_some()
        });
        self.adopt(stream.unwrap());
    }

    /// Waits until a daemon in client mode connects; then as [`connect`](Self::connect).
    pub(crate) fn accept(&mut self, listener: &Listener) {
        let mut stream = None;
        until("the daemon to connect", || {
            stream = listener.accept().unwrap();
            stream.is_some()
        });
        self.adopt(stream.unwrap());
        self.set_up();
    }

    fn adopt(&mut self, stream: UnixStream) {
        let frontend = Frontend::from_stream(stream.try_clone().unwrap());
        self.frontend = Some((frontend, stream));
    }

    /// Negotiates, shares memory and starts the rings.
    pub(crate) fn set_up(&mut self) {
        self.negotiate();
        self.set_memory(&[GUEST]);
        if let Some((inflight, records)) = &self.records {
            let (frontend, _) = self.frontend.as_mut().expect("connected");
            frontend.set_inflight(inflight, records.as_fd()).unwrap();
        }
        for index in [RX, TX] {
            self.start_ring(index);
        }
    }

    pub(crate) fn negotiate(&mut self) -> Negotiated {
        let wanted = self.wanted.bits();
        self.frontend().negotiate(wanted, PROTOCOL).unwrap()
    }

    /// Connection to the daemon, for requests of a test.
    pub(crate) fn frontend(&mut self) -> &mut Frontend {
        &mut self.frontend.as_mut().expect("connected").0
    }

    /// Closes the connection, like a VMM that dies.
    pub(crate) fn disconnect(&mut self) {
        self.frontend = None;
    }

    /// Shares the regions at these guest addresses, and no others.
    pub(crate) fn set_memory(&mut self, addresses: &[u64]) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        let all = [shared(&self.file, GUEST, USER), shared(&self.more, MORE_GUEST, MORE_USER)];
        let regions: Vec<SharedRegion<'_>> =
            all.into_iter().filter(|region| addresses.contains(&region.guest_addr)).collect();
        frontend.set_memory(&regions).unwrap();
    }

    /// The region of memory that can be added.
    pub(crate) fn add_more(&mut self) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        frontend.add_region(&shared(&self.more, MORE_GUEST, MORE_USER)).unwrap();
    }

    /// Shares a new file of [`MORE`] bytes as that memory.
    pub(crate) fn add_region(&mut self, file: &OwnedFd) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        let region = SharedRegion { fd: file.as_fd(), ..shared(&self.more, MORE_GUEST, MORE_USER) };
        frontend.add_region(&region).unwrap();
    }

    pub(crate) fn remove_more(&mut self) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        frontend.remove_region(&shared(&self.more, MORE_GUEST, MORE_USER)).unwrap();
    }

    /// Asks the daemon for in-flight records, and passes them to each daemon after it.
    pub(crate) fn keep_records(&mut self) {
        self.records = Some(self.frontend().get_inflight(2, RING).unwrap());
    }

    /// Starts and enables a ring, new or with an in-flight record.
    pub(crate) fn start_ring(&mut self, index: u8) {
        let base = match index {
            RX => self.rx.first_position(),
            _ => self.tx.first_position(),
        };
        self.start_ring_at(index, base);
    }

    pub(crate) fn start_ring_at(&mut self, index: u8, base: u32) {
        let ring = RingConfig {
            base,
            kick: Some(self.kick.as_fd()),
            call: Some(self.call.as_fd()),
            err: Some(self.error.as_fd()),
            ..self.ring(index, false)
        };
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        frontend.start_ring(index, &ring).unwrap();
        frontend.enable_ring(index, true).unwrap();
    }

    /// Sets the addresses of a ring, and logging of writes to it.
    fn ring(&self, index: u8, log: bool) -> RingConfig<'static> {
        let at = match index {
            RX => self.rx.addresses(),
            _ => self.tx.addresses(),
        };
        RingConfig {
            size: RING,
            desc: at.desc,
            avail: at.avail,
            used: at.used,
            base: 0,
            kick: None,
            call: None,
            err: None,
            log: log.then_some(at.used - USER + GUEST),
        }
    }

    /// Switches the log on or off like QEMU: for all writes, then for each ring.
    pub(crate) fn set_logging(&mut self, on: bool) {
        self.frontend().log_all(on).unwrap();
        for index in [RX, TX] {
            let ring = self.ring(index, on);
            self.frontend().set_ring_addresses(index, &ring).unwrap();
        }
    }

    /// Size of a log for its memory, in bytes.
    pub(crate) fn log_size(&self) -> u64 {
        let end = GUEST + self.file.mapping().size() as u64;
        (end / LOG_PAGE / 8 + 1).next_multiple_of(8)
    }

    /// The number of its memory's first page.
    pub(crate) fn first_page() -> usize {
        (GUEST / LOG_PAGE) as usize
    }

    /// All of its memory.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.file.mapping().size()];
        self.read(0, &mut bytes);
        bytes
    }

    /// Its memory from an offset.
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) {
        self.file.mapping().slice(at as u64, bytes.len()).unwrap().read_bytes(bytes);
    }

    /// Pages that the guest itself writes: its rings, and frames it sends.
    pub(crate) fn own_pages(&self) -> BTreeSet<usize> {
        let end = 2 * DriverQueue::bytes(RING) + u64::from(RING) * u64::from(BUFFER);
        (0..(end / LOG_PAGE) as usize).collect()
    }

    /// Replaces the call eventfd of a ring.
    pub(crate) fn set_call(&mut self, index: u8, call: &OwnedFd) {
        let (_, stream) = self.frontend.as_ref().expect("connected");
        let mut request = Message::request(Request::SetVringCall, &u64::from(index));
        request.flags = Flags::NEED_REPLY;
        let end = Instant::now() + WAIT;
        vhost_user::socket::send_before(stream, &request, &[call.as_fd()], end).unwrap();
        let reply = Receiver::new().receive(stream, end).unwrap();
        assert_eq!(reply.payload, [0; 8]);
    }

    /// Sends a frame from a buffer of the guest's memory.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.reap_transmit();
        let addr = self.tx_free.pop().expect("more frames in flight than fit");
        self.send_from(addr, frame);
    }

    /// Sends a frame with an offload header.
    pub(crate) fn send_with(&mut self, header: [u8; HEADER as usize], frame: &[u8]) {
        self.reap_transmit();
        let addr = self.tx_free.pop().expect("more frames in flight than fit");
        let bytes = [&header, frame].concat();
        let len = bytes.len() as u32;
        assert!(len <= BUFFER);
        self.memory.slice(addr, len).unwrap().write_bytes(&bytes);
        self.post_at(addr, len);
    }

    /// Sends a frame from any guest address.
    pub(crate) fn send_from(&mut self, addr: u64, frame: &[u8]) {
        let bytes = [&[0; HEADER as usize], frame].concat();
        let len = bytes.len() as u32;
        self.memory.slice(addr, len).unwrap().write_bytes(&bytes);
        self.post_at(addr, len);
    }

    /// Shares another file at this guest physical address; buffers there are outside `memory`.
    pub(crate) fn add_file(&mut self, file: &SharedFile, guest_addr: u64) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        frontend.add_region(&shared(file, guest_addr, USER + guest_addr)).unwrap();
    }

    /// Discards arrived frames, and posts buffers at other addresses.
    pub(crate) fn repost(&mut self, mut addr: impl FnMut() -> u64) {
        for _ in reap(&mut self.rx) {
            self.post_receive(addr());
        }
        self.rx.publish();
    }

    /// Sends a raw buffer.
    pub(crate) fn post_at(&mut self, addr: u64, len: u32) {
        let id = self.tx.post(Segment { addr, len, writable: false }).unwrap();
        self.tx_at[usize::from(id)] = addr;
        if self.tx.publish() {
            let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        }
    }

    /// Frames sent whose buffers are not returned yet.
    pub(crate) fn in_flight(&mut self) -> usize {
        self.reap_transmit();
        usize::from(RING) - self.tx.room()
    }

    fn reap_transmit(&mut self) {
        for used in reap(&mut self.tx) {
            let addr = self.tx_at[usize::from(used.id)];
            if addr < MORE_GUEST {
                self.tx_free.push(addr);
            }
        }
    }

    /// Frames that arrived; their buffers are posted again.
    pub(crate) fn receive(&mut self) -> Vec<Vec<u8>> {
        let used = reap(&mut self.rx).into_iter();
        let used: Vec<_> = used.map(|used| (self.rx_at[usize::from(used.id)], used.len)).collect();
        let mut frames = Vec::new();
        for (addr, len) in used {
            let mut bytes = vec![0; len as usize];
            self.memory.slice(addr, len).unwrap().read_bytes(&mut bytes);
            let header: Vec<u8> = bytes.drain(..HEADER as usize).collect();
            assert_eq!(header[10..], [1, 0], "every frame fits into one buffer");
            frames.push(bytes);
            self.post_receive(addr);
        }
        self.rx.publish();
        frames
    }

    /// Waits for exactly `n` frames.
    pub(crate) fn wait_for(&mut self, n: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        until("frames to arrive", || {
            frames.extend(self.receive());
            frames.len() >= n
        });
        assert_eq!(frames.len(), n);
        frames
    }

    /// Waits until the daemon has handled every frame sent.
    pub(crate) fn settle(&mut self) {
        until("sent buffers to come back", || self.in_flight() == 0);
    }
}

fn shared(file: &SharedFile, guest_addr: u64, user_addr: u64) -> SharedRegion<'_> {
    let size = file.mapping().size() as u64;
    SharedRegion { guest_addr, size, user_addr, mmap_offset: 0, fd: file.fd() }
}

fn reap(queue: &mut DriverQueue) -> Vec<Used> {
    let mut used = vec![Used::default(); RING.into()];
    let n = queue.reap(&mut used);
    assert_eq!(queue.strays(), 0, "a buffer came back that was not in flight");
    used.truncate(n);
    used
}
