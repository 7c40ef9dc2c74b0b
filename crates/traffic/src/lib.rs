//! Guests of the lab: a process of its own that hosts one or several, on one thread.
//!
//! The process reads a [`Task`] as one line of JSON from standard input, attaches, writes
//! [`Event::Ready`] as a line of JSON to standard output, and waits for a line (any) to go. With a
//! [`GuestSpec`] it then runs for `warmup_s`, says [`Event::Begin`], runs for `seconds`, says
//! [`Event::End`], stops its generators, waits until no frame moves, and writes
//! [`Event::Result`]. What the other tasks do is told in their modules.

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

use report::{Load, RingKind};

pub use forward::Forwarder;
pub use generate::{Generator, IN_FLIGHT, Traffic, self_test};
pub use generate::{SEQUENCE_AT, frame};
pub use hosted::run;
pub use paced::{BurstResult, Latency, PacedResult};
pub use paced::{RETURNED_LATE, histogram, ns_between};
pub use pauses::PAUSE_MIN;
pub use pauses::PausesResult;

/// [`GuestSpec::quiet_s`] of a switch, which keeps no frame on purpose.
pub const QUIET_S: f64 = 0.02;

/// What a guest process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Host generators and forwarders.
    Guests(GuestSpec),
    /// Keep every transmit ring full.
    Contend(contend::ContendSpec),
    /// Send numbered frames to each other.
    Numbered(numbered::NumberedSpec),
    /// Be silent, then wake the daemon again and again.
    Probe(probe::ProbeSpec),
    /// Forward and account for every frame.
    Honest(honest::HonestSpec),
    /// Break every rule.
    Hostile(hostile::HostileSpec),
    /// Be an end of traffic over a kernel's sockets.
    Sockets(sockets::SocketSpec),
    /// Carry frames between two taps.
    Relay(relay::RelaySpec),
    /// Send each frame back, on two ports.
    Reflect(reflect::ReflectSpec),
}

/// Generators and forwarders on one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestSpec {
    /// CPU to run on, if it is to be pinned.
    pub cpu: Option<usize>,
    /// Seconds before the measurement.
    pub warmup_s: f64,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Seconds without a moved frame after which none is on its way any more.
    pub quiet_s: f64,
    /// Bytes of the generators' frames, with FCS.
    pub frame_bytes: u32,
    /// Whether the guests' memory is on 2 MiB pages that were reserved; else the kernel is asked to
    /// gather such pages.
    pub huge_pages: bool,
    /// The rings of adapters at a daemon's sockets.
    pub ring: RingKind,
    /// The guests, which take turns.
    pub guests: Vec<Guest>,
}

/// One guest with one adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Guest {
    /// Where it is attached.
    pub place: Place,
    /// What it does.
    pub role: Role,
}

/// What a guest's adapter is attached to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A socket of the daemon.
    Socket(PathBuf),
    /// A tap of this process's own.
    Tap(TapPlace),
}

/// A tap to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TapPlace {
    /// What it is called.
    pub name: String,
    /// The bridge that it is a port of, if any.
    pub bridge: Option<String>,
}

/// What a guest does. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends to these (source, destination) in turn, and takes in whatever comes.
    Generate {
        /// Flows.
        flows: Vec<(String, String)>,
        /// Frames in flight, 1 to 512.
        in_flight: u32,
        /// When the next frame is sent.
        load: Load,
        /// Whether each frame is written before it is sent, and looked at when it is received.
        touch: bool,
    },
    /// Sends to these (source, destination) in turn at a constant rate, and accounts for what comes
    /// back.
    Pace {
        /// Flows.
        flows: Vec<(String, String)>,
        /// Buffers for frames, 1 to 512.
        in_flight: u32,
        /// Frames a second.
        load_fps: f64,
        /// When the measurement begins, send so many frames as fast as the ring takes them, and
        /// then none; `None`: go on at the rate.
        #[serde(default)]
        burst: Option<u64>,
    },
    /// Takes in whatever comes, and sends nothing.
    Sink,
    /// Sends each frame on to another destination.
    Forward {
        /// Its own address.
        own: String,
        /// Where its frames go.
        next: String,
    },
}

/// What a guest process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// All adapters are attached.
    Ready,
    /// The measurement begins now.
    Begin,
    /// The measurement ended now.
    End,
    /// All is over.
    Result(GuestResult),
    /// A [`Task::Contend`] is over.
    Contended(contend::ContendResult),
    /// A [`Task::Numbered`] is over.
    Numbered(numbered::NumberedResult),
    /// A [`Task::Probe`] is over.
    Probed(probe::ProbeResult),
    /// A [`Task::Honest`] is over.
    Honest(honest::HonestResult),
    /// How far a [`Task::Hostile`] has come.
    Progress {
        /// Bursts so far.
        bursts: u64,
    },
    /// A [`Task::Hostile`] is over.
    Hostile(hostile::HostileResult),
    /// A receiver of [`Task::Sockets`] is done.
    Received(sockets::Received),
    /// Who asks in [`Task::Sockets`] is done.
    Asked(sockets::Asked),
    /// A server of files in [`Task::Sockets`] has sent all of them.
    Served(sockets::Served),
    /// A client in [`Task::Sockets`] has its file.
    Fetched(sockets::Fetched),
    /// Answer of [`Task::Reflect`] to each command.
    Reflected(reflect::Reflected),
}

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestResult {
    /// Seconds between begin and end.
    pub seconds: f64,
    /// Whether the memory of every guest is on 2 MiB pages.
    pub large_pages: bool,
    /// Each guest, in the order of the specification.
    pub guests: Vec<Counted>,
    /// Share of the time that generators took.
    pub generator_share: f64,
    /// Share of the time that forwarders took.
    pub forwarder_share: f64,
    /// Millions of frames a second that one generator could send to an instant sink.
    pub generator_limit_mpps: f64,
    /// Frames that generators sent, in all, until the end.
    pub generated: u64,
    /// Frames that generators received, in all, until nothing moved any more.
    pub returned: u64,
    /// Account of a generator at a constant rate.
    #[serde(default)]
    pub paced: Option<PacedResult>,
}

/// One guest's frames between begin and end.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Whether it is a generator.
    pub generator: bool,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames it could not send on.
    pub dropped: u64,
}

/// Reads a task from standard input, and does it.
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

/// Tells the parent.
fn say(event: &Event) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, event)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Waits for the parent's next line.
fn wait_for_word() -> Result<()> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).context("cannot hear the parent")?;
    ensure!(read > 0, "told to stop before the start");
    Ok(())
}
