//! Mutations of the connection: messages, memory tables, descriptors, and who holds what.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Result;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use vhost_user::payload::RegionPayload;
use vhost_user::{Connector, Request};

use super::link::{self, FDS, Gone, Link};
use super::memory::{HIGH, LOW, Memory, RINGS, SIZE, USER};
use super::session::Session;
use super::{HostileResult, PATIENCE, count};
use crate::guest::random::Random;

type Mutation = fn(&mut Session, &mut Random) -> Result<(), Gone>;

/// What may be done to any connection: no ring comes to run by it.
const ANYWHERE: [(&str, Mutation); 7] = [
    ("socket garbage", garbage),
    ("socket half a message", half_message),
    ("socket wrong header", wrong_header),
    ("socket wrong descriptors", wrong_fds),
    ("connections stormed", storm),
    ("connection left", leave),
    ("announced another's address", announce),
];

/// What is done to far connections only.
const FAR: [(&str, Mutation); 11] = [
    ("memory table changed under load", change_table),
    ("memory regions added and removed", change_regions),
    ("memory regions that cannot be", bad_regions),
    ("memory cut short in use", truncate),
    ("memory with holes punched in use", punch),
    ("rings at random addresses", random_rings),
    ("rings enabled and disabled", toggle),
    ("ring events of any kind", odd_events),
    ("kicks stormed", kicks),
    ("requests at random", requests),
    ("features and status at random", features),
];

/// Does one of all to a far session.
pub(super) fn mutate(
    session: &mut Session,
    random: &mut Random,
    result: &mut HostileResult,
) -> Result<()> {
    session.attach(random)?;
    let all: Vec<_> = ANYWHERE.iter().chain(&FAR).copied().collect();
    let mutation = random.pick(&all);
    // Under load: what was published last is still being worked on.
    let sent = session.volley(random, result);
    apply(session, random, result, mutation)?;
    if session.link.is_some() {
        let _ = session.wait(&sent, PATIENCE);
    }
    // Where it is left to itself, the next front-end finds what this one left behind.
    if random.one_in(2) || session.link.is_none() {
        session.renew_memory()?;
    }
    session.attach(random)?;
    session.start_stopped_rings(random);
    Ok(())
}

/// Does one of those to a near session that let no ring run.
pub(super) fn mutate_near(
    session: &mut Session,
    random: &mut Random,
    result: &mut HostileResult,
) -> Result<()> {
    let mutation = random.pick(&ANYWHERE);
    apply(session, random, result, mutation)
}

fn apply(
    session: &mut Session,
    random: &mut Random,
    result: &mut HostileResult,
    (name, mutation): (&str, Mutation),
) -> Result<()> {
    count(result, name);
    result.control_mutations += 1;
    let done = mutation(session, random);
    let alive = |link: &mut Link| link.ask(Request::GetFeatures).is_ok();
    if done.is_err() || !session.link.as_mut().is_some_and(alive) {
        session.link = None;
    }
    Ok(())
}

fn link(session: &mut Session) -> Result<&mut Link, Gone> {
    session.link.as_mut().ok_or(Gone)
}

fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.bits() as u8).collect()
}

fn header(request: u32, flags: u32, size: u32) -> Vec<u8> {
    [request, flags, size].map(u32::to_ne_bytes).concat()
}

fn memfd(size: u64) -> Result<OwnedFd, Gone> {
    let fd = rustix::fs::memfd_create("shunt-lab-hostile", MemfdFlags::CLOEXEC);
    let fd = fd.map_err(|_| Gone)?;
    rustix::fs::ftruncate(&fd, size).map_err(|_| Gone)?;
    Ok(fd)
}

/// Descriptors of kinds that front-ends do and do not send.
fn odd_fd(random: &mut Random) -> Result<OwnedFd, Gone> {
    let open = |path: &str, flags| {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(|_| Gone)
    };
    match random.below(8) {
        0 => memfd(random.below(SIZE)),
        1 => open("/dev/null", OFlags::RDWR),
        2 => open("/dev/zero", OFlags::RDWR),
        3 => open("/", OFlags::RDONLY | OFlags::DIRECTORY),
        4 => open("/proc/self/exe", OFlags::RDONLY),
        5 => Ok(UnixStream::pair().map_err(|_| Gone)?.0.into()),
        6 => {
            let (reads, writes) = rustix::pipe::pipe().map_err(|_| Gone)?;
            Ok(if random.one_in(2) { reads } else { writes })
        }
        _ => {
            // Full: who writes to it waits, unless the file says not to.
            let flags = rustix::event::EventfdFlags::NONBLOCK;
            let event = rustix::event::eventfd(0, flags).map_err(|_| Gone)?;
            let _ = rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes());
            Ok(event)
        }
    }
}

fn garbage(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let len = random.between(1, 5000);
    link(session)?.say(&bytes(random, len), &[]).map(drop)
}

/// A message that ends within header or payload, and then the end, or something else.
fn half_message(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let mut message = header(Request::SetFeatures.code(), 1, 8);
    message.extend(bytes(random, 8));
    let cut = random.between(1, message.len() as u64 - 1) as usize;
    let link = link(session)?;
    link.say(&message[..cut], &[])?;
    match random.below(3) {
        0 => return Err(Gone), // the end within the message
        1 => link.say(&message[cut..], &[]),
        _ => link.say(&message, &[]),
    }?;
    Ok(())
}

fn wrong_header(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let request = random.below(64) as u32;
    let flags = random.pick(&[0, 1, 2, 3, 5, 9, 13, 0x10, u32::MAX]);
    let size = random.pick(&[0, 4, 8, 4096, 4097, 1 << 20, u32::MAX]);
    let payload = bytes(random, u64::from(size.min(4096)));
    link(session)?.say(&[header(request, flags, size), payload].concat(), &[]).map(drop)
}

/// Too few or too many descriptors beside a message.
fn wrong_fds(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let many = random.between(0, FDS as u64);
    let fds = (0..many).map(|_| odd_fd(random)).collect::<Result<Vec<_>, _>>()?;
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let table = link::table(random.below(10) as u32, &Memory::regions());
    let region = link::single(&Memory::regions()[0]);
    let (request, payload) = match random.below(4) {
        0 => (Request::SetMemTable, table),
        1 => (Request::AddMemReg, region),
        2 => (Request::SetVringErr, random.below(600).to_ne_bytes().to_vec()),
        _ => (Request::GetFeatures, Vec::new()),
    };
    let message = [header(request.code(), 1, payload.len() as u32), payload].concat();
    link(session)?.say(&message, &fds).map(drop)
}

/// Connections beside the one that is served, and after it.
fn storm(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let mut held = Vec::new();
    for _ in 0..random.between(1, 60) {
        let stream = Connector::new(session.socket()).poll(std::time::Instant::now());
        let Ok(Some(stream)) = stream else { continue };
        if random.one_in(2) {
            held.push(stream);
        }
    }
    Ok(())
}

fn leave(_session: &mut Session, _random: &mut Random) -> Result<(), Gone> {
    Err(Gone)
}

/// An honest guest's address, as if it had come here by migration.
fn announce(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let mac = random.pick(&session.cast.honest);
    let mut payload = mac.0.to_vec();
    payload.resize(8, 0);
    link(session)?.tell(Request::SendRarp, payload, &[])
}

/// Other tables while rings run: without one region, moved, twice the same file, overlapping.
fn change_table(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let [low, high] = Memory::regions();
    let moved = RegionPayload { guest_addr: high.guest_addr + (1 << 20), ..high };
    let overlapping = RegionPayload { guest_addr: low.guest_addr + RINGS / 2, ..high };
    let again = RegionPayload { guest_addr: 0x9000_0000, ..low };
    for _ in 0..random.between(1, 6) {
        let regions = match random.below(7) {
            0 => vec![low],
            1 => vec![high],
            2 => vec![low, moved],
            3 => vec![low, high, again],
            4 => vec![low, overlapping],
            5 => Vec::new(),
            _ => vec![low, high],
        };
        let fd = session.memory.fd().try_clone_to_owned().map_err(|_| Gone)?;
        let fds = vec![fd.as_fd(); regions.len()];
        let table = link::table(regions.len() as u32, &regions);
        link(session)?.tell(Request::SetMemTable, table, &fds)?;
        std::thread::yield_now();
    }
    Ok(())
}

fn change_regions(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let region = |n: u64| RegionPayload {
        guest_addr: 0x8000_0000 + n * SIZE,
        size: SIZE,
        user_addr: USER + (n + 1) * SIZE,
        mmap_offset: 0,
    };
    let fd = memfd(SIZE)?;
    for _ in 0..random.between(1, 80) {
        let n = random.below(70);
        let payload = link::single(&region(n));
        let link = link(session)?;
        if random.one_in(3) {
            link.tell(Request::RemMemReg, payload, &[])?;
        } else {
            link.tell(Request::AddMemReg, payload, &[fd.as_fd()])?;
        }
    }
    Ok(())
}

/// Regions of no bytes, of more than their file has, that wrap, or of files that are no memory.
fn bad_regions(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    const SIZES: [u64; 9] = [0, 1, 4095, SIZE, SIZE + 1, 1 << 40, 1 << 46, 1 << 63, u64::MAX];
    let fd = match random.below(3) {
        0 => odd_fd(random)?,
        1 => memfd(1 << random.between(1, 45))?, // vast, but nothing is in it
        _ => memfd(SIZE)?,
    };
    let region = RegionPayload {
        guest_addr: random.pick(&[0, LOW, HIGH, 1 << 44, u64::MAX - SIZE, u64::MAX]),
        size: random.pick(&SIZES),
        user_addr: random.pick(&[0, USER, USER + SIZE, u64::MAX]),
        mmap_offset: random.pick(&[0, 1, 4095, 4096, SIZE, u64::MAX]),
    };
    let fds = [fd.as_fd()];
    if random.one_in(2) {
        link(session)?.tell(Request::AddMemReg, link::single(&region), &fds)
    } else {
        link(session)?.tell(Request::SetMemTable, link::table(1, &[region]), &fds)
    }
}

/// Cuts the memory short while the daemon uses it; sometimes lets it grow again.
fn truncate(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let keep = random.below(SIZE);
    rustix::fs::ftruncate(session.memory.fd(), keep).map_err(|_| Gone)?;
    for at in 0..session.rings.len() {
        session.kick(at);
    }
    std::thread::sleep(Duration::from_micros(random.below(300)));
    if random.one_in(2) {
        rustix::fs::ftruncate(session.memory.fd(), SIZE).map_err(|_| Gone)?;
    }
    link(session)?.ask(Request::GetFeatures)?;
    Err(Gone) // this memory is spoilt
}

fn punch(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for _ in 0..random.between(1, 20) {
        let from = random.below(SIZE);
        let len = random.between(1, SIZE - from);
        rustix::fs::fallocate(session.memory.fd(), flags, from, len).map_err(|_| Gone)?;
    }
    Ok(())
}

/// Sizes and addresses that no ring should have, while it runs and while it stands.
fn random_rings(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    for _ in 0..random.between(1, 8) {
        let at = random.below(session.rings.len() as u64) as usize;
        let index = session.rings[at].index;
        if random.one_in(2) {
            session.stop(&[at])?;
        }
        let mut part = || match random.below(6) {
            0 => random.bits(),
            1 => USER + SIZE - 16 * random.below(64),
            2 => USER + RINGS - 16 * random.below(64),
            3 => u64::MAX - 16 * random.below(64) + 1,
            _ => USER + 16 * random.below(SIZE / 16),
        };
        let parts = [part(), part(), part()];
        let size = match random.below(4) {
            0 => random.bits() as u32,
            _ => 1 << random.below(17),
        };
        let kick = session.kick_fd(at).try_clone_to_owned().map_err(|_| Gone)?;
        let link = link(session)?;
        link.tell(Request::SetVringNum, link::state(index, size), &[])?;
        link.tell(Request::SetVringAddr, link::addresses(index, 0, parts), &[])?;
        let index = u64::from(index).to_ne_bytes().to_vec();
        link.tell(Request::SetVringKick, index, &[kick.as_fd()])?;
    }
    Ok(())
}

fn toggle(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    for _ in 0..random.between(1, 40) {
        let at = random.below(session.rings.len() as u64) as usize;
        session.kick(at);
        let (index, enabled) = (session.rings[at].index, random.below(2) as u32);
        link(session)?.tell(Request::SetVringEnable, link::state(index, enabled), &[])?;
    }
    Ok(())
}

/// Kick, call and error descriptors that are something else, or are in use twice.
fn odd_events(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    const REQUESTS: [Request; 3] =
        [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr];
    for _ in 0..random.between(1, 6) {
        let index = random.below(session.rings.len() as u64);
        let request = random.pick(&REQUESTS);
        let fd = match random.below(3) {
            0 => session.kick_fd(0).try_clone_to_owned().map_err(|_| Gone)?,
            _ => odd_fd(random)?,
        };
        let link = link(session)?;
        if random.one_in(4) {
            link.tell(request, (index | 1 << 8).to_ne_bytes().to_vec(), &[])?; // to be polled
        } else {
            link.tell(request, index.to_ne_bytes().to_vec(), &[fd.as_fd()])?;
        }
        link.ask(Request::GetFeatures)?;
    }
    Ok(())
}

fn kicks(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    for _ in 0..random.between(1, 2000) {
        session.kick(random.below(session.rings.len() as u64) as usize);
    }
    Ok(())
}

/// Requests that are well-formed, or nearly, in an order that makes no sense.
fn requests(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    for _ in 0..random.between(1, 20) {
        let request = random.pick(Request::ALL);
        let payload = match random.below(4) {
            0 => link::state(random.below(6) as u8, random.pick(&[0, 1, 2, 256, u32::MAX])),
            1 => random.below(1 << 10).to_ne_bytes().to_vec(),
            2 => {
                let len = random.below(300);
                bytes(random, len)
            }
            _ => Vec::new(),
        };
        let fd = odd_fd(random)?;
        let fds = if random.one_in(4) { &[fd.as_fd()][..] } else { &[] };
        let flags = random.pick(&[1, 1, 9]);
        let message = [header(request.code(), flags, payload.len() as u32), payload].concat();
        link(session)?.say(&message, fds)?;
    }
    Ok(())
}

fn features(session: &mut Session, random: &mut Random) -> Result<(), Gone> {
    for _ in 0..random.between(1, 6) {
        let bits = match random.below(4) {
            0 => random.bits(),
            _ => session.features & random.bits(),
        };
        let request = random.pick(&[
            Request::SetFeatures,
            Request::SetFeatures,
            Request::SetProtocolFeatures,
            Request::SetStatus,
            Request::ResetOwner,
            Request::ResetDevice,
        ]);
        let reset = matches!(request, Request::ResetOwner | Request::ResetDevice);
        let payload = if reset { Vec::new() } else { bits.to_ne_bytes().to_vec() };
        link(session)?.tell(request, payload, &[])?;
    }
    Ok(())
}
