//! Open vSwitch with DPDK as a back-end, apart from one that the host may run.
//!
//! # Model
//! A database, sockets and logs of its own in a temporary directory; one bridge with the user-space
//! datapath and two `dpdkvhostuserclient` ports. The polling thread has a CPU of its own; the main
//! thread, which sleeps, shares the guest's. ovs-vswitchd runs in a network namespace of its own,
//! with which its tap devices end. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::process::{Peer, is_installed};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const BRIDGE: &str = "shunt-peer";
/// Time for a daemon's control socket to appear.
const READY: Duration = Duration::from_secs(15);
/// Directories of Open vSwitch and DPDK, each by its variable.
const DIRECTORIES: [&str; 5] =
    ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"];

/// Frames between the ports.
#[derive(Clone, Debug)]
pub enum Flows {
    /// One static flow each way.
    Static,
    /// These OpenFlow flows, with both ports in a VLAN.
    Rules(Vec<String>, u16),
}

/// ovsdb-server and ovs-vswitchd; ended when dropped.
#[derive(Debug)]
pub struct Ovs {
    dir: PathBuf,
    cpu: usize,
    /// ovs-vswitchd first: it is ended first.
    processes: Vec<Peer>,
}

impl Ovs {
    /// `true` if Debian's Open vSwitch with DPDK is installed.
    pub fn is_installed() -> bool {
        is_installed(VSWITCHD) && is_installed("ovsdb-tool")
    }

    /// Starts both daemons, with a port for each socket, on which guests listen.
    ///
    /// # Errors
    /// A daemon does not start, or refuses its configuration.
    pub fn start(
        sockets: &[PathBuf; 2],
        (cpu, main_cpu): (usize, usize),
        dir: &Path,
        hugepages: bool,
        flows: &Flows,
    ) -> Result<Ovs> {
        let mut ovs = Ovs { dir: dir.to_owned(), cpu, processes: Vec::new() };
        let at = |name: &str| dir.join(name).display().to_string();
        ovs.call("ovsdb-tool", &["create", &at("conf.db"), SCHEMA])?;
        let server = [
            "ovsdb-server".to_owned(),
            at("conf.db"),
            format!("--remote=punix:{}", at("db.sock")),
            format!("--unixctl={}", at("ovsdb.ctl")),
        ];
        ovs.spawn(&server, "db.sock")?;
        // --in-memory excludes --no-huge, and is added where --legacy-mem is not.
        let memory =
            if hugepages { "--in-memory -m 512" } else { "--legacy-mem --no-huge -m 2048" };
        ovs.vsctl(&["--no-wait", "init"])?;
        ovs.vsctl(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            &format!("other_config:pmd-cpu-mask={:#x}", 1u64 << cpu),
            &format!("other_config:dpdk-lcore-mask={:#x}", 1u64 << main_cpu),
            &format!(
                "other_config:dpdk-extra={memory} --no-pci --no-telemetry --file-prefix=shunt-ovs"
            ),
        ])?;
        let vswitchd = [
            "unshare".to_owned(),
            "--net".to_owned(),
            VSWITCHD.to_owned(),
            format!("unix:{}", at("db.sock")),
            format!("--unixctl={}", at("vswitchd.ctl")),
        ];
        ovs.spawn(&vswitchd, "vswitchd.ctl")?;
        ovs.vsctl(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        for (i, socket) in sockets.iter().enumerate() {
            let (port, path) = (format!("vf{i}"), socket.display());
            ovs.vsctl(&[
                "add-port",
                BRIDGE,
                &port,
                "--",
                "set",
                "Interface",
                &port,
                &format!("ofport_request={}", i + 1),
                "type=dpdkvhostuserclient",
                &format!("options:vhost-server-path={path}"),
            ])?;
        }
        ovs.set_flows(flows)?;
        Ok(ovs)
    }

    fn set_flows(&self, flows: &Flows) -> Result<()> {
        let bridge = self.dir.join(format!("{BRIDGE}.mgmt")).display().to_string();
        self.call("ovs-ofctl", &["del-flows", &bridge])?;
        let both =
            ["in_port=1,actions=output:2".to_owned(), "in_port=2,actions=output:1".to_owned()];
        let list = match flows {
            Flows::Static => &both[..],
            Flows::Rules(list, vlan) => {
                for port in ["vf0", "vf1"] {
                    let tag = format!("tag={vlan}");
                    self.vsctl(&["set", "Port", port, &tag, "vlan_mode=access"])?;
                }
                list
            }
        };
        list.iter()
            .try_for_each(|flow| self.call("ovs-ofctl", &["add-flow", &bridge, flow]).map(drop))
    }

    /// Process ids; that of the polling thread last.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().rev().map(Peer::pid).collect()
    }

    /// Fails if a daemon has ended by itself.
    ///
    /// # Errors
    /// It has.
    pub fn check_alive(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Peer::check_alive)
    }

    /// Sets the polling thread's counters to zero.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn clear_cycles(&self) -> Result<()> {
        self.appctl("dpif-netdev/pmd-stats-clear").map(drop)
    }

    /// Frames received and cycles of the turns that received or sent some, since
    /// [`clear_cycles`](Self::clear_cycles): `pmd-stats-show` calls the latter processing cycles.
    ///
    /// # Errors
    /// The daemon does not answer, or has no polling thread on the CPU.
    pub fn cycles(&self) -> Result<(u64, u64)> {
        let text = self.appctl("dpif-netdev/pmd-stats-show")?;
        let name = format!("core_id {}:", self.cpu);
        let own = text.split(&name).nth(1);
        let own = own.with_context(|| format!("no polling thread on CPU {}:\n{text}", self.cpu))?;
        let own = own.split("thread").next().unwrap_or_default();
        let number = |name: &str| {
            let digits = own.split(name).nth(1)?.split_whitespace().next()?;
            digits.parse::<u64>().ok()
        };
        let found = number("packets received: ").zip(number("processing cycles: "));
        found.with_context(|| format!("no counters of the polling thread in:\n{text}"))
    }

    fn appctl(&self, command: &str) -> Result<String> {
        let socket = self.dir.join("vswitchd.ctl").display().to_string();
        self.call("ovs-appctl", &["-T", "10", "-t", &socket, command])
    }

    fn vsctl(&self, args: &[&str]) -> Result<String> {
        let db = format!("--db=unix:{}", self.dir.join("db.sock").display());
        self.call("ovs-vsctl", &[&[db.as_str(), "--timeout=20"], args].concat())
    }

    fn spawn(&mut self, args: &[String], socket: &str) -> Result<()> {
        let env = DIRECTORIES.map(|name| (name, self.dir.as_path()));
        let peer = Peer::start(args, &self.dir, &env, Some(Signal::TERM))?;
        self.processes.insert(0, peer);
        let (path, until) = (self.dir.join(socket), Instant::now() + READY);
        while !path.exists() {
            self.check_alive()?;
            if Instant::now() > until {
                bail!("{} did not appear within {READY:?}", path.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn call(&self, program: &str, args: &[&str]) -> Result<String> {
        let env = DIRECTORIES.map(|name| (name, self.dir.as_path()));
        let output = Command::new("timeout")
            .args(["30", program])
            .args(args)
            .envs(env)
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} {}: {}", args.join(" "), error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
