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

use anyhow::{Context, Result, bail};
use host::sandbox::FileRights;
use model::config::Config;

use super::launcher;
use super::upgrade::{self, OwnProgram};

/// Bits of the parts.
const CAPABILITIES: u64 = 1;
const CALLS: u64 = 2;
const FILES: u64 = 4;

/// Use of the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// Rights are with the launcher.
    On,
    /// The launcher serves only what this configuration file names; an absolute path.
    File(PathBuf),
    /// There is neither launcher nor restriction.
    #[default]
    Off,
}

/// Sandbox of this process.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    mode: SandboxMode,
    /// Parts in force, a bit for each of [`PARTS`](host::sandbox::PARTS).
    parts: u64,
    /// Parts that the kernel does not support, with the reason.
    missing: Vec<String>,
}

impl Sandbox {
    /// Confines this process. Call it before other threads are started.
    ///
    /// # Errors
    /// The launcher does not start.
    pub fn enter(mode: SandboxMode) -> Result<Sandbox> {
        let path = std::env::current_exe().context("cannot determine the program's own path")?;
        let mut sandbox = Sandbox { mode, ..Sandbox::default() };
        if sandbox.mode != SandboxMode::Off {
            launcher::start(&path, &sandbox.mode).context("cannot start the launcher")?;
            host::sandbox::drop_capabilities().context("cannot drop capabilities")?;
            sandbox.parts |= CAPABILITIES;
            match host::sandbox::confine_calls() {
                Ok(()) => sandbox.parts |= CALLS,
                Err(error) => sandbox.missing.push(format!("{:#}", anyhow::Error::from(error))),
            }
        }
        upgrade::set_own_program(OwnProgram { path, sandbox: sandbox.mode.clone() });
        Ok(sandbox)
    }

    /// Parts in force, a bit for each of [`PARTS`](host::sandbox::PARTS).
    pub(super) fn parts(&self) -> u64 {
        self.parts
    }

    /// Logs what is in force.
    pub(super) fn log(&self) {
        match &self.missing[..] {
            _ if self.mode == SandboxMode::Off => tracing::info!("sandbox: off, by --sandbox=off"),
            [] => tracing::debug!("sandbox: rights, system calls and files are restricted"),
            missing => tracing::warn!("sandbox: incomplete: {}", missing.join("; ")),
        }
    }

    /// Restricts the files that can be opened.
    ///
    /// # Errors
    /// The launcher has ended, a daemon that hands over has other files than at its start, or the
    /// kernel lacks a part that mode `File` needs.
    pub(super) fn confine_files(&mut self, config: &Config, state_dir: &Path) -> Result<()> {
        if self.mode == SandboxMode::Off {
            return Ok(());
        }
        let api = &config.api;
        let read = [&api.token_file, &api.tls_certificate, &api.tls_key].into_iter().flatten();
        let read: Vec<PathBuf> = read.cloned().collect();
        let always = ["/proc", "/sys"].map(PathBuf::from);
        let real = |path: &Path| {
            path.canonicalize().with_context(|| format!("cannot access {}", path.display()))
        };
        let write = [real(&config.run_dir)?, real(state_dir)?].to_vec();
        let links = api::daemons::prepare_links(&config.run_dir);
        let rights = |paths: &[PathBuf], rights| {
            paths.iter().map(move |path| (path.clone(), rights)).collect::<Vec<_>>()
        };
        let all = [
            rights(&always, FileRights::Read),
            rights(&read, FileRights::Read),
            rights(&write, FileRights::Write),
            rights(links.as_slice(), FileRights::Links),
        ]
        .concat();
        upgrade::name_files(upgrade::Files { read, write })?;
        // A service manager may have an abstract socket for notices.
        let manager = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
        let abstract_sockets = manager.as_encoded_bytes().starts_with(b"@");
        match host::sandbox::confine_files(&all, abstract_sockets) {
            Ok(true) => self.parts |= FILES,
            Ok(false) => self.missing.push("no Landlock in this kernel or container".to_owned()),
            Err(error) => self.missing.push(format!("{:#}", anyhow::Error::from(error))),
        }
        // It could write to the file.
        if !self.missing.is_empty() && matches!(self.mode, SandboxMode::File(_)) {
            bail!("--sandbox=file needs seccomp and Landlock: {}", self.missing.join("; "));
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
- **files**: all but `run_dir` and `state_dir`; it may make links in the directory of links to run
  directories, and read `/proc`, `/sys`, and the token and TLS files of the API (Landlock). Links
  to those files are followed, but not below `run_dir` and `state_dir`. Linux 6.12 also keeps it
  from abstract UNIX sockets of other processes, unless `NOTIFY_SOCKET` is one.

A forbidden system call returns EPERM. It is logged, an event (`shunt events`), and counted
(`forbidden_calls` of `shunt stats --json`). Calls that start a process only fail: C libraries block
all signals around them, and so the signal that counts. A forbidden file is an error only. The last
line of `shunt stats` shows the parts in force.

Where the kernel or a container has no seccomp or Landlock, the daemon runs without, and logs that
at its start. `shunt up --sandbox=off` starts no launcher and restricts nothing, to compare.

With `shunt up --sandbox=file --config FILE` the launcher serves only what FILE's objects name, in
the spelling of FILE: taps and other interfaces, each for its kind of attachment, network
namespaces, PFs of cards, VDUSE devices, sockets and captures. Besides, sockets directly in
`run_dir` may have any name, and representors of FILE's soft NICs have their default taps. The API
can change all settings, but not what of the host the daemon reaches: such a request gets EPERM, and
the log and an event (`shunt events`) tell what FILE does not name. Requests that name nothing, such
as `hold-latency` and `create-map`, are served.

The launcher reads FILE itself. `shunt upgrade` starts a new one, which reads it again; if FILE is
wrong, the upgrade fails. To take something away, delete it by a command first, and then from FILE:
the daemon cannot tidy up what it may not name. FILE must not be in `run_dir` or `state_dir`, where
the daemon could change it. Sockets and mirrors of FILE may be in `run_dir` itself, but nothing in
its subdirectories or in `state_dir`. This mode needs seccomp and Landlock, and is set at a start,
not by `shunt upgrade`.

The launcher belongs to one daemon: the kernel kills it when that ends. No process of its user can
trace it. A daemon without rights, started by an ordinary user, has one too: it has that user's
rights. If the launcher ends, the daemon logs that: all goes on but what needs rights. `shunt
upgrade` has the launcher start the new program, which starts a launcher of its own.

## Limits

By default the launcher checks each request by itself, not against the desired state: the API
changes that, and the daemon serves the API. So a daemon that has been taken over can still do what
a document could ask for, with the rights of the launcher. With `--sandbox=file` it can do so only
with what FILE names, except for points marked *. There a name of an interface is good in the
daemon's namespace and in all that FILE names. Refusals are reported by the daemon, so not by one
that has been taken over.

- receive and send frames of any interface, in any network namespace (* if FILE has an attachment of
  kind `packet` or `xdp`: of any interface, in the daemon's namespace and those that FILE names);
  attach the redirect program; steer MAC addresses of a card to other queues;
- create, change and delete taps, with their addresses and routes; set the MAC address of any
  interface; create and destroy VDUSE devices;
- set the interface of any VF of a NIC: network namespace, name, MAC address, MTU and state; in
  another namespace also addresses and default routes (* in the daemon's namespace, any name);
- make the VFs of any NIC, change their settings and the NIC's eswitch mode, bind them to their own
  driver or one of VFIO, and remove them, but not while a VMM has one open through VFIO or one's
  interface is in another network namespace;
- make UNIX sockets in any directory, and remove those on which no process listens;
- connect to any UNIX socket (* to those that the daemon's user may use): for a daemon of root, also
  to those of a container runtime, which is as good as root. Run the daemon as a user of its own
  where that matters;
- connect to any IP address (*);
- write captures, which are named `*.pcapng` and in no directory of settings (`/etc`, `/usr`,
  `/boot`, `/var/spool`, hidden ones), and read any capture;
- start a program that none but root and the daemon's user can change, beside the daemon's own or
  below `/usr` or `/opt`, with the arguments `up --take-over` (*).

It cannot change permissions or group of a socket that is not its own, replace a flow rule, remove
one of another form than its own or a vDPA device of a card, load a BPF program of its own, make an
executable file, or give its successor other directories than it has. Of an interface that is
neither a tap nor a VF's it can change only the MAC address, and whether VLAN tags stay in received
frames. The successor trusts the rest of the state that it gets.

- A thread that blocks all signals and makes a forbidden call is killed, with the daemon. No code of
  the daemon does so.
- Permissions of a socket that is served can change only with CONFIG_UNIX_DIAG in the kernel.
- A request that is not answered within 120 s is an error, and the log names it.
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
