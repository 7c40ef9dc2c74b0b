"""A queue of an interface that is steered to one adapter: its frames are placed in the guest's memory.

The guest is testpmd with two queue pairs, which sends every frame back; the wire is a veth, whose far end steers.
"""

import ctypes
import os
import re
import select
import socket
import struct
import time
import unittest

from bench import cpus
from frontend import Receiver
from managed import Managed
from netns import Network, NetworkError
from steering import steer
from test_uplinks import root
from testpmd import BURST, RING_SIZE, Process, VirtioUser, command_line

UPLINK, WIRE = "u0", "w0"
QUEUES = 4
GUEST = "02:0e:2e:00:00:01"
PEER = "02:0e:2e:ff:00:01"
BROADCAST = "ff:ff:ff:ff:ff:ff"
CLONE_NEWNET = 0x40000000
TYPE = 0x88B5  # for local experiments
SIZES = (60, 61, 300, 1513, 1514)


def raw(mac):
    """An address as bytes of a frame."""
    return bytes.fromhex(mac.replace(":", ""))


def frame(number, size, to=GUEST, tag=None):
    """A frame that says its number, and whose every byte depends on it."""
    head = raw(to) + raw(PEER) + (struct.pack("!HH", 0x8100, tag) if tag is not None else b"") + struct.pack("!HI", TYPE, number)
    return head + bytes((number * 7 + i) & 0xFF for i in range(size - len(head)))


def enter(namespace):
    """The calling thread enters a network namespace (Python knows setns from 3.12 on)."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Peer:
    """A packet socket at the far end of the wire."""

    def __init__(self, space):
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(space.path, os.O_RDONLY)
        try:
            enter(there)
            try:
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE))
                self._socket.bind((WIRE, TYPE))
            finally:
                enter(here)
        finally:
            os.close(there)
            os.close(here)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)

    def send(self, frames):
        """Sends frames."""
        for one in frames:
            self._socket.send(one)

    def exchange(self, frames, window=128):
        """Sends frames, not many more than have come back; what came back."""
        found = []
        for sent in range(0, len(frames), 32):
            found += self.receive(sent - window - len(found))
            self.send(frames[sent : sent + 32])
        return found + self.receive(len(frames) - len(found))

    def receive(self, count, timeout=3.0):
        """Up to `count` frames that come within the time."""
        found = []
        deadline = time.monotonic() + timeout
        while len(found) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                break
            data, place = self._socket.recvfrom(65536)
            if place[2] != socket.PACKET_OUTGOING:
                found.append(data)
        return found

    def close(self):
        """No more."""
        self._socket.close()


def answer(one):
    """The guest's answer to a frame: it goes back to the sender."""
    return raw(PEER) + raw(GUEST) + one[12:]


@root
class Vmq(unittest.TestCase):
    """One adapter on path vmq, a guest with two queue pairs."""

    limit_s = 90

    def setUp(self):
        self.network = Network()
        self.addCleanup(self.network.close)
        host, far = self.network.namespace("host"), self.network.namespace("far")
        for space in (host, far):
            space.silent()
        self.network.veth((host, UPLINK), (far, WIRE), offload=False, queues=QUEUES)
        self.host, self.far = host, far
        self.daemon = Managed(cpu=cpus()[0])
        self.network.ending.callback(self.daemon.close)
        self.daemon.within = host.within([])
        self.daemon.start()
        self.daemon.wait_ready()
        self.guest = None
        self.peer = Peer(far)
        self.addCleanup(self.peer.close)
        self.next = 0

    def document(self, *, queue_pairs=2, uplink_pairs=1, **adapter):
        """The state."""
        attachment = {"kind": "vhost-user", "socket": self.daemon.path("guest.sock"), "mode": "client", "queue_pairs": queue_pairs}
        adapter = {"name": "guest", "switch": "sw0", "mac": GUEST, "path": "vmq", "attachment": attachment, **adapter}
        uplink = {"kind": "xdp", "interface": UPLINK, "queue_pairs": uplink_pairs}
        nic = {"name": "nic0", "total_vfs": 4, "num_vfs": 4, "uplink": uplink}
        switch = {"name": "sw0", "nic": "nic0", "iov": True}
        return {"version": 1, "nic": [nic], "switch": [switch], "adapter": [adapter]}

    def start_guest(self, queues=2, args=()):
        """testpmd that sends frames back to whom they came from."""
        path = self.daemon.path("guest.sock")
        port = VirtioUser(path, GUEST, queues=queues)
        args = ["--port-topology=loop", f"--rxq={queues}", f"--txq={queues}", *args]
        self.guest = Process(command_line([port.vdev(0)], cpu=cpus()[1], prefix="vmq", args=args), self.daemon.run_dir)
        self.network.ending.callback(self.guest.close)
        self.guest.wait_ready()
        self.guest.command("set fwd macswap")
        self.guest.command("start")

    def placement(self):
        """Placement of the queue's frames in the guest, from the API."""
        return self.daemon.ask("/v1/actual").body["actual"]["adapters"][0]["placement"]

    def wait_placement(self, pattern, timeout=30.0):
        """Waits until that is so."""
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.placement() or ""):
            if time.monotonic() > deadline:
                raise NetworkError(f"frames are {self.placement()!r} after {timeout} s; its log:\n{self.daemon.log()[-3000:]}")
            time.sleep(0.02)

    def stats(self, name="nic0/guest"):
        """The counters of a port."""
        return next(port for port in self.daemon.ask("/v1/stats").body["ports"] if port["name"] == name)

    def by_ring(self):
        """Frames that the guest has received by each of its rings."""
        text = self.guest.command("show port xstats 0")
        return [int(n) for n in re.findall(r"rx_q\d+_(?:good_)?packets: (\d+)", text)][:2]

    def wait_rings(self, want, timeout=3.0):
        """Waits until that many have come."""
        deadline = time.monotonic() + timeout
        while (found := self.by_ring()) != want and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(found, want)

    def exchange(self, count=200, sizes=SIZES):
        """Sends frames, of which each must come back whole."""
        frames = [frame(self.next + i, sizes[i % len(sizes)]) for i in range(count)]
        self.next += count
        found = self.peer.exchange(frames)
        self.assertEqual(len(found), count)
        wrong = [i for i, (one, other) in enumerate(zip(found, frames)) if one != answer(other)]
        self.assertEqual(wrong, [])

    def begin(self, **options):
        """Document, steering, guest."""
        self.daemon.apply(self.document(**options))
        steer(self.far, WIRE, GUEST, 1)
        self.start_guest(queues=options.get("queue_pairs", 2))

    def test_placed(self):
        """Frames for the guest come by its last ring, whole and counted; what is for all comes by the first."""
        self.begin()
        self.wait_placement("^placed by queue 1 of u0; the driver of u0 has no rules")
        before = self.stats()
        self.exchange(2000)
        after = self.stats()
        self.assertEqual(after["rx_frames"] - before["rx_frames"], 2000)
        # The uplink has seen none of them: they were not carried by software.
        self.assertEqual(self.stats("nic0/uplink")["tx_frames"], 0)
        self.assertEqual(self.by_ring(), [0, 2000])
        self.peer.send([frame(i, 100, BROADCAST) for i in range(50)])
        self.wait_rings([50, 2000])
        self.exchange()
        self.wait_rings([50, 2200])

    def test_others_are_the_hosts(self):
        """Frames that come by the queue and are not for the guest's memory are not placed there."""
        self.begin()
        self.wait_placement("^placed")
        self.peer.send([frame(i, 100, tag=7) for i in range(20)])
        self.assertEqual(self.peer.receive(1, timeout=0.5), [])
        self.exchange()
        self.assertEqual(self.by_ring(), [0, 200])

    def test_killed(self):
        """The daemon is killed while frames come, three times: no buffer is lost, and frames come again."""
        self.begin()
        self.wait_placement("^placed")
        before = self.capacity()
        self.assertGreater(before, RING_SIZE - BURST)
        for _ in range(3):
            self.exchange(500)
            self.peer.send([frame(self.next + i, 60) for i in range(100)])
            self.daemon.kill()
            self.daemon.start()
            self.daemon.wait_ready()
            self.wait_placement("^placed")
            self.peer.receive(200, timeout=1.0)  # those that were on their way
        self.exchange(2000)
        self.assertAlmostEqual(self.capacity(), before, delta=BURST)

    def test_upgraded(self):
        """New processes take over, or fail to in the last moment: frames are placed again, and no buffer is lost."""
        self.begin()
        self.wait_placement("^placed")
        before = self.capacity()
        counters = self.daemon.path("counters")
        for _ in range(2):
            self.exchange(500)
            os.rename(counters, counters + ".away")
            done = self.daemon.command("upgrade")
            self.assertIn("failed after it was ready", done.stderr)
            os.rename(counters + ".away", counters)
            self.wait_placement("^placed")  # its memory was shared a moment ago
            self.exchange(500)
            told = self.daemon.upgrade()
            print(f"    nobody served for {told['silent_us'] / 1e3:.1f} ms")
            self.wait_placement("^placed")
        self.exchange(2000)
        self.assertAlmostEqual(self.capacity(), before, delta=BURST)

    def capacity(self):
        """Number of frames that the guest's ring takes while the guest consumes none."""
        self.guest.command("stop")
        before = self.stats()["rx_frames"]
        self.peer.send([frame(i, 60) for i in range(2 * RING_SIZE)])
        time.sleep(0.3)
        taken = self.stats()["rx_frames"] - before
        self.guest.command("start")
        self.assertEqual(len(self.peer.receive(taken)), taken)
        return taken

    def test_settings(self):
        """Frames that the settings exclude are copied, with the reason, and without loss."""
        self.begin()
        self.wait_placement("^placed")
        self.daemon.apply(self.document(mirror={"direction": "rx", "file": self.daemon.path("copies.pcapng")}))
        self.wait_placement("^copied from queue 1 of u0: frames to the adapter are mirrored;")
        self.exchange()
        self.daemon.apply(self.document())
        self.wait_placement("^placed")
        self.exchange()
        self.daemon.apply(self.document(uplink_pairs=QUEUES))
        self.wait_placement("^copied: u0 has no receive queue beyond the uplink's queue pairs$")
        self.exchange()
        self.daemon.apply(self.document())
        self.wait_placement("^placed")
        self.exchange()

    def test_one_pair(self):
        """A guest with one queue pair gets everything by that."""
        self.begin(queue_pairs=1)
        self.wait_placement("^copied from queue 1 of u0: the adapter has one queue pair")
        self.exchange()

    def test_small_buffers(self):
        """Buffers that are too small for the longest frame."""
        self.daemon.apply(self.document())
        steer(self.far, WIRE, GUEST, 1)
        self.start_guest(args=["--mbuf-size=1152", "--enable-scatter"])
        self.wait_placement("^copied from queue 1 of u0: the guest's receive buffers have")
        self.exchange(sizes=(60, 500))

    def test_too_much_to_pin(self):
        """Memory of more than the kernel is to pin: frames are copied; the limit is counted, and an event."""
        path = self.daemon.path("guest.sock")
        attachment = {"kind": "vhost-user", "socket": path, "mode": "server", "queue_pairs": 2}
        self.daemon.apply(self.document(attachment=attachment))
        steer(self.far, WIRE, GUEST, 1)
        guest = Receiver(path, 2, memory=17 << 30)
        self.addCleanup(guest.close)
        self.wait_placement("^copied from queue 1 of u0: the guest's memory of 17 GiB exceeds the 16 GiB")
        frames = [frame(i, 300) for i in range(50)]
        self.peer.send(frames)
        deadline = time.monotonic() + 5
        while len(found := guest.received(0) + guest.received(2)) < len(frames) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(found, frames)
        limit = next(it for it in self.daemon.ask("/v1/stats").body["limits"] if it["name"] == "pinned_memory")
        self.assertEqual((limit["used"], limit["allowed"]), (0, 16 << 30))
        self.assertGreaterEqual(limit["refused"], 1)
        events = [event["text"] for event in self.daemon.ask("/v1/events").body["events"] if event["kind"] == "limit"]
        self.assertIn("met its limit pinned_memory: the guest's memory of 17 GiB exceeds", events[0])

    def test_interface_lost(self):
        """The interface goes down and comes back."""
        self.begin()
        self.wait_placement("^placed")
        self.host.ip("link", "set", "dev", UPLINK, "down")
        self.wait_placement("^copied")
        self.host.ip("link", "set", "dev", UPLINK, "up")
        self.wait_placement("^placed")
        self.exchange()

    def tearDown(self):
        self.daemon.check_alive()


def load_tests(loader, standard, _pattern):
    """None of it is the stand-in's."""
    return loader.suiteClass() if "SHUNT_E2E_STANDIN" in os.environ else standard
