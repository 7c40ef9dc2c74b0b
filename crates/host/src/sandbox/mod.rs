//! Sandbox of the daemon: rights, system calls and files of its threads.
//!
//! # Model
//! Called once, before other threads are started, [`drop_capabilities`] gives up all rights, and
//! [`confine_calls`] restricts the process to the system calls of a table ([`table`]). A lane calls
//! [`confine_lane`] when it begins to work: from then on it may make only the calls that the table
//! has for lanes. [`confine_files`] restricts the files that can be opened. A refused call returns
//! EPERM and is counted ([`refused`]).
//!
//! Work that needs more is asked of the [launcher](crate::launcher).
//!
//! # Limits
//! A thread that makes a refused call while it has all signals blocked is killed, with the process.
//! C libraries do so only to start processes; those calls fail without a signal, uncounted.
//! Without seccomp or Landlock in the kernel the rest still holds.

mod calls;
mod files;
mod filter;
mod trap;

use std::cell::Cell;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

pub use files::{FileRights, FilesError, confine_files};
pub use filter::FilterError;
use filter::Filters;

/// Parts of a sandbox: [`drop_capabilities`], [`confine_calls`] and [`confine_files`].
pub const PARTS: [&str; 3] = ["capabilities", "system-calls", "files"];

/// Filters of this process, if it has a sandbox.
static FILTERS: OnceLock<Filters> = OnceLock::new();

thread_local! {
    static IS_LANE: Cell<bool> = const { Cell::new(false) };
}

/// Calls that were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Calls so far.
    pub count: u64,
    /// Name of the last one, or `call` and its number.
    pub call: String,
    /// Name of the thread that made it.
    pub thread: String,
}

/// Drops the capabilities of the calling thread, and of threads that it starts.
///
/// AF_XDP pins memory, for which a process without CAP_IPC_LOCK has a limit. If that cannot be
/// raised, this capability stays.
///
/// # Errors
/// The kernel refuses, which only a bug can cause.
pub fn drop_capabilities() -> Result<(), Errno> {
    let unlimited = Rlimit { current: None, maximum: None };
    let kept = match setrlimit(Resource::Memlock, unlimited) {
        Ok(()) => CapabilitySet::empty(),
        Err(_) => rustix::thread::capabilities(None)?.permitted & CapabilitySet::IPC_LOCK,
    };
    let empty = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: empty };
    rustix::thread::set_capabilities(None, sets)
}

/// Restricts the calling thread, and threads that it starts, to the calls of the table; prepares
/// [`confine_lane`].
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn confine_calls() -> Result<(), FilterError> {
    let filters = Filters::compile()?;
    trap::install().map_err(FilterError::Trap)?;
    filters.confine()?;
    // Only now: the kernel has filters.
    FILTERS.get_or_init(|| filters);
    Ok(())
}

/// Restricts the calling thread to the calls of lanes, if the process has a sandbox.
pub fn confine_lane() {
    if let Some(filters) = FILTERS.get()
        && let Err(error) = filters.confine_lane()
    {
        panic!("a lane cannot be confined: {error}");
    }
    IS_LANE.set(FILTERS.get().is_some());
}

/// `true` if the calling thread is restricted to the calls of lanes, as threads that it starts are.
pub fn is_lane() -> bool {
    IS_LANE.get()
}

/// Calls that were refused so far; `None` if there are none.
pub fn refused() -> Option<Refused> {
    let (count, number, thread) = trap::refused();
    if count == 0 {
        return None;
    }
    let known = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    let thread = known.map_or("ended since".to_owned(), |name| name.trim_end().to_owned());
    let mut calls = calls::GROUPS.iter().flat_map(|group| group.calls);
    let known = calls.find(|call| call.number == number).map(|call| call.name.to_owned());
    let call = known.unwrap_or_else(|| format!("call {number}"));
    Some(Refused { count, call, thread })
}

/// Table of the calls, in Markdown: a row for each purpose, split where it is long.
pub fn table() -> String {
    const CHARACTERS_MAX: usize = 100;
    let rows = |group: &calls::Group| {
        let threads = if group.lanes { "all" } else { "not lanes" };
        let mut rows = vec![String::new()];
        for call in group.calls {
            let name = match call.limit {
                Some(limit) => format!("{} ({})", call.name, limit.text),
                None => call.name.to_owned(),
            };
            match rows.last_mut() {
                Some(row) if row.is_empty() => *row = name,
                Some(row) if row.len() + name.len() < CHARACTERS_MAX => {
                    *row += &format!(", {name}")
                }
                _ => rows.push(name),
            }
        }
        let row = |calls: &String| format!("| {} | {calls} | {threads} |\n", group.purpose);
        rows.iter().map(row).collect::<String>()
    };
    let rows: String = calls::GROUPS.iter().map(rows).collect();
    format!("| purpose | calls | threads |\n|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests;
