//! The bare loop as a vhost-user back-end: a switch between pairs of guests that only copies.
//!
//! # Model
//! One thread serves all sockets, as `shunt lab bare`. It polls the rings with
//! [`copy_loop`](crate::measure::copy_loop) without sleeping. Every millisecond, outside the busy
//! cycles, it serves vhost-user messages and requests for counters: it answers each line on
//! standard input with [`Counters`] as a line of JSON on standard output. Any guest of the daemon
//! can be measured on it, so both can be compared with the same guest.
//!
//! # Limits
//! - A guest sends to the other of its pair. One queue pair each, with `VIRTIO_F_VERSION_1`; no
//!   offloads, no migration.
//! - Guests are trusted more than the daemon trusts its own: a partial message delays nothing, but
//!   a socket or an eventfd that blocks would stop all guests.

mod process;
pub(super) mod session;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use host::tsc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::Mac;

use crate::measure::copy_loop::{CopyLoop, Counters};

pub use process::BareProcess;
use session::{Offer, Session};

/// Interval of polls of sockets and standard input.
const POLL: Duration = Duration::from_millis(1);

/// Settings of a bare switch.
#[derive(Clone, Debug)]
pub struct BareSpec {
    /// Socket and MAC address of each guest: an even number, the two guests of a pair in a row.
    pub guests: Vec<(PathBuf, Mac)>,
    /// Connect to the sockets, on which the guests listen; otherwise listen.
    pub connect: bool,
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Time-stamp cycles to spin for each frame.
    pub delay_cycles: u64,
    /// Offer packed rings.
    pub packed: bool,
    /// Offer mergeable receive buffers.
    pub mergeable: bool,
    /// End when standard input ends.
    pub with_parent: bool,
}

/// Serves all sockets until SIGINT or SIGTERM.
///
/// # Errors
/// A socket is unusable, or the CPU is missing.
pub fn serve(spec: &BareSpec) -> Result<()> {
    let stop = Arc::<AtomicBool>::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot handle signals")?;
    }
    let offer = Offer { packed: spec.packed, mergeable: spec.mergeable };
    let session = |(socket, _): &(PathBuf, Mac)| Session::new(socket, spec.connect, offer);
    let mut sessions = spec.guests.iter().map(session).collect::<Result<Vec<_>>>()?;
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    println!("ready");
    let mut bare = CopyLoop::new(spec.guests.iter().map(|(_, mac)| *mac), spec.delay_cycles);
    let mut requests = Requests { ended: false };
    let interval = tsc::duration_to_cycles(POLL);
    let mut now = tsc::now();
    let mut polled = now.wrapping_sub(interval);
    loop {
        if now.wrapping_sub(polled) >= interval {
            let clock = Instant::now();
            for session in &mut sessions {
                session.poll(clock)?;
            }
            requests.answer(&bare.counters)?;
            if stop.load(Ordering::Relaxed) || (spec.with_parent && requests.ended) {
                return Ok(());
            }
            if !sessions.iter().any(Session::is_running) {
                std::thread::sleep(POLL);
            }
            polled = tsc::now();
            bare.counters.idle_cycles += polled.wrapping_sub(now);
            now = polled;
        }
        for pair in sessions.chunks_exact_mut(2) {
            let [a, b] = pair else { continue };
            now = bare.turn(&mut a.guest.rings, &mut b.guest.rings, now);
        }
    }
}

/// Requests for counters on standard input.
struct Requests {
    ended: bool,
}

impl Requests {
    /// Answers each received line; never waits.
    fn answer(&mut self, counters: &Counters) -> Result<()> {
        let stdin = std::io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if self.ended || poll(&mut ready, Some(&none)).unwrap_or(0) == 0 {
            return Ok(());
        }
        let mut bytes = [0; 256];
        // Bypasses the buffer of `Stdin`, which would hide lines from poll.
        let n = rustix::io::read(&stdin, &mut bytes).unwrap_or(0);
        self.ended = n == 0;
        let mut out = std::io::stdout().lock();
        for _ in bytes[..n].iter().filter(|byte| **byte == b'\n') {
            serde_json::to_writer(&mut out, counters)?;
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }
}
