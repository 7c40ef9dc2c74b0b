//! Mutations of guest memory while its rings run.

use std::os::fd::AsFd;
use std::time::Duration;

use report::statistics::random::Random;
use rustix::fs::FallocateFlags;
use vhost_user::Request;
use vhost_user::payload::RegionPayload;

use super::fds;
use crate::hostile::connection::{self as payload, Disconnected};
use crate::hostile::memory::{HIGH, LOW, Memory, RINGS, SIZE, USER};
use crate::hostile::session::Session;

/// Replaces the table while rings run: a region missing, moved, repeated or overlapping.
pub(super) fn change_table(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
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
        let fd = session.memory.fd().try_clone_to_owned().map_err(|_| Disconnected)?;
        let fds = vec![fd.as_fd(); regions.len()];
        let table = payload::table(regions.len() as u32, &regions);
        session.connection()?.send(Request::SetMemTable, table, &fds)?;
        std::thread::yield_now();
    }
    Ok(())
}

pub(super) fn change_regions(
    session: &mut Session,
    random: &mut Random,
) -> Result<(), Disconnected> {
    let region = |n: u64| RegionPayload {
        guest_addr: 0x8000_0000 + n * SIZE,
        size: SIZE,
        user_addr: USER + (n + 1) * SIZE,
        mmap_offset: 0,
    };
    let fd = fds::memfd(SIZE)?;
    for _ in 0..random.between(1, 80) {
        let n = random.below(70);
        let payload = payload::single(&region(n));
        let link = session.connection()?;
        if random.one_in(3) {
            link.send(Request::RemMemReg, payload, &[])?;
        } else {
            link.send(Request::AddMemReg, payload, &[fd.as_fd()])?;
        }
    }
    Ok(())
}

/// Regions that are empty, exceed their file, wrap around, or have an unsuitable file.
pub(super) fn bad_regions(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    const SIZES: [u64; 9] = [0, 1, 4095, SIZE, SIZE + 1, 1 << 40, 1 << 46, 1 << 63, u64::MAX];
    let fd = match random.below(3) {
        0 => fds::fd(random)?,
        1 => fds::memfd(1 << random.between(1, 45))?, // huge, but all holes
        _ => fds::memfd(SIZE)?,
    };
    let region = RegionPayload {
        guest_addr: random.pick(&[0, LOW, HIGH, 1 << 44, u64::MAX - SIZE, u64::MAX]),
        size: random.pick(&SIZES),
        user_addr: random.pick(&[0, USER, USER + SIZE, u64::MAX]),
        mmap_offset: random.pick(&[0, 1, 4095, 4096, SIZE, u64::MAX]),
    };
    let fds = [fd.as_fd()];
    if random.one_in(2) {
        session.connection()?.send(Request::AddMemReg, payload::single(&region), &fds)
    } else {
        session.connection()?.send(Request::SetMemTable, payload::table(1, &[region]), &fds)
    }
}

/// Truncates the memory while the daemon uses it; sometimes grows it again.
pub(super) fn truncate(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    let keep = random.below(SIZE);
    rustix::fs::ftruncate(session.memory.fd(), keep).map_err(|_| Disconnected)?;
    for at in 0..session.rings.len() {
        session.kick(at);
    }
    std::thread::sleep(Duration::from_micros(random.below(300)));
    if random.one_in(2) {
        rustix::fs::ftruncate(session.memory.fd(), SIZE).map_err(|_| Disconnected)?;
    }
    session.connection()?.query(Request::GetFeatures)?;
    Err(Disconnected) // this memory is no longer usable
}

pub(super) fn punch(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for _ in 0..random.between(1, 20) {
        let from = random.below(SIZE);
        let len = random.between(1, SIZE - from);
        rustix::fs::fallocate(session.memory.fd(), flags, from, len).map_err(|_| Disconnected)?;
    }
    Ok(())
}
