//! Mutations of the connection: messages, memory tables, descriptors, and their owners.

mod fds;
mod memory;
mod rings;

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Result;
use report::statistics::random::Random;
use vhost_user::{Connector, Request};

use super::connection::{self, Disconnected, FDS, RawConnection};
use super::memory::Memory;
use super::session::{PATIENCE, Session, count};
use crate::protocol::hostile::HostileResult;

type Mutation = fn(&mut Session, &mut Random) -> Result<(), Disconnected>;

/// Mutations for any connection: none of them starts a ring.
const ANYWHERE: [(&str, Mutation); 7] = [
    ("socket garbage", garbage),
    ("socket half a message", half_message),
    ("socket wrong header", wrong_header),
    ("socket wrong descriptors", wrong_fds),
    ("connections stormed", storm),
    ("connection left", leave),
    ("announced another's address", announce),
];

/// Mutations for far connections only.
const FAR: [(&str, Mutation); 11] = [
    ("memory table changed under load", memory::change_table),
    ("memory regions added and removed", memory::change_regions),
    ("memory regions that cannot be", memory::bad_regions),
    ("memory cut short in use", memory::truncate),
    ("memory with holes punched in use", memory::punch),
    ("rings at random addresses", rings::random_rings),
    ("rings enabled and disabled", rings::toggle),
    ("ring events of any kind", rings::odd_events),
    ("kicks stormed", rings::kicks),
    ("requests at random", requests),
    ("features and status at random", features),
];

/// Applies one of all mutations to a far session.
pub(super) fn mutate(
    session: &mut Session,
    random: &mut Random,
    result: &mut HostileResult,
) -> Result<()> {
    session.attach(random)?;
    let all: Vec<_> = ANYWHERE.iter().chain(&FAR).copied().collect();
    let mutation = random.pick(&all);
    // Under load: the daemon still processes the latest volley.
    let sent = session.volley(random, result);
    apply(session, random, result, mutation)?;
    if session.connection.is_some() {
        let _ = session.wait(&sent, PATIENCE);
    }
    // Left as it is, the next front-end inherits the state of this one.
    if random.one_in(2) || session.connection.is_none() {
        session.renew_memory()?;
    }
    session.attach(random)?;
    session.start_stopped_rings(random);
    Ok(())
}

/// Applies a mutation to a near session; none of them starts a ring.
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
    let alive = |link: &mut RawConnection| link.query(Request::GetFeatures).is_ok();
    if done.is_err() || !session.connection.as_mut().is_some_and(alive) {
        session.connection = None;
    }
    Ok(())
}

fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.bits() as u8).collect()
}

fn header(request: u32, flags: u32, size: u32) -> Vec<u8> {
    [request, flags, size].map(u32::to_ne_bytes).concat()
}

fn garbage(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    let len = random.between(1, 5000);
    session.connection()?.send_raw(&bytes(random, len), &[]).map(drop)
}

/// A message that ends within header or payload, followed by end of file or other bytes.
fn half_message(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    let mut message = header(Request::SetFeatures.code(), 1, 8);
    message.extend(bytes(random, 8));
    let cut = random.between(1, message.len() as u64 - 1) as usize;
    let link = session.connection()?;
    link.send_raw(&message[..cut], &[])?;
    match random.below(3) {
        0 => return Err(Disconnected), // end of file within the message
        1 => link.send_raw(&message[cut..], &[]),
        _ => link.send_raw(&message, &[]),
    }?;
    Ok(())
}

fn wrong_header(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    let request = random.below(64) as u32;
    let flags = random.pick(&[0, 1, 2, 3, 5, 9, 13, 0x10, u32::MAX]);
    let size = random.pick(&[0, 4, 8, 4096, 4097, 1 << 20, u32::MAX]);
    let payload = bytes(random, u64::from(size.min(4096)));
    session.connection()?.send_raw(&[header(request, flags, size), payload].concat(), &[]).map(drop)
}

/// Too few or too many descriptors with a message.
fn wrong_fds(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    let many = random.between(0, FDS as u64);
    let fds = (0..many).map(|_| fds::fd(random)).collect::<Result<Vec<_>, _>>()?;
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let table = connection::table(random.below(10) as u32, &Memory::regions());
    let region = connection::single(&Memory::regions()[0]);
    let (request, payload) = match random.below(4) {
        0 => (Request::SetMemTable, table),
        1 => (Request::AddMemReg, region),
        2 => (Request::SetVringErr, random.below(600).to_ne_bytes().to_vec()),
        _ => (Request::GetFeatures, Vec::new()),
    };
    let message = [header(request.code(), 1, payload.len() as u32), payload].concat();
    session.connection()?.send_raw(&message, &fds).map(drop)
}

/// Connections beside the active one, and after it.
fn storm(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
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

fn leave(_session: &mut Session, _random: &mut Random) -> Result<(), Disconnected> {
    Err(Disconnected)
}

/// Announces an honest guest's address, as if it had migrated here.
fn announce(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    let mac = random.pick(&session.cast.honest);
    let mut payload = mac.0.to_vec();
    payload.resize(8, 0);
    session.connection()?.send(Request::SendRarp, payload, &[])
}

/// Valid or nearly valid requests in a random order.
fn requests(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    for _ in 0..random.between(1, 20) {
        let request = random.pick(Request::ALL);
        let payload = match random.below(4) {
            0 => connection::state(random.below(6) as u8, random.pick(&[0, 1, 2, 256, u32::MAX])),
            1 => random.below(1 << 10).to_ne_bytes().to_vec(),
            2 => {
                let len = random.below(300);
                bytes(random, len)
            }
            _ => Vec::new(),
        };
        let fd = fds::fd(random)?;
        let fds = if random.one_in(4) { &[fd.as_fd()][..] } else { &[] };
        let flags = random.pick(&[1, 1, 9]);
        let message = [header(request.code(), flags, payload.len() as u32), payload].concat();
        session.connection()?.send_raw(&message, fds)?;
    }
    Ok(())
}

fn features(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
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
        session.connection()?.send(request, payload, &[])?;
    }
    Ok(())
}
