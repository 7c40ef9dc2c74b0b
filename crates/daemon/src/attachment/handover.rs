//! Handover of a socket and its session to another process.
//!
//! The old process handles no message from [`Attachment::handover`] on, and releases rings with
//! [`Attachment::suspend`]; it can always continue with [`Attachment::resume`].
//!
//! A session that its front-end broke is given up: its memory shrank, its records were overwritten,
//! or a ring cannot resume. It is ended once this process serves ([`Attachment::end_unresumable`]),
//! and the front-end may reconnect. Other sessions are unaffected. An error of either process is an
//! error here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::hex::{from_hex, to_hex};
use model::state::{SocketMode, VhostUser};
use rustix::event::epoll;
use vhost_user::backend::{KickSnapshot, RingDirection, RingSnapshot, Snapshot};
use vhost_user::{
    BackendDevice, Closer, ForeignFd, InflightArea, Listener, MemoryRegion, Receiver, SharedArea,
    SocketAccess,
};

use super::super::device::FrontendSettings;
use super::super::handover::{
    AreaHandover, Fd, KickHandover, ListenerHandover, OutgoingFds, ReceivedFds, RegionHandover,
    RingHandover, SessionHandover, SocketHandover,
};
use super::{Attachment, SocketEndpoint};

impl SocketEndpoint {
    /// Adopts a socket on which the old process listened; without one opens a new one.
    pub(in super::super) fn inherit(
        spec: &VhostUser,
        access: Option<SocketAccess>,
        listening: Option<ListenerHandover>,
        received: &mut ReceivedFds,
    ) -> Result<SocketEndpoint> {
        match (listening, spec.mode) {
            (Some(listening), SocketMode::Server) => {
                Ok(SocketEndpoint::Server(inherit_listener(listening, received)?.into()))
            }
            _ => SocketEndpoint::open(spec, access),
        }
    }
}

/// Hands over a listening socket.
pub(in super::super) fn listening(
    listener: &Listener,
    outgoing: &mut OutgoingFds,
) -> io::Result<ListenerHandover> {
    let socket = outgoing.put(listener.as_fd())?;
    Ok(ListenerHandover { socket, path: listener.path().to_owned(), file: listener.file() })
}

/// Adopts a listening socket.
pub(in super::super) fn inherit_listener(
    listening: ListenerHandover,
    received: &mut ReceivedFds,
) -> Result<Listener> {
    let ListenerHandover { socket, path, file } = listening;
    let fd = received.take(socket).context("a socket is missing")?;
    let shown = path.display().to_string();
    Listener::inherit(fd, path, file).with_context(|| format!("cannot adopt socket {shown}"))
}

impl Attachment {
    /// Hands over the socket and its session.
    pub(in super::super) fn handover(
        &self,
        outgoing: &mut OutgoingFds,
        now: Instant,
    ) -> io::Result<SocketHandover> {
        let Attachment {
            endpoint,
            backend,
            device,
            stream,
            receiver,
            config_sent,
            pending,
            // Such a session was ended.
            resume_error: _,
            // Timers, log limits and local handles start again.
            session_start: _,
            banned,
            token: _,
            limiter: _,
            failures: _,
            events: _,
            closer: _,
            is_accept_paused: _,
            is_receive_paused: _,
        } = self;
        let listening = match endpoint {
            SocketEndpoint::Server(listener) => Some(listening(listener, outgoing)?),
            SocketEndpoint::Client(_) => None,
        };
        let session = match stream {
            Some(stream) => {
                let mut session = session(stream, receiver, backend.snapshot(), outgoing)?;
                session.told = to_hex(config_sent);
                if let Some(pending) = pending {
                    // A whole message, with nothing received after it: the new process handles it.
                    session.partial.0 = to_hex(&pending.to_bytes());
                }
                hand_over_device(device.handover(), &mut session, outgoing)?;
                Some(session)
            }
            None => None,
        };
        let left = banned.map(|end| end.saturating_duration_since(now).as_millis() as u64);
        Ok(SocketHandover { listening, session, banned_ms: left.filter(|left| *left > 0) })
    }

    /// Adopts a session; its rings stay stopped until [`resume`](Self::resume).
    ///
    /// # Errors
    /// The handover is incomplete, or the front-end uses a feature that is not offered here.
    pub(in super::super) fn inherit(
        &mut self,
        epoll: BorrowedFd<'_>,
        (session, banned_ms): (Option<SessionHandover>, Option<u64>),
        received: &mut ReceivedFds,
    ) -> Result<()> {
        self.banned = banned_ms.map(|left| Instant::now() + Duration::from_millis(left));
        let Some(session) = session else { return Ok(()) };
        let stream = received.take(session.stream).context("its connection is missing")?;
        let stream = UnixStream::from(stream);
        let (bytes, fds) = &session.partial;
        let fds = fds.iter().map(|fd| received.take(*fd));
        let fds = fds.collect::<Option<_>>().context("descriptors of a message are missing")?;
        let bytes = from_hex(bytes).context("invalid partial message")?;
        self.receiver =
            Receiver::within(&bytes, fds, &self.closer).context("invalid partial message")?;
        // A pending request; this poll receives nothing.
        self.pending = match self.receiver.is_whole() {
            true => self.receiver.poll(&stream).context("invalid partial message")?,
            false => None,
        };
        self.config_sent = from_hex(&session.told).context("invalid configuration space")?;
        let mtu = session.mtu;
        let SharedFiles { files, log, records, arriving } =
            SharedFiles::take(&session, received, &self.closer)?;
        self.backend.restore(snapshot(session, received, &self.closer)?)?;
        self.device.set_status(self.backend.status());
        let taken = self.device.inherit(mtu, files, (log, records), arriving);
        let data = epoll::EventData::new_u64(self.token);
        epoll::add(epoll, &stream, data, epoll::EventFlags::IN)?;
        self.stream = Some(stream);
        self.session_start = Some(Instant::now());
        if let Err(refused) = taken {
            self.give_up(&refused);
        }
        Ok(())
    }

    /// Gives up a session that cannot be resumed. The connection stays open, since the old process
    /// may still use it.
    fn give_up(&mut self, why: &dyn std::error::Error) {
        self.backend.disconnect(&mut self.device);
        self.resume_error = Some(why.to_string());
    }

    /// Ends the session if it was given up; returns `true` if so.
    pub(in super::super) fn end_unresumable(&mut self, epoll: BorrowedFd<'_>) -> bool {
        let Some(why) = self.resume_error.take() else { return false };
        let label = self.device.label();
        self.limiter.warn(&format!("{label}: cannot resume its session, which ends: {why}"));
        self.end(epoll, "connection closed");
        true
    }

    /// Releases the rings of one half.
    pub(in super::super) fn suspend(&mut self, half: RingDirection) {
        self.backend.suspend(half, &mut self.device);
    }

    /// Position of each ring.
    pub(in super::super) fn positions(&self) -> Vec<u32> {
        self.backend.positions()
    }

    /// Resumes rings at these positions, unless the session was given up.
    ///
    /// # Errors
    /// The number of positions differs from that of rings.
    pub(in super::super) fn resume(&mut self, positions: &[u32]) -> Result<()> {
        if self.resume_error.is_some() {
            return Ok(());
        }
        let label = self.device.label();
        self.backend.set_positions(positions).with_context(|| label.to_owned())?;
        if let Err(reason) = self.backend.resume(&mut self.device) {
            self.give_up(&reason);
        }
        self.events.guest(self.device.is_attached());
        Ok(())
    }
}

/// Files that a front-end shares with its device.
struct SharedFiles {
    files: Vec<MemoryRegion>,
    log: Option<SharedArea>,
    records: Option<InflightArea>,
    arriving: Option<ForeignFd>,
}

impl SharedFiles {
    fn take(
        session: &SessionHandover,
        received: &mut ReceivedFds,
        closer: &Closer,
    ) -> Result<SharedFiles> {
        let files = session.memory.iter().map(|region| {
            let RegionHandover { guest_addr, size, user_addr, mmap_offset, file } = *region;
            let fd = received.take(file).context("a memory file is missing")?;
            let fd = ForeignFd::new(fd, closer);
            Ok(MemoryRegion { guest_addr, size, user_addr, mmap_offset, fd })
        });
        let files = files.collect::<Result<Vec<_>>>()?;
        let mut area = |area: &AreaHandover| {
            let AreaHandover { size, offset, file } = *area;
            let fd = received.take(file).context("a shared file is missing")?;
            let fd = ForeignFd::new(fd, closer);
            anyhow::Ok(SharedArea { size, offset, fd })
        };
        let log = session.log.as_ref().map(&mut area).transpose()?;
        let records = match &session.records {
            Some((shared, rings, ring_size)) => {
                let (rings, ring_size) = (*rings, *ring_size);
                Some(InflightArea { area: area(shared)?, rings, ring_size })
            }
            None => None,
        };
        let arriving =
            session.arriving.map(|fd| received.take(fd).context("a device state is missing"));
        let arriving = arriving.map(|fd| Ok::<_, anyhow::Error>(ForeignFd::new(fd?, closer)));
        Ok(SharedFiles { files, log, records, arriving: arriving.transpose()? })
    }
}

/// Protocol state of a session, without the device's part.
fn session(
    stream: &UnixStream,
    receiver: &Receiver,
    snapshot: Snapshot,
    outgoing: &mut OutgoingFds,
) -> io::Result<SessionHandover> {
    let Snapshot { features, protocol_features, status, slots, rings, has_log, channel } = snapshot;
    let (bytes, fds) = receiver.partial();
    let fds = fds.iter().map(|fd| outgoing.put(fd.as_fd())).collect::<io::Result<_>>()?;
    let rings = rings.into_iter().map(|ring| to_ring(ring, outgoing)).collect();
    Ok(SessionHandover {
        stream: outgoing.put(stream.as_fd())?,
        partial: (to_hex(bytes), fds),
        features,
        protocol_features,
        status,
        slots,
        rings,
        has_log,
        channel: channel.map(|channel| outgoing.put_shared(channel)),
        mtu: 0,
        told: String::new(),
        memory: Vec::new(),
        log: None,
        records: None,
        arriving: None,
    })
}

/// Adds the device's part.
fn hand_over_device(
    handover: FrontendSettings<'_>,
    session: &mut SessionHandover,
    outgoing: &mut OutgoingFds,
) -> io::Result<()> {
    let FrontendSettings { mtu, files, log, records, arriving } = handover;
    let region = |region: &MemoryRegion| {
        let MemoryRegion { guest_addr, size, user_addr, mmap_offset, fd } = region;
        let (guest_addr, size, user_addr) = (*guest_addr, *size, *user_addr);
        let file = outgoing.put(fd.as_fd())?;
        Ok(RegionHandover { guest_addr, size, user_addr, mmap_offset: *mmap_offset, file })
    };
    session.memory = files.iter().map(region).collect::<io::Result<_>>()?;
    let mut area = |area: &SharedArea| {
        let SharedArea { size, offset, fd } = area;
        io::Result::Ok(AreaHandover {
            size: *size,
            offset: *offset,
            file: outgoing.put(fd.as_fd())?,
        })
    };
    session.mtu = mtu;
    session.log = log.map(&mut area).transpose()?;
    if let Some(InflightArea { area: shared, rings, ring_size }) = records {
        session.records = Some((area(shared)?, *rings, *ring_size));
    }
    session.arriving = arriving.map(|fd| outgoing.put(fd.as_fd())).transpose()?;
    Ok(())
}

fn to_ring(ring: RingSnapshot, outgoing: &mut OutgoingFds) -> RingHandover {
    let RingSnapshot { size, addresses, log, base, kick, call, err, enabled, running } = ring;
    let kick = match kick {
        KickSnapshot::Unset => KickHandover::Unset,
        KickSnapshot::Poll => KickHandover::Poll,
        KickSnapshot::Fd(fd) => KickHandover::Fd(outgoing.put_shared(fd)),
    };
    let mut put = |fd: Option<_>| fd.map(|fd| outgoing.put_shared(fd));
    let (call, err) = (put(call), put(err));
    RingHandover { size, addresses, log, base, kick, call, err, enabled, running }
}

/// Extracts the protocol state of a session, without the device's part.
fn snapshot(
    session: SessionHandover,
    received: &mut ReceivedFds,
    closer: &Closer,
) -> Result<Snapshot> {
    let SessionHandover {
        stream: _,
        partial: _,
        features,
        protocol_features,
        status,
        slots,
        rings,
        has_log,
        channel,
        mtu: _,
        told: _,
        memory: _,
        log: _,
        records: _,
        arriving: _,
    } = session;
    let rings = rings.into_iter().map(|ring| from_ring(ring, received, closer));
    let rings = rings.collect::<Result<_>>()?;
    let channel =
        channel.map(|fd| received.take(fd).context("its channel is missing")).transpose()?;
    let channel = channel.map(|fd| ForeignFd::new(fd, closer).into());
    Ok(Snapshot { features, protocol_features, status, slots, rings, has_log, channel })
}

fn from_ring(
    ring: RingHandover,
    received: &mut ReceivedFds,
    closer: &Closer,
) -> Result<RingSnapshot> {
    let RingHandover { size, addresses, log, base, kick, call, err, enabled, running } = ring;
    let mut take = |fd: Fd| {
        let fd = received.take(fd).context("an eventfd of a ring is missing")?;
        Ok::<_, anyhow::Error>(Arc::new(ForeignFd::new(fd, closer)))
    };
    let kick = match kick {
        KickHandover::Unset => KickSnapshot::Unset,
        KickHandover::Poll => KickSnapshot::Poll,
        KickHandover::Fd(fd) => KickSnapshot::Fd(take(fd)?),
    };
    let (call, err) = (call.map(&mut take).transpose()?, err.map(&mut take).transpose()?);
    Ok(RingSnapshot { size, addresses, log, base, kick, call, err, enabled, running })
}
