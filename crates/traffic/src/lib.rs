//! Guests of the lab: a process that hosts one or several guests on one thread.
//!
//! The process reads a [`Task`] as one line of JSON from standard input, attaches, writes
//! [`Event::Ready`] as a line of JSON to standard output, and waits for any line to start. With a
//! [`GuestSpec`] it then runs for `warmup_s`, sends [`Event::Begin`], runs for `seconds`, sends
//! [`Event::End`], stops its generators, waits until no frame moves, and sends [`Event::Result`].
//! The modules document the other tasks.

pub mod adapter;
pub mod arena;
pub mod contend;
mod forward;
mod generate;
pub mod honest;
mod hosted;
pub mod hostile;
mod ledger;
pub mod numbered;
pub mod pace;
pub mod paced;
mod pauses;
pub mod probe;
pub mod reflect;
pub mod relay;
pub mod sockets;
mod tapped;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use report::{GeneratorLoad, RingKind};

pub use forward::Forwarder;
pub use generate::{Generator, IN_FLIGHT, Traffic, self_test};
pub use generate::{SEQUENCE_AT, frame};
pub use hosted::run;
pub use paced::{BurstResult, Latency, PacedResult};
pub use paced::{RETURNED_LATE, histogram, ns_between};
pub use pauses::PAUSE_MIN;
pub use pauses::PausesResult;

/// [`GuestSpec::quiet_s`] for a switch, which delays no frame on purpose.
pub const QUIET_S: f64 = 0.02;

/// Task of a guest process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Host generators and forwarders.
    Guests(GuestSpec),
    /// Keep every transmit ring full.
    Contend(contend::ContendSpec),
    /// Send numbered frames to each other.
    Numbered(numbered::NumberedSpec),
    /// Stay silent, then wake the daemon repeatedly.
    Probe(probe::ProbeSpec),
    /// Forward and account for every frame.
    Honest(honest::HonestSpec),
    /// Violate every rule.
    Hostile(hostile::HostileSpec),
    /// Send or receive over a kernel's sockets.
    Sockets(sockets::SocketSpec),
    /// Carry frames between two taps.
    Relay(relay::RelaySpec),
    /// Return each frame, on two ports.
    Reflect(reflect::ReflectSpec),
}

/// Generators and forwarders on one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Seconds before the measurement.
    pub warmup_s: f64,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Seconds without a moved frame after which no frame is in flight.
    pub quiet_s: f64,
    /// Bytes of the generators' frames, with FCS.
    pub frame_bytes: u32,
    /// Guest memory on reserved 2 MiB pages; otherwise on transparent huge pages.
    pub huge_pages: bool,
    /// Rings of adapters on vhost-user sockets.
    pub ring: RingKind,
    /// Guests, which take turns.
    pub guests: Vec<Guest>,
}

/// One guest with one adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Guest {
    /// Backend of the adapter.
    pub place: Place,
    /// Work of the guest.
    pub role: Role,
}

/// Backend of a guest's adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A vhost-user socket of the daemon.
    Socket(PathBuf),
    /// A tap that this process makes.
    Tap(TapPlace),
}

/// A tap to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TapPlace {
    /// Interface name.
    pub name: String,
    /// Bridge to join, if any.
    pub bridge: Option<String>,
}

/// Work of a guest. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends to these (source, destination) pairs in turn, and receives all frames.
    Generate {
        /// Flows.
        flows: Vec<(String, String)>,
        /// Frames in flight, 1 to 512.
        in_flight: u32,
        /// Trigger of the next frame.
        load: GeneratorLoad,
        /// Write each frame before it is sent, and read each received one.
        touch: bool,
    },
    /// Sends to these (source, destination) pairs in turn at a constant rate, and accounts for the
    /// returned frames.
    Pace {
        /// Flows.
        flows: Vec<(String, String)>,
        /// Buffers for frames, 1 to 512.
        in_flight: u32,
        /// Frames a second.
        load_fps: f64,
        /// Frames to send at full speed when the measurement begins, with none after them; `None`:
        /// continue at the rate.
        #[serde(default)]
        burst: Option<u64>,
    },
    /// Receives all frames, and sends none.
    Sink,
    /// Sends each frame on to another destination.
    Forward {
        /// MAC address of the guest.
        own: String,
        /// Destination of its frames.
        next: String,
    },
}

/// Event of a guest process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// All adapters are attached.
    Ready,
    /// The measurement begins.
    Begin,
    /// The measurement has ended.
    End,
    /// Result of a [`GuestSpec`].
    Result(GuestResult),
    /// Result of [`Task::Contend`].
    Contended(contend::ContendResult),
    /// Result of [`Task::Numbered`].
    Numbered(numbered::NumberedResult),
    /// Result of [`Task::Probe`].
    Probed(probe::ProbeResult),
    /// Result of [`Task::Honest`].
    Honest(honest::HonestResult),
    /// Progress of [`Task::Hostile`].
    Progress {
        /// Bursts so far.
        bursts: u64,
    },
    /// Result of [`Task::Hostile`].
    Hostile(hostile::HostileResult),
    /// Result of a receiver in [`Task::Sockets`].
    Received(sockets::Received),
    /// Result of a requester in [`Task::Sockets`].
    Asked(sockets::Asked),
    /// Result of a file server in [`Task::Sockets`].
    Served(sockets::Served),
    /// Result of a file client in [`Task::Sockets`].
    Fetched(sockets::Fetched),
    /// Answer of [`Task::Reflect`] to each command.
    Reflected(reflect::Reflected),
}

/// Result of hosted guests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestResult {
    /// Seconds between begin and end.
    pub seconds: f64,
    /// `true` if the memory of every guest is on 2 MiB pages.
    pub large_pages: bool,
    /// Each guest, in the order of the specification.
    pub guests: Vec<Counted>,
    /// Share of the time spent in generators.
    pub generator_share: f64,
    /// Share of the time spent in forwarders.
    pub forwarder_share: f64,
    /// Highest rate of one generator into an instant sink, Mframes/s.
    pub generator_limit_mpps: f64,
    /// Frames that generators sent until the end.
    pub generated: u64,
    /// Frames that generators received until no frame moved.
    pub returned: u64,
    /// Account of a generator at a constant rate.
    #[serde(default)]
    pub paced: Option<PacedResult>,
}

/// Frames of one guest between begin and end.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// `true` for a generator.
    pub generator: bool,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames it could not forward.
    pub dropped: u64,
}

/// Reads a task from standard input, and runs it.
pub fn main() -> Result<()> {
    host::process::end_with_parent()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the task")?;
    match serde_json::from_str(&line).context("not a task")? {
        Task::Guests(spec) => run(&spec),
        Task::Contend(spec) => contend::run(&spec),
        Task::Numbered(spec) => numbered::run(&spec),
        Task::Probe(spec) => probe::run(&spec),
        Task::Honest(spec) => honest::run(&spec),
        Task::Hostile(spec) => hostile::run(&spec),
        Task::Sockets(spec) => sockets::run(&spec),
        Task::Relay(spec) => relay::run(&spec),
        Task::Reflect(spec) => reflect::run(&spec),
    }
}

/// Sends an event to the parent.
fn say(event: &Event) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, event)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Waits for the next line of the parent.
fn wait_for_word() -> Result<()> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).context("cannot read from the parent")?;
    ensure!(read > 0, "standard input ended before the start");
    Ok(())
}
