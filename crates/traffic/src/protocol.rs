//! Messages between the lab and a guest process: tasks, events and results, as lines of JSON.

pub mod contend;
pub mod honest;
pub mod hostile;
pub mod numbered;
pub mod probe;
pub mod reflect;
pub mod relay;
pub mod sockets;

use std::path::PathBuf;

use report::{GeneratorLoad, RingKind};
use serde::{Deserialize, Serialize};

use crate::paced::PacedResult;

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
    pub guests: Vec<HostedGuest>,
}

/// One guest with one adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostedGuest {
    /// Backend of the adapter.
    pub place: AdapterBackend,
    /// Work of the guest.
    pub role: Role,
}

/// Backend of a guest's adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdapterBackend {
    /// A vhost-user socket of the daemon.
    Socket(PathBuf),
    /// A tap that this process makes.
    Tap(TapSpec),
}

/// A tap to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TapSpec {
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
    /// End of a span of [`Task::Numbered`].
    Marked(numbered::Mark),
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
    Received(sockets::BulkResult),
    /// Result of a requester in [`Task::Sockets`].
    Asked(sockets::RoundTripResult),
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
    pub guests: Vec<GuestCounts>,
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
pub struct GuestCounts {
    /// `true` for a generator.
    pub generator: bool,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames it could not forward.
    pub dropped: u64,
}
