//! The parent process: events to it, and its next line.

use std::io::Write;

use anyhow::{Context, Result, ensure};

use crate::protocol::Event;

/// Sends an event to the parent.
pub(crate) fn send_event(event: &Event) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, event)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Waits for the next line of the parent.
pub(crate) fn wait_for_parent() -> Result<()> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).context("cannot read from the parent")?;
    ensure!(read > 0, "standard input ended before the start");
    Ok(())
}
