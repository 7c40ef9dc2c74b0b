//! Fuzz targets: functions that take an input and panic if a promise is broken.
//!
//! # Model
//! Most inputs are sequences of acts, nearly right so that they get past the first checks; the
//! input also decides how often they are wrong. The code under test acts in between, and after each
//! act its promises are asserted. [`TARGETS`] lists all. Two programs run them:
//! - `src/bin/libfuzzer.rs`: libFuzzer, guided by coverage; `fuzz/run` builds and starts it;
//! - `tests/replay.rs`: a test, which replays the inputs in `corpus` and variations of them.
//!
//! # Limits
//! One thread: the hostile side acts between two acts of ours, never during one.

mod api_server;
mod classifier;
mod connection;
mod device;
mod documents;
mod driver;
mod guest;
mod handover;
mod input;
mod kernel_port;
mod launcher;
mod log;
mod messages;
mod pcap;
mod ports;
mod qmp;
mod segments;
mod session;
mod stream;
mod vxlan;

use std::collections::BTreeMap;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its directory in `corpus`.
    pub name: &'static str,
    /// Runs one input. Panics if a promise is broken.
    pub run: fn(&[u8]) -> Reached,
    /// Places that the inputs in `corpus` reach. Inputs that stay shallow find nothing.
    pub reaches: &'static [&'static str],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "device_ring", run: device::device_ring, reaches: &RINGS },
    Target {
        name: "driver_ring",
        run: driver::driver_ring,
        reaches: &["buffers", "buffers in pieces", "done", "refused"],
    },
    Target { name: "port_rings", run: ports::port_rings, reaches: &RINGS },
    Target {
        name: "logged_rings",
        run: log::logged_rings,
        reaches: &["buffers", "done", "logged pages"],
    },
    Target {
        name: "messages",
        run: messages::messages,
        reaches: &["rings started", "descriptors replaced", "resets", "hot restarts"],
    },
    Target { name: "frames", run: messages::frames, reaches: &["messages"] },
    Target {
        name: "session",
        run: session::session,
        reaches: &["messages", "frames sent", "frames received", "ended by the daemon"],
    },
    Target {
        name: "stream",
        run: stream::stream,
        reaches: &["frames", "malformed", "disconnected"],
    },
    Target {
        name: "vxlan",
        run: vxlan::vxlan,
        reaches: &["frames", "malformed", "states taken over"],
    },
    Target {
        name: "pcap",
        run: pcap::pcap,
        reaches: &["captures", "rejected", "frames", "states taken over"],
    },
    Target {
        name: "segments",
        run: segments::segments,
        reaches: &["refused", "segmented", "summed"],
    },
    Target {
        name: "classifier",
        run: classifier::classifier,
        reaches: &["duplicate addresses", "dropped", "flooded", "forwarded", "edited"],
    },
    Target {
        name: "qmp",
        run: qmp::qmp,
        reaches: &["not connected", "answers", "refusals", "events"],
    },
    Target { name: "agent", run: qmp::agent, reaches: &["connected", "commands"] },
    Target { name: "channel", run: api_server::channel, reaches: &["results", "errors"] },
    Target { name: "http", run: api_server::http, reaches: &["accepted", "rejected"] },
    Target {
        name: "connection",
        run: connection::connection,
        reaches: &["accepted", "rejected", "several requests", "pieces"],
    },
    Target {
        name: "documents",
        run: documents::documents,
        reaches: &["JSON", "files", "documents", "rejected", "compiled"],
    },
    Target { name: "handover", run: handover::handover, reaches: &["messages"] },
    Target {
        name: "launcher",
        run: launcher::launcher,
        reaches: &["malformed", "unknown", "refused", "accepted"],
    },
];

/// Buffers, and each fault of a ring; no file is truncated.
const RINGS: [&str; 10] = [
    "buffers",
    "buffers in pieces",
    "done",
    "index_jump",
    "bad_index",
    "chain_too_long",
    "chain_too_large",
    "outside_memory",
    "wrong_direction",
    "bad_indirect",
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}

/// Places that inputs reached, and how often.
#[derive(Clone, Debug, Default)]
pub struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    /// Counts `times` at a place.
    pub(crate) fn add(&mut self, place: &'static str, times: u64) {
        *self.0.entry(place).or_default() += times;
    }

    /// Adds the counts of another input.
    pub fn merge(&mut self, other: &Reached) {
        for (place, times) in &other.0 {
            self.add(place, *times);
        }
    }

    /// Number of times that a place was reached.
    pub fn times(&self, place: &str) -> u64 {
        self.0.get(place).copied().unwrap_or(0)
    }
}
