//! File copies as hyperv-2012 measured them: guests on the paths vf and synthetic receive one file
//! from a server beyond the uplink, with CPU by layer.
//!
//! Layers: a guest is its program and its kernel; the daemon's lane is NIC and switch in one
//! thread; the rest is kernel. A guest's kernel receives in the context of the writer to its tap.
//! This part counts as the daemon's system time and the lane's busy cycles, on both paths.
//!
//! Limits: as for transfers, every number is finite and not negative ([`FileCopy::check`]).

use std::fmt;

use model::state::PathInForce;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::list;
use super::names::CopySetup;
use super::pinned::Pinned;
use super::transfer::{Spread, TransferError, check_numbers};

/// One guest's copy of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyGuest {
    /// Path of the guest's adapter.
    #[schemars(with = "String")]
    pub path: PathInForce,
    /// Seconds from the common start to the end of this copy.
    pub seconds: Spread,
    /// Gbit/s of payload in that time.
    pub gbps: Spread,
    /// Cores in use in user space in that time; read in ticks of 10 ms.
    pub user_cores: Spread,
    /// Cores in use in the kernel in that time, in the context of the guest's program; in ticks of
    /// 10 ms.
    pub system_cores: Spread,
    /// CPU seconds of the guest's program, user and system, for each GiB received; exact.
    pub cpu_s_per_gib: Spread,
    /// Bytes received in each round.
    pub bytes: u64,
    /// Checksum of the received file, equal in all rounds.
    pub checksum: String,
}

/// CPU of the layers that all copies share, from the common start to the end of the last copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyHost {
    /// Cores of the server's program in user space.
    pub server_user_cores: Spread,
    /// Cores of the server's program and kernel.
    pub server_system_cores: Spread,
    /// Cores of the daemon in user space; a pinned lane polls and uses a whole core.
    pub daemon_user_cores: Spread,
    /// Cores of the daemon in the kernel: tap reads and writes, and the receive work of guests'
    /// kernels.
    pub daemon_system_cores: Spread,
    /// Share (0 to 1) of the lane's cycles with frames.
    pub lane_busy_share: Spread,
    /// Service demand of the lane: its busy time-stamp cycles for each KiB that guests received,
    /// including system calls.
    pub lane_cycles_per_kib: Spread,
    /// Cores in soft interrupts of the whole machine, as far as the kernel accounts for them.
    pub softirq_cores: Spread,
}

/// One setup: its guests, and the layers they share. Spreads are minimum, median and maximum of the
/// rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileCopy {
    /// All guests at once, or one alone.
    pub setup: CopySetup,
    /// MiB of the file.
    pub file_mib: u32,
    /// Checksum of the file, as the server made it.
    pub checksum: String,
    /// Rounds.
    pub rounds: u32,
    /// Seconds from the common start to the end of the last copy.
    pub seconds: Spread,
    /// Gbit/s of payload of all guests in that time.
    pub gbps: Spread,
    /// The guests, grouped by path.
    pub guests: Vec<CopyGuest>,
    /// The layers that they share.
    pub host: CopyHost,
    /// CPUs of the lane (`switch`), the guests, and the server (`generator`).
    pub pinned: Pinned,
}

/// A field of a guest with a spread.
type GuestSpread = (SpreadNames, fn(&CopyGuest) -> Spread);
/// A field of a file copy with a spread.
type CopySpread = (SpreadNames, fn(&FileCopy) -> Spread);
/// Names of a field's minimum, median and maximum, as in CSV and in errors.
pub(super) type SpreadNames = [&'static str; 3];

/// The three names of a field.
macro_rules! spread {
    ($name:literal) => {
        [concat!($name, "_least"), $name, concat!($name, "_most")]
    };
}

/// All spreads of a guest.
pub(super) const GUEST_SPREADS: [GuestSpread; 5] = [
    (spread!("guest.seconds"), |guest| guest.seconds),
    (spread!("guest.gbps"), |guest| guest.gbps),
    (spread!("guest.user_cores"), |guest| guest.user_cores),
    (spread!("guest.system_cores"), |guest| guest.system_cores),
    (spread!("guest.cpu_s_per_gib"), |guest| guest.cpu_s_per_gib),
];

/// All spreads of the shared layers.
pub(super) const COPY_SPREADS: [CopySpread; 9] = [
    (spread!("seconds"), |copy| copy.seconds),
    (spread!("gbps"), |copy| copy.gbps),
    (spread!("host.server_user_cores"), |copy| copy.host.server_user_cores),
    (spread!("host.server_system_cores"), |copy| copy.host.server_system_cores),
    (spread!("host.daemon_user_cores"), |copy| copy.host.daemon_user_cores),
    (spread!("host.daemon_system_cores"), |copy| copy.host.daemon_system_cores),
    (spread!("host.lane_busy_share"), |copy| copy.host.lane_busy_share),
    (spread!("host.lane_cycles_per_kib"), |copy| copy.host.lane_cycles_per_kib),
    (spread!("host.softirq_cores"), |copy| copy.host.softirq_cores),
];

impl FileCopy {
    /// The paths of its guests, each once: `vf and synthetic`.
    pub fn paths(&self) -> String {
        let mut paths: Vec<String> = Vec::new();
        for path in self.guests.iter().map(|guest| guest.path.to_string()) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        list(&paths)
    }

    /// Setup and number of guests: `4 together`.
    pub fn what(&self) -> String {
        format!("{} {}", self.guests.len(), self.setup)
    }

    /// Short name of the setup: `4 together`, `1 on vf`.
    pub fn label(&self) -> String {
        match self.setup {
            CopySetup::Together => self.what(),
            CopySetup::Alone => format!("{} on {}", self.guests.len(), self.paths()),
        }
    }

    /// Checks that every number is valid.
    ///
    /// # Errors
    /// The first field that is not finite or negative.
    pub fn check(&self) -> Result<(), TransferError> {
        check_numbers(self, &self.numbers())
    }

    /// Every fractional number with its name.
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let of_copy = COPY_SPREADS.iter().map(|(names, of)| (names, of(self)));
        let of_guests = self
            .guests
            .iter()
            .flat_map(|guest| GUEST_SPREADS.iter().map(move |(names, of)| (names, of(guest))));
        let named = |(names, values): (&SpreadNames, Spread)| {
            names.map(|name| name).into_iter().zip(values)
        };
        of_copy.chain(of_guests).flat_map(named).collect()
    }
}

/// Groups copies by file size; a run measures a size's copies in a row.
pub(super) fn by_size(copies: &[FileCopy]) -> impl Iterator<Item = &[FileCopy]> {
    copies.chunk_by(|a, b| a.file_mib == b.file_mib)
}

impl fmt::Display for FileCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file copy, {} MiB, {} on {}", self.file_mib, self.what(), self.paths())
    }
}
