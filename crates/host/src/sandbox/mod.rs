//! Sandbox of the daemon: system calls that its threads may make.
//!
//! # Model
//! [`enter`] is called once, before other threads are started; without it nothing is restricted. A
//! lane calls [`confine_lane`] when it begins to work: from then on it may make only the calls that
//! the table ([`table`]) has for lanes. A refused call returns EPERM and is counted ([`refused`]).
//!
//! # Limits
//! Without seccomp in the kernel, threads are not restricted; [`enter`] reports that. A thread that
//! makes a refused call while it has all signals blocked is killed, with the process.

mod calls;
mod filter;
mod trap;

use std::sync::OnceLock;

pub use filter::FilterError;
use filter::Filters;

/// Filters of this process, if it has a sandbox.
static FILTERS: OnceLock<Filters> = OnceLock::new();

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

/// Prepares the sandbox of this process.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn enter() -> Result<(), FilterError> {
    let filters = Filters::compile()?;
    trap::install().map_err(FilterError::Trap)?;
    let _ = FILTERS.set(filters); // a second call changes nothing
    Ok(())
}

/// Restricts the calling thread to the calls of lanes, if the process has a sandbox.
pub fn confine_lane() {
    if let Some(filters) = FILTERS.get()
        && let Err(error) = filters.confine_lane()
    {
        // `enter` has found that the kernel has filters.
        panic!("a lane cannot be confined: {error}");
    }
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
    const CALLS_IN_A_ROW: usize = 5;
    let rows = |group: &calls::Group| {
        let name = |call: &calls::Call| match call.limit {
            Some(limit) => format!("{} ({})", call.name, limit.text),
            None => call.name.to_owned(),
        };
        let threads = if group.lanes { "all" } else { "not lanes" };
        let row = |calls: &[calls::Call]| {
            let names: Vec<String> = calls.iter().map(name).collect();
            format!("| {} | {} | {threads} |\n", group.purpose, names.join(", "))
        };
        group.calls.chunks(CALLS_IN_A_ROW).map(row).collect::<String>()
    };
    let rows: String = calls::GROUPS.iter().map(rows).collect();
    format!("| purpose | calls | threads |\n|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests;
