//! A guest with one queue pair, and the front-end's side of its adapter.
//!
//! Its memory and rings outlive a connection, as a virtual machine's do.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use guestmem::{LOG_PAGE, Pages, SharedFile};
use testguest::{GUEST_ADDR, HEADER, QueuePair, USER_ADDR};
pub(crate) use testguest::{RING, RX, TX, is_signalled};
use vhost_user::payload::Inflight;
use vhost_user::{
    Features, Flags, Frontend, Listener, Message, Negotiated, ProtocolFeatures, Receiver, Request,
    RingConfig, SharedRegion,
};

use crate::host::{WAIT, until};

/// Bytes of a receive buffer, header included.
const BUFFER: u32 = 2048;
/// Guest-physical address, front-end address and bytes of the memory that can be added.
pub(crate) const MORE_GUEST: u64 = 4 << 32;
const MORE_USER: u64 = 0x7e00_0000_0000;
pub(crate) const MORE: u64 = 64 << 10;

/// All protocol features of the daemon.
pub(crate) const PROTOCOL: ProtocolFeatures = ProtocolFeatures::SUPPORTED;

pub(crate) struct Guest {
    frontend: Option<(Frontend, UnixStream)>,
    pub(crate) wanted: Features,
    pub(crate) pair: QueuePair,
    more: SharedFile,
    /// In-flight records of its rings, once requested.
    records: Option<(Inflight, OwnedFd)>,
}

pub(crate) fn event() -> OwnedFd {
    testguest::event().unwrap()
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl Guest {
    /// A guest with the usual features, and all its receive buffers posted.
    pub(crate) fn new() -> Guest {
        Guest::wanting(Features::VERSION_1 | Features::MRG_RXBUF | Features::EVENT_IDX)
    }

    pub(crate) fn wanting(wanted: Features) -> Guest {
        let mut features = virtq::Features::empty();
        features.set(virtq::Features::EVENT_IDX, wanted.contains(Features::EVENT_IDX));
        features.set(virtq::Features::PACKED, wanted.contains(Features::RING_PACKED));
        features.set(virtq::Features::IN_ORDER, wanted.contains(Features::IN_ORDER));
        let mut pair = QueuePair::new(features, BUFFER).unwrap();
        pair.refill();
        let more = SharedFile::create("more", MORE, Pages::Ordinary).unwrap();
        Guest { frontend: None, wanted, pair, more, records: None }
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
        self.set_memory(&[GUEST_ADDR]);
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

    /// Closes the connection, like a VMM that dies. The daemon sees it at once, even if another
    /// test has just forked, and its child has the socket until it runs a program.
    pub(crate) fn disconnect(&mut self) {
        if let Some((_, stream)) = self.frontend.take() {
            let _ = stream.shutdown(Shutdown::Both); // the daemon may have closed it
        }
    }

    /// Shares the regions at these guest addresses, and no others.
    pub(crate) fn set_memory(&mut self, addresses: &[u64]) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        let all = [self.pair.region(), shared(&self.more, MORE_GUEST, MORE_USER)];
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
        let base = self.pair.ring(index).base;
        self.start_ring_at(index, base);
    }

    pub(crate) fn start_ring_at(&mut self, index: u8, base: u32) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        let ring = RingConfig { base, ..self.pair.ring(index) };
        frontend.start_ring(index, &ring).unwrap();
        frontend.enable_ring(index, true).unwrap();
    }

    /// Switches the log on or off like QEMU: for all writes, then for each ring.
    pub(crate) fn set_logging(&mut self, on: bool) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        frontend.log_all(on).unwrap();
        for index in [RX, TX] {
            let ring = self.pair.ring(index);
            let log = on.then_some(ring.used - USER_ADDR + GUEST_ADDR);
            frontend.set_ring_addresses(index, &RingConfig { log, ..ring }).unwrap();
        }
    }

    /// Size of a log for its memory, in bytes.
    pub(crate) fn log_size(&self) -> u64 {
        let end = GUEST_ADDR + self.pair.mapping().size() as u64;
        (end / LOG_PAGE / 8 + 1).next_multiple_of(8)
    }

    /// The number of its memory's first page.
    pub(crate) fn first_page() -> usize {
        (GUEST_ADDR / LOG_PAGE) as usize
    }

    /// All of its memory.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.pair.mapping().size()];
        self.read(0, &mut bytes);
        bytes
    }

    /// Its memory from an offset.
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) {
        self.pair.mapping().slice(at as u64, bytes.len()).unwrap().read_bytes(bytes);
    }

    /// Pages that the guest itself writes: its rings, and frames it sends.
    pub(crate) fn own_pages(&self) -> BTreeSet<usize> {
        let end = QueuePair::transmit_buffers().end - GUEST_ADDR;
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
        self.send_with([0; HEADER], frame);
    }

    /// Sends a frame with an offload header.
    pub(crate) fn send_with(&mut self, header: [u8; HEADER], frame: &[u8]) {
        self.pair.post(header, frame).unwrap();
        self.pair.flush();
    }

    /// Sends a frame from an address in the memory that can be added.
    pub(crate) fn send_from(&mut self, addr: u64, frame: &[u8]) {
        let bytes = [&[0; HEADER], frame].concat();
        self.more.mapping().slice(addr - MORE_GUEST, bytes.len()).unwrap().write_bytes(&bytes);
        self.post_at(addr, bytes.len() as u32);
    }

    /// Shares another file at this guest physical address; buffers there are not in `pair`.
    pub(crate) fn add_file(&mut self, file: &SharedFile, guest_addr: u64) {
        let (frontend, _) = self.frontend.as_mut().expect("connected");
        frontend.add_region(&shared(file, guest_addr, USER_ADDR + guest_addr)).unwrap();
    }

    /// Discards arrived frames, and posts buffers at other addresses.
    pub(crate) fn repost(&mut self, mut addr: impl FnMut() -> u64) {
        for _ in testguest::reap(&mut self.pair.rx).unwrap() {
            self.pair.post_receive(addr());
        }
        self.pair.rx.publish();
    }

    /// Sends a raw buffer.
    pub(crate) fn post_at(&mut self, addr: u64, len: u32) {
        self.pair.post_at(addr, len).unwrap();
        self.pair.flush();
    }

    /// Frames sent whose buffers are not returned yet.
    pub(crate) fn in_flight(&mut self) -> usize {
        self.pair.in_flight().unwrap()
    }

    /// Frames that arrived; their buffers are posted again.
    pub(crate) fn receive(&mut self) -> Vec<Vec<u8>> {
        let received = self.pair.frames().unwrap().into_iter();
        self.pair.refill();
        let frames = received.map(|received| {
            assert_eq!(received.header[10..], [1, 0], "every frame fits into one buffer");
            received.frame
        });
        frames.collect()
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
