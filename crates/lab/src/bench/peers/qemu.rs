//! A virtual machine in QEMU as the guest of a switch, driven by a shell on its serial console.
//!
//! # Model
//! Linux in the guest redirects frames from one virtio-net port to the other unchanged (`tc` with
//! `mirred`). A frame leaves still addressed to the port it came in by, so the switch brings it
//! back, and frames circulate. The kernel's pktgen injects them. To drain them, both ports redirect
//! to a dummy interface, which counts them.
//!
//! QEMU, the guest's kernel and its programs are those that `tests/e2e/setup` makes. The shell of
//! the archive is the first program of the guest (`rdinit=/bin/sh`); it reads `qemu-guest.sh` line
//! by line.
//!
//! # Limits
//! - Without KVM the processor is emulated: frames are some hundred times slower than in a guest
//!   with DPDK, so bursts are small, and a switch's cycles per frame are an upper limit.
//! - Rates are by the guest's clock, which stands still while the side is stopped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use host::qmp::Qmp;
use rustix::process::Signal;
use serde_json::Value;
use wire::Mac;

use super::process::Peer;
use super::settled;
use super::testpmd::BURST;

/// Directory that replaces the one of `tests/e2e/setup`.
const HOME: &str = "SHUNT_E2E_QEMU";
/// Kernel command line: quiet, without features that are slow on an emulated processor.
const KERNEL: &str = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable \
                      no_timer_check random.trust_cpu=1 rdinit=/bin/sh";
/// First lines for the guest's shell.
const SCRIPT: &str = include_str!("qemu-guest.sh");
/// Memory of the guest, MiB.
const MEMORY_MIB: u32 = 384;
/// Longest time for Linux to start on an emulated processor under load.
const BOOT: Duration = Duration::from_secs(90);
/// Longest time for Linux to start with KVM.
const KVM_BOOT: Duration = Duration::from_secs(8);
/// Output of the shell at its start; its prompt is not a whole line.
const SHELL: &str = "job control turned off";
/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(30);
/// Names of the ports in the guest.
const PORTS: [&str; 2] = ["eth0", "eth1"];

/// Rings of the guest's ports.
#[derive(Clone, Copy, Debug)]
pub struct QemuRings {
    /// Offer packed rings.
    pub packed: bool,
    /// Offer mergeable receive buffers.
    pub mergeable: bool,
}

/// A QEMU process with Linux in it.
#[derive(Debug)]
pub struct Qemu {
    peer: Peer,
    macs: [Mac; 2],
    commands: u64,
    asked: GuestCounters,
    /// Socket of QEMU's monitor, and the connection to it.
    monitor: PathBuf,
    qmp: Option<Qmp>,
}

/// Counters of the guest at one moment of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct GuestCounters {
    nanos: u64,
    /// Frames received by both ports.
    received: u64,
    /// Drained frames.
    drained: u64,
}

impl Qemu {
    /// Reason that QEMU is missing for `program`, and the remedy.
    pub fn missing(program: &Path) -> Option<String> {
        let home = home(program);
        let remedy = "run tests/e2e/setup as root, which makes it";
        let text = || format!("the guest, QEMU with Linux, is not in {}; {remedy}", home.display());
        (!home.join("stamp").is_file()).then(text)
    }

    /// Starts a guest on one CPU, with two ports that listen on vhost-user sockets; call
    /// [`wait_ready`](Self::wait_ready) before use.
    ///
    /// # Errors
    /// QEMU does not start.
    pub fn start(
        program: &Path,
        sockets: &[PathBuf; 2],
        macs: [Mac; 2],
        rings: QemuRings,
        cpu: usize,
        dir: &Path,
    ) -> Result<Qemu> {
        let home = home(program);
        let mut args = machine(&home, accelerator(&home, dir), cpu);
        args.extend(ports(sockets, macs, rings));
        let monitor = dir.join("qmp.sock");
        args.extend(["-qmp".into(), format!("unix:{},server=on,wait=off", monitor.display())]);
        Ok(Qemu {
            peer: Peer::start(&args, dir, &[], Some(Signal::TERM))?,
            macs,
            commands: 0,
            asked: GuestCounters::default(),
            monitor,
            qmp: None,
        })
    }

    /// Processor of guests, once one was started: `kvm` or `emulated`.
    pub fn cpu_kind() -> Option<&'static str> {
        ACCELERATOR.get().map(|kind| if *kind == "kvm" { "kvm" } else { "emulated" })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.peer.pid()
    }

    /// Waits until Linux runs and redirects; returns the negotiated virtio features of each port.
    ///
    /// # Errors
    /// QEMU ended, or does not start in time.
    pub fn wait_ready(&mut self) -> Result<Vec<u64>> {
        self.peer.wait_for(SHELL, BOOT).context("no shell in the guest")?;
        for line in SCRIPT.lines() {
            self.command(line)?;
        }
        let text = self.command("features")?;
        let features: Vec<u64> =
            text.lines().filter_map(|line| bits(line.strip_prefix("features ")?)).collect();
        match features.len() {
            2 => Ok(features),
            _ => bail!("the guest does not report the features of two ports:\n{text}"),
        }
    }

    /// Stops or resumes the guest's processor and clock. Without this a guest whose process was
    /// stopped catches up for about as long.
    ///
    /// # Errors
    /// QEMU does not answer.
    pub fn set_running(&mut self, runs: bool) -> Result<()> {
        let qmp = match &mut self.qmp {
            Some(qmp) => qmp,
            none => none.insert(Qmp::connect(&self.monitor, COMMAND)?),
        };
        qmp.execute(if runs { "cont" } else { "stop" }, Value::Null)?;
        Ok(())
    }

    /// Runs a line in the guest's shell; returns its output.
    fn command(&mut self, line: &str) -> Result<String> {
        self.commands += 1;
        self.peer.clear_output();
        // The typed line may be echoed, but differs from the mark as printed.
        self.peer.type_line(&format!("{line}; echo \"#done\" {} $?.", self.commands))?;
        let mark = format!("#done {} ", self.commands);
        let text = self.peer.wait_for(&mark, COMMAND)?.replace('\r', "");
        match text.split_once(&mark).map(|(text, end)| (text, end.starts_with("0."))) {
            Some((text, true)) => Ok(text.to_owned()),
            _ => bail!("the guest's shell: {line}:\n{text}"),
        }
    }

    /// Injects `bursts` of frames from each port, `frame_bytes` with FCS.
    ///
    /// # Errors
    /// The guest's kernel rejects them.
    pub fn inject(&mut self, frame_bytes: u32, bursts: u64) -> Result<()> {
        let bytes = frame_bytes.checked_sub(4).context("a frame has an FCS of 4 bytes")?;
        self.command("resume")?;
        for (port, peer) in PORTS.into_iter().zip([self.macs[1], self.macs[0]]) {
            self.command(&format!("inject {port} {peer} {bytes} {}", bursts * BURST))?;
        }
        self.command("pktgen pgctrl start").map(drop)
    }

    /// Frames per second received by both ports since the last call, by the guest's clock.
    ///
    /// # Errors
    /// QEMU ended.
    pub fn received_per_s(&mut self) -> Result<f64> {
        let now = self.counted()?;
        let before = std::mem::replace(&mut self.asked, now);
        let nanos = now.nanos.saturating_sub(before.nanos).max(1);
        Ok((now.received - before.received) as f64 / (nanos as f64 / 1e9))
    }

    /// Drains all frames from the rings; returns their number.
    ///
    /// # Errors
    /// QEMU ended.
    pub fn drain(&mut self) -> Result<u64> {
        let before = self.counted()?.drained;
        self.command("drain")?;
        let last = settled(before, || Ok(self.counted()?.drained))?;
        Ok(last - before)
    }

    fn counted(&mut self) -> Result<GuestCounters> {
        let text = self.command("count")?;
        counted(&text).with_context(|| format!("not the guest's counters:\n{text}"))
    }
}

/// Directory made by `tests/e2e/setup`, beside that of the program.
fn home(program: &Path) -> PathBuf {
    let target = || program.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
    std::env::var_os(HOME).map_or_else(|| target().join("e2e-qemu"), PathBuf::from)
}

/// Accelerator of guests, detected at the first start.
static ACCELERATOR: OnceLock<&str> = OnceLock::new();

/// KVM if a guest starts with it, else emulation; detected once. A hypervisor may offer KVM and
/// fail to run a guest with it.
fn accelerator(home: &Path, dir: &Path) -> &'static str {
    ACCELERATOR.get_or_init(|| {
        let boots = || {
            let args = machine(home, "kvm", host::cpu::allowed()[0]);
            Peer::start(&args, dir, &[], Some(Signal::TERM))?.wait_for(SHELL, KVM_BOOT)
        };
        if File::open("/dev/kvm").is_ok() && boots().is_ok() { "kvm" } else { "tcg" }
    })
}

/// Arguments for a machine without ports, the program first: QEMU of the tree, with the tree's own
/// loader and libraries.
fn machine(home: &Path, accelerator: &str, cpu: usize) -> Vec<String> {
    let path = |name: &str| home.join("tree").join(name).display().to_string();
    let mut args: Vec<String> = ["taskset", "-c"].map(String::from).into();
    args.extend([cpu.to_string(), path("usr/lib64/ld-linux-x86-64.so.2")]);
    args.extend(["--library-path".into(), path("usr/lib/x86_64-linux-gnu")]);
    args.extend(["--argv0", "qemu-system-x86_64"].map(String::from));
    args.push(path("usr/bin/qemu-system-x86_64"));
    args.extend(["-L".into(), path("usr/share/qemu"), "-L".into(), path("usr/share/seabios")]);
    let machine = format!(
        "-nodefaults -no-user-config -display none -serial stdio -smp 1 -cpu max -m {MEMORY_MIB} \
         -object memory-backend-memfd,id=mem,size={MEMORY_MIB}M,share=on \
         -M q35,accel={accelerator},memory-backend=mem,sata=off,usb=off"
    );
    args.extend(machine.split_whitespace().map(String::from));
    args.extend(["-kernel".into(), home.join("vmlinux").display().to_string()]);
    args.extend(["-initrd".into(), home.join("base.cpio").display().to_string()]);
    args.extend(["-append".into(), KERNEL.into()]);
    args
}

/// Arguments for both ports.
fn ports(sockets: &[PathBuf; 2], macs: [Mac; 2], rings: QemuRings) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let on = |is: bool| if is { "on" } else { "off" };
    // Sockets first: QEMU listens on all before it waits for a switch on the first.
    for (i, socket) in sockets.iter().enumerate() {
        let socket = format!("socket,id=c{i},path={},server=on,wait=off", socket.display());
        args.extend(["-chardev".into(), socket]);
    }
    for (i, mac) in macs.iter().enumerate() {
        args.extend(["-netdev".into(), format!("vhost-user,id=n{i},chardev=c{i}")]);
        let device = format!(
            "virtio-net-pci,netdev=n{i},mac={mac},addr={},romfile=,packed={},mrg_rxbuf={},\
             rx_queue_size=1024,tx_queue_size=1024,disable-legacy=on",
            2 + i,
            on(rings.packed),
            on(rings.mergeable)
        );
        args.extend(["-device".into(), device]);
    }
    args
}

/// Features of a virtio device in sysfs: one digit per bit, bit 0 first.
fn bits(text: &str) -> Option<u64> {
    let digits = text.trim();
    let bit = |(at, digit): (usize, char)| match digit {
        '1' => Some(1u64 << at),
        '0' => Some(0),
        _ => None,
    };
    if digits.len() == 64 { digits.chars().enumerate().map(bit).sum() } else { None }
}

/// Parses the output of the guest's `count`.
fn counted(text: &str) -> Option<GuestCounters> {
    let number = |name: &str| {
        let mut words = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
        words.next()?.parse::<u64>().ok()
    };
    Some(GuestCounters {
        nanos: number("now ")?,
        received: number("eth0 ")? + number("eth1 ")?,
        drained: number("sink ")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_digits_from_bit_0_on() {
        let of = |set: &[usize]| -> String {
            (0..64).map(|bit| if set.contains(&bit) { '1' } else { '0' }).collect()
        };
        assert_eq!(bits(&of(&[0, 15, 32, 34])), Some(1 | 1 << 15 | 1 << 32 | 1 << 34));
        assert_eq!(bits("0110"), None);
        assert_eq!(bits(&of(&[]).replace('0', "x")), None);
    }

    #[test]
    fn counters_are_named_and_all_are_needed() {
        let text = "now 123456789\neth0 10\neth1 32\nsink 5\n";
        assert_eq!(
            counted(text),
            Some(GuestCounters { nanos: 123_456_789, received: 42, drained: 5 })
        );
        assert_eq!(counted("now 1\neth0 10\nsink 5\n"), None);
    }

    #[test]
    fn a_missing_tree_is_told_with_its_remedy() {
        let missing = Qemu::missing(Path::new("/nowhere/release/shunt")).unwrap();
        assert!(missing.contains("tests/e2e/setup"), "{missing}");
    }

    #[test]
    fn rings_are_properties_of_each_port() {
        let rings = QemuRings { packed: true, mergeable: false };
        let macs = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
        let sockets = ["/a", "/b"].map(PathBuf::from);
        let words = ports(&sockets, macs, rings).join(" ");
        assert_eq!(words.matches("packed=on,mrg_rxbuf=off").count(), 2, "{words}");
        let machine = machine(Path::new("/tree"), "tcg", 3).join(" ");
        assert!(machine.starts_with("taskset -c 3 /tree/tree/"), "{machine}");
        let place = |word: &str| words.find(word).unwrap();
        assert!(place("id=c1,path=/b") < place("vhost-user,id=n0"), "listens on both first");
    }
}
