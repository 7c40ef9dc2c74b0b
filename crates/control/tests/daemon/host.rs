//! A daemon in a thread, with its sockets in a temporary directory.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use control::config::Config;
use control::daemon::{Daemon, Stop};
use control::stats::{PortStats, Stats};

use crate::guest::Guest;
use crate::log::Log;

/// Waits are for what must happen: only a bug makes them last.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// Waits for `what`.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !done() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A place for a daemon, and the daemon if it runs.
pub(crate) struct Host {
    pub(crate) config: Config,
    pub(crate) log: Log,
    running: Option<(JoinHandle<Result<()>>, Stop)>,
    dir: tempfile::TempDir,
}

impl Host {
    /// Starts a daemon with these NICs.
    pub(crate) fn start(nics: &str) -> Host {
        let mut host = Host::stopped(nics);
        host.restart();
        host
    }

    pub(crate) fn stopped(nics: &str) -> Host {
        Host::with(|dir| config(dir, nics))
    }

    /// A daemon that is not started, configured for its directory.
    pub(crate) fn with(config: impl FnOnce(&Path) -> Config) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        Host { config, log: Log::default(), running: None, dir }
    }

    /// Starts the daemon, again if it was stopped.
    pub(crate) fn restart(&mut self) {
        assert!(self.running.is_none());
        let (daemon, stop) = Daemon::start(&self.config).unwrap();
        let log = self.log.clone();
        let serve = move || tracing::subscriber::with_default(log, || daemon.serve());
        self.running = Some((std::thread::spawn(serve), stop));
    }

    pub(crate) fn stop(&mut self) {
        self.stop_while(|| {});
    }

    /// Stops the daemon, and does `work` again and again until it has.
    pub(crate) fn stop_while(&mut self, mut work: impl FnMut()) {
        let (thread, stop) = self.running.take().expect("it was started");
        stop.stop();
        until("the daemon to end", || {
            work();
            thread.is_finished()
        });
        thread.join().unwrap().unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// New guests on these sockets, attached.
    pub(crate) fn guests<const N: usize>(&self, sockets: [&str; N]) -> [Guest; N] {
        sockets.map(|socket| {
            let mut guest = Guest::new();
            guest.connect(&self.socket(socket));
            guest
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        control::stats::read(self.dir.path()).unwrap()
    }

    pub(crate) fn port(&self, name: &str) -> PortStats {
        let ports = self.stats().ports.into_iter();
        ports.into_iter().find(|port| port.name == name).expect("a port of this name")
    }

    /// Waits until the guest at this port has rings attached, so many.
    pub(crate) fn wait_for_rings(&self, port: &str, rings: u64) {
        until("rings to be attached", || self.port(port).rings_attached == rings);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Dropping the handle ends the daemon; a test that fails does not wait for it.
        if let Some((thread, stop)) = self.running.take() {
            drop(stop);
            if !std::thread::panicking() {
                thread.join().unwrap().unwrap();
            }
        }
    }
}

/// A configuration whose lanes go to sleep soon.
pub(crate) fn config(dir: &Path, nics: &str) -> Config {
    let text =
        format!("run_dir = \"{}\"\n[lanes]\npoll_us = 20\nyield_us = 20\n{nics}", dir.display());
    Config::parse("test.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// VFs 0 and 1 of NIC `n`, and its uplink.
pub(crate) const TWO: &str = r#"
    [[nic]]
    name = "n"
    kind = "soft"
    [nic.uplink]
    kind = "vhost-user"
    socket = "uplink"
    [[nic.vf]]
    mac = "02:00:00:00:00:01"
    socket = "vf0"
    [[nic.vf]]
    mac = "02:00:00:00:00:02"
    socket = "vf1"
"#;

/// The MAC of VF `n` in these.
pub(crate) fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n + 1]
}

/// A frame of 60 bytes that says its number.
pub(crate) fn frame(dst: [u8; 6], src: [u8; 6], number: u32) -> Vec<u8> {
    let mut bytes = [dst, src].concat();
    bytes.extend([0x88, 0xb5]); // for local experiments
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, number as u8);
    bytes
}

/// The number of a frame.
pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}
