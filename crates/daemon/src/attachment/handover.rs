//! A socket and its session, handed over to another process and taken up there.
//!
//! The process that gives handles no message from [`Attachment::handover`] on, and lets go of rings
//! with [`Attachment::suspend`]; it can always go on by itself ([`Attachment::resume`]).
//!
//! What a front-end made of its session is its own affair: where its memory shrank, its records
//! were overwritten, or a ring does not go on, its session is given up, and ended when this process
//! serves ([`Attachment::end_unfit`]). It can attach anew, and nobody else is concerned. What is an
//! error of either process's is an error here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::hex::{from_hex, to_hex};
use model::state::{SocketMode, VhostUser};
use rustix::event::epoll;
use vhost_user::backend::{Half, KickSnapshot, RingSnapshot, Snapshot};
use vhost_user::{
    Closer, Device, ForeignFd, InflightArea, Listener, MemoryRegion, Receiver, SharedArea,
};

use super::super::device::DeviceHandover;
use super::super::upgrade::{
    Area, Fd, Given, Giving, Kick, Listening, Region, Ring, Session, Socket,
};
use super::{Attachment, Way};

impl Way {
    /// Goes on with a socket that another process has listened on; without one it is opened.
    pub(in super::super) fn inherit(
        spec: &VhostUser,
        listening: Option<Listening>,
        given: &mut Given,
    ) -> Result<Way> {
        match (listening, spec.mode) {
            (Some(listening), SocketMode::Server) => {
                Ok(Way::Server(inherit_listener(listening, given)?.into()))
            }
            _ => Way::open(spec),
        }
    }
}

/// Hands over a socket that is listened on.
pub(in super::super) fn listening(
    listener: &Listener,
    giving: &mut Giving,
) -> io::Result<Listening> {
    let socket = giving.put(listener.as_fd())?;
    Ok(Listening { socket, path: listener.path().to_owned(), file: listener.file() })
}

/// Goes on with one.
pub(in super::super) fn inherit_listener(
    listening: Listening,
    given: &mut Given,
) -> Result<Listener> {
    let Listening { socket, path, file } = listening;
    let fd = given.take(socket).context("a socket is missing")?;
    let shown = path.display().to_string();
    Listener::inherit(fd, path, file).with_context(|| format!("cannot go on with socket {shown}"))
}

impl Attachment {
    /// All that a process needs which takes over.
    pub(in super::super) fn handover(
        &self,
        giving: &mut Giving,
        now: Instant,
    ) -> io::Result<Socket> {
        let Attachment {
            way,
            backend,
            device,
            stream,
            receiver,
            told,
            held,
            // It was ended.
            unfit: _,
            // What follows from time, or is for people, begins anew.
            begun: _,
            banned,
            token: _,
            quiet: _,
            failures: _,
            events: _,
            closer: _,
            is_deaf: _,
            is_muted: _,
        } = self;
        let listening = match way {
            Way::Server(listener) => Some(listening(listener, giving)?),
            Way::Client(_) => None,
        };
        let session = match stream {
            Some(stream) => {
                let mut session = session(stream, receiver, backend.snapshot(), giving)?;
                session.told = to_hex(told);
                if let Some(held) = held {
                    // Whole, and nothing was received behind it: the other process takes it up.
                    session.partial.0 = to_hex(&held.to_bytes());
                }
                give_device(device.handover(), &mut session, giving)?;
                Some(session)
            }
            None => None,
        };
        let left = banned.map(|end| end.saturating_duration_since(now).as_millis() as u64);
        Ok(Socket { listening, session, banned_ms: left.filter(|left| *left > 0) })
    }

    /// Takes up a session; its rings stand until [`resume`](Self::resume).
    ///
    /// # Errors
    /// What was handed over is not whole, or the front-end uses what is not offered here.
    pub(in super::super) fn inherit(
        &mut self,
        epoll: BorrowedFd<'_>,
        (session, banned_ms): (Option<Session>, Option<u64>),
        given: &mut Given,
    ) -> Result<()> {
        self.banned = banned_ms.map(|left| Instant::now() + Duration::from_millis(left));
        let Some(session) = session else { return Ok(()) };
        let stream = given.take(session.stream).context("its connection is missing")?;
        let stream = UnixStream::from(stream);
        let (bytes, fds) = &session.partial;
        let fds = fds.iter().map(|fd| given.take(*fd));
        let fds = fds.collect::<Option<_>>().context("descriptors of a message are missing")?;
        let bytes = from_hex(bytes).context("half a message is none")?;
        self.receiver =
            Receiver::within(&bytes, fds, &self.closer).context("half a message is none")?;
        // A question that was held: nothing is received by this.
        self.held = match self.receiver.is_whole() {
            true => self.receiver.poll(&stream).context("half a message is none")?,
            false => None,
        };
        self.told = from_hex(&session.told).context("the configuration space is none")?;
        let mtu = session.mtu;
        let Shares { files, log, records, arriving } = Shares::take(&session, given, &self.closer)?;
        self.backend.restore(snapshot(session, given, &self.closer)?)?;
        self.device.set_status(self.backend.status());
        let taken = self.device.inherit(mtu, files, (log, records), arriving);
        let data = epoll::EventData::new_u64(self.token);
        epoll::add(epoll, &stream, data, epoll::EventFlags::IN)?;
        self.stream = Some(stream);
        self.begun = Some(Instant::now());
        if let Err(refused) = taken {
            self.give_up(&refused);
        }
        Ok(())
    }

    /// Lets go of a session that cannot be gone on with. Its connection stands, for another process
    /// may still have it.
    fn give_up(&mut self, why: &dyn std::error::Error) {
        self.backend.disconnect(&mut self.device);
        self.unfit = Some(why.to_string());
    }

    /// Ends the session if it was given up; says whether it was.
    pub(in super::super) fn end_unfit(&mut self, epoll: BorrowedFd<'_>) -> bool {
        let Some(why) = self.unfit.take() else { return false };
        let label = self.device.label();
        self.quiet.warn(&format!("{label}: its session could not be taken up, and ends: {why}"));
        self.end(epoll, "connection closed");
        true
    }

    /// Lets go of the rings of one half.
    pub(in super::super) fn suspend(&mut self, half: Half) {
        self.backend.suspend(half, &mut self.device);
    }

    /// Where each ring goes on.
    pub(in super::super) fn positions(&self) -> Vec<u32> {
        self.backend.positions()
    }

    /// Goes on there, unless the session was given up.
    ///
    /// # Errors
    /// They are positions of another number of rings.
    pub(in super::super) fn resume(&mut self, positions: &[u32]) -> Result<()> {
        if self.unfit.is_some() {
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

/// What a front-end shares with its device.
struct Shares {
    files: Vec<MemoryRegion>,
    log: Option<SharedArea>,
    records: Option<InflightArea>,
    arriving: Option<ForeignFd>,
}

impl Shares {
    fn take(session: &Session, given: &mut Given, closer: &Closer) -> Result<Shares> {
        let files = session.memory.iter().map(|region| {
            let Region { guest_addr, size, user_addr, mmap_offset, file } = *region;
            let fd = given.take(file).context("a file of its memory is missing")?;
            let fd = ForeignFd::new(fd, closer);
            Ok(MemoryRegion { guest_addr, size, user_addr, mmap_offset, fd })
        });
        let files = files.collect::<Result<Vec<_>>>()?;
        let mut area = |area: &Area| {
            let Area { size, offset, file } = *area;
            let fd = given.take(file).context("a file that is shared with it is missing")?;
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
        let arriving = session.arriving.map(|fd| given.take(fd).context("a state is missing"));
        let arriving = arriving.map(|fd| Ok::<_, anyhow::Error>(ForeignFd::new(fd?, closer)));
        Ok(Shares { files, log, records, arriving: arriving.transpose()? })
    }
}

/// What the state machine has; the device's part is left open.
fn session(
    stream: &UnixStream,
    receiver: &Receiver,
    snapshot: Snapshot,
    giving: &mut Giving,
) -> io::Result<Session> {
    let Snapshot { features, protocol_features, status, slots, rings, has_log, channel } = snapshot;
    let (bytes, fds) = receiver.partial();
    let fds = fds.iter().map(|fd| giving.put(fd.as_fd())).collect::<io::Result<_>>()?;
    let rings = rings.into_iter().map(|ring| to_ring(ring, giving)).collect();
    Ok(Session {
        stream: giving.put(stream.as_fd())?,
        partial: (to_hex(bytes), fds),
        features,
        protocol_features,
        status,
        slots,
        rings,
        has_log,
        channel: channel.map(|channel| giving.put_shared(channel)),
        mtu: 0,
        told: String::new(),
        memory: Vec::new(),
        log: None,
        records: None,
        arriving: None,
    })
}

/// Adds what the device has.
fn give_device(
    handover: DeviceHandover<'_>,
    session: &mut Session,
    giving: &mut Giving,
) -> io::Result<()> {
    let DeviceHandover { mtu, files, log, records, arriving } = handover;
    let region = |region: &MemoryRegion| {
        let MemoryRegion { guest_addr, size, user_addr, mmap_offset, fd } = region;
        let (guest_addr, size, user_addr) = (*guest_addr, *size, *user_addr);
        let file = giving.put(fd.as_fd())?;
        Ok(Region { guest_addr, size, user_addr, mmap_offset: *mmap_offset, file })
    };
    session.memory = files.iter().map(region).collect::<io::Result<_>>()?;
    let mut area = |area: &SharedArea| {
        let SharedArea { size, offset, fd } = area;
        io::Result::Ok(Area { size: *size, offset: *offset, file: giving.put(fd.as_fd())? })
    };
    session.mtu = mtu;
    session.log = log.map(&mut area).transpose()?;
    if let Some(InflightArea { area: shared, rings, ring_size }) = records {
        session.records = Some((area(shared)?, *rings, *ring_size));
    }
    session.arriving = arriving.map(|fd| giving.put(fd.as_fd())).transpose()?;
    Ok(())
}

fn to_ring(ring: RingSnapshot, giving: &mut Giving) -> Ring {
    let RingSnapshot { size, addresses, log, base, kick, call, err, enabled, running } = ring;
    let kick = match kick {
        KickSnapshot::Unset => Kick::Unset,
        KickSnapshot::Poll => Kick::Poll,
        KickSnapshot::Fd(fd) => Kick::Fd(giving.put_shared(fd)),
    };
    let mut put = |fd: Option<_>| fd.map(|fd| giving.put_shared(fd));
    let (call, err) = (put(call), put(err));
    Ring { size, addresses, log, base, kick, call, err, enabled, running }
}

/// The session of the state machine, without what the device has.
fn snapshot(session: Session, given: &mut Given, closer: &Closer) -> Result<Snapshot> {
    let Session {
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
    let rings = rings.into_iter().map(|ring| from_ring(ring, given, closer));
    let rings = rings.collect::<Result<_>>()?;
    let channel = channel.map(|fd| given.take(fd).context("its channel is missing")).transpose()?;
    let channel = channel.map(|fd| ForeignFd::new(fd, closer).into());
    Ok(Snapshot { features, protocol_features, status, slots, rings, has_log, channel })
}

fn from_ring(ring: Ring, given: &mut Given, closer: &Closer) -> Result<RingSnapshot> {
    let Ring { size, addresses, log, base, kick, call, err, enabled, running } = ring;
    let mut take = |fd: Fd| {
        let fd = given.take(fd).context("an event of a ring is missing")?;
        Ok::<_, anyhow::Error>(Arc::new(ForeignFd::new(fd, closer)))
    };
    let kick = match kick {
        Kick::Unset => KickSnapshot::Unset,
        Kick::Poll => KickSnapshot::Poll,
        Kick::Fd(fd) => KickSnapshot::Fd(take(fd)?),
    };
    let (call, err) = (call.map(&mut take).transpose()?, err.map(&mut take).transpose()?);
    Ok(RingSnapshot { size, addresses, log, base, kick, call, err, enabled, running })
}
