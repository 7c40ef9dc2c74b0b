//! Limits on the resources that guests and front-ends use: name, value, and effect of each.
//!
//! The one table of them: the counter file takes the names from here, and so do `shunt stats`,
//! events and `docs/limits.md`. Limits of a session are for one vhost-user front-end or vDPA
//! driver; the others are for the daemon as a whole.

use ::port::xdp::PINNED_BYTES_MAX;
use guestmem::guard::MAPPINGS_MAX;
use guestmem::{REGIONS_MAX, guard};
use vhost_user::foreign::WAITING_MAX;

use crate::counters::{CounterBlock, Counters, CountersError};

/// A limit. Its value is its place in [`LIMITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Memory that a session maps.
    SessionMemory,
    /// Memory regions of a session.
    SessionRegions,
    /// Calls of a session's thread that are pending.
    SessionCalls,
    /// Memory of a session that the kernel pins.
    PinnedMemory,
    /// Memory that all sessions map.
    GuestMemory,
    /// Memory that the daemon has touched.
    TouchedMemory,
    /// Mappings of the daemon.
    Mappings,
    /// Open files of the daemon.
    Descriptors,
    /// Threads of the daemon.
    Threads,
}

/// Value of a limit, or its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitValue {
    /// A number.
    Fixed(u64),
    /// A setting of the daemon's file.
    Setting(&'static str),
    /// The smallest of several, among them those of the machine.
    Least(&'static str),
}

/// A limit, with text for operators.
#[derive(Debug)]
pub struct LimitEntry {
    /// The limit.
    pub limit: Limit,
    /// Stable name, as in `/v1/stats`.
    pub name: &'static str,
    /// `true` for the limit of one session.
    pub is_of_session: bool,
    /// Resource that it counts, with its unit.
    pub counts: &'static str,
    /// Its value.
    pub value: LimitValue,
    /// Effect of reaching it.
    pub effect: &'static str,
}

/// Mappings that a session can hold, by construction.
pub const SESSION_MAPPINGS: u64 = guard::SESSION_MAPPINGS_MAX as u64;

/// All limits, those of a session first.
pub static LIMITS: [LimitEntry; 9] = [
    LimitEntry {
        limit: Limit::SessionMemory,
        name: "session_memory",
        is_of_session: true,
        counts: "bytes mapped: guest memory, dirty log, in-flight records",
        value: LimitValue::Setting("limits.session_memory_mib"),
        effect: "the message is refused; a vDPA device does not start",
    },
    LimitEntry {
        limit: Limit::SessionRegions,
        name: "session_regions",
        is_of_session: true,
        counts: "memory regions",
        value: LimitValue::Fixed(REGIONS_MAX as u64),
        effect: "the message is refused; a vDPA device does not start",
    },
    LimitEntry {
        limit: Limit::SessionCalls,
        name: "session_calls",
        is_of_session: true,
        counts: "descriptors to close and memory to unmap that wait for the session's thread",
        value: LimitValue::Fixed(WAITING_MAX as u64),
        effect: "nothing more is received; after 1 s the session ends",
    },
    LimitEntry {
        limit: Limit::PinnedMemory,
        name: "pinned_memory",
        is_of_session: true,
        counts: "bytes that the kernel pins for a steered queue",
        value: LimitValue::Fixed(PINNED_BYTES_MAX),
        effect: "frames are copied, as without a queue; the same with less than twice that free",
    },
    LimitEntry {
        limit: Limit::GuestMemory,
        name: "guest_memory",
        is_of_session: false,
        counts: "bytes mapped by all sessions",
        value: LimitValue::Setting("limits.guest_memory_mib"),
        effect: "the message is refused; a vDPA device does not start",
    },
    LimitEntry {
        limit: Limit::TouchedMemory,
        name: "touched_memory",
        is_of_session: false,
        counts: "bytes of files and guests that are in the daemon's memory",
        value: LimitValue::Least("the machine's memory, and `memory.max` of its cgroups"),
        effect: "the kernel reclaims memory, or ends the daemon",
    },
    LimitEntry {
        limit: Limit::Mappings,
        name: "mappings",
        is_of_session: false,
        counts: "mapped files",
        value: LimitValue::Least("`vm.max_map_count` and 555 904"),
        effect: "the message is refused, also without addresses (`ulimit -v`)",
    },
    LimitEntry {
        limit: Limit::Descriptors,
        name: "descriptors",
        is_of_session: false,
        counts: "open files",
        value: LimitValue::Least("`ulimit -Hn` (`LimitNOFILE=`)"),
        effect: "the front-end is not accepted, or its session ends; others stay",
    },
    LimitEntry {
        limit: Limit::Threads,
        name: "threads",
        is_of_session: false,
        counts: "threads",
        value: LimitValue::Least(
            "`ulimit -u`, `kernel.threads-max`, and `pids.max` (`TasksMax=`) of its cgroups",
        ),
        effect: "the session's descriptors and memory stay until a thread starts",
    },
];

const _: () = assert!(MAPPINGS_MAX == 555_904, "as in the table");

impl Limit {
    /// Its entry in the table.
    pub fn entry(self) -> &'static LimitEntry {
        &LIMITS[self as usize]
    }
}

/// Kind of the counter blocks of limits.
pub(crate) const KIND: &str = "limit";
/// Gauges of such a block: the resource in use (of a session: by the one with the most), and the
/// value of the limit.
pub(crate) const GAUGES: &[&str] = &["used", "allowed"];
const USED: usize = 0;
const ALLOWED: usize = 1;
const REFUSED: usize = 2;

/// Names of the counters of a limit, in order.
pub(crate) fn schema() -> Vec<String> {
    ["used", "allowed", "refused"].map(str::to_owned).to_vec()
}

/// Counters of all limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitCounters([CounterBlock; LIMITS.len()]);

impl LimitCounters {
    pub(crate) fn add(counters: &mut Counters) -> Result<LimitCounters, CountersError> {
        let mut blocks = Vec::new();
        for entry in &LIMITS {
            blocks.push(counters.add(KIND, entry.name)?);
        }
        Ok(LimitCounters(std::array::from_fn(|at| blocks[at])))
    }

    /// Counts that a limit was met.
    pub fn refuse(&self, limit: Limit, times: u64) {
        self.0[limit as usize].add_shared(REFUSED, times);
    }

    /// Shows the use of a resource, and its limit.
    pub fn show(&self, limit: Limit, used: u64, allowed: u64) {
        self.0[limit as usize].set(USED, used);
        self.0[limit as usize].set(ALLOWED, allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_place() {
        for (at, entry) in LIMITS.iter().enumerate() {
            assert_eq!((entry.limit as usize, entry.limit.entry().name), (at, entry.name));
        }
    }
}
