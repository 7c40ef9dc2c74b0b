//! Measurements over the sockets of guests' kernels: TCP and UDP in bulk, and UDP request and
//! response.
//!
//! Limits: as for points, every number is finite and not negative ([`Transfer::check`]).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::{Bottleneck, PathKind, Pattern, SocketWorkload};
use super::pinned::Pinned;

/// Minimum, median and maximum of the rounds.
pub type Spread = [f64; 3];

/// Cores in use during the measurement, by layer; from the median round. Kernel work counts for the
/// running context: a guest's kernel receives in the context of the writer to its tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerCpu {
    /// The guest's program, in user space.
    pub guest_user_cores: f64,
    /// The guest's program and kernel.
    pub guest_system_cores: f64,
    /// The other end's program, in user space.
    pub far_user_cores: f64,
    /// The other end's program and kernel.
    pub far_system_cores: f64,
    /// Carrier of the frames, in user space: the daemon, or on the path virtio the relays.
    pub carrier_user_cores: f64,
    /// Carrier of the frames, in the kernel; on the path virtio with the bridge.
    pub carrier_system_cores: f64,
    /// Share of a polling lane's cycles that moved frames.
    pub carrier_busy_share: Option<f64>,
    /// Soft interrupts of the machine, part of the above, as far as the kernel accounts for them.
    pub softirq_cores: f64,
}

impl LayerCpu {
    /// Both ends.
    pub fn ends_cores(&self) -> f64 {
        self.guest_user_cores
            + self.guest_system_cores
            + self.far_user_cores
            + self.far_system_cores
    }

    /// Carrier of the frames.
    pub fn carrier_cores(&self) -> f64 {
        self.carrier_user_cores + self.carrier_system_cores
    }
}

/// Microseconds from a request to its response; each the median of the rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundTrip {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Answered requests per second.
    pub per_s: f64,
}

/// One measurement: traffic of one kind over one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// Name of the experiment.
    pub experiment: String,
    /// Kind of traffic.
    pub workload: SocketWorkload,
    /// Ends: north/south, a guest and the external machine; east/west, two guests.
    pub pattern: Pattern,
    /// Measured path.
    pub path: PathKind,
    /// Connections, or sockets.
    pub streams: u32,
    /// Bytes of each write, or payload of each datagram.
    pub send_bytes: u32,
    /// Requested KiB of each socket's buffers; `None`: the kernel's default.
    pub buffer_kib: Option<u32>,
    /// KiB of the receiver's buffer at the end, as the kernel counts them, including its overhead.
    pub granted_kib: Option<u32>,
    /// Seconds of each measurement, without warm-up and cool-down.
    pub seconds: f64,
    /// Number of measurements.
    pub rounds: u32,
    /// Gbit/s of payload read by the receiver's program; `None` for requests.
    pub gbps: Option<Spread>,
    /// Share of sent datagrams that were not received, in the median round.
    pub lost_share: Option<f64>,
    /// Round trip of requests.
    pub round_trip: Option<RoundTrip>,
    /// Result of both ends over one kernel's loopback in this run: Gbit/s, or for requests the
    /// median round trip in microseconds.
    pub limit: f64,
    /// Published result of the paper in the same unit: Gbit/s, or for requests the 99th percentile
    /// in us.
    #[serde(default)]
    pub published: Option<f64>,
    /// Bottleneck.
    pub bottleneck: Bottleneck,
    /// CPU by layer.
    pub cpu: LayerCpu,
    /// CPUs of the carrier (`switch`) and of both ends (`guests`, `generator`).
    pub pinned: Pinned,
}

/// Invalid number in a transfer or a file copy: a bug of the program.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}: {field} is {value}, an impossible measurement; please report this bug")]
pub struct TransferError {
    /// The measurement.
    pub what: String,
    /// The field, as in JSON.
    pub field: &'static str,
    /// Its value.
    pub value: f64,
}

impl Transfer {
    /// Median Gbit/s; 0 for requests.
    pub fn gbps_median(&self) -> f64 {
        self.gbps.map_or(0.0, |[_, median, _]| median)
    }

    /// `true` if the ends were the bottleneck, so that the result is a lower bound for the path.
    pub fn is_lower_bound(&self) -> bool {
        self.bottleneck == Bottleneck::Generator
    }

    /// Text that identifies the traffic within a pattern, for a comparison of paths.
    pub fn what(&self) -> String {
        let word = match self.workload {
            SocketWorkload::TcpStream => "",
            SocketWorkload::UdpTransmit => "tx ",
            SocketWorkload::UdpReceive => "rx ",
            SocketWorkload::UdpRequest => "request ",
        };
        let buffers = self.buffer_kib.map(|kib| format!(", {} buffers", bytes(kib << 10)));
        let (streams, sent) = (self.streams, bytes(self.send_bytes));
        format!("{word}{streams} x {sent}{}", buffers.unwrap_or_default())
    }

    /// Checks that every number is valid.
    ///
    /// # Errors
    /// The first field that is not finite or negative.
    pub fn check(&self) -> Result<(), TransferError> {
        check_numbers(self, &self.numbers())
    }

    /// Every fractional number with its name in JSON; `None` is left out.
    pub(super) fn numbers(&self) -> Vec<(&'static str, f64)> {
        let cpu = &self.cpu;
        let mut all = vec![
            ("seconds", self.seconds),
            ("limit", self.limit),
            ("cpu.guest_user_cores", cpu.guest_user_cores),
            ("cpu.guest_system_cores", cpu.guest_system_cores),
            ("cpu.far_user_cores", cpu.far_user_cores),
            ("cpu.far_system_cores", cpu.far_system_cores),
            ("cpu.carrier_user_cores", cpu.carrier_user_cores),
            ("cpu.carrier_system_cores", cpu.carrier_system_cores),
            ("cpu.softirq_cores", cpu.softirq_cores),
        ];
        all.extend(cpu.carrier_busy_share.map(|share| ("cpu.carrier_busy_share", share)));
        if let Some([least, median, most]) = self.gbps {
            all.extend([("gbps_least", least), ("gbps", median), ("gbps_most", most)]);
        }
        all.extend(self.lost_share.map(|share| ("lost_share", share)));
        if let Some(trip) = self.round_trip {
            all.extend([
                ("round_trip.p50_us", trip.p50_us),
                ("round_trip.p99_us", trip.p99_us),
                ("round_trip.p999_us", trip.p999_us),
                ("round_trip.max_us", trip.max_us),
                ("round_trip.per_s", trip.per_s),
            ]);
        }
        all
    }
}

/// A number of bytes in the largest exact unit.
fn bytes(bytes: u32) -> String {
    match bytes {
        mib if mib >= 1 << 20 && mib % (1 << 20) == 0 => format!("{} MiB", mib >> 20),
        kib if kib >= 1 << 10 && kib % (1 << 10) == 0 => format!("{} KiB", kib >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Checks that every number is finite and not negative.
pub(super) fn check_numbers(
    what: &impl fmt::Display,
    numbers: &[(&'static str, f64)],
) -> Result<(), TransferError> {
    match numbers.iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
        None => Ok(()),
        Some(&(field, value)) => Err(TransferError { what: what.to_string(), field, value }),
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}, {}", self.experiment, self.pattern, self.path, self.what())
    }
}
