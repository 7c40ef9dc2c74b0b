//! A program on the sockets of a guest's kernel: TCP and UDP traffic, measured where it arrives.
//!
//! A guest's kernel is a network namespace that this process makes for itself and that ends with
//! it. It has `lo`, and what carries its frames moves an interface named `eth0` into it before the
//! word to go is given. The receiver (or who asks) does the measuring: warm-up, [`Event::Begin`],
//! the measured time, [`Event::End`], cool-down, and its result. The other end works until it is
//! killed.
//!
//! File copies ([`Part::Serve`], [`Part::Fetch`]) have a beginning and an end of their own, which
//! the module `file` describes.
//!
//! A process in the room of another ([`Room::Of`]) reaches that one over `lo`: this is the
//! self-test, for more than both ends can do with nothing between them no path can carry.

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

/// The port that receivers and answerers listen on.
const PORT: u16 = 5001;
/// How long the other end may take to be reachable.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bits of each guest's network.
const PREFIX: u8 = 24;

/// One end of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketSpec {
    /// CPU to run on, if it is to be pinned.
    pub cpu: Option<usize>,
    /// Whose kernel's sockets.
    pub room: Room,
    /// What to do.
    pub part: Part,
    /// With what traffic.
    pub load: Load,
}

/// The network namespace that an end is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Room {
    /// One of its own, whose `eth0` gets these addresses.
    Own {
        /// Its IPv4 address.
        ip: Ipv4Addr,
        /// Its Ethernet address, as `02:00:00:00:00:01`.
        mac: String,
    },
    /// One of its own, with `lo` only.
    Alone,
    /// The one made by another process.
    Of(u32),
}

/// Which end it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Sends to this address until it is killed.
    Send(Ipv4Addr),
    /// Receives, and measures.
    Receive(Times),
    /// Sends a datagram, waits for the answer, and so on, and measures.
    Ask(Ipv4Addr, Times),
    /// Sends each datagram back until it is killed.
    Answer,
    /// Sends the same file of so many MiB to as many clients as there are streams, all at once.
    Serve(u32),
    /// Receives the file of the server at this address.
    Fetch(Ipv4Addr),
}

/// Seconds before, of and after the measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Before: windows and buffers grow.
    pub warmup_s: f64,
    /// Of the measurement.
    pub seconds: f64,
    /// After it, with the traffic still going.
    pub cooldown_s: f64,
}

/// Traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// TCP; else UDP.
    pub tcp: bool,
    /// Connections, each with a thread at both ends.
    pub streams: u32,
    /// Bytes of each write, or of each datagram's payload; of file copies, of each call.
    pub bytes: u32,
    /// Bytes asked for each socket's send and receive buffer; `None`: what the kernel gives.
    pub buffer: Option<u32>,
}

/// What a receiver measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Seconds between begin and end.
    pub seconds: f64,
    /// Bytes of payload that the program read in them.
    pub bytes: u64,
    /// Datagrams that it read in them.
    pub datagrams: u64,
    /// Datagrams that were sent in them, by their numbers.
    pub sent: u64,
    /// Bytes of a socket's receive buffer, as the kernel counts them at the end.
    pub buffer: u64,
}

/// Runs one end; see the module's documentation for what it says meanwhile.
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

/// Goes into the room; says what `eth0` is to be called there.
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

/// Lets the traffic go for the warm-up, then measures: `count` reads what was received so far,
/// bytes first. Traffic that stands still for all of the time, such as TCP after a loss, gets more.
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

/// Asks for buffers of that size. What is more than the machine allows (`net.core.rmem_max`,
/// `wmem_max`) only root gets.
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

/// Tries again until it works or patience ends.
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

/// A buffer to send from; the bytes do not matter.
fn payload(bytes: u32) -> Result<Vec<u8>> {
    ensure!(bytes > 0, "a write has at least one byte");
    Ok(vec![0x5b; bytes as usize])
}
