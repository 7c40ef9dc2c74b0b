//! A daemon in a thread, with its sockets in a temporary directory.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::stats::{LaneStats, PortStats, Stats};
use api::{Client, EventList, Method};
use daemon::{Daemon, Stop};
use model::config::Config;

use crate::guest::Guest;
use crate::log::Log;

/// Timeout for events that must happen; only a bug exceeds it.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// Waits for `what`.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !done() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Open files and mappings of this process. Other tests of the process change them too: use it in a
/// test that runs [`alone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// Mappings of files (memfds included): those of the allocator and of stacks vary.
    pub(crate) mappings: usize,
}

impl Resources {
    /// The current counts.
    pub(crate) fn now() -> Resources {
        let entries = |dir| std::fs::read_dir(dir).unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let has_file = |line: &&str| line.split_ascii_whitespace().nth(4) != Some("0");
        Resources {
            // One of them is the directory being read.
            descriptors: entries("/proc/self/fd") - 1,
            threads: entries("/proc/self/task"),
            mappings: maps.lines().filter(has_file).count(),
        }
    }

    /// Waits until no more is open than before.
    pub(crate) fn wait_for_return(self) {
        let is_back = |now: Resources| {
            now.descriptors <= self.descriptors
                && now.threads <= self.threads
                && now.mappings <= self.mappings
        };
        let end = Instant::now() + WAIT;
        while !is_back(Resources::now()) {
            let now = Resources::now();
            assert!(Instant::now() < end, "open before: {self:?}, now: {now:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs the body of the test `name` (`module::function`) in a process of its own, which may lower
/// its limits and count open files.
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    const ALONE: &str = "SHUNT_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{error}");
    print!("{said}");
}

/// Directories of a daemon, and the daemon if it runs.
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

    /// Starts the daemon, also after a stop.
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

    /// Stops the daemon, and repeats `work` until it has stopped.
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

    /// Client of its API.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.socket("api.sock"))
    }

    pub(crate) fn stats(&self) -> Stats {
        api::stats::read(self.dir.path()).unwrap()
    }

    /// Events after number `since`.
    pub(crate) fn events(&self, since: u64) -> EventList {
        let path = format!("/v1/events?since={since}");
        let reply = self.client().send(Method::GET, &path, None, None);
        serde_json::from_value(reply.unwrap().body).unwrap()
    }

    pub(crate) fn port(&self, name: &str) -> PortStats {
        let ports = self.stats().ports.into_iter();
        ports.into_iter().find(|port| port.name == name).expect("a port of this name")
    }

    /// Longest time for which an awake lane polled no ring, since the daemon started. It includes
    /// the machine's other work: print it, and never assert that it is short.
    pub(crate) fn longest_poll_gap(&self) -> Duration {
        let gap = |lane: &LaneStats| lane.values["poll_gap_ns_max"];
        let lanes = self.stats().lanes.into_iter();
        // The current maximum interval is not counted.
        let lanes = lanes.filter(|lane| lane.lane != "quarantine");
        Duration::from_nanos(lanes.map(|lane| gap(&lane)).max().expect("a lane"))
    }

    /// Waits until the guest at this port has this many rings attached.
    pub(crate) fn wait_for_rings(&self, port: &str, rings: u64) {
        until("rings to be attached", || self.port(port).rings_attached == rings);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Dropping the handle stops the daemon; a failed test does not wait for it.
        if let Some((thread, stop)) = self.running.take() {
            drop(stop);
            if !std::thread::panicking() {
                thread.join().unwrap().unwrap();
            }
        }
    }
}

/// A configuration whose lanes sleep soon.
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
    attachment.socket = "vf0"
    [[nic.vf]]
    mac = "02:00:00:00:00:02"
    attachment.socket = "vf1"
"#;

/// MAC address of VF `n`.
pub(crate) fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n + 1]
}

/// A frame of 60 bytes that contains its number.
pub(crate) fn frame(dst: [u8; 6], src: [u8; 6], number: u32) -> Vec<u8> {
    let mut bytes = [dst, src].concat();
    bytes.extend([0x88, 0xb5]); // EtherType for local experiments
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, number as u8);
    bytes
}

/// Number of a frame.
pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}
