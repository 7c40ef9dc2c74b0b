"""The shunt daemon under test: a configuration, a process, its counters.

The daemon runs in the foreground with its run directory in a temporary directory of the test. It is
ready when it has written a line with the word `ready` to its log (standard output or error).
"""

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_BINARY = os.path.join(HERE, "..", "..", "target", "release", "shunt")


class DaemonError(Exception):
    """The daemon did not do what it was told; the text holds the end of its log."""


@dataclass(frozen=True)
class Vf:
    """One VF of the NIC and its vhost-user socket. `mode`: who connects, as in shunt.toml."""

    mac: str
    socket: str
    mode: str = "client"
    in_order: bool = True
    mergeable: bool = True
    packed: bool = True
    queue_pairs: int = 1


def config_text(run_dir, vfs, cpu):
    """A shunt.toml with one soft NIC and one lane on `cpu`."""
    lines = [f"run_dir = {json.dumps(run_dir)}", "[lanes]", f"cpus = [{cpu}]"]
    lines += ["[[nic]]", 'name = "nic0"', 'kind = "soft"']
    for vf in vfs:
        lines.append("[[nic.vf]]")
        lines.append(f"mac = {json.dumps(vf.mac)}")
        attachment = {name: value for name, value in vars(vf).items() if name != "mac"}
        lines += [f"attachment.{name} = {json.dumps(value)}" for name, value in attachment.items()]
    return "\n".join(lines) + "\n"


def binary():
    """The shunt binary: $SHUNT, or the release build of this checkout."""
    path = os.path.abspath(os.environ.get("SHUNT", DEFAULT_BINARY))
    if not os.access(path, os.X_OK):
        raise DaemonError(f"no shunt binary at {path}: cargo build --release, or set SHUNT")
    return path


class Daemon:
    """One `shunt up`; `kill` and `start` again stand for a crash and its restart."""

    name = "shunt"
    resume_limit_s = 1.0  # promise: traffic resumes this soon after a restart
    keeps_frames = True  # the promise: a restart loses no frame that a guest has posted
    popen = {}  # further options for the process
    options = ()  # of `shunt up`
    forbids = False  # a system call is to be refused
    within = ()  # what the command line begins with: `ip netns exec NAME`

    def __init__(self, run_dir, vfs, *, cpu, config=None):
        self.run_dir = run_dir
        self.cpu = cpu
        self.vfs = list(vfs)
        self.program = binary()
        self.config_file = os.path.join(run_dir, "shunt.toml")
        self._log = os.path.join(run_dir, "shunt.log")
        self._process = None
        self._log_start = 0
        with open(self.config_file, "w", encoding="utf-8") as file:
            file.write(config or config_text(run_dir, self.vfs, cpu))

    def socket(self, index):
        """The path of a VF's socket."""
        return os.path.join(self.run_dir, self.vfs[index].socket)

    def start(self):
        """Starts the process; does not wait."""
        self._log_start = os.path.getsize(self._log) if os.path.exists(self._log) else 0
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*self.within, self.program, "up", "--config", self.config_file, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.popen,
            )

    def log(self):
        """Log of the running process."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            file.seek(self._log_start)
            return file.read()

    def wait_ready(self, timeout=10.0):
        """Waits for the line that says `ready`."""
        deadline = time.monotonic() + timeout
        while not re.search(r"\bready\b", self.log()):
            self.check_alive()
            if time.monotonic() > deadline:
                raise DaemonError(f"shunt is not ready after {timeout} s; its log:\n{self.log()}")
            time.sleep(0.005)

    def check_alive(self):
        """Raises if the process has ended unexpectedly."""
        code = self._process.poll()
        if code is not None:
            raise DaemonError(f"shunt ended with {code}; its log:\n{self.log()[-4000:]}")

    def pids(self):
        """The daemon's process, as long as it runs."""
        return [self._process.pid] if self._process and self._process.poll() is None else []

    def stats(self):
        """Output of `shunt stats --json`: {"ports": [...], "lanes": [...]}."""
        result = subprocess.run(
            [self.program, "stats", "--json", "--run-dir", self.run_dir],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        if result.returncode != 0:
            raise DaemonError(f"shunt stats: exit code {result.returncode}: {result.stderr}")
        return json.loads(result.stdout)

    def kill(self):
        """SIGKILL, and waits for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self.check_sandbox()

    def check_sandbox(self):
        """Raises if the sandbox has refused a call, which none of the daemon's threads makes."""
        refused = [line for line in self.log().splitlines() if "sandbox: refused" in line]
        if refused and not self.forbids:
            raise DaemonError("\n".join(refused))

    def close(self):
        """SIGTERM, and SIGKILL when that takes longer than 5 s."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self.check_sandbox()
