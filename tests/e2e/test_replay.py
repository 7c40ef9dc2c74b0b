"""Real traffic is replayed through every path, and comes out byte for byte and in its order.

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


def first_difference(sent, received):
    """A sentence about where two lists of frames differ."""
    for number, (one, other) in enumerate(zip(sent, received)):
        if one != other:
            return f"frame {number} of {len(sent)}: sent {len(one)} B {one[:64].hex()}, received {len(other)} B {other[:64].hex()}"
    missing = sent[len(received)].hex()[:128] if len(received) < len(sent) else received[len(sent)].hex()[:128]
    return f"{len(sent)} frames sent, {len(received)} received; the next one is {missing}"


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
        ends = [kind(self.network, host.space, f"end{n}", frames[n]) for n, kind in enumerate(kinds)]
        for made in ends:
            made.prepare()
        document = host.document()
        document["adapter"] = [self.adapter(n, made, path) for n, (made, path) in enumerate(zip(ends, paths))]
        host.daemon.start()
        host.daemon.wait_ready()
        host.daemon.apply(document)
        in_force = {one["name"]: one["path"] for one in host.actual()["adapters"]}
        self.assertEqual(in_force, {f"end{n}": path for n, path in enumerate(paths)})
        self.exchange([host], ends, frames)

    def two_hosts(self, uplinks, path="vf", before=None, after=None):
        """An end on each of two hosts, whose uplinks reach each other when `before` and `after` their start was seen to."""
        frames = self.everything
        hosts = [Host(self.network, number, uplink=uplink) for number, uplink in enumerate(uplinks)]
        ends = [PcapEnd(self.network, host.space, f"end{n}", frames[n]) for n, host in enumerate(hosts)]
        if before:
            before(hosts)
        for number, (host, made) in enumerate(zip(hosts, ends)):
            made.prepare()
            document = host.document()
            document["adapter"] = [self.adapter(number, made, path)]
            host.daemon.start()
            host.daemon.wait_ready()
            host.daemon.apply(document)
        if after:
            after(hosts)
        self.exchange(hosts, ends, frames)

    def exchange(self, hosts, ends, frames):
        """Both send; each must have received what the other has sent."""
        for made in ends:
            made.attached()
        for made in ends:
            made.play()
        counts, deadline = None, time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            time.sleep(0.2)
            before, counts = counts, [made.count() for made in ends]
            if all(counts[n] >= len(frames[1 - n]) for n in (0, 1)) and counts == before:
                break
        got = [made.received() for made in ends]
        for n in (0, 1):
            mine = [frame for frame in got[n] if sender_of(frame) is not None]
            self.assertEqual(len(mine), len(got[n]), f"end {n} received frames that nobody sent")
            if got[n] != frames[1 - n]:
                drops = {port["name"]: port["drops"] for host in hosts for port in host.daemon.stats()["ports"]}
                self.fail(f"{ends[1 - n].kind} to {ends[n].kind}: {first_difference(frames[1 - n], got[n])}; drops: {drops}")
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
