"""A host whose kernel has vDPA: a guest in which the daemon runs, with namespaces on its devices.

    host = VdpaHost(run_dir)
    host.boot()
    host.start_daemon()
    host.apply(host.document())
    host.plug(0)
"""

import gzip
import json
import time

from daemon import binary
from guest import Guest, GuestError

NUMBERED = "/inguest/numbered.py"
NAMES = ["a", "b"]
MACS = ["02:0d:9a:00:00:01", "02:0d:9a:00:00:02"]
V4 = ["10.13.0.1", "10.13.0.2"]
RUN_DIR = "/run/shunt"
CONFIG = f'run_dir = "{RUN_DIR}"\nstate_dir = "/tmp/kept"\n'


class VdpaHost(Guest):
    """The guest; `spaces` are the namespaces that the devices' interfaces are put into."""

    def __init__(self, run_dir):
        super().__init__(run_dir, [], name="vdpahost", cpus=2, memory_mib=768)
        self.spaces = []
        self.daemon = None

    def prepare(self):
        """Boots, and puts the daemon's program there; no module of vDPA is loaded yet."""
        self.boot()
        with open(binary(), "rb") as file:
            self.put("/tmp/shunt.gz", data=gzip.compress(file.read(), 1))
        self.run("sh", "-ec", "gunzip -c /tmp/shunt.gz >/bin/shunt; rm /tmp/shunt.gz; chmod 755 /bin/shunt", timeout=60)
        self.put("/tmp/shunt.toml", data=CONFIG.encode(), mode=0o644)
        self.spaces = [self.namespace(name) for name in NAMES]

    def load_modules(self):
        """Loads all of vDPA; devices are for drivers of the host's own kernel."""
        self.run("modprobe", "-a", "vduse", "virtio_net", "virtio_vdpa")

    def start_daemon(self):
        """Starts the daemon, and waits until it serves."""
        self.run("sh", "-c", "mv /tmp/log /tmp/log.old 2>/dev/null; : >/tmp/log")
        self.daemon = self.start("sh", "-c", "exec shunt up --config /tmp/shunt.toml >>/tmp/log 2>&1")
        self.wait(lambda: "ready" in self.log(), "ready")

    def log(self):
        """Log of the running daemon."""
        return self.read("/tmp/log")

    def kill_daemon(self):
        """SIGKILL, and waits for the end."""
        self.end_daemon("KILL")

    def stop_daemon(self):
        """SIGTERM, and waits for the end."""
        self.end_daemon("TERM")

    def end_daemon(self, signal):
        """A signal to the daemon, which may be another process than the one that was started (`upgrade`)."""
        self.run("sh", "-c", f"kill -{signal} $(pidof shunt)")
        self.wait(lambda: self.ask("pidof", "shunt").status != 0, "ended")

    def wait(self, found, what, timeout=20.0):
        """Waits until `found` says something true."""
        deadline = time.monotonic() + timeout
        while not (said := found()):
            if time.monotonic() > deadline:
                raise GuestError(f"{self.name}: not {what} after {timeout} s: {self.log()[-3000:]}")
            time.sleep(0.05)
        return said

    def shunt(self, *words, given="", check=True):
        """Output of a command of shunt; with `check=False` its end."""
        argv = ["shunt", *words, "--run-dir", RUN_DIR]
        return self.run(*argv, given=given) if check else self.ask(*argv, given=given)

    def document(self, count=2, vfs=(), **attachment):
        """A state with so many adapters, each a vDPA device `v0`, `v1`, ..."""
        adapters = [
            {"name": name, "switch": "sw0", "mac": mac, "iov_weight": 100, "vmq_weight": 0,
             "attachment": {"kind": "vduse", "name": f"v{number}", **attachment}}
            for number, (name, mac) in enumerate(zip(NAMES, MACS))
        ]  # fmt: skip
        nic = {"name": "nic0", "total_vfs": 4, "num_vfs": 4, "vf": list(vfs)}
        switch = {"name": "sw0", "nic": "nic0", "iov": True}
        return {"version": 1, "nic": [nic], "switch": [switch], "adapter": adapters[:count]}

    def apply(self, document):
        """Makes this the whole state."""
        return self.shunt("apply", "-f", "-", "--prune", "--yes", given=json.dumps(document))

    def adapters(self):
        """Adapters as the daemon lists them, by name."""
        said = json.loads(self.shunt("adapter", "list", "--json"))
        return {adapter["name"]: adapter for adapter in said}

    def plug(self, number, mtu=None):
        """Puts a device's interface into its namespace, and brings it up there."""
        space, mac = self.spaces[number], MACS[number]
        self.wait(lambda: mac in self.ip("link"), f"an interface {mac}")
        self.ip("link", "set", self.interface(mac), "netns", NAMES[number], "name", "net")
        if mtu:
            space.ip("link", "set", "net", "mtu", str(mtu))
        space.ip("addr", "add", f"{V4[number]}/24", "dev", "net")
        space.ip("link", "set", "net", "up")

    def on_bus(self):
        """The names on the vDPA bus."""
        return self.read_names("/sys/bus/vdpa/devices")

    def read_names(self, directory):
        """Names in a directory."""
        return sorted(self.ask("ls", directory).out.split())

    def numbered(self, number, *words, **options):
        """Final result of a run of `inguest/numbered.py` in a namespace."""
        text = self.spaces[number].run("python3", NUMBERED, *map(str, words), **options)
        return json.loads(text.splitlines()[-1])

    def start_numbered(self, number, *words):
        """Starts it there."""
        running = self.spaces[number].start("python3", NUMBERED, *map(str, words))
        if words[0] != "stream":
            running.wait_said("listening" if words[0] == "drain" else "started")
        return running
