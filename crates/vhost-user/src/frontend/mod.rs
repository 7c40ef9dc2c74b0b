//! The front-end, for the guests of the lab: blocking, one request at a time.
//!
//! With `REPLY_ACK` negotiated every setting is acknowledged, so an error is returned by the call
//! that caused it. Every answer has a timeout. After an error the session is unusable: drop it and
//! connect again.
//!
//! Specification: vhost-user.rst, "Front-end message types".

mod error;
mod exchange;
mod requests;
mod shared;

pub use error::FrontendError;
pub use shared::BackendRequests;

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::connector::Connector;
use crate::features::{Features, ProtocolFeatures};
use crate::listener::Listener;
use crate::message::Request;
use crate::payload::RegionPayload;
use crate::socket::{Receiver, timespec};
use rustix::event::{PollFd, PollFlags};

/// The payload of requests that have none.
const EMPTY: [u8; 0] = [];

/// Default timeout of an answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Features that both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The features, as [`Features`] bits: the wanted ones that the back-end offers.
    pub features: u64,
    /// The protocol features.
    pub protocol_features: ProtocolFeatures,
    /// Queue pairs of the back-end; 1 if it does not report them.
    pub queue_pairs_max: u16,
}

/// Memory to share.
#[derive(Clone, Copy, Debug)]
pub struct SharedRegion<'a> {
    /// Guest-physical address of its first byte.
    pub guest_addr: u64,
    /// Length in bytes.
    pub size: u64,
    /// Address of its first byte in this process, used to locate rings.
    pub user_addr: u64,
    /// Offset of its first byte in the file.
    pub mmap_offset: u64,
    /// The file; stays open here.
    pub fd: BorrowedFd<'a>,
}

impl SharedRegion<'_> {
    fn payload(&self) -> RegionPayload {
        let &SharedRegion { guest_addr, size, user_addr, mmap_offset, .. } = self;
        RegionPayload { guest_addr, size, user_addr, mmap_offset }
    }
}

/// Settings of a ring to start.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig<'a> {
    /// Number of descriptors, of a split ring a power of two.
    pub size: u16,
    /// Address of the descriptor table in this process.
    pub desc: u64,
    /// Address of the available ring, or the driver's events, in this process.
    pub avail: u64,
    /// Address of the used ring, or the device's events, in this process.
    pub used: u64,
    /// Start position, as in [`RingSetup::base`](crate::RingSetup::base).
    pub base: u32,
    /// Eventfd that this side writes; `None`: the back-end must poll.
    pub kick: Option<BorrowedFd<'a>>,
    /// Eventfd that the back-end writes; `None`: this side polls.
    pub call: Option<BorrowedFd<'a>>,
    /// Eventfd that the back-end writes when the ring is broken.
    pub err: Option<BorrowedFd<'a>>,
    /// Guest-physical address for logged writes to the used ring, if they are to be logged.
    pub log: Option<u64>,
}

/// A session with a back-end.
#[derive(Debug)]
pub struct Frontend {
    stream: UnixStream,
    receiver: Receiver,
    timeout: Duration,
    features: u64,
    protocol_features: ProtocolFeatures,
}

impl Frontend {
    /// Connects to a back-end that listens on `path`, retrying for as long as `wait`.
    ///
    /// # Errors
    /// [`FrontendError::NoBackend`], or [`FrontendError::Connect`] at once if waiting would
    /// not help.
    pub fn connect(path: impl AsRef<Path>, wait: Duration) -> Result<Self, FrontendError> {
        let deadline = Instant::now() + wait;
        let mut connector = Connector::new(path.as_ref());
        loop {
            let now = Instant::now();
            if let Some(stream) = connector.poll(now)? {
                return Ok(Self::from_stream(stream));
            }
            if now >= deadline {
                let path = path.as_ref().to_owned();
                return Err(FrontendError::NoBackend { what: "listens on", path, wait });
            }
            thread::sleep(connector.wait(now).min(deadline - now));
        }
    }

    /// Waits as long as `wait` for a back-end in client mode to connect.
    ///
    /// # Errors
    /// [`FrontendError::NoBackend`] or [`FrontendError::Accept`].
    pub fn accept(listener: &Listener, wait: Duration) -> Result<Self, FrontendError> {
        let deadline = Instant::now() + wait;
        let path = || listener.path().to_owned();
        loop {
            let accepted = listener.accept();
            match accepted.map_err(|source| FrontendError::Accept { path: path(), source })? {
                Some(stream) => return Ok(Self::from_stream(stream)),
                None if Instant::now() >= deadline => {
                    let what = "connected to";
                    return Err(FrontendError::NoBackend { what, path: path(), wait });
                }
                None => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    // The result does not matter: the next accept shows it.
                    let mut fds = [PollFd::new(listener, PollFlags::IN)];
                    let _ = rustix::event::poll(&mut fds, Some(&timespec(left)));
                }
            }
        }
    }

    /// A session over a connected socket.
    pub fn from_stream(stream: UnixStream) -> Self {
        Self {
            stream,
            receiver: Receiver::new(),
            timeout: TIMEOUT,
            features: 0,
            protocol_features: ProtocolFeatures::empty(),
        }
    }

    /// Sets the timeout of each answer.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns `true` if the back-end closed the connection. Never blocks.
    pub fn is_closed(&self) -> bool {
        let events = PollFlags::RDHUP;
        let mut fds = [PollFd::new(&self.stream, events)];
        let zero = timespec(Duration::ZERO);
        let ready = rustix::event::poll(&mut fds, Some(&zero));
        ready.is_ok_and(|count| count > 0)
            && fds[0].revents().intersects(events | PollFlags::HUP | PollFlags::ERR)
    }

    /// Becomes the owner of the session and negotiates features: the wanted ones that the back-end
    /// offers. `PROTOCOL_FEATURES` is added if offered. The caller must check for missing features.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn negotiate(
        &mut self,
        wanted: u64,
        protocol_wanted: ProtocolFeatures,
    ) -> Result<Negotiated, FrontendError> {
        let bit = Features::PROTOCOL_FEATURES.bits();
        self.set(Request::SetOwner, &EMPTY, &[])?;
        let offered: u64 = self.get(Request::GetFeatures, &EMPTY)?;
        let mut queue_pairs_max = 1;
        if offered & bit != 0 {
            let offered: u64 = self.get(Request::GetProtocolFeatures, &EMPTY)?;
            let agreed = ProtocolFeatures::from_bits_truncate(offered) & protocol_wanted;
            self.set(Request::SetProtocolFeatures, &agreed.bits(), &[])?;
            self.protocol_features = agreed;
            if agreed.contains(ProtocolFeatures::MQ) {
                let pairs: u64 = self.get(Request::GetQueueNum, &EMPTY)?;
                queue_pairs_max = pairs.min(u64::from(u16::MAX)) as u16;
            }
        }
        let features = offered & (wanted | bit);
        self.set(Request::SetFeatures, &features, &[])?;
        self.features = features;
        let protocol_features = self.protocol_features;
        Ok(Negotiated { features, protocol_features, queue_pairs_max })
    }
}

impl AsFd for Frontend {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
