"""AF_XDP uplinks, beyond what every uplink must do: the program on the interface, the filter, and who else wants the interface."""

import os
import time
import unittest

from bench import cpus
from daemon import Daemon, DaemonError
from hosts import UPLINK, TwoHosts
from managed import Managed
from netns import NetworkError
from test_uplinks import HostsCase, root
from tools import ping, wait_ping

PROGRAM = "shunt_redirect"
NATIVE, GENERIC = 1, 2  # how `ip -json link` says where a program runs
GONE_S = 2.0  # the kernel takes a program off when it has closed the files of who attached it


def program(space, interface=UPLINK):
    """The program on an interface: what `ip link` says of it, or None."""
    return space.link(interface).get("xdp")


def wait_no_program(space, interface=UPLINK):
    """Waits until there is none."""
    deadline = time.monotonic() + GONE_S
    while found := program(space, interface):
        if time.monotonic() > deadline:
            raise NetworkError(f"{interface} still has a program after {GONE_S} s: {found}")
        time.sleep(0.02)


def document(uplink):
    """A NIC with an uplink, and nothing else."""
    return {"version": 1, "nic": [{"name": "nic0", "total_vfs": 1, "uplink": uplink}]}


class XdpCase(HostsCase):
    """Two hosts, the first of which is asked."""

    uplink = f"xdp:{UPLINK}"
    queues = 1

    def setUp(self):
        self.bed = TwoHosts(uplink=self.uplink, queues=self.queues)
        self.addCleanup(self.bed.close)
        self.guests = self.bed.guests("far", iov_weight=50)
        self.host = self.bed.hosts[0]
        self.prepare()
        self.bed.start()

    def prepare(self):
        """Objects that must exist before the daemons."""

    def answers(self):
        """The guests reach each other."""
        wait_ping(self.guests[0].space, self.guests[1].v4)
        self.assertEqual(ping(self.guests[1].space, self.guests[0].v4, count=5), 5)

    def second_daemon(self):
        """Another daemon on the first host; it has nothing yet."""
        other = Managed(cpu=cpus()[-1])
        self.addCleanup(other.close)
        other.within = self.host.space.within([])
        other.start()
        other.wait_ready()
        return other

    def refusal(self, daemon, uplink):
        """Error of the daemon for this uplink."""
        with self.assertRaises(DaemonError) as refused:
            daemon.apply(document(uplink))
        return str(refused.exception)

    def end_first(self):
        """Ends the first host's daemon as an operator does; its log stays."""
        Daemon.close(self.host.daemon)
        wait_no_program(self.host.space)

    def tearDown(self):
        for host in self.bed.hosts:
            self.assertNotIn("panicked", host.daemon.log())


@root
class Program(XdpCase):
    """The program is on the interface for as long as the daemon has it, and no longer."""

    def test_killed(self):
        """Nothing is left by a daemon that is killed, and the next one takes the interface."""
        for _ in range(3):
            self.answers()
            found = program(self.host.space)
            self.assertEqual((found["mode"], found["prog"]["name"]), (NATIVE, PROGRAM))
            self.host.daemon.kill()
            wait_no_program(self.host.space)
            self.host.daemon.start()
            self.host.daemon.wait_ready()
            self.guests[0].up()

    def test_ended(self):
        """Nothing is left by one that ends, and the interface is the host's again."""
        self.answers()
        self.end_first()
        self.host.space.up(UPLINK, "10.99.0.1/24")
        self.bed.wire.up("br0", "10.99.0.2/24")
        wait_ping(self.bed.wire, "10.99.0.1")

    def test_taken_off(self):
        """Nothing is left when the NIC has no uplink any more; guests of the host are not disturbed."""
        self.answers()
        without = self.host.document()
        del without["nic"][0]["uplink"]
        self.host.daemon.apply(without)
        wait_no_program(self.host.space)
        self.host.daemon.apply(self.host.document())
        self.answers()


@root
class Refused(XdpCase):
    """Impossible settings are rejected, with the reason."""

    def test_somebody_has_it(self):
        """Two daemons cannot have one interface; the second may when the first is gone."""
        self.answers()
        other = self.second_daemon()
        number = program(self.host.space)["prog"]["id"]
        self.assertIn(f"XDP program {number} is attached to {UPLINK} already", self.refusal(other, self.uplink))
        self.answers()
        self.host.daemon.kill()
        wait_no_program(self.host.space)
        other.apply(document(self.uplink))
        self.assertNotEqual(program(self.host.space)["prog"]["id"], number)

    def test_not_there(self):
        """Queues and zero-copy that a veth has not."""
        self.end_first()
        other = self.second_daemon()
        many = {"kind": "xdp", "interface": UPLINK, "queue_pairs": 3}
        self.assertIn(f"{UPLINK} has no receive queue 2, it has 1", self.refusal(other, many))
        zero_copy = {"kind": "xdp", "interface": UPLINK, "zero_copy": "require"}
        self.assertIn(f"the driver of {UPLINK} has no zero-copy", self.refusal(other, zero_copy))
        self.assertIsNone(program(self.host.space))


@root
class Filter(XdpCase):
    """The interface is the host's too."""

    uplink = {"kind": "xdp", "interface": UPLINK, "filter": True}
    queues = 2

    def test_shared(self):
        """Host and guests are reachable in one network, in any order of requests, repeatedly."""
        mine, others = "10.1.0.201", "10.1.0.202"
        self.host.space.up(UPLINK, f"{mine}/24")
        self.bed.wire.up("br0", f"{others}/24")
        for address in 5 * (mine, self.guests[0].v4):
            self.bed.wire.ip("neighbour", "flush", "dev", "br0")
            wait_ping(self.bed.wire, address)
            self.assertEqual(ping(self.bed.wire, address), 3, address)
        self.assertEqual(ping(self.host.space, others), 3, "from the host")
        self.assert_reached(*self.guests)
        self.flow(*self.guests, amount="5M")

    def test_addresses(self):
        """A guest that comes later is reached too; one that has gone is not, and the host still is."""
        self.answers()
        late = self.host.guest("late", path="synthetic")
        self.host.daemon.apply(self.host.document())
        late.up()
        wait_ping(self.guests[1].space, late.v4)
        del self.host.guests["late"]
        self.host.daemon.apply(self.host.document())
        self.assertEqual(ping(self.guests[1].space, late.v4, count=1, timeout=1), 0)
        self.answers()


@root
class Generic(XdpCase):
    """An interface whose driver has no place for programs: a bridge of the kernel."""

    uplink = "xdp:br1"

    def prepare(self):
        for host in self.bed.hosts:
            host.space.silent()
            host.space.bridge("br1", UPLINK)
            host.space.ip("link", "set", "dev", "br1", "promisc", "on")

    def test_generic(self):
        """The program runs behind the driver, and frames pass all the same."""
        self.assertEqual(program(self.host.space, "br1")["mode"], GENERIC)
        self.assert_reached(*self.guests)
        self.flow(*self.guests, amount="5M")
        self.host.daemon.kill()
        wait_no_program(self.host.space, "br1")


def load_tests(loader, _standard, _pattern):
    """All but the base."""
    suite = loader.suiteClass()
    if "SHUNT_E2E_STANDIN" not in os.environ:
        for kind in (Program, Refused, Filter, Generic):
            suite.addTests(loader.loadTestsFromTestCase(kind))
    return suite


if __name__ == "__main__":
    unittest.main()
