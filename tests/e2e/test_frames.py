"""Every frame comes back: frames circle between two VFs of one guest for a while, then are counted."""

import time

from bench import BURST, IN_ORDER, MRG_RXBUF, RING_PACKED, VERSION_1, Bench, BenchCase

RUN_S = 1.0
BURSTS = 16  # 512 frames from each port: half of a ring, so that no ring can ever be full; fewer from each of many


class FramesBase(BenchCase):
    """One bench for the sizes; the subclasses below say which."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.bench = Bench(**cls.options)
        cls.addClassCleanup(cls.bench.close)
        cls.bench.start()

    def test_features(self):
        """The guest and the daemon agreed on what this bench is to exercise."""
        guest = self.options.get("guest", {})
        in_order = self.options.get("offer_in_order", True) and guest.get("in_order", True)
        if self.bench.back_end.name != "shunt":
            in_order = guest.get("in_order", True)
        packed = guest.get("packed", False) and self.options.get("offer_packed", True)
        for features in self.bench.guest.features():
            self.assertTrue(features & VERSION_1)
            self.assertEqual(bool(features & MRG_RXBUF), guest.get("mrg_rxbuf", True))
            self.assertEqual(bool(features & IN_ORDER), in_order)
            self.assertEqual(bool(features & RING_PACKED), packed)

    def circle(self, frame_bytes):
        """Puts frames in flight, lets them run, and counts them at both sides."""
        guest, back_end = self.bench.guest, self.bench.back_end
        queues = self.options.get("guest", {}).get("queues", 1)
        bursts = BURSTS // queues
        before, counters_before = guest.stats(), back_end.stats()
        guest.inject(frame_bytes, bursts)
        seen = before
        deadline = time.monotonic() + RUN_S
        while time.monotonic() < deadline:
            self.wait_for_frames(guest, seen, 0.5)  # they keep coming, on both ports
            seen = guest.stats()
            time.sleep(0.1)
        _, counts = self.assert_drained(guest, before, frame_bytes, bursts * BURST * queues)
        self.assertGreater(min(counts.rx), 10 * bursts * BURST * queues, "they came back only a few times")
        back_end.check_alive()
        if counters_before is not None:
            self.check_counters(counters_before, back_end.stats(), counts)

    def check_counters(self, before, after, counts):
        """The daemon counted the same frames as the guest, and dropped none."""
        for i, (a, b) in enumerate(zip(vf_ports(before), vf_ports(after))):
            self.assertEqual(b["tx_frames"] - a["tx_frames"], counts.tx[i], f"{b['name']} Tx")
            self.assertEqual(b["rx_frames"] - a["rx_frames"], counts.rx[i], f"{b['name']} Rx")
            drops = {reason: n for reason, n in b["drops"].items() if n}
            self.assertEqual((drops, b.get("faults", {})), ({}, {}), b["name"])

    def test_size_0064(self):
        """64 B on the wire."""
        self.circle(60)

    def test_size_0256(self):
        """256 B on the wire."""
        self.circle(252)

    def test_size_1518(self):
        """1518 B on the wire."""
        self.circle(1514)


def vf_ports(stats):
    """The VFs among the ports, in the order of the configuration."""
    return [port for port in stats["ports"] if port["name"].split("/")[-1].startswith("vf")]


def load_tests(loader, _standard, _pattern):
    """One class per kind of ring; the names are what `run --only` selects by."""
    suite = loader.suiteClass()
    for packed in (False, True):
        ring = "packed_vq=1," if packed else ""
        for mrg in (True, False):
            name = f"{ring}mrg_rxbuf={int(mrg)}"
            guest = {"packed": packed, "mrg_rxbuf": mrg}
            rings = {
                f"{name},in_order=1": {"long": not mrg, "guest": {**guest, "in_order": True}},
                f"{name},in_order=refused": {"long": True, "guest": {**guest, "in_order": False}},
                f"{name},in_order=not_offered": {"long": mrg, "offer_in_order": False, "guest": guest},
            }
            for title, options in rings.items():
                suite.addTests(case(loader, title, options))
        # testpmd's vectorized code for packed rings wants them in order, that for split ones does not.
        vectorized = {"packed": packed, "mrg_rxbuf": False, "in_order": packed, "vectorized": True}
        suite.addTests(case(loader, f"{ring}mrg_rxbuf=0,vectorized=1", {"guest": vectorized}))
        suite.addTests(case(loader, f"{ring}socket=server", {"mode": "server", "guest": {"packed": packed}}))
        suite.addTests(case(loader, f"{ring}queues=8", {"guest": {"packed": packed, "queues": 8}}))
    refused = {"offer_packed": False, "guest": {"packed": True}}
    suite.addTests(case(loader, "packed_vq=not_offered", refused))
    return suite


def case(loader, title, options):
    """The tests of `FramesBase` with these options, under this title."""
    long = options.pop("long", False) or ("test_size_0256",)
    kind = type(title, (FramesBase,), {"options": options, "long_tests": long, "__module__": __name__})
    kind.__qualname__ = title
    return loader.loadTestsFromTestCase(kind)
