//! Network namespaces of the lab: one for the host, and one for each guest with a kernel.
//!
//! The lab enters the host namespace at its start, and its child processes inherit it: the
//! machine's own network sees no traffic of the lab. A guest makes its own namespace. Namespaces
//! have no name, so each ends with its last process.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use host::links::Links;

/// Result of the first attempt.
static ENTERED: OnceLock<Result<(), String>> = OnceLock::new();

/// Enters the host namespace, once per process; call it before starting threads.
///
/// # Errors
/// A sentence that says why this machine allows no namespace; the same at every call.
pub fn enter() -> Result<(), String> {
    let first = || enter_new().map_err(|error| format!("{error:#}"));
    ENTERED.get_or_init(first).clone()
}

/// Enters the host namespace for an experiment whose guests have their own namespaces.
///
/// # Errors
/// As [`enter`].
pub fn enter_for_guests() -> Result<()> {
    if let Err(why) = enter() {
        bail!("this experiment needs network namespaces for its guests: {why}");
    }
    try_tap().context("this experiment needs taps for its guests")
}

/// Makes and removes a tap in this thread's namespace: a private namespace does not guarantee
/// access to the tap device.
fn try_tap() -> Result<()> {
    host::tun::open(None, "lab-try", 1, false)?;
    Ok(())
}

/// Bridge of the host namespace; the first caller makes it.
///
/// # Errors
/// No namespace, or the kernel lacks bridges, or the user may not make taps.
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

/// Enters the namespace of a process.
///
/// # Errors
/// No such process, or it belongs to another user.
pub fn enter_that_of(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/ns/net");
    let file = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter {path}"))
}
