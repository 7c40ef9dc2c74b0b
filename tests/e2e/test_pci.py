"""SR-IOV NICs of a guest (`kind = "pci"`): igb with real PCI, sysfs and drivers, and netdevsim for what igb has not."""

import json
import tempfile
import unittest

from guest import skip_without_guests
from pci import IgbGuest, NetdevsimGuest

MAC = "52:54:00:aa:bb:01"


class PciBase(unittest.TestCase):
    """One guest for all tests of a class."""

    limit_s = 240
    kind = None

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.run_dir = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        cls.addClassCleanup(cls.run_dir.cleanup)
        cls.guest = cls.kind(cls.run_dir.name, memory_mib=256)
        cls.addClassCleanup(cls.guest.close)
        cls.guest.boot()
        cls.pf = cls.guest.pf()

    def set_vf(self, vf, *words):
        """`ip link set ... vf`; how it ended."""
        return self.guest.ask("ip", "link", "set", "dev", self.pf, "vf", str(vf), *words)


class Snapshots(PciBase):
    """What the other tests compare with: a snapshot has all that a release must restore."""

    kind = IgbGuest

    def test_changes_are_seen_and_what_is_random_is_not(self):
        """VFs, their settings and drivers are differences; without them the snapshot is as it was, twice."""
        self.guest.up(self.pf)
        self.guest.wait_link(self.pf, timeout=30, up=True)
        before = self.guest.snapshot()
        for vlan in ("100", "0"):
            self.assertEqual(self.guest.set_numvfs(2).status, 0)
            made = self.guest.snapshot()
            self.assertEqual(self.set_vf(0, "vlan", vlan).status, 0)
            self.assertEqual(self.set_vf(1, "mac", MAC).status, 0)
            self.assertEqual(self.guest.write(f"{self.guest.pci()}/virtfn0/driver_override", "vfio-pci").status, 0)
            seen = self.guest.difference(made, timeout=0)
            self.assertIn('driver_override: "(null)" -> "vfio-pci"', seen)
            self.assertIn(f'vfinfo_list/1/address: "random" -> "{MAC}"', seen)
            self.assertEqual("vfinfo_list/0/vlan_list/0/vlan: none -> 100" in seen, vlan == "100", seen)
            self.assertEqual(self.guest.set_numvfs(0).status, 0)
            self.assertEqual(self.guest.difference(before), "")


class Netdevsim(PciBase):
    """The module built for the guests' kernel: settings that igb refuses, eswitch modes, ports and rates."""

    kind = NetdevsimGuest

    def devlink(self, *words):
        """Output of devlink as JSON, or None."""
        text = self.guest.run("devlink", "-j", *words)
        return json.loads(text) if text.strip() else None

    def test_vfs_and_eswitch(self):
        """A VF's settings are read back; in switchdev mode each VF has a port with a rate object."""
        for words in (["vlan", "100", "qos", "3", "proto", "802.1ad"], ["state", "disable"], ["query_rss", "on"],
                      ["max_tx_rate", "100", "min_tx_rate", "10"], ["trust", "on"], ["mac", MAC]):  # fmt: skip
            self.assertEqual(self.set_vf(0, *words).status, 0, words)
        seen = self.guest.link(self.pf)["vfinfo_list"][0]
        self.assertEqual(seen["vlan_list"], [{"vlan": 100, "protocol": "802.1ad", "qos": 3}])
        self.assertEqual(seen["rate"], {"max_tx": 100, "min_tx": 10})
        self.assertEqual([seen[key] for key in ("address", "link_state", "query_rss_en", "trust")], [MAC, "disable", True, True])
        device = self.guest.device
        self.assertEqual(self.devlink("dev", "eswitch", "show", device), {"dev": {device: {"mode": "legacy"}}})
        self.devlink("dev", "eswitch", "set", device, "mode", "switchdev")
        ports = self.devlink("port", "show")["port"]
        self.assertEqual([port["vfnum"] for port in ports.values() if port["flavour"] == "pcivf"], [0, 1, 2, 3])
        vf = next(name for name, port in ports.items() if port.get("vfnum") == 0)
        self.devlink("port", "function", "rate", "set", vf, "tx_max", "50mbit")
        self.assertEqual(self.devlink("port", "function", "rate", "show", vf)["rate"][vf]["tx_max"], 6250000)
        self.devlink("dev", "eswitch", "set", device, "mode", "legacy")
        self.assertEqual(len(self.devlink("port", "show")["port"]), 1)
