//! Guests of the lab: a process of its own that hosts one or several, on one thread.
//!
//! The process reads a [`GuestSpec`] as one line of JSON from standard input, attaches, writes
//! [`Event::Ready`] as a line of JSON to standard output, and waits for a line (any) to go. Then it
//! runs for `warmup_s`, says [`Event::Begin`], runs for `seconds`, says [`Event::End`], stops its
//! generators, waits until no frame moves, and writes [`Event::Result`].

pub mod adapter;
mod forward;
mod generate;
mod hosted;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use forward::Forwarder;
pub use generate::{Generator, IN_FLIGHT, Traffic, self_test};
pub use hosted::run;

/// What a guest process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestSpec {
    /// CPU to run on, if it is to be pinned.
    pub cpu: Option<usize>,
    /// Seconds before the measurement.
    pub warmup_s: f64,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Bytes of the generators' frames, with FCS.
    pub frame_bytes: u32,
    /// Whether the guests' memory is on 2 MiB pages, which must be reserved.
    pub huge_pages: bool,
    /// The guests, which take turns.
    pub guests: Vec<Guest>,
}

/// One guest with one adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Guest {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// What it does.
    pub role: Role,
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
        /// Whether each frame is written before it is sent, and looked at when it is received.
        touch: bool,
    },
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
}

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestResult {
    /// Seconds between begin and end.
    pub seconds: f64,
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

/// Reads a specification from standard input, and runs it.
pub fn main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the specification")?;
    let spec: GuestSpec = serde_json::from_str(&line).context("not a guest specification")?;
    run(&spec)
}
