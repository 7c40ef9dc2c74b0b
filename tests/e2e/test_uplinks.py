"""Two hosts with a wire between them: what guests of one send to guests of the other, over each kind of uplink.

Guests are kernels: namespaces with taps, which leave checksums and segmentation to the daemon. On the wire, and in a
guest that has not negotiated offload, every frame must be whole: right checksums, no longer than the MTU.
"""

import os
import unittest

from hosts import TwoHosts
from segments import arrived
from tagging import tag
from tools import Capture, Iperf, faults, ping, wait_ping

VLAN = 7
TAG_BYTES, HEADER_BYTES = 4, 14
root = unittest.skipUnless(os.geteuid() == 0, "needs root: makes network namespaces")


class HostsCase(unittest.TestCase):
    """Questions about two hosts."""

    limit_s = 100
    mtu = 1500

    def flow(self, sender, receiver, ipv6=False, **options):
        """One run of iperf3 from guest to guest, of which everything arrives."""
        address = receiver.v6 if ipv6 else receiver.v4
        before = receiver.received()
        found = Iperf(receiver.space, sender.space, address).run(**options)
        if options.get("udp"):
            # When iperf3 waits for a CPU its socket loses datagrams: the count of its interface is checked instead.
            self.assertGreater(found.packets, 100)
            self.assertGreaterEqual(receiver.received() - before, found.packets, f"iperf3 itself lost {found.lost}")
        else:
            self.assertGreater(found.bytes, 1_000_000)
        return found

    def assert_whole(self, frames, at_least=100, mtu=None, tags=0):
        """Every frame has right checksums and fits the MTU, and there were some."""
        self.assertGreater(len(frames), at_least, "frames captured")
        self.assertEqual(faults(frames)[:5], [])
        limit = (mtu or self.mtu) + HEADER_BYTES + tags * TAG_BYTES
        longest = max(frame.length for frame in frames)
        self.assertLessEqual(longest, limit, "the longest frame")
        return longest

    def assert_reached(self, sender, receiver):
        """Echo requests of all sizes are answered, over IPv4 and IPv6."""
        for address in (receiver.v4, receiver.v6):
            wait_ping(sender.space, address)
            small = ping(sender.space, address)
            whole = ping(sender.space, address, size=self.mtu, whole=True)
            cut = ping(sender.space, address, size=2 * self.mtu + 500)
            for answers in (small, whole, cut):
                self.assertEqual(answers, 3, answers.text)


class UplinkBase(HostsCase):
    """The tests; the classes below say over which uplink."""

    uplink = ""
    offload = False

    @classmethod
    def setUpClass(cls):
        cls.bed = TwoHosts(uplink=cls.uplink, mtu=cls.mtu, offload=cls.offload)
        cls.addClassCleanup(cls.bed.close)
        cls.vf = cls.bed.guests("vf", iov_weight=50)
        cls.synthetic = cls.bed.guests("syn", path="synthetic")
        cls.bare = cls.bed.guests("bare", path="synthetic", offload=False)
        cls.access = cls.bed.guests("access", iov_weight=50, vlan=VLAN, subnet=VLAN)
        cls.trunk = cls.bed.guests("trunk", path="synthetic", trunks=[str(VLAN)], subnet=VLAN)
        cls.bed.start()
        for guest in cls.trunk:
            tag(guest.space, "e0", VLAN)

    def captured(self, sender, receiver, at_least=100, tags=0, **options):
        """A flow from host to host, captured where it enters and where it leaves the wire."""
        with Capture(self.bed.wire, "h0", count=3000) as entered, Capture(self.bed.wire, "h1", count=3000) as left:
            self.flow(sender, receiver, **options)
        if not self.offload:
            for capture in (entered, left):
                self.assert_whole(capture.frames(), at_least, tags=tags)
        return entered.frames()

    def test_paths(self):
        """Each adapter is on the path that it is tested for."""
        for host in self.bed.hosts:
            paths = {one["name"]: one["path"] for one in host.actual()["adapters"]}
            self.assertEqual({name: paths[name] for name in ("vf", "syn", "access")},
                             {"vf": "vf", "syn": "synthetic", "access": "vf"})  # fmt: skip

    def test_ping(self):
        """Echo requests, each path to each."""
        for sender in (self.vf[0], self.synthetic[0], self.bare[0]):
            for receiver in (self.vf[1], self.synthetic[1]):
                self.assert_reached(sender, receiver)

    def test_tcp(self):
        """TCP over IPv4 and IPv6, from path vf and from path synthetic."""
        for guests in (self.vf, self.synthetic):
            for ipv6 in (False, True):
                self.captured(guests[0], guests[1], ipv6=ipv6, amount="30M")
                self.flow(guests[1], guests[0], ipv6=ipv6, amount="30M", streams=4)

    def test_udp(self):
        """UDP over IPv4 and IPv6."""
        for ipv6 in (False, True):
            self.captured(self.vf[0], self.vf[1], ipv6=ipv6, udp=True, rate="20M", amount="2M")
            self.flow(self.synthetic[1], self.synthetic[0], ipv6=ipv6, udp=True, rate="20M", amount="2M")

    def test_segments(self):
        """Datagrams that the sender's kernel leaves to be cut: all of them, whole, wherever they are cut."""
        for receiver in (self.vf[1], self.bare[1], self.synthetic[0], self.bare[0]):
            for address in (receiver.v4, receiver.v6):
                wait_ping(self.vf[0].space, address)  # few packets wait for an address to be resolved
                with Capture(self.bed.wire, "h1", count=500) as capture:
                    found = arrived(self.vf[0].space, receiver.space, address, self.mtu - 100, 64)
                self.assertEqual(found, 64, address)
                if receiver in (self.vf[1], self.bare[1]) and not self.offload:
                    self.assert_whole(capture.frames("udp"), at_least=63)

    def test_vlan(self):
        """A VLAN's guests reach only each other; on the wire their frames are tagged."""
        self.assert_reached(self.access[0], self.access[1])
        for sender, receiver in ((self.access[0], self.access[1]), (self.trunk[0], self.access[1])):
            wait_ping(sender.space, receiver.v4)
            frames = self.captured(sender, receiver, tags=1, amount="20M")
            self.assertEqual({frame.vlans for frame in frames if "tcp" in frame.protocols}, {(VLAN,)})
        stranger = self.vf[0].space
        stranger.ip("address", "add", f"10.{VLAN}.0.99/24", "dev", "e0")
        self.assertEqual(ping(stranger, self.access[1].v4, count=2, timeout=1), 0, "an untagged guest reaches a VLAN")

    def test_no_offload(self):
        """A guest that has not negotiated offload gets whole frames, from the wire and from a neighbour."""
        receiver = self.bare[1]
        for sender in (self.vf[0], self.bare[0], self.vf[1], self.synthetic[1]):
            with Capture(receiver.space, "e0", count=3000, inbound=True) as capture:
                self.flow(sender, receiver, amount="10M")
                self.flow(sender, receiver, ipv6=True, amount="10M")
                self.flow(sender, receiver, udp=True, rate="20M", amount="1M")
            self.assert_whole(capture.frames())

    def test_offload_between_neighbours(self):
        """Frames of up to 64 KiB cross uncut between two guests of a host that both have negotiated offload."""
        with Capture(self.synthetic[1].space, "e0", count=3000, longest=65600) as capture:
            self.flow(self.vf[1], self.synthetic[1], amount="200M")
        self.assertGreater(max(frame.length for frame in capture.frames()), 30_000, "the longest frame")

    def tearDown(self):
        for host in self.bed.hosts:
            host.daemon.check_alive()
            self.assertEqual(host.daemon.complaints(), [])


@root
class Xdp(UplinkBase):
    """AF_XDP at either end."""

    uplink = "xdp:u0"


@root
class Packet(UplinkBase):
    """AF_PACKET at either end."""

    uplink = "packet:u0"


@root
class PacketOffload(UplinkBase):
    """AF_PACKET over a wire that does what a good network card does: checksums, and segmentation."""

    uplink = "packet:u0"
    offload = True


@root
class XdpJumbo(UplinkBase):
    """AF_XDP and frames of 9000 bytes."""

    long_tests = True
    uplink = "xdp:u0"
    mtu = 9000


@root
class PacketJumbo(UplinkBase):
    """AF_PACKET and frames of 9000 bytes."""

    long_tests = ("test_no_offload", "test_offload_between_neighbours", "test_tcp", "test_udp", "test_vlan")
    uplink = "packet:u0"
    mtu = 9000


def load_tests(loader, _standard, _pattern):
    """All but the bases."""
    suite = loader.suiteClass()
    if "SHUNT_E2E_STANDIN" not in os.environ:
        for kind in (Xdp, Packet, PacketOffload, XdpJumbo, PacketJumbo):
            suite.addTests(loader.loadTestsFromTestCase(kind))
    return suite
