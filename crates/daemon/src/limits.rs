//! Limits of the process: what a document can need, what the machine allows, and what is in use.
//!
//! A document is rejected if its ports alone need more than there is. If only hostile or very large
//! guests could need more, the daemon warns: one of them can then keep others from attaching.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::{EventKind, Events};
use engine::limits::{Limit, LimitCounters, LimitValue, SESSION_MAPPINGS};
use guestmem::{Quota, guard};
use model::state::{Attachment, Problem, Problems, SocketMode, State};
use rustix::process::{Resource, getrlimit};
use vhost_user::foreign::{UNUSED_MAX, WAITING_MAX};
use vhost_user::message::FDS_MAX;

use super::data_plane::wanted_ports;
use super::faults::POLL_INTERVAL;
use super::port_spec::PortSpec;

/// Open files of a session without those of rings: listener, connection, memory regions, a
/// message's descriptors, dirty log, in-flight records and their file, back-end channel, device
/// state.
const SESSION_FILES: u64 = 2 + (guestmem::REGIONS_MAX + FDS_MAX) as u64 + 5;
/// Eventfds of a queue pair: kick, call and err of two rings.
const PAIR_FILES: u64 = 6;
/// Time between two reads of the limits, which an operator may change.
const REREAD: Duration = Duration::from_secs(60);

/// Resources of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amounts {
    descriptors: u64,
    mappings: u64,
    threads: u64,
}

/// The daemon without lanes and ports: at least, and with all connections of the API.
const DAEMON: [Amounts; 2] = [
    Amounts { descriptors: 16, mappings: 64, threads: 6 },
    Amounts { descriptors: 1024, mappings: 512, threads: 128 },
];
/// A lane: epoll, eventfd, timer and the thread's times; stacks of the thread and of its signals
/// with their guard pages, and its heap, six; and two to spare.
const LANE: Amounts = Amounts { descriptors: 4, mappings: 8, threads: 1 };
/// The channel of a guest that sets its VFs: at least, and with the most hostile VMM.
const CHANNEL: [Amounts; 2] = [
    Amounts { descriptors: 1, mappings: 0, threads: 0 },
    Amounts { descriptors: 2 + UNUSED_MAX as u64, mappings: 0, threads: 1 },
];

impl Amounts {
    /// Resources of a port: at least, and with the largest or most hostile guest.
    fn of(spec: &PortSpec) -> [Amounts; 2] {
        let pairs = u64::from(spec.queue_pairs());
        let guest = |least, files| {
            [least, Amounts { descriptors: files, mappings: SESSION_MAPPINGS, threads: 1 }]
        };
        match spec {
            PortSpec::Attachment(Attachment::VhostUser(socket)) => {
                let listener = u64::from(socket.mode == SocketMode::Server);
                let least = Amounts { descriptors: listener, mappings: 0, threads: 0 };
                guest(least, SESSION_FILES + UNUSED_MAX as u64 + PAIR_FILES * pairs)
            }
            PortSpec::Attachment(Attachment::Vduse(_)) => {
                let least = Amounts { descriptors: 1, mappings: 0, threads: 1 };
                guest(least, SESSION_FILES + WAITING_MAX as u64)
            }
            // Epoll, listener, a connection, and two that a half still uses.
            PortSpec::Attachment(Attachment::Stream(_)) => {
                let least = Amounts { descriptors: 1, mappings: 0, threads: 0 };
                [least, Amounts { descriptors: 5 + UNUSED_MAX as u64, mappings: 2, threads: 1 }]
            }
            _ => {
                let most = Amounts { descriptors: 4 * pairs, mappings: 2 * pairs, threads: 1 };
                [Amounts { descriptors: 1, mappings: 0, threads: 0 }, most]
            }
        }
    }

    /// The limits of this process.
    pub(super) fn allowed() -> Amounts {
        let number =
            |path: &str| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
        let all = |limits: &[Option<u64>]| limits.iter().flatten().min().copied();
        // The kernel does not count threads of root.
        let of_user = getrlimit(Resource::Nproc).current;
        let of_user = of_user.filter(|_| !rustix::process::getuid().is_root());
        let pids = of_cgroups("pids.max").min();
        let threads = [of_user, number("/proc/sys/kernel/threads-max"), pids];
        let mappings = [number("/proc/sys/vm/max_map_count"), Some(guard::MAPPINGS_MAX as u64)];
        Amounts {
            // The daemon raises its soft limit.
            descriptors: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            mappings: all(&mappings).unwrap_or(u64::MAX),
            threads: all(&threads).unwrap_or(u64::MAX),
        }
    }

    fn plus(self, other: Amounts) -> Amounts {
        self.plus_times(1, other)
    }

    fn plus_times(self, times: u64, other: Amounts) -> Amounts {
        Amounts {
            descriptors: self.descriptors + times * other.descriptors,
            mappings: self.mappings + times * other.mappings,
            threads: self.threads + times * other.threads,
        }
    }

    /// Amounts that exceed others, with those, and the limit.
    fn beyond(self, allowed: Amounts) -> Vec<(Limit, u64, u64)> {
        let all = [
            (Limit::Descriptors, self.descriptors, allowed.descriptors),
            (Limit::Mappings, self.mappings, allowed.mappings),
            (Limit::Threads, self.threads, allowed.threads),
        ];
        all.into_iter().filter(|(_, need, most)| need > most).collect()
    }
}

/// Directories of the process's cgroup and of those above it.
fn cgroups() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = text.lines().find_map(|line| line.strip_prefix("0::/")).map(Path::new);
    let groups = path.into_iter().flat_map(Path::ancestors);
    groups.map(|group| Path::new("/sys/fs/cgroup").join(group)).collect()
}

/// Limits in a file of these cgroups.
fn of_cgroups(file: &str) -> impl Iterator<Item = u64> {
    let number = move |group: PathBuf| -> Option<u64> {
        std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
    };
    cgroups().into_iter().filter_map(number)
}

/// Most bytes of memory that the process may have.
fn memory_max() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    of_cgroups("memory.max").fold(number_after(&machine, "MemTotal:") << 10, u64::min)
}

/// Times that the process's own cgroup has met its `memory.max`.
fn memory_met() -> u64 {
    let events = cgroups().first().map(|group| group.join("memory.events"));
    let events = events.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    number_after(&events, "max")
}

/// The number in the line that begins with a name; 0 if there is none.
fn number_after(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().map(str::split_whitespace);
    let line = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words));
    line.and_then(|mut words| words.next()?.parse().ok()).unwrap_or(0)
}

/// Remedy for too little of a resource.
fn remedy(limit: Limit, need: u64) -> String {
    let raise = match limit {
        Limit::Mappings => format!("sysctl vm.max_map_count={need}"),
        Limit::Threads => format!("raise ulimit -u and TasksMax= to {need}"),
        _ => format!("raise ulimit -Hn (LimitNOFILE=) to {need}"),
    };
    format!("{raise}, or use fewer ports")
}

/// Checks the sum over the lanes and all ports and channels; returns a warning for each limit that
/// guests could exceed.
///
/// # Errors
/// More is needed than is allowed, whatever the guests do.
pub(super) fn check(
    state: &State,
    lanes: usize,
    allowed: Amounts,
) -> Result<Vec<(Limit, String)>, Problems> {
    let channels = state.vpfs.iter().enumerate().filter(|(_, vpf)| vpf.control.is_some());
    let channels = channels.map(|(i, _)| (format!("vpf[{i}].control"), CHANNEL));
    let ports = wanted_ports(state).into_iter().map(|want| (want.field, Amounts::of(&want.spec)));
    let [mut least, mut most] = DAEMON.map(|daemon| daemon.plus_times(lanes as u64, LANE));
    let mut exceeding: Vec<(Limit, String)> = Vec::new();
    for (path, [at_least, at_most]) in ports.chain(channels) {
        (least, most) = (least.plus(at_least), most.plus(at_most));
        for (limit, ..) in least.beyond(allowed) {
            if exceeding.iter().all(|(known, _)| *known != limit) {
                exceeding.push((limit, path.clone()));
            }
        }
    }
    let mut problems = Problems::default();
    for (limit, need, has) in least.beyond(allowed) {
        let path = exceeding.iter().find(|(known, _)| *known == limit);
        let path = path.map_or("", |(_, path)| path);
        let counts = limit.entry().counts;
        let error = format!(
            "cannot be served: lanes and all ports need at least {need} {counts}, the daemon may \
             have {has}"
        );
        problems.push(Problem::new(path, (), error, remedy(limit, need)));
    }
    let warn = |(limit, need, has): (Limit, u64, u64)| {
        let (counts, remedy) = (limit.entry().counts, remedy(limit, need));
        let text = format!(
            "guests of all ports together can make the daemon need {need} {counts}, and it may \
             have {has}: then one of them can keep others from attaching; {remedy}"
        );
        (limit, text)
    };
    problems.or(most.beyond(allowed).into_iter().map(warn).collect())
}

/// Use of resources by the session that uses the most of each.
#[derive(Debug, Default)]
pub(super) struct LargestSession {
    pub(super) regions: usize,
    pub(super) calls: usize,
    pub(super) pinned_bytes: u64,
}

/// Shows in the counters what is in use.
#[derive(Debug, Default)]
pub(super) struct LimitGauges {
    next: Option<Instant>,
    /// Limits as last read, with that of memory, and the time of the next read.
    allowed: Option<((Amounts, u64), Instant)>,
    /// Times that the limit of memory was met, as last read.
    memory_met: Option<u64>,
}

impl LimitGauges {
    /// Returns `true` if an update is due.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_none_or(|next| now >= next);
        if is_due {
            self.next = Some(now + POLL_INTERVAL);
        }
        is_due
    }

    /// The limits as read by `read` within [`REREAD`]: they change rarely, and are in several
    /// files.
    fn allowed(&mut self, now: Instant, read: impl FnOnce() -> (Amounts, u64)) -> (Amounts, u64) {
        let known = self.allowed.filter(|(_, until)| now < *until);
        self.allowed.insert(known.unwrap_or_else(|| (read(), now + REREAD))).0
    }

    /// Updates the gauges, and counts limits that only the kernel sees met.
    pub(super) fn update(
        &mut self,
        counters: LimitCounters,
        quota: &Quota,
        largest: &LargestSession,
        events: &Events,
        now: Instant,
    ) {
        let show = |limit: Limit, used: u64| {
            let LimitValue::Fixed(allowed) = limit.entry().value else { return };
            counters.show(limit, used, allowed);
        };
        show(Limit::SessionRegions, largest.regions as u64);
        show(Limit::SessionCalls, largest.calls as u64);
        show(Limit::PinnedMemory, largest.pinned_bytes);
        let ([session, all], [session_max, all_max]) = (quota.mapped(), quota.limits());
        counters.show(Limit::SessionMemory, session, session_max);
        counters.show(Limit::GuestMemory, all, all_max);
        let (allowed, memory) = self.allowed(now, || (Amounts::allowed(), memory_max()));
        counters.show(Limit::Mappings, guard::mappings() as u64, allowed.mappings);
        counters.show(Limit::Descriptors, open_files(), allowed.descriptors);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        counters.show(Limit::Threads, number_after(&status, "Threads:"), allowed.threads);
        let touched = ["RssFile:", "RssShmem:"].map(|name| number_after(&status, name));
        counters.show(Limit::TouchedMemory, touched.iter().sum::<u64>() << 10, memory);
        let met = memory_met();
        let before = self.memory_met.replace(met).unwrap_or(met);
        if met > before {
            counters.refuse(Limit::TouchedMemory, met - before);
            let entry = Limit::TouchedMemory.entry();
            let text = format!("met its limit {}: {}", entry.name, entry.effect);
            events.caused(EventKind::Limit, "daemon".to_owned(), text, now);
        }
    }
}

/// Open files of this process; 0 before Linux 6.2.
fn open_files() -> u64 {
    std::fs::metadata("/proc/self/fd").map_or(0, |directory| directory.len())
}

#[cfg(test)]
mod tests;
