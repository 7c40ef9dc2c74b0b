"""Link states of adapters with taps: the interface's carrier, and what `shunt adapter list` shows."""

import os
import time
import unittest

from bench import cpus
from managed import Managed
from netns import Network

PATHS = ("vf", "vmq", "synthetic")


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no commands")
@unittest.skipUnless(os.geteuid() == 0, "needs root: makes network namespaces")
class Links(unittest.TestCase):
    """An adapter on each path, each a tap in a namespace of its own."""

    def setUp(self):
        self.network = Network()
        self.addCleanup(self.network.close)
        self.daemon = Managed(cpu=cpus()[0])
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.daemon.wait_ready()
        self.spaces = {path: self.network.namespace(path) for path in PATHS}
        adapters = []
        for number, (path, space) in enumerate(self.spaces.items(), start=1):
            space.silent()
            attachment = {"kind": "tap", "interface": "e0", "netns": space.path}
            mac = f"02:00:00:00:00:{number:02x}"
            weights = {"iov_weight": 50, "vmq_weight": 50}
            adapters.append({"name": path, "switch": "sw0", "mac": mac, "path": path, "attachment": attachment, **weights})
        nic = {"name": "nic0", "total_vfs": 2, "num_vfs": 2}
        switch = {"name": "sw0", "nic": "nic0", "iov": True}
        self.daemon.apply({"version": 1, "nic": [nic], "switch": [switch], "adapter": adapters})
        for space in self.spaces.values():
            space.wait_link("e0")

    def wait_carrier(self, path, on):
        """Waits until the interface has its carrier, or has lost it."""
        deadline = time.monotonic() + 5
        while ("LOWER_UP" in self.spaces[path].link("e0")["flags"]) != on:
            self.assertLess(time.monotonic(), deadline, f"{path}: carrier on is {not on} after 5 s")
            time.sleep(0.02)

    def row(self, name):
        """The row of an adapter in `shunt adapter list`, by column."""
        lines = self.daemon.says("adapter", "list").splitlines()
        header, found = lines[0].split(), [line.split() for line in lines if line.split()[0] == name]
        self.assertEqual(len(found), 1, lines)
        return found[0][header.index("MAC")], found[0][-2:]

    def test_a_disabled_tap_has_no_carrier(self):
        """The carrier follows `link_state` on every path; the device is there all the time."""
        for number, path in enumerate(PATHS, start=1):
            mac = f"02:00:00:00:00:{number:02x}"
            with self.subTest(path):
                for state, on in (("auto", True), ("disable", False), ("enable", True)):
                    self.daemon.says("adapter", "set", path, "--link-state", state)
                    self.wait_carrier(path, on)
                    self.assertEqual(self.row(path), (mac, ["up" if on else "down", "up"]))

    def test_a_new_tap_goes_on_from_the_counters(self):
        """A changed attachment is another tap; its adapter's counters go on."""
        space = self.spaces["vf"]
        space.up("e0", "10.9.0.1/24")
        space.run("ping", "-c", "1", "-W", "1", "10.9.0.9", check=False)
        before = self.daemon.ask("/v1/stats").body["ports"]
        before = {port["name"]: port["tx_frames"] for port in before}
        self.assertGreater(before["nic0/vf"], 0)
        self.daemon.says("adapter", "set", "vf", "--mtu", "1400")
        after = {port["name"]: port["tx_frames"] for port in self.daemon.ask("/v1/stats").body["ports"]}
        self.assertGreaterEqual(after["nic0/vf"], before["nic0/vf"])


if __name__ == "__main__":
    unittest.main()
