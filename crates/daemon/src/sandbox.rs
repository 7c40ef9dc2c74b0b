//! The daemon's sandbox: what it does before its threads start.
//!
//! # Model
//! 1. [`Sandbox::enter`] starts the launcher, drops all capabilities, and restricts system calls.
//!    It runs before the thread of the log.
//! 2. [`Sandbox::confine_files`] restricts files, once the directories are known. The log's thread
//!    is older, and may make only the calls of lanes.
//!
//! Without seccomp or Landlock in the kernel the daemon runs with the rest, and says so.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use model::config::Config;

use super::{launcher, upgrade};

/// Bits of the parts.
const CAPABILITIES: u64 = 1;
const CALLS: u64 = 2;
const FILES: u64 = 4;

/// Sandbox of this process.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    /// `false` with `--sandbox=off`.
    is_on: bool,
    /// Parts in force, a bit for each of [`PARTS`](host::sandbox::PARTS).
    parts: u64,
    /// Parts that the kernel does not support, with the reason.
    missing: Vec<String>,
}

impl Sandbox {
    /// Confines this process, if `wanted`. Call it before other threads are started.
    ///
    /// # Errors
    /// The launcher does not start.
    pub fn enter(wanted: bool) -> Result<Sandbox> {
        let program = std::env::current_exe().context("cannot determine the program's own path")?;
        let mut sandbox = Sandbox { is_on: wanted, ..Sandbox::default() };
        if wanted {
            launcher::start(&program).context("cannot start the launcher")?;
            host::sandbox::drop_capabilities().context("cannot drop capabilities")?;
            sandbox.parts |= CAPABILITIES;
            match host::sandbox::confine_calls() {
                Ok(()) => sandbox.parts |= CALLS,
                Err(error) => sandbox.missing.push(format!("{:#}", anyhow::Error::from(error))),
            }
        }
        upgrade::set_own_program(program, wanted);
        Ok(sandbox)
    }

    /// Parts in force, a bit for each of [`PARTS`](host::sandbox::PARTS).
    pub(super) fn parts(&self) -> u64 {
        self.parts
    }

    /// Logs what is in force.
    pub(super) fn log(&self) {
        match &self.missing[..] {
            _ if !self.is_on => tracing::info!("sandbox: off, by --sandbox=off"),
            [] => tracing::debug!("sandbox: rights, system calls and files are restricted"),
            missing => tracing::warn!("sandbox: incomplete: {}", missing.join("; ")),
        }
    }

    /// Restricts the files that can be opened.
    ///
    /// # Errors
    /// The launcher has ended.
    pub(super) fn confine_files(&mut self, config: &Config, state_dir: &Path) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        let own = [config.run_dir.as_path(), state_dir];
        upgrade::forbid_programs_below(&own).context("cannot tell the launcher the directories")?;
        let api = &config.api;
        let files = [&api.token_file, &api.tls_certificate, &api.tls_key];
        let files = files.into_iter().flatten().map(PathBuf::as_path);
        let read: Vec<&Path> = ["/proc", "/sys"].map(Path::new).into_iter().chain(files).collect();
        let links = api::daemons::prepare_links(&config.run_dir);
        let write: Vec<&Path> = own.into_iter().chain(links.as_deref()).collect();
        match host::sandbox::confine_files(&read, &write) {
            Ok(true) => self.parts |= FILES,
            Ok(false) => self.missing.push("no Landlock in this kernel or container".to_owned()),
            Err(error) => self.missing.push(format!("{:#}", anyhow::Error::from(error))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::launcher::REQUESTS;

    const INTRODUCTION: &str = "\
# Sandbox

This page lists what the daemon may do to the host, and what it asks of its launcher. It is written
from the tables in `crates/host/src/sandbox/calls.rs` and `crates/daemon/src/launcher.rs`.

`shunt up` starts a second process, the launcher, which keeps the rights of its user. The daemon
itself, which touches guest memory and serves sockets and the API, gives up:

- **capabilities**: all. If the limit of locked memory cannot be raised, CAP_IPC_LOCK stays, for
  AF_XDP (systemd: `LimitMEMLOCK=infinity`).
- **system-calls**: all but those below (seccomp). It can start no program and no process, and
  enter no namespace. Lanes may make only those marked *all*.
- **files**: all but `run_dir`, `state_dir` and the directory of links to run directories; it may
  read `/proc`, `/sys`, and the token and TLS files of the API (Landlock).

A forbidden system call returns EPERM. It is logged, an event (`shunt events`), and counted
(`forbidden_calls` of `shunt stats --json`). A forbidden file is an error only. The last line of
`shunt stats` shows the parts in force.

Where the kernel or a container has no seccomp or Landlock, the daemon runs without, and logs that
at its start. `shunt up --sandbox=off` starts no launcher and restricts nothing, to compare.

The launcher belongs to one daemon, and ends with it. A daemon without rights, started by an
ordinary user, has one too: it has that user's rights. `shunt upgrade` has it start the new program,
which starts a launcher of its own.

## Limits

- The launcher checks each request by itself. It does not know the desired state, which changes by
  the API that the daemon serves. So a daemon that has been taken over may still make any request
  below: change interfaces, addresses and routes, and receive frames of any interface.
- A daemon of root can connect to UNIX sockets that only root may use, such as those of a container
  runtime. Run it as a user of its own where that matters.
- Outside its directories the daemon writes mirrors only to files named `*.pcapng`.
- A new program trusts the state that the old one hands over, and so the directories that it names.
- A thread that makes a forbidden call while it blocks all signals is killed, with the daemon.
- AF_XDP needs Linux 5.19, which lets a process without capabilities change its BPF maps.
- Without capabilities the API's TCP port must be 1024 or higher.

";

    /// `SHUNT_WRITE_DOCS=1` writes the page.
    #[test]
    fn the_page_has_the_calls_and_requests_of_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sandbox.md");
        let calls = host::sandbox::table();
        let row = |request: &host::launcher::Handler| {
            format!("| `{}` | {} |\n", request.name, request.does)
        };
        let requests: String = REQUESTS.iter().map(row).collect();
        let page = format!(
            "{INTRODUCTION}## System calls\n\n{calls}\n## Requests to the launcher\n\n\
             | request | what the launcher does |\n|---|---|\n{requests}"
        );
        if std::env::var_os("SHUNT_WRITE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == page, "run this test with SHUNT_WRITE_DOCS=1");
    }

    #[test]
    fn each_request_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = REQUESTS.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), REQUESTS.len());
    }
}
