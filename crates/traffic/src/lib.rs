//! Guests of the lab: a process that hosts one or several guests on one thread.
//!
//! The process reads a [`Task`] as one line of JSON from standard input, attaches, writes
//! [`Event::Ready`] as a line of JSON to standard output, and waits for any line to start. With a
//! [`GuestSpec`] it then runs for `warmup_s`, sends [`Event::Begin`], runs for `seconds`, sends
//! [`Event::End`], stops its generators, waits until no frame moves, and sends [`Event::Result`].
//! The modules document the other tasks.

pub mod adapter;
pub mod contend;
mod forward;
mod generate;
pub mod honest;
mod hosted;
pub mod hostile;
pub mod lane_counts;
mod ledger;
pub mod netns;
pub mod numbered;
pub mod paced;
mod parent;
mod pauses;
pub mod probe;
pub mod protocol;
pub mod reflect;
pub mod relay;
pub mod sockets;
mod tapped;
pub mod turn_counter;

use anyhow::{Context, Result};

pub use forward::Forwarder;
pub use generate::{Generator, GeneratorConfig, IN_FLIGHT, self_test};
pub use generate::{SEQUENCE_AT, frame};
pub use paced::{BurstResult, Latency, PacedResult};
pub use paced::{RETURNED_LATE, histogram, ns_between};
pub use pauses::PAUSE_MIN;
pub use pauses::PausesResult;
pub use protocol::{
    AdapterBackend, Event, GuestCounts, GuestResult, GuestSpec, HostedGuest, Role, TapSpec, Task,
};

/// [`GuestSpec::quiet_s`] for a switch, which delays no frame on purpose.
pub const QUIET_S: f64 = 0.02;

/// Reads a task from standard input, and runs it.
pub fn main() -> Result<()> {
    host::process::end_with_parent(rustix::process::Signal::TERM)?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the task")?;
    match serde_json::from_str(&line).context("not a task")? {
        Task::Guests(spec) => hosted::run(&spec),
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
