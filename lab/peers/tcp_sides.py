"""The sides of `tcp`: two namespaces each, and what switches between them."""

import json
import os
import signal
from dataclasses import dataclass

from daemon import Daemon
from ovs import BRIDGE, Ovs
from tools import wait_ping

MACS = ["02:00:00:00:00:0a", "02:00:00:00:00:0b"]
ADDRESSES = ["10.90.0.1", "10.90.0.2"]
PLAIN_VSWITCHD = "/usr/lib/openvswitch-switch/ovs-vswitchd"
TSO = "other_config:userspace-tso-enable=true"


class Side:
    """Two namespaces with an interface `e0` each."""

    name = ""

    def __init__(self, network, args):
        self.args = args
        self.network = network
        self.ends = [network.namespace(f"{self.name}-{end}") for end in "ab"]

    def start(self):
        """Makes it, and waits until a packet passes."""
        self.make()
        for end, mac, address in zip(self.ends, MACS, ADDRESSES):
            end.wait_link("e0")
            end.up("e0", f"{address}/24", mac=mac)
        wait_ping(self.ends[0], ADDRESSES[1])

    def make(self):
        """Makes the switch and both interfaces."""
        raise NotImplementedError

    def pids(self):
        """The processes of the switch."""
        return []

    def pause(self):
        """Stops the switch, if that is a process."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def resume(self):
        """Lets the switch go on."""
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)


class Bridge(Side):
    """The kernel's bridge, and veth pairs with all their offloads. There is no process to pin: it runs where iperf3 does."""

    name = "bridge"

    def make(self):
        """A bridge in a namespace of its own."""
        middle = self.network.namespace(f"{self.name}-s")
        for end, port in zip(self.ends, ("p0", "p1")):
            self.network.veth((middle, port), (end, "e0"))
        middle.bridge("br0", "p0", "p1")


class _VSwitchd(Ovs):
    """ovs-vswitchd without DPDK, on one CPU, in a namespace."""

    def __init__(self, run_dir, space, cpu, settings):
        super().__init__(run_dir, cpu=cpu)
        self._space, self._settings = space, settings

    def settings(self):
        """The `other_config` of this run."""
        return self._settings or ["other_config:userspace-tso-enable=false"]

    def vswitchd(self):
        """Not pinned: without DPDK there is one thread that polls, and it may sleep."""
        return self._space.within(["taskset", "-c", str(self.cpu), PLAIN_VSWITCHD])

    def add_ports(self):
        """Two taps; the bridge learns, as by default."""
        for name in ("t0", "t1"):
            self._vsctl("add-port", BRIDGE, name, "--", "set", "Interface", name, "type=tap")


class OvsTaps(Side):
    """Open vSwitch's user-space datapath with two of its taps, moved into the namespaces; its defaults."""

    name = "ovs"
    settings = ()
    switch = None

    def make(self):
        """The switch in a namespace of its own."""
        space = self.network.namespace(f"{self.name}-s")
        run_dir = self.network.path(self.name)
        os.mkdir(run_dir)
        self.switch = _VSwitchd(run_dir, space, self.args.switch_cpu, list(self.settings))
        self.network.ending.callback(self.switch.close)
        self.network.ending.callback(self.resume)
        self.switch.start()
        for name, end in zip(("t0", "t1"), self.ends):
            space.ip("link", "set", "dev", name, "netns", end.name, "name", "e0")

    def pids(self):
        """ovs-vswitchd; the database sleeps."""
        return self.switch.pids()[-1:] if self.switch else []


class OvsTso(OvsTaps):
    """The same with `userspace-tso-enable`: 64 KiB frames cross uncut."""

    name = "ovs-tso"
    settings = (TSO,)


class ShuntTaps(Side):
    """The daemon with two tap attachments, on VFs of a soft NIC."""

    name = "shunt-vf"
    adapter = {"iov_weight": 50}
    daemon = None

    def config(self):
        """A shunt.toml."""
        lines = [f"run_dir = {json.dumps(self.network.path(self.name))}", "[lanes]", f"cpus = [{self.args.switch_cpu}]"]
        lines += ["[[nic]]", 'name = "nic0"', 'kind = "soft"', "total_vfs = 2"]
        lines += ["[[switch]]", 'name = "sw0"', 'nic = "nic0"', "iov = true"]
        for name, end, mac in zip("ab", self.ends, MACS):
            lines += ["[[adapter]]", f'name = "{name}"', 'switch = "sw0"', f'mac = "{mac}"']
            lines += [f"{key} = {json.dumps(value)}" for key, value in self.adapter.items()]
            lines += [f'attachment = {{ kind = "tap", interface = "e0", netns = "{end.path}" }}']
        return "\n".join(lines) + "\n"

    def make(self):
        """The daemon in a namespace of its own."""
        space = self.network.namespace(f"{self.name}-s")
        run_dir = self.network.path(self.name)
        os.mkdir(run_dir)
        self.daemon = Daemon(run_dir, [], cpu=self.args.switch_cpu, config=self.config())
        self.daemon.within = space.within([])
        self.network.ending.callback(self.daemon.close)
        self.network.ending.callback(self.resume)
        self.daemon.start()
        self.daemon.wait_ready()

    def pids(self):
        """The daemon."""
        return self.daemon.pids() if self.daemon else []


class ShuntSynthetic(ShuntTaps):
    """The same on the switch."""

    name = "shunt-synthetic"
    adapter = {"path": "synthetic"}


SIDES = {kind.name: kind for kind in (Bridge, OvsTaps, OvsTso, ShuntTaps, ShuntSynthetic)}


@dataclass(frozen=True)
class Placed:
    """A side, and where iperf3 runs: `apart` both on the guest's CPU, `spread` the client on the switch's."""

    side: Side
    placement: str

    @property
    def name(self):
        """Of both."""
        return f"{self.side.name}, {self.placement}"

    def iperf_cpus(self):
        """(client's, server's)."""
        args = self.side.args
        return (args.guest_cpu if self.placement == "apart" else args.switch_cpu, args.guest_cpu)


PLACEMENTS = ["apart", "spread"]
