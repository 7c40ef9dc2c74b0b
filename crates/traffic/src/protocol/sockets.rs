//! Traffic over sockets: task and results.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// One end of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Network namespace to run in.
    pub room: NetNamespace,
    /// Role of this end.
    pub part: SocketRole,
    /// Traffic settings.
    pub load: SocketLoad,
}

/// Network namespace of an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetNamespace {
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
pub enum SocketRole {
    /// Sends to this address until it is killed.
    Send(Ipv4Addr),
    /// Receives and measures.
    Receive(RunTimes),
    /// Sends a datagram, waits for the answer, repeats, and measures.
    Ask(Ipv4Addr, RunTimes),
    /// Returns each datagram until it is killed.
    Answer,
    /// Sends the same file of so many MiB to one client per stream, all at once.
    Serve(u32),
    /// Receives the file of the server at this address.
    Fetch(Ipv4Addr),
}

/// Seconds before, during and after the measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RunTimes {
    /// Warm-up: windows and buffers grow.
    pub warmup_s: f64,
    /// Measurement.
    pub seconds: f64,
    /// Cool-down, with the traffic still running.
    pub cooldown_s: f64,
}

/// Settings of socket traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketLoad {
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
pub struct BulkResult {
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

/// Result of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTripResult {
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Answered requests.
    pub answered: u64,
    /// Requests without an answer within 250 ms.
    pub lost: u64,
    /// Median round trip, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// Longest round trip, in microseconds.
    pub max_us: f64,
}

/// Result of a server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Common start of all copies, nanoseconds of the monotonic clock.
    pub started_ns: u64,
    /// Checksum of the file.
    pub checksum: u64,
}

/// Result of a client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fetched {
    /// End of the copy, nanoseconds of the monotonic clock, which all processes share.
    pub ended_ns: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Checksum of the received bytes.
    pub checksum: u64,
    /// CPU seconds of this process during the copy, user and system, as the scheduler counts them.
    pub cpu_s: f64,
}
