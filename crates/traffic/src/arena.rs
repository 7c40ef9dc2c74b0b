//! Network namespaces of the lab: one for the host, and one for each guest with a kernel.
//!
//! The lab enters the host's when it begins, and all that it starts is born there: nothing that the
//! lab does is seen by the machine's own network. A guest makes one of its own. None has a name, so
//! each is gone with the last process in it.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use host::links::Links;

/// What became of the first attempt.
static ENTERED: OnceLock<Result<(), String>> = OnceLock::new();

/// Enters the host's namespace, once for this process; to be called before it has other threads.
///
/// # Errors
/// Why this machine allows none, as a sentence. It stays the same at every call.
pub fn enter() -> Result<(), String> {
    let first = || enter_new().map_err(|error| format!("{error:#}"));
    ENTERED.get_or_init(first).clone()
}

/// Enters the host's namespace for an experiment whose guests have namespaces of their own.
///
/// # Errors
/// As [`enter`].
pub fn enter_for_guests() -> Result<()> {
    if let Err(why) = enter() {
        bail!("this experiment needs network namespaces for its guests: {why}");
    }
    try_tap().context("this experiment needs taps for its guests")
}

/// Makes a tap in this thread's namespace, and takes it away: a namespace of one's own does not
/// make the device of taps usable.
fn try_tap() -> Result<()> {
    host::tun::open(None, "lab-try", 1, false)?;
    Ok(())
}

/// The bridge of the host's namespace, which is made by the first who asks.
///
/// # Errors
/// There is no namespace, or the kernel has no bridges, or no taps to join them for this user.
pub fn bridge() -> Result<&'static str> {
    const NAME: &str = "lab0";
    static MADE: OnceLock<Result<(), String>> = OnceLock::new();
    enter().map_err(anyhow::Error::msg)?;
    let make = || {
        Links::open()?.add_bridge(NAME)?;
        try_tap()
    };
    let made = MADE.get_or_init(|| make().map_err(|error| format!("{error:#}")));
    made.clone().map(|()| NAME).map_err(anyhow::Error::msg)
}

/// Enters a new namespace.
///
/// # Errors
/// The machine allows none.
pub fn enter_new() -> Result<()> {
    host::unshare::new_network()?;
    Ok(())
}

/// Enters that of a process.
///
/// # Errors
/// There is no such process, or it is not this user's.
pub fn enter_that_of(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/ns/net");
    let file = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter {path}"))
}
