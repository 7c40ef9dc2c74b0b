//! Network device of a virtual machine monitor without vhost: copies frames between its guest's
//! kernel and a tap on the host's bridge.
//!
//! The guest's side is the tap file of `eth0` in the guest's namespace, in place of virtio-net's
//! rings. Both files carry frames of up to 64 KiB with their virtio-net header, so no checksum is
//! computed and no frame is segmented. One thread waits for both files.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use host::links::Links;
use host::tun;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::parent::send_event;
use crate::protocol::Event;
use crate::protocol::relay::RelaySpec;

/// Maximum frames in one direction before the other has its turn.
const TURN: usize = 64;
/// Bytes of the longest frame with its header.
const FRAME_MAX: usize = 12 + 18 + (64 << 10);

/// Makes both taps, reports ready, and copies until it is killed.
pub fn run(spec: &RelaySpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let room = format!("/proc/{}/ns/net", spec.guest);
    let guest = only_queue(tun::open(Some(&room), "eth0", 1, true)?)?;
    let host = only_queue(tun::open(None, &spec.name, 1, true)?)?;
    Links::open()?.join(&spec.name, &spec.bridge)?;
    send_event(&Event::Ready)?;
    let mut buffer = vec![0; FRAME_MAX];
    loop {
        let mut ends = [&guest, &host].map(|end| PollFd::new(end, PollFlags::IN));
        poll(&mut ends, None)?;
        let [from_guest, from_host] = ends.map(|end| !end.revents().is_empty());
        if from_guest {
            copy(&guest, &host, &mut buffer)?;
        }
        if from_host {
            copy(&host, &guest, &mut buffer)?;
        }
    }
}

/// Moves the frames of one turn. Frames that the other side rejects, as while it is down, are lost.
fn copy(from: &OwnedFd, to: &OwnedFd, buffer: &mut [u8]) -> Result<()> {
    for _ in 0..TURN {
        match rustix::io::read(from, &mut *buffer) {
            Ok(n) => drop(rustix::io::write(to, &buffer[..n])),
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error).context("the tap is gone"),
        }
    }
    Ok(())
}

/// The queue of a new tap.
pub(super) fn only_queue(mut tap: tun::Tap) -> Result<OwnedFd> {
    ensure!(!tap.existed, "another process has a tap of that name");
    tap.queues.pop().context("a tap has a queue")
}
