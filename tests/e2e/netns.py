"""Network namespaces that a test makes for itself: interfaces, addresses, and commands within them.

Model: a `Network` owns namespaces, and whatever was started in them. `close` ends and removes all of it. A name holds
the process id of its maker, so the next `Network` finds and removes what a killed run has left. Needs root.

No kernel module beyond veth, tap, bridge and cls_bpf is asked for; a VLAN is a program at an interface (`tagging`).
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

PREFIX = "shunt-e2e-"
RUN = "/run/netns"
COMMAND_S = 15  # no command in a namespace takes longer, unless it says so


class NetworkError(Exception):
    """A command in a namespace failed or took too long."""


def call(argv, timeout=COMMAND_S, check=True):
    """Runs a command to its end; its standard output. It is killed when it takes too long."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, errors="replace")
    except subprocess.TimeoutExpired as late:
        raise NetworkError(f"{' '.join(argv)}: took longer than {timeout} s") from late
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise NetworkError(f"{' '.join(argv)}: exit code {done.returncode}: {said}")
    return done.stdout


class Interfaces:
    """The interfaces of a namespace, or of a guest: whatever has `run` and a `name`."""

    def run(self, *argv, timeout=COMMAND_S, check=True):
        """Runs a command there; its standard output."""
        raise NotImplementedError

    def ip(self, *args, check=True):
        """`ip` there."""
        return self.run("ip", *args, check=check)

    def sysctls(self, values):
        """Sets `net/...` to its value, for each."""
        self.run("sh", "-ec", "\n".join(f"echo {value} >/proc/sys/{key}" for key, value in values.items()))

    def ethtool(self, interface, **features):
        """Features on or off, `_` for `-`: `ethtool("e0", tx=False)`."""
        args = [word for name, on in features.items() for word in (name.replace("_", "-"), "on" if on else "off")]
        self.run("ethtool", "-K", interface, *args)

    def up(self, interface, *addresses, mtu=None, mac=None):
        """Brings an interface up, with these addresses (`10.0.0.1/24`, `fd00::1/64`)."""
        if mtu:
            self.ip("link", "set", "dev", interface, "mtu", str(mtu))
        if mac:
            self.ip("link", "set", "dev", interface, "address", mac)
        for address in addresses:
            quick = ["nodad"] if ":" in address else []
            self.ip("address", "replace", address, "dev", interface, *quick)
        self.ip("link", "set", "dev", interface, "up")

    def link(self, interface):
        """Output of `ip -details -statistics link` for an interface, or None if there is none."""
        text = self.ip("-json", "-details", "-statistics", "link", "show", "dev", interface, check=False)
        found = json.loads(text) if text.strip() else []
        return found[0] if found else None

    def wait_link(self, interface, timeout=5.0, up=False):
        """Waits until an interface is here (and up, with a carrier)."""
        deadline = time.monotonic() + timeout
        while not (link := self.link(interface)) or (up and link["operstate"] == "DOWN"):
            if time.monotonic() > deadline:
                raise NetworkError(f"{self.name}: no {interface}{' that is up' * up} after {timeout} s")
            time.sleep(0.02)
        return link

    def silent(self):
        """From now on its kernel sends nothing unasked by new interfaces: no ARP, no IPv6."""
        self.sysctls({"net/ipv6/conf/default/disable_ipv6": 1, "net/ipv6/conf/all/disable_ipv6": 1})

    def bridge(self, name, *ports):
        """A bridge of the kernel that forwards at once, and its ports."""
        self.ip("link", "add", "name", name, "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        for port in ports:
            self.ip("link", "set", "dev", port, "master", name, "up")
        self.ip("link", "set", "dev", name, "up")

    def listens(self, port):
        """Returns true if a process listens on a TCP port."""
        text = self.run("cat", "/proc/net/tcp", "/proc/net/tcp6", check=False)
        return re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", text) is not None


class Namespace(Interfaces):
    """One namespace. `name` is what `ip netns` calls it, `path` what a document of shunt may say."""

    def __init__(self, network, name):
        self.network = network
        self.name = name
        self.path = os.path.join(RUN, name)
        call(["ip", "netns", "add", name])
        # No duplicate address detection, no router solicitations: an address works at once, and silence is silence.
        # An interface that goes down keeps its addresses.
        values = {"accept_dad": 0, "dad_transmits": 0, "router_solicitations": 0, "keep_addr_on_down": 1}
        self.sysctls({f"net/ipv6/conf/{which}/{key}": value
                      for which in ("all", "default") for key, value in values.items()})  # fmt: skip
        self.ip("link", "set", "lo", "up")

    def within(self, argv):
        """The command line that runs `argv` here. /sys shows this namespace's interfaces to it."""
        return ["ip", "netns", "exec", self.name, *argv]

    def run(self, *argv, timeout=COMMAND_S, check=True):
        """Runs a command here; its standard output."""
        return call(self.within(argv), timeout, check)

    def start(self, *argv, **options):
        """Starts a command here; `Network.close` ends it if it still runs."""
        options = {"stdin": subprocess.DEVNULL, "start_new_session": True} | options
        # `ip netns exec` becomes the command: the process id is the command's own.
        process = subprocess.Popen(self.within(argv), **options)
        self.network.processes.append(process)
        return process

    def ip(self, *args, check=True):
        """`ip` here."""
        return call(["ip", "-n", self.name, *args], check=check)


class Network:
    """The namespaces of one test, its processes and a directory of its own."""

    def __init__(self):
        remove_left()
        self.namespaces = {}
        self.processes = []
        self.run_dir = tempfile.mkdtemp(prefix=PREFIX, dir="/dev/shm")
        self.ending = contextlib.ExitStack()  # what else is to be undone, last first, before the namespaces go

    def namespace(self, name):
        """A new namespace; interfaces with names of any kind may be in it."""
        self.namespaces[name] = made = Namespace(self, f"{PREFIX}{os.getpid()}-{name}")
        return made

    def veth(self, one, other, mtu=None, offload=True, queues=1):
        """A pair of `(namespace, interface)`, both up. Without `offload` each frame that leaves either end is as on a
        wire: its checksum made, no longer than the MTU. AF_XDP needs that of the other end.
        """
        numbers = ["numrxqueues", str(queues), "numtxqueues", str(queues)]
        ends = [["name", name, "netns", space.name, *numbers] for space, name in (one, other)]
        call(["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]])
        for space, name in (one, other):
            if not offload:
                space.ethtool(name, tx=False, tso=False, gso=False, gro=False, tx_udp_segmentation=False)
                # A tag lies in the frame, where a program at the interface sees it.
                space.ethtool(name, txvlan=False, rxvlan=False)
            space.up(name, mtu=mtu)

    def path(self, name):
        """A path in the directory."""
        return os.path.join(self.run_dir, name)

    def close(self):
        """Ends what was started, and removes what was made."""
        with contextlib.ExitStack() as all_of_it:  # each step is taken, whatever became of the one before
            all_of_it.callback(shutil.rmtree, self.run_dir, ignore_errors=True)
            for space in self.namespaces.values():
                all_of_it.callback(call, ["ip", "netns", "del", space.name], check=False)
            for process in self.processes:
                all_of_it.callback(end, process)
            all_of_it.callback(self.ending.close)


def end(process, timeout=3.0):
    """Ends a process: SIGTERM, and SIGKILL when that takes long."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()


def remove_left():
    """Removes the namespaces of runs that were killed: their makers live no more."""
    for name in os.listdir(RUN) if os.path.isdir(RUN) else []:
        maker = name.removeprefix(PREFIX).split("-")[0]
        if name.startswith(PREFIX) and maker.isdigit() and not os.path.exists(f"/proc/{maker}"):
            call(["ip", "netns", "del", name], check=False)
