//! What was measured over the sockets of guests' kernels: TCP and UDP in bulk, and UDP request and
//! response.
//!
//! Limits: as for points, every number is finite and not negative ([`Transfer::check`]).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::{Bottleneck, PathKind, Pattern, Workload};

/// Least, median and most of the rounds.
pub type Spread = [f64; 3];

/// Cores in use while it was measured, by layer; the median round's. What a kernel does for a frame
/// is accounted to whoever runs it then: a guest's kernel receives in the context of what writes to
/// its tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Layers {
    /// The guest's program, in user space.
    pub guest_user_cores: f64,
    /// The guest's program and kernel.
    pub guest_system_cores: f64,
    /// The other end's program, in user space.
    pub far_user_cores: f64,
    /// The other end's program and kernel.
    pub far_system_cores: f64,
    /// What carries the frames, in user space: the daemon, or on the path virtio the relays.
    pub carrier_user_cores: f64,
    /// What carries the frames, in the kernel; on the path virtio with the bridge.
    pub carrier_system_cores: f64,
    /// Of a polling lane, the share of its cycles that moved frames.
    pub carrier_busy_share: Option<f64>,
    /// Of all this, the machine's soft interrupts, as far as the kernel tells them apart.
    pub softirq_cores: f64,
}

impl Layers {
    /// Both ends.
    pub fn ends_cores(&self) -> f64 {
        self.guest_user_cores
            + self.guest_system_cores
            + self.far_user_cores
            + self.far_system_cores
    }

    /// What carries the frames.
    pub fn carrier_cores(&self) -> f64 {
        self.carrier_user_cores + self.carrier_system_cores
    }
}

/// Microseconds from a request to its answer; each the median of the rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundTrip {
    /// Half of them.
    pub p50_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// 99.9 % of them.
    pub p999_us: f64,
    /// The longest one.
    pub max_us: f64,
    /// Requests a second that were answered.
    pub per_s: f64,
}

/// One measurement: traffic of one kind over one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// Name of the experiment.
    pub experiment: String,
    /// The traffic.
    pub workload: Workload,
    /// Between whom: north/south, a guest and the external machine; east/west, two guests.
    pub pattern: Pattern,
    /// The path under measurement.
    pub path: PathKind,
    /// Connections, or sockets.
    pub streams: u32,
    /// Bytes of each write, or payload of each datagram.
    pub send_bytes: u32,
    /// KiB asked for each socket's buffers; `None`: what the kernel gives.
    pub buffer_kib: Option<u32>,
    /// KiB of the receiver's buffer at the end, as the kernel counts them, its own overhead
    /// included.
    pub granted_kib: Option<u32>,
    /// Seconds of each measurement, without warm-up and cool-down.
    pub seconds: f64,
    /// How often it was measured.
    pub rounds: u32,
    /// Gigabits a second of payload that the receiver's program read; of requests, `None`.
    pub gbps: Option<Spread>,
    /// Share of the datagrams that were sent and not received, in the median round.
    pub lost_share: Option<f64>,
    /// Of requests.
    pub round_trip: Option<RoundTrip>,
    /// What both ends do with nothing between them, over one kernel's loopback, in this run:
    /// gigabits a second; of requests, the median round trip in microseconds.
    pub limit: f64,
    /// What the paper published for it, in the same unit: Gbit/s, or of requests the 99th
    /// percentile in us.
    #[serde(default)]
    pub published: Option<f64>,
    /// Who limited it.
    pub bottleneck: Bottleneck,
    /// CPU by layer.
    pub cpu: Layers,
    /// The CPUs of what carries the frames (`switch`) and of both ends (`guests`, `generator`).
    pub pinned: super::Pinned,
}

/// A number in a transfer or a file copy that cannot be: a mistake of the program, not of the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}: {field} is {value}, which no measurement can give; please report it")]
pub struct TransferError {
    /// Which measurement.
    pub what: String,
    /// The field, as in JSON.
    pub field: &'static str,
    /// What it holds.
    pub value: f64,
}

impl Transfer {
    /// Median gigabits a second; 0 of requests.
    pub fn gbps_median(&self) -> f64 {
        self.gbps.map_or(0.0, |[_, median, _]| median)
    }

    /// Whether both ends were the limit, so that the figure is a lower bound of what the path can
    /// do.
    pub fn is_lower_bound(&self) -> bool {
        self.bottleneck == Bottleneck::Generator
    }

    /// What is compared over paths: all that tells traffic of one pattern apart, as words.
    pub fn what(&self) -> String {
        let word = match self.workload {
            Workload::TcpStream => "",
            Workload::UdpTransmit => "tx ",
            Workload::UdpReceive => "rx ",
            Workload::UdpRequest => "request ",
        };
        let buffers = self.buffer_kib.map(|kib| format!(", {} buffers", bytes(kib << 10)));
        let (streams, sent) = (self.streams, bytes(self.send_bytes));
        format!("{word}{streams} x {sent}{}", buffers.unwrap_or_default())
    }

    /// Checks that every number can be one.
    ///
    /// # Errors
    /// The first field that is not finite or negative.
    pub fn check(&self) -> Result<(), TransferError> {
        check_numbers(self, &self.numbers())
    }

    /// Every fractional number with its name in JSON; what is `None` is left out.
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

/// A number of bytes in the largest unit that leaves no rest.
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
