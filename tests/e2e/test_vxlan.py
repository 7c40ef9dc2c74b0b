"""A switch that spans two hosts by VXLAN: their guests share a segment, over a network that only routes IP."""

import os

from hosts import UPLINK, TwoHosts
from test_uplinks import HostsCase, root
from tools import Capture, wait_ping

VNI, PORT = 4711, 4789
OVERHEAD_BYTES = {4: 20 + 8 + 8 + 14, 6: 40 + 8 + 8 + 14}  # of the outer IP packet


class VxlanBase(HostsCase):
    """The tests; the classes below say by which IP, and with which MTU of the network between the hosts."""

    version = 4
    network_mtu = 1500 + OVERHEAD_BYTES[4]

    @classmethod
    def setUpClass(cls):
        cls.bed = TwoHosts(mtu=cls.network_mtu)
        cls.addClassCleanup(cls.bed.close)
        addresses = ["172.20.0.1", "172.20.0.2"] if cls.version == 4 else ["fd20::1", "fd20::2"]
        for host, own, peer in zip(cls.bed.hosts, addresses, reversed(addresses)):
            host.space.up(UPLINK, f"{own}/{24 if cls.version == 4 else 64}")
            host.switch = {"vxlan": [{"name": "tunnel", "vni": VNI, "local": own, "peers": [peer]}]}
        cls.synthetic = cls.bed.guests("syn", path="synthetic", mtu=cls.mtu)
        cls.vf = cls.bed.guests("vf", iov_weight=50, mtu=cls.mtu)
        cls.bed.start()

    def captured(self, sender, receiver, **options):
        """A flow from host to host; every frame on the wire is whole, the inner one too."""
        with Capture(self.bed.wire, "h1", count=3000, expression=f"udp port {PORT}") as capture:
            self.flow(sender, receiver, **options)
        frames = capture.frames()
        self.assert_whole(frames, mtu=self.network_mtu)
        self.assertTrue(all("vxlan" in frame.protocols for frame in frames))
        self.assertTrue(any(frame.protocols.endswith(("tcp", "tcp:data", "udp", "udp:data")) for frame in frames))

    def test_ping(self):
        """Guests of either path reach those of the other host."""
        for sender in (self.synthetic[0], self.vf[0]):
            self.assert_reached(sender, self.synthetic[1])

    def test_tcp(self):
        """TCP over IPv4 and IPv6 within the tunnel, both ways."""
        for ipv6 in (False, True):
            wait_ping(self.synthetic[0].space, self.synthetic[1].v4)
            self.captured(self.synthetic[0], self.synthetic[1], ipv6=ipv6, amount="20M")
            self.flow(self.synthetic[1], self.synthetic[0], ipv6=ipv6, amount="20M", streams=4)

    def test_udp(self):
        """UDP within the tunnel."""
        self.captured(self.synthetic[0], self.synthetic[1], udp=True, rate="20M", amount="2M")

    def tearDown(self):
        for host in self.bed.hosts:
            host.daemon.check_alive()
            self.assertEqual(host.daemon.complaints(), [])


@root
class VxlanOver4(VxlanBase):
    """Over IPv4, in a network whose MTU has room for the tunnel."""


@root
class VxlanOver6(VxlanBase):
    """Over IPv6; the guests' MTU leaves room in a network of 1500."""

    version = 6
    mtu = 1500 - OVERHEAD_BYTES[6]
    network_mtu = 1500


def load_tests(loader, _standard, _pattern):
    """All but the base."""
    suite = loader.suiteClass()
    if "SHUNT_E2E_STANDIN" not in os.environ:
        for kind in (VxlanOver4, VxlanOver6):
            suite.addTests(loader.loadTestsFromTestCase(kind))
    return suite
