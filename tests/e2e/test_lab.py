"""The lab's check of its own latency figures, in small: delays as drawn, every frame counted. No word of how fast."""

import json
import subprocess
import unittest

from daemon import binary


class Calibrate(unittest.TestCase):
    """A device with known delays, and the generator that measures it."""

    def calibrate(self, *delays):
        """What is told of each distribution."""
        argv = [binary(), "lab", "calibrate", "--rate", "10000", "--seconds", "0.3", "--json"]
        for delay in delays:
            argv += ["--delay", delay]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual((told["rate_fps"], told["seconds"], told["frame_bytes"]), (10000, 0.3, 64))
        self.assertEqual([delay["distribution"] for delay in told["delays"]], list(delays))
        return told["delays"]

    def whole(self, delay):
        """Nothing was lost, and the generator counted what the device did."""
        self.assertGreater(delay["sent"], 0)
        self.assertEqual(delay["received"], delay["sent"], delay)
        self.assertEqual((delay["lost"], delay["duplicated"]), (0, 0), delay)
        self.assertEqual(delay["reordered"], delay["reordered_by_device"], delay)
        for times in ["injected", "held", "told", "pickup", "device_lateness", "generator_lateness"]:
            quantiles = [delay[times][name] for name in ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")]
            self.assertEqual(quantiles, sorted(quantiles), delay)
            self.assertGreater(delay[times]["frames"], 0, delay)
        for name in ("p50", "p90", "p99", "p999"):
            error = delay["told"][f"{name}_us"] - delay["injected"][f"{name}_us"]
            self.assertAlmostEqual(delay["error_us"][name], error, places=6)
        self.assertEqual({type(within) for within in delay["within_injected"].values()}, {bool})

    def test_every_frame_comes_back_and_is_told_with_its_delay(self):
        """Equal delays keep the order; others do not, and both ends count alike."""
        constant, exponential, two = self.calibrate("constant:100", "exponential:200", "two-valued:50,1000,0.02")
        for delay in (constant, exponential, two):
            self.whole(delay)
        self.assertEqual(constant["reordered"], 0)
        self.assertGreater(exponential["reordered"], 0)
        # What was drawn does not depend on the machine.
        self.assertAlmostEqual(constant["injected"]["p99_us"], 100, delta=0.2)
        self.assertAlmostEqual(two["injected"]["p50_us"], 50, delta=0.1)
        self.assertEqual(two["theory_us"]["p99"], 1000)
        # A frame is never told sooner than it was released, but for the histogram's resolution.
        for delay in (constant, exponential, two):
            self.assertGreaterEqual(delay["told"]["p50_us"], delay["injected"]["p50_us"] * 0.98, delay)
