//! Datagrams of a network that another network's lane found on the socket that they share.
//!
//! Model: a queue of a few frames, and an eventfd that is readable just when there are any. Both
//! are changed under one lock. A full queue loses frames, as a full socket does.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use guestmem::GuestSlice;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Frames that can wait.
pub(super) const FRAMES_MAX: usize = 256;

/// A network's inbox.
#[derive(Debug)]
pub(super) struct Inbox {
    event: OwnedFd,
    /// Whose frames are taken; others would fill it.
    peers: Box<[IpAddr]>,
    /// How many there are, for those who only look.
    len: AtomicUsize,
    /// Who sent them, and the frames.
    mail: Mutex<VecDeque<(IpAddr, Vec<u8>)>>,
}

impl Inbox {
    /// For frames of these peers.
    pub(super) fn new(peers: &[IpAddr]) -> Result<Inbox, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mail = Mutex::new(VecDeque::with_capacity(FRAMES_MAX));
        Ok(Inbox { event, peers: peers.into(), len: AtomicUsize::new(0), mail })
    }

    /// Readable when there is something.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Whether there is nothing.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    fn mail(&self) -> MutexGuard<'_, VecDeque<(IpAddr, Vec<u8>)>> {
        self.mail.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts in the frame that `from` sent, if that is a peer.
    pub(super) fn put(&self, from: IpAddr, frame: GuestSlice<'_>) {
        if !self.peers.contains(&from) {
            return;
        }
        let mut mail = self.mail();
        if mail.len() == FRAMES_MAX {
            return;
        }
        let mut bytes = vec![0; frame.len() as usize];
        frame.read_bytes(&mut bytes);
        mail.push_back((from, bytes));
        if mail.len() == 1 {
            // Its counter was 0, so it takes the 1.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        self.len.store(mail.len(), Ordering::Relaxed);
    }

    /// Copies of what is there.
    pub(super) fn copies(&self) -> Vec<(IpAddr, Vec<u8>)> {
        self.mail().iter().cloned().collect()
    }

    /// Puts in a frame of another process's inbox.
    pub(super) fn put_back(&self, from: IpAddr, frame: Vec<u8>) {
        let mut mail = self.mail();
        mail.push_back((from, frame));
        if mail.len() == 1 {
            // Its counter was 0, so it takes the 1.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        self.len.store(mail.len(), Ordering::Relaxed);
    }

    /// Takes out what is there, `most` frames at most.
    pub(super) fn take(&self, most: usize, mut take: impl FnMut(IpAddr, &[u8])) {
        let mut mail = self.mail();
        let count = mail.len().min(most);
        mail.drain(..count).for_each(|(from, frame)| take(from, &frame));
        if mail.is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        self.len.store(mail.len(), Ordering::Relaxed);
    }
}
