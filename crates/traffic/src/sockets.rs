//! Traffic over the sockets of a guest's kernel: TCP and UDP, measured at the receiver.
//!
//! A guest's kernel is a network namespace that this process makes and that ends with it. It has
//! `lo`; the device that carries its frames moves an interface named `eth0` into it before the
//! parent gives the start. The receiver (or requester) measures: warm-up, [`Event::Begin`], the
//! measured time, [`Event::End`], cool-down, and its result. The other end works until it is
//! killed.
//!
//! File copies ([`Part::Serve`], [`Part::Fetch`]) have their own sequence, documented in the module
//! `file`.
//!
//! A process in the namespace of another ([`Room::Of`]) reaches it over `lo`: the self-test, as no
//! path can exceed the rate of both ends without a path between them.

mod datagram;
mod file;
mod request;
mod stream;

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use host::interface::Interfaces;
use host::links::Links;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use wire::Mac;

use super::{Event, say, wait_for_word};
use crate::arena;

pub use file::{Fetched, Served};
pub use request::Asked;

/// Port of receivers and responders.
const PORT: u16 = 5001;
/// Longest wait for the other end to be reachable.
const PATIENCE: Duration = Duration::from_secs(10);
/// Prefix length of the guests' network.
const PREFIX: u8 = 24;

/// One end of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Network namespace to run in.
    pub room: Room,
    /// Role of this end.
    pub part: Part,
    /// Traffic settings.
    pub load: Load,
}

/// Network namespace of an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Room {
    /// A namespace of its own, whose `eth0` gets these addresses.
    Own {
        /// IPv4 address.
        ip: Ipv4Addr,
        /// MAC address, as `02:00:00:00:00:01`.
        mac: String,
    },
    /// A namespace of its own, with `lo` only.
    Alone,
    /// The namespace of another process.
    Of(u32),
}

/// Role of an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Sends to this address until it is killed.
    Send(Ipv4Addr),
    /// Receives and measures.
    Receive(Times),
    /// Sends a datagram, waits for the answer, repeats, and measures.
    Ask(Ipv4Addr, Times),
    /// Returns each datagram until it is killed.
    Answer,
    /// Sends the same file of so many MiB to one client per stream, all at once.
    Serve(u32),
    /// Receives the file of the server at this address.
    Fetch(Ipv4Addr),
}

/// Seconds before, during and after the measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Warm-up: windows and buffers grow.
    pub warmup_s: f64,
    /// Measurement.
    pub seconds: f64,
    /// Cool-down, with the traffic still running.
    pub cooldown_s: f64,
}

/// Settings of socket traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// `true` for TCP, `false` for UDP.
    pub tcp: bool,
    /// Connections, each with a thread at both ends.
    pub streams: u32,
    /// Bytes of each write, or of each datagram's payload; in file copies, of each call.
    pub bytes: u32,
    /// Requested size of each socket's send and receive buffer, bytes; `None`: the kernel's
    /// default.
    pub buffer: Option<u32>,
}

/// Result of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Seconds between begin and end.
    pub seconds: f64,
    /// Payload bytes read.
    pub bytes: u64,
    /// Datagrams read.
    pub datagrams: u64,
    /// Datagrams sent in this time, by their numbers.
    pub sent: u64,
    /// Size of a socket's receive buffer at the end, bytes.
    pub buffer: u64,
}

/// Runs one end; the module's documentation lists its events.
pub fn run(spec: &SocketSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let eth0 = enter(&spec.room)?;
    let file = match spec.part {
        Part::Serve(mib) => Some(file::SharedFile::random(mib)?),
        _ => None,
    };
    say(&Event::Ready)?;
    wait_for_word()?;
    if let Some((ip, mac)) = eth0 {
        let interfaces = Interfaces::of(None)?;
        interfaces.set_mac("eth0", mac.0)?;
        interfaces.set_up("eth0", true)?;
        Links::open()?.add_address("eth0", ip, PREFIX)?;
    }
    match (&spec.part, spec.load.tcp) {
        (Part::Send(to), true) => stream::send(*to, &spec.load),
        (Part::Send(to), false) => datagram::send(*to, &spec.load),
        (Part::Receive(times), true) => stream::receive(&spec.load, times),
        (Part::Receive(times), false) => datagram::receive(&spec.load, times),
        (Part::Ask(to, times), _) => request::ask(*to, &spec.load, times),
        (Part::Answer, _) => request::answer(&spec.load),
        (Part::Serve(_), _) => file::serve(&file.context("a server has a file")?, &spec.load),
        (Part::Fetch(from), _) => file::fetch(*from, &spec.load),
    }
}

/// Enters the namespace; returns the addresses of its `eth0`.
fn enter(room: &Room) -> Result<Option<(Ipv4Addr, Mac)>> {
    match room {
        Room::Own { ip, mac } => {
            arena::enter_new().context("this guest gets no network namespace")?;
            Interfaces::of(None)?.set_up("lo", true)?;
            let mac = mac.parse().ok().with_context(|| format!("{mac} is no Ethernet address"))?;
            Ok(Some((*ip, mac)))
        }
        Room::Alone => {
            arena::enter_new().context("this guest gets no network namespace")?;
            Interfaces::of(None)?.set_up("lo", true)?;
            Ok(None)
        }
        Room::Of(pid) => arena::enter_that_of(*pid).map(|()| None),
    }
}

/// Waits for the warm-up, then measures: `count` reads the received totals, bytes first. Traffic
/// that stalls for the whole time, such as TCP after a loss, gets more time.
fn measured<const N: usize>(
    times: &Times,
    count: impl Fn() -> [u64; N],
) -> Result<(f64, [u64; N], [u64; N])> {
    let rest = |seconds: f64| std::thread::sleep(Duration::from_secs_f64(seconds));
    rest(times.warmup_s);
    say(&Event::Begin)?;
    let start = Instant::now();
    let before = count();
    rest(times.seconds);
    while count()[0] == before[0] && start.elapsed() < PATIENCE {
        rest(0.01);
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), count());
    say(&Event::End)?;
    rest(times.cooldown_s);
    Ok((seconds, before, after))
}

/// Requests buffers of that size. Only root may exceed the limits `net.core.rmem_max` and
/// `wmem_max`.
fn set_buffers(socket: impl AsFd, bytes: Option<u32>) -> Result<()> {
    let Some(bytes) = bytes.map(|bytes| bytes as usize) else { return Ok(()) };
    if sockopt::set_socket_send_buffer_size_force(&socket, bytes).is_err() {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    if sockopt::set_socket_recv_buffer_size_force(&socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    Ok(())
}

/// Retries until success or timeout.
fn patiently<T, E: std::error::Error + Send + Sync + 'static>(
    what: &str,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > end => return Err(error).context(what.to_owned()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A buffer to send from, of constant bytes.
fn payload(bytes: u32) -> Result<Vec<u8>> {
    ensure!(bytes > 0, "a write has at least one byte");
    Ok(vec![0x5b; bytes as usize])
}
