"""Open vSwitch with DPDK as a back-end: private database, private sockets, nothing of the host's own.

One bridge with the user-space datapath, two `dpdkvhostuserclient` ports, one static flow each way. The
polling thread has a CPU of its own; the main thread, which sleeps, sits on the guest's CPU. Needs root: the
datapath makes tap devices. They outlive the process that made them, so ovs-vswitchd gets a network namespace
of its own, with which they go.
"""

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass

from rules import VLAN, ovs_flows

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
VSWITCHD = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
BRIDGE = "shunt-peer"
# OVS adds --in-memory when neither it nor --legacy-mem is there, and --in-memory excludes --no-huge.
EAL_NO_HUGE = "--legacy-mem --no-huge -m 2048"
EAL_HUGE = "--in-memory -m 512"


class OvsError(Exception):
    """Open vSwitch did not do what it was told."""


@dataclass(frozen=True)
class Sample:
    """The polling thread's counters since they were cleared.

    `busy_cycles` are time-stamp cycles of iterations (one turn over all receive queues) in which at least
    one frame was received or sent; `pmd-perf-show` prints busy_cycles / frames as "cycles/pkt".
    """

    frames: int
    busy_cycles: int
    idle_cycles: int
    perf_show_cycles: float


class Ovs:
    """ovsdb-server and ovs-vswitchd in `run_dir`, with a port for each VF socket."""

    name = "ovs"

    def __init__(self, run_dir, sockets, *, cpu, main_cpu, hugepages=False, rules=False):
        self.run_dir = run_dir
        self.sockets = list(sockets)
        self.cpu = cpu
        self.main_cpu = main_cpu
        self.rules = rules
        self.eal = f"{EAL_HUGE if hugepages else EAL_NO_HUGE} --no-pci --no-telemetry --file-prefix=ovs"
        self._processes = []
        self._db = f"unix:{run_dir}/db.sock"
        dirs = ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"]
        self._env = dict(os.environ, **dict.fromkeys(dirs, run_dir))

    def socket(self, index):
        """The path of a port's socket."""
        return self.sockets[index]

    def start(self):
        """Starts both daemons and configures them; every port waits for its guest afterwards."""
        self._run("ovsdb-tool", "create", f"{self.run_dir}/conf.db", SCHEMA)
        self._spawn(
            "ovsdb-server", f"{self.run_dir}/conf.db", f"--remote=punix:{self.run_dir}/db.sock",
            f"--unixctl={self.run_dir}/ovsdb.ctl", f"--log-file={self.run_dir}/ovsdb.log",
        )  # fmt: skip
        self._wait(f"{self.run_dir}/db.sock")
        self._vsctl("--no-wait", "init")
        self._vsctl("--no-wait", "set", "Open_vSwitch", ".", *self.settings())
        self._spawn(
            *self.vswitchd(), self._db,
            f"--unixctl={self.run_dir}/vswitchd.ctl", f"--log-file={self.run_dir}/vswitchd.log",
        )  # fmt: skip
        self._wait(f"{self.run_dir}/vswitchd.ctl")
        self._vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev")
        self.add_ports()

    def vswitchd(self):
        """How ovs-vswitchd is started."""
        return ["unshare", "--net", VSWITCHD]

    def add_ports(self):
        """A port for each socket, and the flows."""
        for i, path in enumerate(self.sockets):
            self._vsctl(
                "add-port", BRIDGE, f"vf{i}", "--", "set", "Interface", f"vf{i}", f"ofport_request={i + 1}",
                "type=dpdkvhostuserclient", f"options:vhost-server-path={path}",
            )  # fmt: skip
        self._ofctl("del-flows", f"{self.run_dir}/{BRIDGE}.mgmt")
        for flow in self._flows():
            self._ofctl("add-flow", f"{self.run_dir}/{BRIDGE}.mgmt", flow)

    def _flows(self):
        """One flow each way; or, with rules, the list of them and what a learning switch does."""
        if not self.rules:
            return [f"in_port={i + 1},actions=output:{(i ^ 1) + 1}" for i in range(len(self.sockets))]
        for i in range(len(self.sockets)):
            self._vsctl("set", "Port", f"vf{i}", f"tag={VLAN}", "vlan_mode=access")
        return ovs_flows()

    def settings(self):
        """The `other_config` of this run."""
        return [
            "other_config:dpdk-init=true",
            f"other_config:pmd-cpu-mask={1 << self.cpu:#x}",
            f"other_config:dpdk-lcore-mask={1 << self.main_cpu:#x}",
            f"other_config:dpdk-extra={self.eal}",
        ]

    def wait_ready(self):
        """`start` has waited already."""

    def clear(self):
        """Sets the polling thread's counters to zero."""
        self._appctl("dpif-netdev/pmd-stats-clear")

    def sample(self):
        """The counters since `clear`."""
        stats = self._pmd(self._appctl("dpif-netdev/pmd-stats-show"))
        perf = self._pmd(self._appctl("dpif-netdev/pmd-perf-show"))
        return Sample(
            frames=int(self._find(r"packets received: (\d+)", stats)),
            busy_cycles=int(self._find(r"processing cycles: (\d+)", stats)),
            idle_cycles=int(self._find(r"idle cycles: (\d+)", stats)),
            perf_show_cycles=float(self._find(r"Rx packets:.*?(\d+) cycles/pkt", perf)),
        )

    def counters(self):
        """(frames, busy cycles) since `clear`."""
        stats = self._pmd(self._appctl("dpif-netdev/pmd-stats-show"))
        frames = self._find(r"packets received: (\d+)", stats)
        return int(frames), int(self._find(r"processing cycles: (\d+)", stats))

    def pids(self):
        """All processes of it that run; the last one has the polling thread."""
        return [process.pid for process in self._processes if process.poll() is None]

    def describe(self):
        """How frames are matched, in the words of `pmd-stats-show`."""
        stats = self._pmd(self._appctl("dpif-netdev/pmd-stats-show"))
        names = ["simple match hits", "emc hits", "smc hits", "megaflow hits"]
        return ", ".join(name + " " + self._find(name + r": (\d+)", stats) for name in names)

    def _pmd(self, text):
        """The part about the polling thread, without the main thread's."""
        match = re.search(rf"pmd thread numa_id \d+ core_id {self.cpu}:(.*?)(?=main thread|pmd thread|\Z)", text, re.S)
        if not match:
            raise OvsError(f"no polling thread on CPU {self.cpu} in:\n{text}")
        return match[1]

    def _find(self, pattern, text):
        match = re.search(pattern, text)
        if not match:
            raise OvsError(f"no {pattern!r} in:\n{text}")
        return match[1]

    def close(self):
        """Ends both daemons: the last started first."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
        self._processes = []

    def _spawn(self, *argv):
        with open(f"{self.run_dir}/{os.path.basename(argv[0])}.out", "ab") as out:
            self._processes.append(
                subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._env,
                    start_new_session=True,
                )  # fmt: skip
            )

    def _wait(self, path, timeout=15.0):
        """Waits for a socket, as long as the process that is to make it lives."""
        deadline = time.monotonic() + timeout
        while not os.path.exists(path):
            if self._processes[-1].poll() is not None or time.monotonic() > deadline:
                raise OvsError(f"no {path}; the end of the log:\n{self.log()}")
            time.sleep(0.02)

    def log(self):
        """The end of ovs-vswitchd's log."""
        try:
            with open(f"{self.run_dir}/vswitchd.log", encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-15:])
        except FileNotFoundError:
            return "(none)"

    def _run(self, *argv):
        result = subprocess.run(
            argv, env=self._env, capture_output=True, text=True, timeout=30, check=False
        )
        if result.returncode != 0:
            raise OvsError(f"{' '.join(argv)}: {result.stderr.strip()}\nthe end of the log:\n{self.log()}")
        return result.stdout

    def _vsctl(self, *args):
        return self._run("ovs-vsctl", f"--db={self._db}", "--timeout=20", *args)

    def _ofctl(self, *args):
        return self._run("ovs-ofctl", *args)

    def _appctl(self, *args):
        return self._run("ovs-appctl", "-t", f"{self.run_dir}/vswitchd.ctl", *args)
