"""The lab's check of its own latency figures, in small: delays as drawn, every frame counted. No word of how fast."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from daemon import binary


class Calibrate(unittest.TestCase):
    """A device with known delays, and the generator that measures it."""

    def calibrate(self, *delays):
        """Result of each distribution."""
        argv = [binary(), "lab", "calibrate", "--rate", "10000", "--trials", "2", "--seconds", "0.5", "--json"]
        for delay in delays:
            argv += ["--delay", delay]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual((told["rate_fps"], told["seconds"], told["frame_bytes"]), (10000, 0.5, 64))
        self.assertEqual([delay["distribution"] for delay in told["delays"]], list(delays))
        return told["delays"]

    def whole(self, delay):
        """Nothing was lost, and the generator counted what the device did."""
        self.assertGreater(delay["sent"], 0)
        self.assertEqual(delay["received"], delay["sent"], delay)
        self.assertEqual((delay["lost"], delay["duplicated"]), (0, 0), delay)
        self.assertEqual(delay["reordered"], delay["reordered_by_device"], delay)
        for times in ["injected", "held", "told", "told_unpaused", "pickup", "device_lateness", "generator_lateness"]:
            quantiles = [delay[times][name] for name in ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")]
            self.assertEqual(quantiles, sorted(quantiles), delay)
        for name in ("p50", "p90", "p99", "p999"):
            error = delay["told_unpaused"][f"{name}_us"] - delay["injected"][f"{name}_us"]
            self.assertAlmostEqual(delay["error_us"][name], error, places=6)
        self.assertLessEqual(delay["told_unpaused"]["frames"], delay["told"]["frames"])
        self.assertEqual({type(within) for within in delay["within"].values()}, {bool})

    def test_every_frame_comes_back_and_is_told_with_its_delay(self):
        """Equal delays keep the order; others do not, and both ends count alike."""
        constant, exponential, two = self.calibrate("constant:100", "exponential:200", "two-valued:50,1000,0.02")
        for delay in (constant, exponential, two):
            self.whole(delay)
        self.assertEqual(constant["reordered"], 0)
        self.assertGreater(exponential["reordered"], 0)
        self.assertEqual((two["theory_us"]["p50"], two["theory_us"]["p99"]), (50, 1000))
        # Drawn delays do not depend on the machine, and no reported delay is shorter, except for the histogram's
        # resolution. A machine that never gave the generator a CPU has measured nothing.
        if constant["told_unpaused"]["frames"] and constant["injected"]["frames"]:
            self.assertAlmostEqual(constant["injected"]["p99_us"], 100, delta=0.2)
            self.assertGreater(constant["told_unpaused"]["p50_us"], 99, constant)
        else:
            self.assertFalse(constant["within"]["p50"], constant)


class WithoutTaps(unittest.TestCase):
    """A machine that gives its users no device of taps, as containers often do."""

    def lab(self, *arguments):
        """Runs the lab where that device is missing."""
        argv = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$0" "$@"', binary(), "lab"]
        return subprocess.run([*argv, *arguments], capture_output=True, text=True, timeout=100, check=False)

    def test_the_path_that_needs_them_is_left_out_and_told(self):
        """The others are measured, and the report is whole."""
        with tempfile.TemporaryDirectory() as out:
            short = ["--pattern", "north-south", "--frame", "64", "--guests", "1", "--rounds", "1", "--seconds", "0.2"]
            done = self.lab(*short, "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            (results,) = pathlib.Path(out).glob("*/results.json")
            results = json.loads(results.read_text())
        self.assertEqual({point["path"] for point in results["points"]}, {"vf", "vhost"})
        self.assertNotIn("ended_early", results)
        (note,) = [note for note in results["notes"] if "left out" in note]
        self.assertIn("/dev/net/tun cannot be opened", note)

    def test_an_experiment_that_is_nothing_without_them_says_so(self):
        """Before anything is measured."""
        with tempfile.TemporaryDirectory() as out:
            done = self.lab("hyperv", "--out", out)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("this experiment needs taps for its guests", done.stderr)
        self.assertIn("/dev/net/tun cannot be opened", done.stderr)
