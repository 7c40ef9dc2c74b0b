"""Containers in a guest with VFs of its virtual PF: Shunt in the guest gives the VFs out, and Shunt outside is their wire.

What the guest's operator cannot circumvent is enforced outside: VLAN, rate and spoof check. The other end is a namespace.
"""

import json
import time

import pcapfile
from daemon import binary
from netns import Network
from pci import PROGRAM, PciGuest
from test_vpf import FOREIGN, NUMBERED, RATE_MBPS, VpfBase
from vpf import VpfGuest

PEER, PEER_MAC, OWN = "10.8.0.200", "02:0e:2e:00:00:77", "10.8.0.1/24"
FRAMES = 500
VLAN, FORBIDDEN = 150, 99
TAG = b"\x81\x00" + VLAN.to_bytes(2, "big")


class VpfContainers(VpfBase):
    """A guest whose PF is a NIC of the daemon in it, with a container on VF 0; a namespace outside."""

    words = modules = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        network = Network()
        cls.addClassCleanup(network.close)
        cls.peer = network.namespace("peer")
        cls.vpf = VpfGuest(cls.daemon, "vmc", "--nic", "nic0", *cls.words, modules=cls.modules, kind=PciGuest)
        cls.boot(cls.vpf)
        cls.guest = cls.vpf.guest
        cls.guest.put(PROGRAM, source=binary())
        cls.guest.up(cls.vpf.pf)
        cls.guest.start_daemon()
        cls.guest.says("nic", "create", "card0", "--device", cls.vpf.pf, "--num-vfs", "2")

    def setUp(self):
        self.set_peer()
        self.peer.wait_link("e0")
        self.peer.up("e0", f"{PEER}/24")
        self.addCleanup(self.daemon.command, "adapter", "delete", "peer")

    def set_peer(self, **settings):
        """Settings of the adapter outside, which is a tap in the namespace."""
        tap = {"kind": "tap", "interface": "e0", "netns": self.peer.path}
        adapter = {"name": "peer", "nic": "nic0", "mac": PEER_MAC, "iov_weight": 100, "attachment": tap, **settings}
        reply = self.daemon.ask("/v1/adapters/peer", "PUT", body=json.dumps(adapter))
        self.assertLess(reply.status, 300, reply.body)

    def create(self, *words):
        """A container with VF 0, whose address the host has given."""
        space = self.guest.namespace("web")
        self.addCleanup(self.guest.ip, "netns", "del", "web")
        self.guest.says("adapter", "create", "web", "--nic", "card0", "--iov-weight", "100", "--vf", "0", "--mac", self.mac(),
                        "--attachment", "vf:net1", "--netns", "web", "--ip", OWN, *words)  # fmt: skip
        self.addCleanup(self.guest.says, "adapter", "delete", "web")
        self.assertEqual(space.link("net1")["address"], self.mac())
        return space

    def name(self):
        """Name of the container's adapter in the guest."""
        return "web"

    def dropped(self, reason):
        """Frames of the container that were dropped outside for a reason."""
        return self.vpf.counters(self.function)["drops"].get(reason, 0)

    def assert_vlan(self, space):
        """Frames of the container have the VLAN's tag outside, and only a member of the VLAN is reached."""
        capture = self.daemon.path("tagged.pcapng")
        self.set_peer(trunks=["1-4094"], mirror={"direction": "rx", "file": capture})
        self.assert_cut_off(space, PEER)  # requests are seen
        self.set_peer(vlan={"id": VLAN})
        own = bytes.fromhex(self.mac().replace(":", ""))
        frames = [frame for frame in pcapfile.read(capture) if frame[6:12] == own]
        self.assertGreater(len(frames), 0)
        self.assertEqual({frame[12:16] for frame in frames}, {TAG})
        self.assert_reaches(space, PEER)
        self.set_peer()
        self.assert_cut_off(space, PEER)

    def assert_spoof_check(self, space):
        """All frames with the container's address reach the namespace, none with another; each of those is counted."""
        for source, passes in ((self.mac(), True), (FOREIGN, False)):
            before = self.dropped("tx_spoofed_mac"), self.received()
            words = ["frames", "net1", PEER_MAC, "--count", str(FRAMES), "--rate", "1000", "--source", source]
            said = space.run("python3", NUMBERED, *words, timeout=60)
            self.assertEqual(json.loads(said.splitlines()[-1])["sent"], FRAMES)
            self.eventually(lambda before=before: self.dropped("tx_spoofed_mac") - before[0], 0 if passes else FRAMES)
            self.eventually(lambda before=before: (self.received() - before[1]) // FRAMES, int(passes))

    def received(self):
        """Frames that the namespace has received."""
        return next(port for port in self.daemon.stats()["ports"] if port["name"] == "nic0/peer")["rx_frames"]

    def assert_rate(self, space):
        """The container sends no more than the limit outside."""
        held = self.sent_mbps(self.vpf, self.function, [space], PEER)
        print(f"    sent: {held:.2f} Mbit/s at a limit of {RATE_MBPS}")
        self.assert_held(held, RATE_MBPS)
        sent = None  # what the card has in its queue goes first
        while sent != (sent := self.vpf.counters(self.function)["tx_frames"]):
            time.sleep(1)


class Igb(VpfContainers):
    """igb: the guest's PF sets VLANs; outside all functions share a port, with its VLANs, addresses and rate."""

    long_tests = True
    words = ("--model", "igb", "--max-tx-mbps", str(RATE_MBPS), "--trunks", "100-199")
    modules = ("igb", "igbvf", "8021q", "macvlan")
    function = "pf"

    def mac(self):
        """An address of the guest's."""
        return next(one for one in self.daemon.export()["adapter"] if one["name"] == "vmc-pf")["macs"][0]

    def test_vlan(self):
        """A VLAN set in the guest is that of the wire, if the host permits it."""
        space = self.create("--vlan", str(VLAN))
        self.assert_vlan(space)
        self.set_peer(vlan={"id": FORBIDDEN})
        before = self.dropped("tx_vlan_forbidden")
        self.guest.says("adapter", "set", self.name(), "--vlan", str(FORBIDDEN))
        self.assert_cut_off(space, PEER)
        self.assertGreater(self.dropped("tx_vlan_forbidden"), before)

    def test_spoof_check_and_rate(self):
        """igb lets spoofed frames and any rate pass, whatever the guest sets; the wire does not."""
        space = self.create("--max-tx-mbps", "500")
        self.assert_reaches(space, PEER)
        self.assert_spoof_check(space)
        self.assert_rate(space)


class Virtio(VpfContainers):
    """virtio: the guest's PF has no settings of VFs; outside each VF is a port with settings of its own."""

    long_tests = True
    words = ("--vfs", "2")
    modules = ("virtio_net", "8021q", "macvlan")
    function = 0

    def mac(self):
        """The VF's address."""
        return self.vpf.mac(0)

    def test_settings_outside(self):
        """VLAN, spoof check and rate of the VF's port hold for the container."""
        space = self.create()
        self.assert_reaches(space, PEER)
        self.daemon.says("adapter", "set", "vmc-vf0", "--vlan", str(VLAN))
        self.assert_vlan(space)
        self.daemon.says("adapter", "set", "vmc-vf0", "--vlan", "none", "--max-tx-mbps", str(RATE_MBPS))
        self.assert_reaches(space, PEER)
        self.assert_spoof_check(space)
        self.assert_rate(space)

    def test_settings_inside_are_refused(self):
        """The PF's driver has none: the error has its answer, and nothing has changed."""
        before = self.guest.snapshot()
        own = ["--mac", self.mac()]
        cases = [
            ([*own, "--vlan", "150"], "vlan = 150"),
            ([*own, "--max-tx-mbps", "10"], "max_tx_mbps = 10"),
            (["--mac", FOREIGN], f"mac = {FOREIGN}"),
        ]
        for words, setting in cases:
            done = self.guest.shunt("adapter", "create", "web", "--nic", "card0", "--iov-weight", "100", "--vf", "0", *words,
                                    "--attachment", "vf:net1", "--netns", "web")  # fmt: skip
            self.assertEqual(done.status, 2, done)
            for text in ("VF 0) refuses ", setting, "Operation not supported"):
                self.assertIn(text, done.err)
        self.assertEqual(self.guest.difference(before), "")
