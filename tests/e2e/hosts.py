"""Two hosts on a wire, each a daemon in a namespace, with guests that are namespaces with a tap.

The wire is a third namespace with a bridge, where tcpdump sees every frame that leaves one host for the other, whatever
takes it off the interface there. Nothing on the wire does a checksum for anybody.
"""

import time

from bench import cpus
from managed import Managed
from netns import Network, NetworkError

UPLINK = "u0"
WIRE_PORTS = ("h0", "h1")


class Guest:
    """A namespace with a tap `e0`, and the adapter's part of the document."""

    def __init__(self, host, name, number, *, vlan=None, offload=True, mtu=1500, subnet=1, **adapter):
        self.name = name
        self.space = host.network.namespace(f"{name}{host.number}")
        self.mac = f"02:0e:2e:{host.number:02x}:00:{number:02x}"
        last = 10 * (host.number + 1) + number
        self.v4, self.v6 = f"10.{subnet}.0.{last}", f"fd{subnet:02x}::{last:x}"
        self.mtu = mtu
        attachment = {"kind": "tap", "interface": "e0", "netns": self.space.path, "offload": offload, "mtu": mtu}
        self.adapter = {"name": name, "switch": "sw0", "mac": self.mac, "attachment": attachment, **adapter}
        if vlan:
            self.adapter["vlan"] = {"id": vlan}

    def up(self):
        """Its interface up, with an address of either kind."""
        self.space.wait_link("e0")
        self.space.up("e0", f"{self.v4}/24", f"{self.v6}/64", mtu=self.mtu, mac=self.mac)

    def received(self):
        """Frames that its interface has received."""
        return self.space.link("e0")["stats64"]["rx"]["packets"]


class Host:
    """A daemon in a namespace with the interface `u0` towards the wire."""

    def __init__(self, network, number, *, mtu=1500, uplink=None, offload=False, queues=1):
        self.network = network
        self.number = number
        self.mtu = mtu
        self.uplink = uplink
        self.space = network.namespace(f"h{number}")
        self.link = {"mtu": mtu, "offload": offload, "queues": queues}
        self.guests = {}
        self.switch = {}
        self.further = {"nic": [], "adapter": []}
        self.daemon = Managed(cpu=cpus()[number % 2])
        network.ending.callback(self.daemon.close)
        self.daemon.within = self.space.within([])

    def plug(self, wire):
        """Its cable. May be called again when it has been pulled."""
        self.network.veth((self.space, UPLINK), (wire, WIRE_PORTS[self.number]), **self.link)

    def guest(self, name, **settings):
        """A further guest."""
        self.guests[name] = made = Guest(self, name, len(self.guests) + 1, mtu=settings.pop("mtu", self.mtu), **settings)
        return made

    def document(self):
        """The state that it is to have."""
        nic = {"name": "nic0", "total_vfs": 8, "num_vfs": 8}
        if self.uplink:
            nic["uplink"] = self.uplink
        switch = {"name": "sw0", "nic": "nic0", "iov": True, **self.switch}
        adapters = [guest.adapter for guest in self.guests.values()]
        return {"version": 1, "nic": [nic, *self.further["nic"]], "switch": [switch], "adapter": adapters + self.further["adapter"]}

    def start(self):
        """Starts the daemon, brings the document into force and the guests up."""
        self.daemon.start()
        self.daemon.wait_ready()
        self.daemon.apply(self.document())
        for guest in self.guests.values():
            guest.up()

    def actual(self):
        """State in force, from the API."""
        return self.daemon.ask("/v1/actual").body["actual"]

    def device(self, name="uplink"):
        """State of the device behind the uplink or an adapter, from the API: `up`, `down` or `gone`."""
        actual = self.actual()
        adapters = {adapter["name"]: adapter.get("device") for adapter in actual["adapters"]}
        return (actual["nics"][0]["uplink"] if name == "uplink" else adapters[name])["state"]

    def wait_device(self, state, name="uplink"):
        """Waits until a device is in this state."""
        self.wait_for(f"the device of {name} is not {state}", lambda host: host.device(name) == state)

    def wait_for(self, what, true, timeout=5.0):
        """Waits until `true(host)` is; `what` says what is wrong otherwise."""
        deadline = time.monotonic() + timeout
        while not (found := true(self)):
            if time.monotonic() > deadline:
                raise NetworkError(f"host {self.number}: {what} after {timeout} s; its log:\n{self.daemon.log()[-3000:]}")
            time.sleep(0.05)
        return found


class TwoHosts:
    """Two hosts and the wire. Add guests, then `start`."""

    def __init__(self, **options):
        self.network = Network()
        try:
            self.wire = self.network.namespace("wire")
            self.wire.silent()
            self.hosts = [Host(self.network, number, **options) for number in (0, 1)]
            for host in self.hosts:
                host.plug(self.wire)
            self.wire.bridge("br0", *WIRE_PORTS)
        except BaseException:
            self.network.close()
            raise

    def guests(self, name, **settings):
        """A guest of this name on each host."""
        return [host.guest(name, **settings) for host in self.hosts]

    def start(self):
        """Both daemons."""
        for host in self.hosts:
            host.start()

    def close(self):
        """Ends and removes everything."""
        self.network.close()
