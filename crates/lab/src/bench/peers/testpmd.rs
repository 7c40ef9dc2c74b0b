//! DPDK's testpmd, as the guest of a switch or as a switch, driven by its prompt.
//!
//! # Model
//! The main thread blocks in a read of the prompt; one forwarding thread polls. Both threads of a
//! guest are pinned to the guest's CPU. A guest's two ports, virtio-user or AF_PACKET, forward
//! frames unchanged (`io`): a frame leaves by the other port, still addressed to the one it came in
//! by. So the switch brings it back, and frames circulate until they are stopped. As a switch,
//! testpmd has two net_vhost ports, and records the cycles of turns that received a frame.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wire::Mac;

use super::process::{Peer, is_installed};
use super::settled;

const PROGRAM: &str = "dpdk-testpmd";
/// Frames of a burst: `start tx_first N` sends N bursts from each port.
pub const BURST: u64 = 32;
/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(10);
/// Longest time for ports to come up, which needs the back-end.
const READY: Duration = Duration::from_secs(30);

/// One port of a guest.
#[derive(Clone, Debug)]
pub enum GuestPort {
    /// virtio-user, which listens on a socket.
    VhostUser {
        /// Socket.
        socket: PathBuf,
        /// MAC address.
        mac: Mac,
        /// Ask for packed rings.
        packed: bool,
        /// Ask for mergeable receive buffers.
        mergeable: bool,
    },
    /// AF_PACKET with shared rings, on an interface of this process's network namespace with the
    /// port's MAC address.
    Interface(String),
}

impl GuestPort {
    fn vdev(&self, index: usize) -> String {
        match self {
            GuestPort::VhostUser { socket, mac, packed, mergeable } => {
                let (packed, mergeable) = (u8::from(*packed), u8::from(*mergeable));
                format!(
                    "net_virtio_user{index},path={},mac={mac},queues=1,queue_size=1024,server=1,\
                     mrg_rxbuf={mergeable},in_order=1,packed_vq={packed},vectorized=0",
                    socket.display()
                )
            }
            GuestPort::Interface(name) => {
                format!(
                    "net_af_packet{index},iface={name},qpairs=1,blocksz=4096,framesz=2048,\
                     framecnt=1024"
                )
            }
        }
    }
}

/// A testpmd process.
#[derive(Debug)]
pub struct Testpmd {
    peer: Peer,
    marks: u64,
}

impl Testpmd {
    /// Returns `true` if testpmd is installed.
    pub fn is_installed() -> bool {
        is_installed(PROGRAM)
    }

    /// Starts a guest on one CPU, with two ports of addresses `macs`; call
    /// [`wait_ready`](Self::wait_ready) before use.
    ///
    /// # Errors
    /// testpmd does not start.
    pub fn start_guest(
        ports: &[GuestPort; 2],
        macs: [Mac; 2],
        cpu: usize,
        dir: &Path,
        hugepages: bool,
    ) -> Result<Testpmd> {
        let vdevs = [ports[0].vdev(0), ports[1].vdev(1)];
        let peers = [format!("--eth-peer=0,{}", macs[1]), format!("--eth-peer=1,{}", macs[0])];
        Testpmd::start((cpu, cpu), "guest", &vdevs, &peers, dir, hugepages)
    }

    /// Starts a switch between two vhost-user sockets on which guests listen.
    ///
    /// # Errors
    /// testpmd does not start.
    pub fn start_switch(
        sockets: &[PathBuf; 2],
        (cpu, main_cpu): (usize, usize),
        dir: &Path,
        hugepages: bool,
    ) -> Result<Testpmd> {
        let vdev = |index: usize| {
            format!("net_vhost{index},iface={},client=1,queues=1", sockets[index].display())
        };
        let record = ["--record-core-cycles".to_owned()];
        Testpmd::start((cpu, main_cpu), "switch", &[vdev(0), vdev(1)], &record, dir, hugepages)
    }

    fn start(
        (cpu, main_cpu): (usize, usize),
        prefix: &str,
        vdevs: &[String; 2],
        more: &[String],
        dir: &Path,
        hugepages: bool,
    ) -> Result<Testpmd> {
        let cpus = if cpu == main_cpu { cpu.to_string() } else { format!("{cpu},{main_cpu}") };
        let lcores = format!("0@{main_cpu},1@{cpu}");
        let mut args: Vec<String> =
            ["taskset", "-c", &cpus, PROGRAM, "--lcores", &lcores].map(String::from).into();
        args.extend(
            ["-m", "256", "--no-pci", "--no-telemetry", "--file-prefix", prefix].map(String::from),
        );
        let memory: &[&str] =
            if hugepages { &["--in-memory", "--single-file-segments"] } else { &["--no-huge"] };
        args.extend(memory.iter().map(|arg| arg.to_string()));
        for vdev in vdevs {
            args.extend(["--vdev".into(), vdev.clone()]);
        }
        let application = [
            "--log-level",
            "pmd.net.virtio.*:info",
            "--",
            "-i",
            "--nb-cores=1",
            "--forward-mode=io",
            "--port-topology=paired",
            "--no-flush-rx",
            "--disable-link-check",
            "--rxd=1024",
            "--txd=1024",
            "--total-num-mbufs=8192",
        ];
        args.extend(application.map(String::from));
        args.extend(more.iter().cloned());
        let peer = Peer::start(&args, dir, &[("RUNTIME_DIRECTORY", dir)], None)?;
        Ok(Testpmd { peer, marks: 0 })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.peer.pid()
    }

    /// Waits until every port is up, which needs a back-end on every socket.
    ///
    /// # Errors
    /// testpmd ended, or a port does not come up.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.command_within("# ready?", READY).map(drop)
    }

    /// Negotiated virtio features of each port, from its log; call it before any command.
    pub fn features(&self) -> Vec<u64> {
        let output = self.peer.output();
        let found = output.lines().filter_map(|line| line.split_once("set features: 0x"));
        let numbers = found.filter_map(|(_, hex)| {
            let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            u64::from_str_radix(&hex[..end], 16).ok()
        });
        numbers.collect()
    }

    /// Types a command, waits until it is done, and returns the output meanwhile.
    fn command(&mut self, line: &str) -> Result<String> {
        self.command_within(line, COMMAND)
    }

    fn command_within(&mut self, line: &str, time: Duration) -> Result<String> {
        // testpmd echoes its input, and reads on only when a command is done: the echo of a comment
        // typed after the command marks its end. Output of another thread may split that echo, so
        // the comment is repeated until the time is over.
        let first = line.starts_with('#');
        if !first {
            self.peer.clear_output();
        }
        self.peer.type_line(line)?;
        let mut tries = (time.as_millis() / 300).max(1);
        loop {
            self.marks += 1;
            let mark = format!("#done-{}-", self.marks);
            self.peer.type_line(&mark)?;
            // The echo is complete at the end of its line.
            match self.peer.wait_for(&mark, Duration::from_millis(300)) {
                Ok(text) => return Ok(text),
                Err(error) if tries <= 1 => return Err(error),
                Err(_) => self.peer.check_alive()?,
            }
            tries -= 1;
        }
    }

    /// Starts or stops forwarding of the switch. Before the start both ports must have a link,
    /// which net_vhost reports once the guest's rings run: without it frames are dropped.
    ///
    /// # Errors
    /// testpmd ended, or a port gets no link.
    pub fn set_forwarding(&mut self, forwards: bool) -> Result<()> {
        if !forwards {
            return self.command("stop").map(drop);
        }
        let until = Instant::now() + COMMAND;
        while self.command("show port summary all")?.matches(" up").count() < 2 {
            ensure!(Instant::now() < until, "a port of testpmd has no link after {COMMAND:?}");
        }
        self.command("start").map(drop)
    }

    /// Injects `bursts` of frames from each port, `frame_bytes` with FCS, and forwards.
    ///
    /// # Errors
    /// Forwarding does not start.
    pub fn inject(&mut self, frame_bytes: u32, bursts: u64) -> Result<()> {
        let memory_bytes = frame_bytes.checked_sub(4).context("a frame has an FCS of 4 bytes")?;
        self.command(&format!("set txpkts {memory_bytes}"))?;
        self.command("set fwd io")?;
        let text = self.command(&format!("start tx_first {bursts}"))?;
        ensure!(text.contains("packet forwarding packets/burst"), "testpmd did not start:\n{text}");
        Ok(())
    }

    /// Stops forwarding and drains all frames from the rings; returns their number.
    ///
    /// # Errors
    /// testpmd ended.
    pub fn drain(&mut self) -> Result<u64> {
        let text = self.command("stop")?;
        ensure!(text.contains("Done."), "testpmd did not stop:\n{text}");
        let before = self.received()?;
        self.command("set fwd rxonly")?;
        self.command("start")?;
        let last = settled(before, || self.received())?;
        self.command("stop")?;
        Ok(last - before)
    }

    /// Frames received by the ports since the start.
    ///
    /// # Errors
    /// testpmd ended.
    pub fn received(&mut self) -> Result<u64> {
        Ok(self.ports("RX-packets:")?.into_iter().map(|frames| frames as u64).sum())
    }

    /// Frames per second received by the ports since the last call, by its own clock.
    ///
    /// # Errors
    /// testpmd ended.
    pub fn received_per_s(&mut self) -> Result<f64> {
        Ok(self.ports("Rx-pps:")?.into_iter().sum())
    }

    /// One value of each port's statistics.
    fn ports(&mut self, name: &str) -> Result<Vec<f64>> {
        let text = self.command("show port stats all")?;
        let after = text.split(name).skip(1).filter_map(|rest| rest.split_whitespace().next());
        let numbers: Vec<f64> = after.filter_map(|number| number.parse().ok()).collect();
        if numbers.is_empty() {
            bail!("no {name} in testpmd's statistics:\n{text}");
        }
        Ok(numbers)
    }

    /// Frames received, and cycles of the turns that received some.
    ///
    /// # Errors
    /// testpmd ended, or was not started as a switch.
    pub fn cycles(&mut self) -> Result<(u64, u64)> {
        let text = self.command("show fwd stats all")?;
        let number = |name: &str| -> Option<u64> {
            let digits = text.split(name).nth(1)?;
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().ok()
        };
        let found = number("total io packets=").zip(number("cycles="));
        found.with_context(|| format!("no cycles in testpmd's statistics:\n{text}"))
    }
}
