"""A machine of the test cluster: namespaces of its own, with a process 1, file systems, cgroups and an interface.

Nothing outside of them changes but a directory below the cgroups of the test, which `close` removes. The machine ends with
the test, even if that is killed: its process 1 ends, and with it all processes of its process namespace.
"""

import os
import shutil
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
CACHE = os.path.join(TARGET, "k8s")  # of tests/k8s/setup
WITH_TEST = ["setpriv", "--pdeathsig", "KILL"]


class MachineError(Exception):
    """A machine, or a command on it, did not do what it was told."""


def controllers():
    """Directories of this process in the hierarchies of cgroups, by the controller."""
    found = {}
    with open("/proc/self/cgroup", encoding="ascii") as file:
        for line in file:
            _, controller, path = line.rstrip("\n").split(":", 2)
            if controller:  # without one it is the hierarchy of version 2
                found[controller] = f"/sys/fs/cgroup/{controller.removeprefix('name=')}{path.rstrip('/')}"
    if "memory" not in found or "cpuset" not in found:
        raise MachineError("this kernel has no cgroup hierarchies of version 1, which this cluster needs: see tests/k8s/README.md")
    return found


def remove_left():
    """Removes what runs that were killed have left: their makers live no more."""
    directories = [(CACHE, "run-"), *((directory, "shunt-") for directory in controllers().values())]
    for directory, prefix in directories:
        for name in os.listdir(directory):
            maker = name.removeprefix(prefix).split("-")[0]
            if not name.startswith(prefix) or not maker.isdigit() or os.path.exists(f"/proc/{maker}"):
                continue
            left = os.path.join(directory, name)
            if prefix == "run-" and "SHUNT_K8S_KEEP" not in os.environ:
                shutil.rmtree(left, ignore_errors=True)
            elif prefix != "run-":
                remove_cgroups(left)


def remove_cgroups(top):
    """Removes a cgroup and those below it, as far as no process is in them."""
    subprocess.run(["find", top, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], check=False, capture_output=True)


class Machine:
    """A running machine."""

    def __init__(self, name):
        self.name = name
        remove_left()
        self.dir = tempfile.mkdtemp(prefix=f"run-{os.getpid()}-{name}-", dir=CACHE)
        self.processes = {}
        self._cgroups = []
        self._pid = None
        self._init = None
        try:
            self._boot()
        except BaseException:
            self.close()
            raise

    def _boot(self):
        own = controllers()
        with open(os.path.join(self.dir, "controllers"), "w", encoding="ascii") as file:
            file.write("".join(f"{controller}\n" for controller in own))
        for directory in own.values():
            made = os.path.join(directory, f"shunt-{os.getpid()}-{self.name}")
            os.mkdir(made)
            self._cgroups.append(made)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if os.path.exists(os.path.join(made, file)):
                    shutil.copyfile(os.path.join(directory, file), os.path.join(made, file))
        enter = "".join(f"echo $$ >{made}/cgroup.procs; " for made in self._cgroups)
        unshare = "exec unshare -m -n -p -u -i -C --propagation private --fork --kill-child"
        with open(self.path("boot.log"), "wb") as log:
            self._init = subprocess.Popen(
                [*WITH_TEST, "sh", "-ec", f"{enter}{unshare} {HERE}/boot {self.dir} {self.name}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=self.environment(),
            )  # fmt: skip
        children = f"/proc/{self._init.pid}/task/{self._init.pid}/children"
        until(lambda: os.path.exists(self.path("booted")), f"{self.name} to boot", alive=self._init, log=self.path("boot.log"))
        with open(children, encoding="ascii") as file:
            self._pid = int(file.read().split()[0])

    @staticmethod
    def environment():
        """Variables of its processes."""
        return os.environ | {"PATH": f"{CACHE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

    def path(self, name):
        """A path in the machine's directory, which it sees under the same name."""
        return os.path.join(self.dir, name)

    def pid(self):
        """Its process 1, outside."""
        return self._pid

    def seen(self, path):
        """A path of the machine, as seen from outside."""
        return f"/proc/{self._pid}/root{path}"

    def within(self, argv):
        """The command line that runs a command on it."""
        return ["nsenter", "-t", str(self._pid), "-m", "-n", "-p", "-u", "-i", "-C", "--wdns=/", "--", *argv]

    def ask(self, *argv, timeout=60, **options):
        """Result of a command on it."""
        options = {"env": self.environment(), "stdin": subprocess.DEVNULL} | options
        if "input" in options:
            options.pop("stdin")
        return subprocess.run(self.within(argv), capture_output=True, text=True, timeout=timeout, check=False, **options)

    def run(self, *argv, **options):
        """Output of a command on it that must succeed."""
        done = self.ask(*argv, **options)
        if done.returncode != 0:
            raise MachineError(f"{self.name}: {' '.join(argv)}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def write(self, path, text):
        """A file on it."""
        self.run("sh", "-ec", f"mkdir -p {os.path.dirname(path)}; cat >{path}", input=text)

    def start(self, name, *argv):
        """Starts a service, which has a log and a file with its process id below the machine's directory."""
        with open(self.path(f"{name}.log"), "ab") as log:
            # A process that enters namespaces is in its own cgroups still.
            enter = "for directory in /sys/fs/cgroup/*; do echo $$ >$directory/cgroup.procs; done"
            keep = f'{enter}; echo $$ >{self.path(name)}.pid; exec "$@"'
            self.processes[name] = subprocess.Popen(
                self.within(["sh", "-ec", keep, name, *argv]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=self.environment(),
            )  # fmt: skip
            self.processes[name].argv = argv

    def kill(self, name):
        """SIGKILL for a service, and waits for its end."""
        with open(self.path(f"{name}.pid"), encoding="ascii") as file:
            self.run("kill", "-KILL", file.read().strip())
        self.processes[name].wait(timeout=10)

    def restart(self, name):
        """Starts a service that was killed, as its unit would."""
        self.start(name, *self.processes[name].argv)

    def check_alive(self):
        """Raises if a service has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise MachineError(f"{self.name}: {name} has ended: {self.log(name)}")

    def log(self, name, size=4000):
        """End of a service's log."""
        with open(self.path(f"{name}.log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-size:]

    def close(self):
        """Ends all of its processes, and removes what it had."""
        if self._init:
            if self._pid:
                subprocess.run(["kill", "-KILL", str(self._pid)], check=False, capture_output=True)
            self._init.kill()
            self._init.wait(timeout=20)
        for process in self.processes.values():
            process.wait(timeout=20)
        deadline = time.monotonic() + 20
        for top in self._cgroups:
            while os.path.isdir(top):
                remove_cgroups(top)
                if time.monotonic() > deadline:
                    raise MachineError(f"{top} cannot be removed")
                time.sleep(0.02)
        if "SHUNT_K8S_KEEP" not in os.environ:
            shutil.rmtree(self.dir, ignore_errors=True)


def until(true, what, timeout=60, alive=None, log=None, pause=0.1):
    """Waits until this is true; returns what it is then."""
    deadline = time.monotonic() + timeout
    while not (found := true()):
        ended = alive is not None and alive.poll() is not None
        if ended or time.monotonic() > deadline:
            text = ""
            if log:
                with open(log, encoding="utf-8", errors="replace") as file:
                    text = f": {file.read()[-3000:]}"
            raise MachineError(f"waited {'in vain' if ended else f'{timeout} s'} for {what}{text}")
        time.sleep(pause)
    return found
