"""Interfaces that vanish, go down, change their MTU or lose a queue while they are in use.

The port says so, it works again when the interface is back, and two other guests of the same host lose nothing meanwhile.
"""

import contextlib
import os
import re
import signal

from hosts import UPLINK, TwoHosts
from netns import Namespace, call, end
from test_uplinks import HostsCase, root
from tools import ping, wait_ping

BACK_S = 6.0  # an interface that is back is in use again this soon


class Steady:
    """Echo requests between two guests, 200 a second, for the time of a `with`; `lost` afterwards."""

    def __init__(self, sender, receiver):
        self.argv = ["ping", "-n", "-i", "0.005", "-w", "90", receiver.v4]
        self.space = sender.space
        self.lost = self.sent = 0

    def __enter__(self):
        self._file = self.space.network.path("steady")
        with open(self._file, "wb") as out:
            self._process = self.space.start(*self.argv, stdout=out)
        return self

    def __exit__(self, *_exception):
        self._process.send_signal(signal.SIGINT)  # it prints what it has
        try:
            self._process.wait(timeout=5)
        finally:
            end(self._process)
        with open(self._file, encoding="utf-8") as file:
            answered = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl=", file.read())}
        self.sent = max(answered, default=0)  # what was sent later may be on its way
        self.lost = self.sent - len(answered)


class VanishBase(HostsCase):
    """The tests; the classes below say which kind of uplink."""

    limit_s = 60
    kind = ""
    queues = 1

    def setUp(self):
        self.bed = TwoHosts(uplink=f"{self.kind}:{UPLINK}", queues=self.queues)
        self.addCleanup(self.bed.close)
        self.far = self.bed.guests("far", iov_weight=50)
        self.host = self.bed.hosts[0]
        # `auto`, the default, is the uplink's: without it there is no link, as with a network card.
        self.near = [self.host.guest("one", iov_weight=50, link_state="enable"),
                     self.host.guest("other", path="synthetic", link_state="enable")]  # fmt: skip
        self.bed.start()
        wait_ping(self.far[0].space, self.far[1].v4)
        wait_ping(self.near[0].space, self.near[1].v4)

    @contextlib.contextmanager
    def undisturbed(self):
        """A `with` in which two neighbours lose nothing, which is seen to at its end."""
        with Steady(*self.near) as steady:
            yield
        self.assertGreater(steady.sent, 10)
        self.assertEqual(steady.lost, 0, f"lost by neighbours, of {steady.sent}")

    def is_cut(self):
        """No guest of the other host is reached."""
        return ping(self.far[0].space, self.far[1].v4, count=1, timeout=1) == 0

    def back(self):
        """The other host's guest is reached again, soon."""
        wait_ping(self.far[0].space, self.far[1].v4, timeout=BACK_S)
        self.assert_reached(*self.far)

    def test_vanishes(self):
        """The cable is pulled out with its interface, three times, and put in again."""
        with self.undisturbed():
            for _ in range(3):
                self.host.space.ip("link", "del", "dev", UPLINK)
                self.host.wait_device("gone")
                self.assertTrue(self.is_cut())
                self.host.plug(self.bed.wire)
                self.bed.wire.ip("link", "set", "dev", "h0", "master", "br0")
                self.back()
                self.host.wait_device("up")

    def test_down(self):
        """The interface goes down and comes up."""
        with self.undisturbed():
            self.host.space.ip("link", "set", "dev", UPLINK, "down")
            self.host.wait_for("the uplink is still up", lambda host: host.device() != "up")
            self.assertTrue(self.is_cut())
            self.host.space.ip("link", "set", "dev", UPLINK, "up")
            self.back()
            self.host.wait_device("up")

    def test_mtu(self):
        """Its MTU shrinks and grows."""
        with self.undisturbed():
            for mtu in (1400, 3000, 1500):
                self.host.space.ip("link", "set", "dev", UPLINK, "mtu", str(mtu))
                self.assertEqual(ping(self.far[0].space, self.far[1].v4, count=5, size=1000), 5, f"MTU {mtu}")
            self.back()

    def tearDown(self):
        for host in self.bed.hosts:
            host.daemon.check_alive()
            self.assertNotIn("panicked", host.daemon.log())


@root
class Packet(VanishBase):
    """AF_PACKET."""

    kind = "packet"


@root
class Xdp(VanishBase):
    """AF_XDP."""

    kind = "xdp"
    queues = 2

    def test_queue(self):
        """It comes back with one queue of two, then with both. (Taken from a socket that has it, none may be.)"""
        fewer = ["ethtool", "-L", UPLINK, "rx", "1", "tx", "1"]
        with self.undisturbed():
            for queues in (1, 2):
                self.host.space.run(*fewer, check=False)
                self.back()
                self.host.space.ip("link", "del", "dev", UPLINK)
                self.host.link["queues"] = queues
                self.host.plug(self.bed.wire)
                self.bed.wire.ip("link", "set", "dev", "h0", "master", "br0")
                self.back()


@root
class Tap(VanishBase):
    """A guest's tap."""

    kind = "xdp"

    def test_vanishes(self):
        """The guest removes its interface; it comes back."""
        with self.undisturbed():
            for _ in range(3):
                self.far[0].space.ip("link", "del", "dev", "e0")
                self.far[0].up()  # the daemon makes another one
                self.back()
                self.host.wait_device("up", "far")

    def test_down(self):
        """The guest's interface goes down and comes up."""
        with self.undisturbed():
            self.far[0].space.ip("link", "set", "dev", "e0", "down")
            self.assertEqual(ping(self.bed.hosts[1].guests["far"].space, self.far[0].v4, count=1, timeout=1), 0)
            self.far[0].space.ip("link", "set", "dev", "e0", "up")
            self.back()

    def test_mtu(self):
        """The guest sets another MTU."""
        with self.undisturbed():
            for mtu in (1400, 1500):
                self.far[0].space.ip("link", "set", "dev", "e0", "mtu", str(mtu))
                self.assertEqual(ping(self.far[0].space, self.far[1].v4, count=5, size=1000), 5, f"MTU {mtu}")
            self.back()

    def test_namespace(self):
        """The namespace with the interface is removed, and made again."""
        guest = self.far[0]
        with self.undisturbed():
            call(["ip", "netns", "del", guest.space.name])
            self.host.wait_device("gone", "far")
            wait_ping(self.near[0].space, self.near[1].v4)
            guest.space = Namespace(self.bed.network, guest.space.name)
            guest.up()
            self.back()


def load_tests(loader, _standard, _pattern):
    """All but the base."""
    suite = loader.suiteClass()
    if "SHUNT_E2E_STANDIN" not in os.environ:
        for kind in (Packet, Xdp, Tap):
            suite.addTests(loader.loadTestsFromTestCase(kind))
    return suite


