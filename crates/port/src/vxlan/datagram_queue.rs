//! Queue of datagrams that another network's lane received on a shared socket.
//!
//! Model: a bounded queue, and an eventfd that is readable while it is not empty. One lock guards
//! both. A full queue drops frames, as a full socket does.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use guestmem::GuestSlice;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Maximum number of queued frames.
pub(super) const FRAMES_MAX: usize = 256;

/// Datagram queue of a network.
#[derive(Debug)]
pub(super) struct DatagramQueue {
    event: OwnedFd,
    /// Accepted senders; frames of others would fill the queue.
    peers: Box<[IpAddr]>,
    /// Number of frames, readable without the lock.
    len: AtomicUsize,
    /// Senders and frames.
    datagrams: Mutex<VecDeque<(IpAddr, Vec<u8>)>>,
}

impl DatagramQueue {
    /// Makes a queue for frames of these peers.
    pub(super) fn new(peers: &[IpAddr]) -> Result<DatagramQueue, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let datagrams = Mutex::new(VecDeque::with_capacity(FRAMES_MAX));
        Ok(DatagramQueue { event, peers: peers.into(), len: AtomicUsize::new(0), datagrams })
    }

    /// Eventfd that is readable while the queue is not empty.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Returns `true` if the queue is empty; takes no lock.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    fn datagrams(&self) -> MutexGuard<'_, VecDeque<(IpAddr, Vec<u8>)>> {
        self.datagrams.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues a frame sent by `from`, if that is a peer.
    pub(super) fn put(&self, from: IpAddr, frame: GuestSlice<'_>) {
        if !self.peers.contains(&from) {
            return;
        }
        let mut datagrams = self.datagrams();
        if datagrams.len() == FRAMES_MAX {
            return;
        }
        let mut bytes = vec![0; frame.len() as usize];
        frame.read_bytes(&mut bytes);
        datagrams.push_back((from, bytes));
        if datagrams.len() == 1 {
            // The counter is 0, so the write succeeds.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        self.len.store(datagrams.len(), Ordering::Relaxed);
    }

    /// Copies of all queued frames.
    pub(super) fn copies(&self) -> Vec<(IpAddr, Vec<u8>)> {
        self.datagrams().iter().cloned().collect()
    }

    /// Queues a frame of the previous process's queue.
    pub(super) fn put_back(&self, from: IpAddr, frame: Vec<u8>) {
        let mut datagrams = self.datagrams();
        datagrams.push_back((from, frame));
        if datagrams.len() == 1 {
            // The counter is 0, so the write succeeds.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        self.len.store(datagrams.len(), Ordering::Relaxed);
    }

    /// Takes out up to `most` frames.
    pub(super) fn take(&self, most: usize, mut take: impl FnMut(IpAddr, &[u8])) {
        let mut datagrams = self.datagrams();
        let count = datagrams.len().min(most);
        datagrams.drain(..count).for_each(|(from, frame)| take(from, &frame));
        if datagrams.is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        self.len.store(datagrams.len(), Ordering::Relaxed);
    }
}
