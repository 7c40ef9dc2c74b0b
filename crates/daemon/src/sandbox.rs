//! The daemon's sandbox: entered before its threads start.

/// Confines this process, if `wanted`.
pub(super) fn enter(wanted: bool) {
    if !wanted {
        tracing::info!("sandbox: off");
    } else if let Err(error) = host::sandbox::enter() {
        let error = anyhow::Error::from(error);
        tracing::warn!("no sandbox: {error:#}; start with --sandbox=off to accept this");
    }
}

#[cfg(test)]
mod tests {
    const INTRODUCTION: &str = "\
# Sandbox

This page lists what the daemon may do to the kernel. It is written from the table in
`crates/host/src/sandbox/calls.rs`.

A lane may make only the system calls below; a guest that takes over a lane cannot open a file,
make a socket or start a program. A forbidden call returns EPERM. It is logged, an event
(`shunt events`), and counted (`forbidden_calls` of `shunt stats --json`). `shunt up --sandbox=off`
runs without these filters, to compare.

The filters are seccomp's. Where the kernel has none, the daemon logs that and runs without. A
thread that makes a forbidden call while it blocks all signals is killed, with the daemon.

## System calls

";

    /// `SHUNT_WRITE_DOCS=1` writes the page.
    #[test]
    fn the_page_has_the_calls_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sandbox.md");
        let page = format!("{INTRODUCTION}{}", host::sandbox::table());
        if std::env::var_os("SHUNT_WRITE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == page, "run this test with SHUNT_WRITE_DOCS=1");
    }
}
