"""Open vSwitch with its user-space datapath: private database, private sockets, separate from the host's.

A subclass defines the start of ovs-vswitchd, its settings and its ports. Needs root: the datapath makes tap devices.
"""

import os
import signal
import subprocess
import time

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
BRIDGE = "shunt-peer"


class OvsError(Exception):
    """Open vSwitch did not do what it was told."""


class Ovs:
    """ovsdb-server and ovs-vswitchd in `run_dir`."""

    def __init__(self, run_dir, *, cpu):
        self.run_dir = run_dir
        self.cpu = cpu
        self._processes = []
        self._db = f"unix:{run_dir}/db.sock"
        dirs = ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"]
        self._env = dict(os.environ, **dict.fromkeys(dirs, run_dir))

    def start(self):
        """Starts both daemons and configures them."""
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

    def settings(self):
        """The `other_config` of this run."""
        raise NotImplementedError

    def vswitchd(self):
        """Command that starts ovs-vswitchd."""
        raise NotImplementedError

    def add_ports(self):
        """The bridge's ports."""
        raise NotImplementedError

    def pids(self):
        """All processes of it that run; ovs-vswitchd is the last one."""
        return [process.pid for process in self._processes if process.poll() is None]

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
