"""Real traffic is replayed through every path, and comes out byte for byte, each flow in its order.

Two ends send to each other what two hosts have said; each has the address of one of them. What one sends is what the
other must receive, no frame more or less.
"""

import contextlib
import os
import shutil
import tempfile
import time
import unittest

from ends import PacketEnd, PcapEnd, StreamEnd, TapEnd, VhostEnd, XdpEnd
from hosts import UPLINK, WIRE_PORTS, Host
from netns import Network
from pcapfile import read
from test_uplinks import root
from traffic import MACS, make

VLAN = 42  # of the capture
WAIT_S = 8.0
PATHS = {"vf": {"iov_weight": 50}, "vmq": {"path": "vmq"}, "synthetic": {"path": "synthetic"}}


def sender_of(frame):
    """0 or 1, or None for a stranger."""
    source = ":".join(f"{byte:02x}" for byte in frame[6:12])
    return MACS.index(source) if source in MACS else None


def flows(frames):
    """Frames by addresses and tag. Between flows a bridge may change the order (IEEE 802.1Q-2022, 8.6.6), within one not."""
    found = {}
    for frame in frames:
        key = frame[:12] + (frame[12:16] if frame[12:14] == b"\x81\x00" else b"")
        found.setdefault(key, []).append(frame)
    return found


def differences(sent, received):
    """Sentences about where two lists of frames differ."""
    sent, received = flows(sent), flows(received)
    for key in sent.keys() | received.keys():
        one, other = sent.get(key, []), received.get(key, [])
        if one == other:
            continue
        same = next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
        shown = [f"{len(frames[same])} B {frames[same][:64].hex()}" if same < len(frames) else "none" for frames in (one, other)]
        yield f"{key.hex()}: {len(one)} sent, {len(other)} received; number {same} is {shown[0]} sent, {shown[1]} received"


@root
class Replay(unittest.TestCase):
    """Pairs of ends."""

    limit_s = 90

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="shunt-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        frames = read(make(cls.directory)[1])
        cls.everything = [[frame for frame in frames if sender_of(frame) == which] for which in (0, 1)]

    @contextlib.contextmanager
    def case(self, **named):
        """One replay, with a network of its own."""
        with self.subTest(**named):
            self.network = Network()
            try:
                yield
            finally:
                self.network.close()

    def adapter(self, number, made, path):
        """The adapter of an end."""
        return {"name": f"end{number}", "switch": "sw0", "mac": MACS[number], "attachment": made.attachment,
                "trunks": [str(VLAN)], **PATHS[path]}  # fmt: skip

    def one_host(self, kinds, paths):
        """Both ends on a host."""
        frames = self.everything
        host = Host(self.network, 0)
        host.space.silent()
        ends = [kind(self.network, host.space, f"end{n}", frames[n]) for n, kind in enumerate(kinds)]
        for made in ends:
            made.prepare()
        document = host.document()
        document["adapter"] = [self.adapter(n, made, path) for n, (made, path) in enumerate(zip(ends, paths))]
        host.daemon.start()
        host.daemon.wait_ready()
        self.applied(host, document, ends)
        in_force = {one["name"]: one["path"] for one in host.actual()["adapters"]}
        self.assertEqual(in_force, {f"end{n}": path for n, path in enumerate(paths)})
        self.exchange([host], ends)

    @staticmethod
    def applied(host, document, ends):
        """Brings a document into force, now and whenever one of the ends has changed its attachment."""
        for made in ends:
            made.apply = lambda: host.daemon.apply(document)
        ends[0].apply()

    def two_hosts(self, uplinks, path="vf", before=None, after=None):
        """An end on each of two hosts, whose uplinks reach each other when `before` and `after` their start was seen to."""
        frames = self.everything
        hosts = [Host(self.network, number, uplink=uplink) for number, uplink in enumerate(uplinks)]
        for host in hosts:
            host.space.silent()
        ends = [PcapEnd(self.network, host.space, f"end{n}", frames[n]) for n, host in enumerate(hosts)]
        if before:
            before(hosts)
        for number, (host, made) in enumerate(zip(hosts, ends)):
            made.prepare()
            document = host.document()
            document["adapter"] = [self.adapter(number, made, path)]
            host.daemon.start()
            host.daemon.wait_ready()
            self.applied(host, document, [made])
        if after:
            after(hosts)
        self.exchange(hosts, ends)

    @staticmethod
    def await_frames(receiver, count):
        """Waits until so many have come and no more come, or no more can be hoped for."""
        before, now, deadline = -1, 0, time.monotonic() + WAIT_S
        while (now < count or now != before) and time.monotonic() < deadline:
            time.sleep(0.2)
            before, now = now, receiver.count()

    def exchange(self, hosts, ends):
        """First one sends, then the other; each must have received what the other has sent."""
        for made in ends:
            made.attached()
        for host in hosts:
            if host.uplink:
                host.wait_device("up")
        for sender, receiver in (ends, reversed(ends)):
            sender.play()
            self.await_frames(receiver, len(sender.frames))
        for sender, receiver in (ends, reversed(ends)):
            if found := list(differences(sender.frames, receiver.received())):
                drops = [{port["name"]: port["drops"] for port in host.daemon.stats()["ports"]} for host in hosts]
                logs = "\n".join(host.daemon.log() for host in hosts)
                self.fail(f"{sender.kind} to {receiver.kind}: {'; '.join(found[:3])}; drops: {drops}; logs:\n{logs}")
        for host in hosts:
            host.daemon.check_alive()

    def test_paths(self):
        """Each path to each, with the daemon's own player."""
        for paths in (("vf", "vf"), ("synthetic", "synthetic"), ("vf", "synthetic"), ("vf", "vmq"), ("vmq", "synthetic")):
            with self.case(paths=paths):
                self.one_host((PcapEnd, PcapEnd), paths)

    def test_attachments(self):
        """Each kind of attachment, to the daemon's own player."""
        for kind in (TapEnd, PacketEnd, XdpEnd, StreamEnd, VhostEnd):
            for path in ("vf", "synthetic"):
                with self.case(kind=kind.kind, path=path):
                    self.one_host((kind, PcapEnd), (path, path))

    def cable(self, hosts):
        """A veth pair between two hosts."""
        self.network.veth(*((host.space, UPLINK) for host in hosts), mtu=9000, offload=False)

    def test_uplinks(self):
        """Interfaces as uplinks of two hosts, at the ends of a cable."""
        for kind in ("packet", "xdp"):
            for path in ("vf", "synthetic"):
                with self.case(kind=kind, path=path):
                    self.two_hosts([f"{kind}:{UPLINK}"] * 2, path, before=self.cable)

    def test_stream_uplinks(self):
        """A socket between two hosts."""
        with self.case():
            socket = self.network.path("wire.sock")
            self.two_hosts([{"kind": "stream", "socket": socket, "mode": mode, "mtu": 9000} for mode in ("server", "client")])

    def test_tap_uplinks(self):
        """Taps as uplinks, with the kernel's bridge between them."""
        with self.case():
            middle = self.network.namespace("middle")
            middle.silent()
            taps = [{"kind": "tap", "interface": port, "netns": middle.path, "mtu": 9000} for port in WIRE_PORTS]
            self.two_hosts(taps, after=lambda _hosts: middle.bridge("br0", *WIRE_PORTS))


if "SHUNT_E2E_STANDIN" in os.environ:
    del Replay
