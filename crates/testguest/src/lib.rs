//! Guest of tests and of `shunt conform`: memory, and the driver's side of one queue pair.
//!
//! Model: a [`QueuePair`] does not know its device. A user builds a device on
//! [`memory`](QueuePair::memory) and the addresses of the rings, or shares both with a vhost-user
//! back-end ([`region`](QueuePair::region), [`ring`](QueuePair::ring)). Memory and rings outlive a
//! device, like those of a virtual machine whose host restarts its daemon.
//!
//! Limits: [`RING`] entries a ring, one descriptor a buffer, polling only. A device that violates
//! the virtio rules causes an error. Guest-physical and front-end addresses differ.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use guestmem::{GuestMemory, Mapping, Pages, SharedFile};
use rustix::event::{EventfdFlags, eventfd};
use vhost_user::{RingConfig, SharedRegion};
use virtq::{DriverQueue, Features, Segment, Used};

/// Entries of each ring, and number of buffers of each direction.
pub const RING: u16 = 256;
/// vhost-user index of the receive ring.
pub const RX: u8 = 0;
/// vhost-user index of the transmit ring.
pub const TX: u8 = 1;
/// Bytes of the virtio-net header before each frame.
pub const HEADER: usize = wire::virtio_net::HEADER_LEN;
/// Guest-physical address of the memory.
pub const GUEST_ADDR: u64 = 1 << 32;
/// Address of the memory in the front-end.
pub const USER_ADDR: u64 = 0x7f00_0000_0000;
/// Bytes of a buffer, header included.
pub const BUFFER: u32 = 4096;

/// A guest's memory, and the driver's side of its rings.
#[derive(Debug)]
pub struct QueuePair {
    /// The transmit ring.
    pub tx: DriverQueue,
    /// The receive ring.
    pub rx: DriverQueue,
    /// Eventfd that the guest signals for posted buffers.
    pub kick: OwnedFd,
    /// Eventfd that the device signals for used buffers.
    pub call: OwnedFd,
    /// Eventfd that the device signals when a ring is broken.
    pub error: OwnedFd,
    memory: Arc<GuestMemory>,
    file: SharedFile,
    /// Posted bytes of a receive buffer.
    receive_len: u32,
    /// Buffers that are not posted.
    tx_free: Vec<u64>,
    rx_free: Vec<u64>,
    /// Addresses of posted buffers, by descriptor.
    tx_posted: Vec<u64>,
    rx_posted: Vec<u64>,
}

/// A received frame.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its virtio-net header.
    pub header: [u8; HEADER],
    /// The frame, from all of its buffers.
    pub frame: Vec<u8>,
}

impl QueuePair {
    /// Memory and rings of a guest, without posted buffers. Receive buffers have `receive_len`
    /// bytes, header included, at most [`BUFFER`].
    ///
    /// # Errors
    /// Out of memory or file descriptors.
    pub fn new(features: Features, receive_len: u32) -> Result<QueuePair> {
        ensure!(receive_len <= BUFFER, "a receive buffer of {receive_len} bytes; limit {BUFFER}");
        let size = QueuePair::buffers(1).end - GUEST_ADDR;
        let file = SharedFile::create("shunt-test-guest", size, Pages::Ordinary)?;
        let mapping = Arc::new(Mapping::new(file.fd(), size, 0)?);
        let region = guestmem::Region { guest_addr: GUEST_ADDR, user_addr: USER_ADDR, mapping };
        let memory = Arc::new(GuestMemory::new(vec![region])?);
        let ring = |at| DriverQueue::new(memory.clone(), at, RING, features);
        let (rx, tx) = (ring(USER_ADDR)?, ring(USER_ADDR + DriverQueue::bytes(RING))?);
        let free = |part| QueuePair::buffers(part).step_by(BUFFER as usize).collect();
        Ok(QueuePair {
            tx,
            rx,
            kick: event()?,
            call: event()?,
            error: event()?,
            memory,
            file,
            receive_len,
            tx_free: free(0),
            rx_free: free(1),
            tx_posted: vec![0; RING.into()],
            rx_posted: vec![0; RING.into()],
        })
    }

    /// Guest-physical addresses of all buffers of a direction: 0 to transmit, 1 to receive.
    fn buffers(direction: u64) -> Range<u64> {
        let len = u64::from(RING) * u64::from(BUFFER);
        let start = GUEST_ADDR + 2 * DriverQueue::bytes(RING) + direction * len;
        start..start + len
    }

    /// Guest-physical addresses of the transmit buffers, which follow both rings.
    pub fn transmit_buffers() -> Range<u64> {
        QueuePair::buffers(0)
    }

    /// The memory, as a device maps it.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The memory, as the front-end maps it.
    pub fn mapping(&self) -> &Mapping {
        self.file.mapping()
    }

    /// The memory, as the front-end shares it.
    pub fn region(&self) -> SharedRegion<'_> {
        let (size, fd) = (self.mapping().size() as u64, self.file.fd());
        SharedRegion { guest_addr: GUEST_ADDR, size, user_addr: USER_ADDR, mmap_offset: 0, fd }
    }

    /// A ring, as the front-end starts it: at its first position, with all eventfds.
    pub fn ring(&self, index: u8) -> RingConfig<'_> {
        let queue = if index == RX { &self.rx } else { &self.tx };
        let at = queue.addresses();
        RingConfig {
            size: RING,
            desc: at.desc,
            avail: at.avail,
            used: at.used,
            base: queue.first_position(),
            kick: Some(self.kick.as_fd()),
            call: Some(self.call.as_fd()),
            err: Some(self.error.as_fd()),
            log: None,
        }
    }

    /// Posts a frame behind its header; the device sees it after [`flush`](Self::flush).
    ///
    /// # Errors
    /// The frame is too long, too many are in flight, or the device violated the ring's rules.
    pub fn post(&mut self, header: [u8; HEADER], frame: &[u8]) -> Result<()> {
        self.reap_transmit()?;
        let bytes = [&header, frame].concat();
        let len = bytes.len() as u32;
        ensure!(len <= BUFFER, "a frame of {} bytes does not fit into a buffer", frame.len());
        let addr = self.tx_free.pop().context("more frames in flight than the ring holds")?;
        self.memory.slice(addr, len).context("a buffer outside the memory")?.write_bytes(&bytes);
        self.post_at(addr, len)
    }

    /// Posts bytes of the guest's memory as they are, header first.
    ///
    /// # Errors
    /// The ring is full.
    pub fn post_at(&mut self, addr: u64, len: u32) -> Result<()> {
        let id = self.tx.post(Segment { addr, len, writable: false });
        self.tx_posted[usize::from(id.context("the transmit ring is full")?)] = addr;
        Ok(())
    }

    /// Publishes posted frames, and kicks if the device asked for it; returns `true` if it kicked.
    pub fn flush(&mut self) -> bool {
        let wanted = self.tx.publish();
        if wanted {
            self.kick();
        }
        wanted
    }

    /// Signals the kick eventfd.
    pub fn kick(&self) {
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes()); // a full counter is a signal
    }

    /// Number of sent buffers that the device has not returned.
    ///
    /// # Errors
    /// The device violated the ring's rules.
    pub fn in_flight(&mut self) -> Result<usize> {
        self.reap_transmit()?;
        Ok(usize::from(RING) - self.tx.room())
    }

    /// Takes back sent buffers; those outside [`transmit_buffers`](Self::transmit_buffers) are
    /// forgotten.
    fn reap_transmit(&mut self) -> Result<()> {
        let used = reap(&mut self.tx)?.into_iter();
        let returned = used.map(|used| self.tx_posted[usize::from(used.id)]);
        let own = QueuePair::transmit_buffers();
        self.tx_free.extend(returned.filter(|addr| own.contains(addr)));
        Ok(())
    }

    /// Posts every free receive buffer; returns `true` if the device asked for a kick.
    pub fn refill(&mut self) -> bool {
        self.refill_with(usize::from(RING))
    }

    /// Posts up to `n` free receive buffers; returns `true` if the device asked for a kick.
    pub fn refill_with(&mut self, n: usize) -> bool {
        let kept = self.rx_free.len().saturating_sub(n);
        for addr in self.rx_free.split_off(kept) {
            self.post_receive(addr);
        }
        self.rx.publish()
    }

    /// Posts a receive buffer at any address; the device sees it after the next refill.
    ///
    /// # Panics
    /// If the ring is full.
    pub fn post_receive(&mut self, addr: u64) {
        let id = self.rx.post(Segment { addr, len: self.receive_len, writable: true });
        self.rx_posted[usize::from(id.expect("more receive buffers than entries"))] = addr;
    }

    /// Received frames; their buffers are free until the next refill.
    ///
    /// # Errors
    /// The device violated the virtio rules.
    pub fn frames(&mut self) -> Result<Vec<Received>> {
        let mut used = reap(&mut self.rx)?.into_iter();
        let mut frames = Vec::new();
        while let Some(first) = used.next() {
            let mut frame = self.take(first)?;
            let header: [u8; HEADER] =
                *frame.first_chunk().context("a received frame without a header")?;
            frame.drain(..HEADER);
            let [.., low, high] = header;
            for _ in 1..u16::from_le_bytes([low, high]) {
                let next = used.next().context("a frame without all of its buffers")?;
                frame.extend(self.take(next)?);
            }
            frames.push(Received { header, frame });
        }
        Ok(frames)
    }

    fn take(&mut self, used: Used) -> Result<Vec<u8>> {
        let (addr, len) = (self.rx_posted[usize::from(used.id)], used.len);
        ensure!(len <= self.receive_len, "{len} bytes in a buffer of {}", self.receive_len);
        let mut bytes = vec![0; len as usize];
        self.memory.slice(addr, len).context("outside the memory")?.read_bytes(&mut bytes);
        self.rx_free.push(addr);
        Ok(bytes)
    }
}

/// Takes back all used buffers of a ring.
///
/// # Errors
/// The device returned a buffer that was not in flight.
pub fn reap(queue: &mut DriverQueue) -> Result<Vec<Used>> {
    let mut used = vec![Used::default(); queue.size().into()];
    let n = queue.reap(&mut used);
    ensure!(queue.strays() == 0, "a buffer came back that was not in flight");
    used.truncate(n);
    Ok(used)
}

/// A new eventfd.
///
/// # Errors
/// Out of file descriptors.
pub fn event() -> Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Takes the signals of an eventfd; returns `true` if there were any.
pub fn is_signalled(event: impl AsFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}
