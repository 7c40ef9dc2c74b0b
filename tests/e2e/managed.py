"""A daemon that is managed: it starts empty, keeps its state, and is asked by commands and over HTTP."""

import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass

from daemon import Daemon, DaemonError, binary

NOBODY = 65534
TOKEN = "end-to-end-0123456789abcdef"
# Warnings that a hypervisor causes which takes the CPU from a daemon with honest guests, and how many are borne.
TAKEN_MAX = 2
TAKEN = ("more than 1 ms in a second; its interrupts", " by a page fault; its rings", " ms in that page fault")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path, timeout=20):
        super().__init__("shunt", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Reply:
    """An answer of the API. `body`: from JSON, None without one."""

    status: int
    headers: dict
    body: object


def exchange(connection, method, path, body=None, headers=None):
    """One request, and its `Reply`. `body` is sent unchanged."""
    try:
        try:
            connection.request(method, path, body=body, headers=headers or {})
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough; the answer may be there all the same
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    parsed = json.loads(data) if data else None
    return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, parsed)


def large(path):
    """A document with 255 VFs, and 64 adapters. `path(name)` is that of a socket."""
    adapters = [
        {"name": f"guest-{i:02}", "switch": "sw0", "mac": f"02:00:00:00:02:{i:02x}", "iov_weight": 50,
         "attachment": {"socket": path(f"guest-{i:02}.sock")}}
        for i in range(64)
    ]  # fmt: skip
    return {
        "version": 1,
        "nic": [{"name": "nic0", "total_vfs": 255, "num_vfs": 255}],
        "switch": [{"name": "sw0", "nic": "nic0", "iov": True}],
        "adapter": adapters,
    }


def with_objects(config, objects):
    """The text of a configuration without objects, with these, as TOML."""
    values, tables = config.split("[", 1)
    return f"{values}{objects}\n[{tables}"


class Managed(Daemon):
    """`shunt up` with a state directory, in a temporary directory that others may enter."""

    def __init__(self, *, cpu, tcp=False):
        program = binary()  # before there is anything to remove
        run_dir = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        os.chmod(run_dir, 0o755)  # what keeps others out shall be the socket itself
        self.state_dir = os.path.join(run_dir, "kept")
        lines = [f"run_dir = {json.dumps(run_dir)}", f"state_dir = {json.dumps(self.state_dir)}"]
        if tcp:
            token_file = os.path.join(run_dir, "token")
            with open(os.open(token_file, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
                file.write(TOKEN + "\n")
            self.port = free_port()
            lines += ["[api]", f'tcp = "127.0.0.1:{self.port}"', f"token_file = {json.dumps(token_file)}"]
        lines += ["[lanes]", f"cpus = [{cpu}]"]
        super().__init__(run_dir, [], cpu=cpu, config="\n".join(lines) + "\n")

        # A copy that others may run, too: the one of the checkout may be in a directory that is not for them.
        # Nor is it started from where the daemon may create files.
        self.programs = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        os.chmod(self.programs, 0o755)
        self.program = shutil.copy(program, os.path.join(self.programs, "shunt"))
        os.chmod(self.program, 0o755)

    def give_to(self, user):
        """The daemon to be started is another user's, which only root may say."""
        self.popen = as_user(user)
        for name in [".", *os.listdir(self.run_dir), self.programs, self.program]:
            os.chown(self.path(name), user, user)

    def restart_with(self, objects):
        """Starts again without a stored state: the objects are in the configuration, as TOML."""
        self.kill()
        shutil.rmtree(self.state_dir)
        with open(self.config_file, "r+", encoding="utf-8") as file:
            text = with_objects(file.read(), objects)
            file.seek(0)
            file.write(text)
        self.start()
        self.wait_ready()

    def path(self, name):
        """A path in the run directory."""
        return os.path.join(self.run_dir, name)

    def command(self, *args, given="", **options):
        """Runs a command of shunt against this daemon; returns what `subprocess.run` does."""
        argv = [self.program, *args, "--run-dir", self.run_dir]
        return subprocess.run(
            argv, input=given, capture_output=True, text=True, timeout=30, check=False, **options
        )

    def says(self, *args, given=""):
        """Output of a command that must succeed."""
        done = self.command(*args, given=given)
        if done.returncode != 0 or done.stderr:
            raise DaemonError(f"shunt {' '.join(args)}: exit code {done.returncode}: {done.stderr}")
        return done.stdout

    def upgrade(self, *args):
        """Has a new process take over, which is this daemon's from then on; returns what the command tells."""
        told = json.loads(self.says("upgrade", "--json", *args))
        self.follow(told["pid"])
        return told

    def follow(self, pid):
        """A process has taken over: it is this daemon's from now on, and the one before ends."""
        before, self._process = self._process, Successor(pid)
        if before.wait(timeout=10) != 0:
            raise DaemonError(f"the process that was replaced did not end well; its log:\n{self.log()[-3000:]}")

    def export(self):
        """The desired state, as a document."""
        return json.loads(self.says("export", "--json"))

    def apply(self, document):
        """Makes a document the whole state by the command; returns what that printed."""
        return self.says("apply", "-f", "-", "--prune", "--yes", given=json.dumps(document))

    def clear(self):
        """Deletes everything, one by one: no document says that there shall be nothing."""
        state = self.export()
        for kind in ("adapter", "switch", "nic"):
            for one in state[kind]:
                self.says(kind, "delete", one["name"])

    def ask(self, path, method="GET", **request):
        """A `Reply` over the UNIX socket."""
        return exchange(UnixConnection(self.path("api.sock")), method, path, **request)

    def ask_tcp(self, path, method="GET", token=TOKEN, headers=None, **request):
        """A `Reply` over TCP; with `token=None` none is shown."""
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        return exchange(connection, method, path, headers=headers, **request)

    def complaints(self, expected=()):
        """Lines of the log that warn, tell of an error or of a panic, but for those with an expected text. A few that a
        hypervisor may have caused are printed in place of it."""
        signs = (" WARN ", " ERROR ", "panicked", "WARN:", "ERROR:")
        lines = [line for line in self.log().splitlines() if any(sign in line for sign in signs)]
        lines = [line for line in lines if not any(text in line for text in expected)]
        taken = [line for line in lines if any(text in line for text in TAKEN)]
        if len(taken) > TAKEN_MAX:
            return lines
        for line in taken:
            print(f"    {line}")
        return [line for line in lines if line not in taken]

    def close_process(self):
        """Ends the daemon."""
        super().close()

    def close(self):
        """Ends the daemon and removes its directories."""
        self.close_process()
        shutil.rmtree(self.programs, ignore_errors=True)
        shutil.rmtree(self.run_dir, ignore_errors=True)


class Successor:
    """A process that took over from one of ours, as far as `subprocess.Popen` is like it."""

    def __init__(self, pid):
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def __del__(self):
        os.close(self._descriptor)

    def _send(self, number):
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            pass  # it has ended

    def poll(self):
        """None while it runs. Its exit code is its parent's to know."""
        return 0 if select.select([self._descriptor], [], [], 0)[0] else None

    def wait(self, timeout):
        """Waits for its end."""
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return 0

    def terminate(self):
        """Asks it to end."""
        self._send(signal.SIGTERM)

    def kill(self):
        """Ends it."""
        self._send(signal.SIGKILL)


def as_user(user):
    """Options for a process of another user."""
    return {"user": user, "group": user, "extra_groups": []}


def free_port():
    """An unused TCP port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
