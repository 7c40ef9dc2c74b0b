//! Mutations of rings and their eventfds by messages.

use std::os::fd::AsFd;

use report::statistics::random::Random;
use vhost_user::Request;

use super::fds;
use crate::hostile::connection::{self as payload, Disconnected};
use crate::hostile::memory::{RINGS, SIZE, USER};
use crate::hostile::session::Session;

/// Invalid sizes and addresses, for running and stopped rings.
pub(super) fn random_rings(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
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
            3 => (16 * random.below(64)).wrapping_neg(),
            _ => USER + 16 * random.below(SIZE / 16),
        };
        let parts = [part(), part(), part()];
        let size = match random.below(4) {
            0 => random.bits() as u32,
            _ => 1 << random.below(17),
        };
        let kick = session.kick_fd(at).try_clone_to_owned().map_err(|_| Disconnected)?;
        let link = session.connection()?;
        link.send(Request::SetVringNum, payload::state(index, size), &[])?;
        link.send(Request::SetVringAddr, payload::addresses(index, 0, parts), &[])?;
        let index = u64::from(index).to_ne_bytes().to_vec();
        link.send(Request::SetVringKick, index, &[kick.as_fd()])?;
    }
    Ok(())
}

pub(super) fn toggle(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    for _ in 0..random.between(1, 40) {
        let at = random.below(session.rings.len() as u64) as usize;
        session.kick(at);
        let (index, enabled) = (session.rings[at].index, random.below(2) as u32);
        session.connection()?.send(Request::SetVringEnable, payload::state(index, enabled), &[])?;
    }
    Ok(())
}

/// Kick, call and error descriptors of a wrong kind, or used twice.
pub(super) fn odd_events(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    const REQUESTS: [Request; 3] =
        [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr];
    for _ in 0..random.between(1, 6) {
        let index = random.below(session.rings.len() as u64);
        let request = random.pick(&REQUESTS);
        let fd = match random.below(3) {
            0 => session.kick_fd(0).try_clone_to_owned().map_err(|_| Disconnected)?,
            _ => fds::fd(random)?,
        };
        let link = session.connection()?;
        if random.one_in(4) {
            link.send(request, (index | 1 << 8).to_ne_bytes().to_vec(), &[])?; // polled mode
        } else {
            link.send(request, index.to_ne_bytes().to_vec(), &[fd.as_fd()])?;
        }
        link.query(Request::GetFeatures)?;
    }
    Ok(())
}

pub(super) fn kicks(session: &mut Session, random: &mut Random) -> Result<(), Disconnected> {
    for _ in 0..random.between(1, 2000) {
        session.kick(random.below(session.rings.len() as u64) as usize);
    }
    Ok(())
}
