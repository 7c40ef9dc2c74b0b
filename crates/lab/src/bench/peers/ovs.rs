//! Open vSwitch with its user-space datapath, separate from one that the host may run.
//!
//! # Model
//! A database, sockets and logs of its own in a temporary directory; one bridge with two ports.
//!
//! With DPDK these are `dpdkvhostuserclient` ports. The polling thread has a CPU of its own; the
//! main thread, which sleeps, shares the guest's CPU. ovs-vswitchd runs in a network namespace of
//! its own, with which its tap devices end.
//!
//! Without DPDK the ports are interfaces of this process's network namespace, which Open vSwitch
//! reads and writes through AF_PACKET sockets. There is no polling thread: the main thread
//! forwards, on the CPU of the switch. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use host::tsc;
use rustix::process::Signal;

use super::process::{CpuWait, Peer, is_installed};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const WITH_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const WITHOUT_DPDK: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
const BRIDGE: &str = "shunt-peer";
/// Longest wait for a daemon's control socket.
const READY: Duration = Duration::from_secs(15);
/// Directories of Open vSwitch and DPDK, each with its variable.
const DIRECTORIES: [&str; 5] =
    ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"];

/// Flows between the ports.
#[derive(Clone, Debug)]
pub enum Flows {
    /// One static flow in each direction.
    Static,
    /// These OpenFlow flows, with both ports in a VLAN.
    Rules(Vec<String>, u16),
}

/// Ports of the bridge, and their kind.
#[derive(Clone, Copy, Debug)]
pub enum Ports<'a> {
    /// DPDK's vhost library, for each socket on which a guest listens.
    Dpdk {
        /// Sockets.
        sockets: &'a [PathBuf; 2],
        /// CPU of the main thread, which sleeps.
        main_cpu: usize,
        /// Use reserved huge pages.
        hugepages: bool,
    },
    /// Interfaces of this process's network namespace.
    Interfaces(&'a [String; 2]),
}

/// Looks in `/usr/sbin` too, which an ordinary user's search path may lack.
fn has_tools() -> bool {
    ["ovsdb-tool", "ovsdb-server"].into_iter().all(is_installed)
}

/// ovsdb-server and ovs-vswitchd; ended when dropped.
#[derive(Debug)]
pub struct Ovs {
    dir: PathBuf,
    /// CPU of the polling thread; `None` without DPDK.
    polling_cpu: Option<usize>,
    /// ovs-vswitchd first: it is ended first.
    processes: Vec<Peer>,
}

impl Ovs {
    /// Returns `true` if Debian's Open vSwitch with DPDK is installed.
    pub fn is_installed_with_dpdk() -> bool {
        is_installed(WITH_DPDK) && has_tools()
    }

    /// Returns `true` if Debian's Open vSwitch is installed.
    pub fn is_installed() -> bool {
        is_installed(WITHOUT_DPDK) && has_tools()
    }

    /// Starts both daemons; `cpu` is that of the forwarding thread.
    ///
    /// # Errors
    /// A daemon does not start, or rejects its configuration.
    pub fn start(ports: Ports<'_>, cpu: usize, dir: &Path, flows: &Flows) -> Result<Ovs> {
        let polling_cpu = matches!(ports, Ports::Dpdk { .. }).then_some(cpu);
        let mut ovs = Ovs { dir: dir.to_owned(), polling_cpu, processes: Vec::new() };
        let at = |name: &str| dir.join(name).display().to_string();
        ovs.call("ovsdb-tool", &["create", &at("conf.db"), SCHEMA])?;
        let server = [
            "ovsdb-server".to_owned(),
            at("conf.db"),
            format!("--remote=punix:{}", at("db.sock")),
            format!("--unixctl={}", at("ovsdb.ctl")),
        ];
        ovs.spawn(&server, "db.sock")?;
        ovs.vsctl(&["--no-wait", "init"])?;
        let mut vswitchd: Vec<String> = match ports {
            Ports::Dpdk { main_cpu, hugepages, .. } => {
                ovs.set_dpdk(cpu, main_cpu, hugepages)?;
                ["unshare", "--net", WITH_DPDK].map(String::from).into()
            }
            Ports::Interfaces(_) => {
                ["taskset", "-c", &cpu.to_string(), WITHOUT_DPDK].map(String::from).into()
            }
        };
        vswitchd.push(format!("unix:{}", at("db.sock")));
        vswitchd.push(format!("--unixctl={}", at("vswitchd.ctl")));
        ovs.spawn(&vswitchd, "vswitchd.ctl")?;
        ovs.vsctl(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        let names = match ports {
            Ports::Dpdk { .. } => ["vf0", "vf1"].map(String::from),
            Ports::Interfaces(names) => names.clone(),
        };
        for (i, name) in names.iter().enumerate() {
            let number = format!("ofport_request={}", i + 1);
            let add = ["add-port", BRIDGE, name, "--", "set", "Interface", name, &number];
            match ports {
                Ports::Dpdk { sockets, .. } => {
                    let path = format!("options:vhost-server-path={}", sockets[i].display());
                    ovs.vsctl(&[&add[..], &["type=dpdkvhostuserclient", &path]].concat())?;
                }
                Ports::Interfaces(_) => drop(ovs.vsctl(&add)?),
            }
        }
        ovs.set_flows(flows, &names)?;
        Ok(ovs)
    }

    fn set_dpdk(&self, cpu: usize, main_cpu: usize, hugepages: bool) -> Result<()> {
        // --in-memory excludes --no-huge; it is implied without --legacy-mem.
        let memory =
            if hugepages { "--in-memory -m 512" } else { "--legacy-mem --no-huge -m 2048" };
        self.vsctl(&[
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
        Ok(())
    }

    fn set_flows(&self, flows: &Flows, ports: &[String; 2]) -> Result<()> {
        let bridge = self.dir.join(format!("{BRIDGE}.mgmt")).display().to_string();
        self.call("ovs-ofctl", &["del-flows", &bridge])?;
        let both =
            ["in_port=1,actions=output:2".to_owned(), "in_port=2,actions=output:1".to_owned()];
        let list = match flows {
            Flows::Static => &both[..],
            Flows::Rules(list, vlan) => {
                for port in ports {
                    let tag = format!("tag={vlan}");
                    self.vsctl(&["set", "Port", port, &tag, "vlan_mode=access"])?;
                }
                list
            }
        };
        list.iter()
            .try_for_each(|flow| self.call("ovs-ofctl", &["add-flow", &bridge, flow]).map(drop))
    }

    /// Process ids; that of the forwarding thread last.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().rev().map(Peer::pid).collect()
    }

    /// Fails if a daemon has ended unexpectedly.
    ///
    /// # Errors
    /// It has.
    pub fn check_alive(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Peer::check_alive)
    }

    /// Frames received and cycles of the forwarding thread.
    ///
    /// With DPDK these are the cycles of the turns that received or sent frames, which
    /// `pmd-stats-show` calls processing cycles; those of the main thread are excluded. Without
    /// DPDK they are the CPU time of ovs-vswitchd, its system calls included.
    ///
    /// # Errors
    /// The daemon does not answer, or has no polling thread on the CPU.
    pub fn cycles(&self) -> Result<(u64, u64)> {
        let text = self.appctl("dpif-netdev/pmd-stats-show")?;
        let found = match self.polling_cpu {
            Some(cpu) => {
                let thread = format!("core_id {cpu}:");
                let cycles = counter(&text, &thread, "processing cycles: ");
                counter(&text, &thread, "packets received: ").zip(cycles)
            }
            None => {
                let cpu_ns = self.processes.first().map(|vswitchd| CpuWait::read(vswitchd.pid()));
                let cycles = cpu_ns.map(|cpu| tsc::duration_to_cycles(cpu.had()));
                counter(&text, "main thread:", "packets received: ").zip(cycles)
            }
        };
        found.with_context(|| format!("no counters of the forwarding thread in:\n{text}"))
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

/// A counter of a thread in the output of `pmd-stats-show`.
fn counter(text: &str, thread: &str, name: &str) -> Option<u64> {
    let own = text.split(thread).nth(1)?.split("thread").next()?;
    own.split(name).nth(1)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_thread() {
        let text = "pmd thread numa_id 0 core_id 1:\n  packets received: 12\n  \
                    idle cycles: 5 (1%)\n  processing cycles: 99 (99%)\n\
                    main thread:\n  packets received: 3\n  smc hits: 0\n";
        assert_eq!(counter(text, "core_id 1:", "packets received: "), Some(12));
        assert_eq!(counter(text, "core_id 1:", "processing cycles: "), Some(99));
        assert_eq!(counter(text, "main thread:", "packets received: "), Some(3));
        assert_eq!(counter(text, "main thread:", "processing cycles: "), None);
        assert_eq!(counter(text, "core_id 2:", "packets received: "), None);
    }
}
