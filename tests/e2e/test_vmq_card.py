"""Path vmq on a card: a queue of QEMU's igb, whose driver steers no addresses, so `ethtool -X` steers the frames.

The guest has the card, the daemon, and its guest; the wire is another interface of the guest.
"""

import json
import re
import tempfile
import time
import unittest

from frontend import __file__ as FRONTEND
from guest import skip_without_guests
from pci import WIRE_MAC, IgbGuest

MAC = "02:0e:2e:00:12:34"
SOCKET = "/run/shunt/guest.sock"
CONFIG = f"""
[[nic]]
name = "nic0"
vmq_queues = 1
uplink = {{ kind = "xdp", interface = "%s", queue_pairs = 1 }}

[[switch]]
name = "sw0"
nic = "nic0"
iov = true

[[adapter]]
name = "guest"
switch = "sw0"
mac = "{MAC}"
path = "vmq"
attachment = {{ kind = "vhost-user", socket = "{SOCKET}", queue_pairs = 2 }}
"""
# Rules for an address, for an address and a VLAN, and for a priority of a VLAN.
RULES = (f"dst {MAC}", f"dst {MAC} vlan 0x7 m 0xf000", "vlan 0x6000 m 0x1fff")
# UDP over IPv4, whose hash has the card choose a queue by its table; other frames come by the first one.
IPV4, OTHER, TAG = "0800", "88b5", "81000007"
PACKET = "4500002e00000000401166bd0a0000020a00000103e807d0001a0000"
# Sends numbered frames: `python3 -c SENDER INTERFACE HEAD COUNT`.
SENDER = """
import socket, sys
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
line.bind((sys.argv[1], 0))
for number in range(int(sys.argv[3])):
    line.send(bytes.fromhex(sys.argv[2]) + number.to_bytes(18, "big"))
"""


class VmqCard(unittest.TestCase):
    """A card with two receive queues: one is the uplink's, the other the adapter's."""

    limit_s = 120

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.run_dir = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        cls.addClassCleanup(cls.run_dir.cleanup)
        cls.guest = IgbGuest(cls.run_dir.name, memory_mib=384, cpus=2)
        cls.addClassCleanup(cls.guest.close)
        cls.guest.boot()
        cls.pf, cls.wire = cls.guest.pf(), cls.guest.interface(WIRE_MAC)
        cls.guest.put("/frontend.py", source=FRONTEND)
        for name in (cls.pf, cls.wire):
            cls.guest.up(name)
            cls.guest.wait_link(name, timeout=30, up=True)
        cls.before = cls.settings()
        cls.guest.start_daemon(CONFIG % cls.pf, state=False)

    @classmethod
    def settings(cls):
        """Settings of the card that the daemon changes: true if it is promiscuous, and true if it removes VLAN tags."""
        removes = re.search("rx-vlan-offload: (on|off)", cls.guest.run("ethtool", "-k", cls.pf))[1]
        return cls.guest.link(cls.pf)["promiscuity"] > 0, removes == "on"

    def placement(self):
        """How the queue's frames reach the guest."""
        return json.loads(self.guest.says("adapter", "list", "--json"))[0]["actual_placement"]

    def wait_placement(self, beginning):
        """Waits until that is so; the rest of the text."""
        deadline = time.monotonic() + 30
        while not (text := self.placement() or "").startswith(beginning):
            self.assertLess(time.monotonic(), deadline, text)
            time.sleep(0.1)
        return text.removeprefix(beginning)

    def by_queue(self):
        """Frames that each queue of the card has received, as its driver counts them."""
        text = self.guest.run("ethtool", "-S", self.pf)
        lines = dict(line.strip().split(": ") for line in text.splitlines() if ": " in line)
        return [int(lines[f"rx_queue_{queue}_packets"]) for queue in (0, 1)]

    def send(self, head, count):
        """Sends frames from the wire; how many of them came by each queue."""
        before = self.by_queue()
        head = (MAC + WIRE_MAC).replace(":", "") + head + PACKET
        self.guest.run("python3", "-BISc", SENDER, self.wire, head, str(count))
        deadline = time.monotonic() + 20
        while sum(found := [now - then for now, then in zip(self.by_queue(), before)]) < count:
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(0.1)
        return found

    def start_guest(self):
        """A guest that keeps what it receives."""
        guest = self.guest.start("python3", "-BIS", "/frontend.py", SOCKET, "2")
        self.addCleanup(guest.kill)
        guest.wait_said("started")
        return guest

    def receive(self, placement, *sent):
        """Sends frames to a guest; how many came by each queue of the card, and what came by each ring of the guest."""
        guest = self.start_guest()
        self.wait_placement(placement)
        queues = [self.send(*words) for words in sent]
        time.sleep(1)
        guest.terminate()
        return queues, json.loads(guest.wait().out.splitlines()[-1])

    def test_frames_by_the_steered_queue(self):
        """Frames that the card puts into the adapter's queue are placed in the guest's memory, and no others."""
        self.guest.run("ethtool", "-X", self.pf, "start", "1", "equal", "1")
        queues, (first, last) = self.receive("placed", (IPV4, 40), (OTHER, 3), (TAG + IPV4, 5))
        self.assertEqual(queues, [[0, 40], [3, 0], [0, 5]])
        self.assertEqual([int(frame[-36:], 16) for frame in last], list(range(40)))
        self.assertEqual({frame[:24] for frame in last}, {(MAC + WIRE_MAC).replace(":", "")})
        self.assertEqual([frame[24:28] for frame in first], [OTHER] * 3)
        # With a VLAN the frames of that VLAN come by the queue, and the tag must be removed.
        self.guest.says("adapter", "set", "guest", "--vlan", "7")
        text = f"copied from queue 1 of {self.pf}: the adapter has a VLAN"
        queues, (first, last) = self.receive(text, (TAG + IPV4, 20), (IPV4, 4), ("81000008" + IPV4, 4))
        self.assertEqual(queues, [[0, 20], [0, 4], [0, 4]])
        self.assertEqual(([frame[24:28] for frame in first], last), ([IPV4] * 20, []))
        self.guest.says("adapter", "set", "guest", "--vlan", "none")

    def test_the_card_is_as_before_the_daemon(self):
        """While the daemon runs the card is promiscuous and leaves tags in frames; afterwards as before, also if both were so."""
        self.assertEqual((self.before, self.settings()), ((False, True), (True, False)))
        self.guest.stop_daemon()
        self.assertEqual(self.settings(), self.before)
        self.guest.run("ethtool", "-K", self.pf, "rxvlan", "off")
        self.guest.start_daemon(CONFIG % self.pf, state=False)
        self.guest.stop_daemon()
        self.assertEqual(self.settings(), (False, False))
        self.guest.run("ethtool", "-K", self.pf, "rxvlan", "on")
        self.guest.start_daemon(CONFIG % self.pf, state=False)

    def test_why_the_driver_does_not_steer(self):
        """The driver of the 82576 refuses rules for addresses and VLANs; the adapter has the reason and the remedy."""
        for rule in RULES:
            done = self.guest.ask("ethtool", "-N", self.pf, "flow-type", "ether", *rule.split(), "action", "1")
            self.assertNotEqual(done.status, 0, rule)
            self.assertIn("Operation not supported", done.err)
        guest = self.start_guest()
        self.assertEqual(
            self.wait_placement(f"placed by queue 1 of {self.pf}; "),
            f"the driver of {self.pf} has no rules for destination addresses; steer the frames to queue 1 in another way",
        )
        guest.terminate()
        guest.wait()


if __name__ == "__main__":
    unittest.main()
