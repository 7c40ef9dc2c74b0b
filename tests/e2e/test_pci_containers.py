"""Interfaces of VFs in containers: an adapter on a card moves one into a namespace, and it comes back as it was."""

import json
import time
import unittest

from pci import IgbGuest
from test_pci import MAC, PciBase

WEB = ("--nic", "nic0", "--iov-weight", "100", "--mac", MAC, "--attachment", "vf:net1", "--netns", "web")
# What a container does to its interface.
MISUSES = [
    ["ip link set net1 down; ip link set net1 name mine; ip link set mine mtu 1300 up"],
    ["ip link add link net1 name net1.9 type vlan id 9; ip link set net1 promisc on; ip link set net1.9 up"],
    ["ip link set net1 down; ! ip link set net1 address 02:00:00:00:00:99; ip addr flush dev net1"],
    ["ip link set net1 down; ip link set net1 name eth0; ip link set eth0 allmulticast on"],
    ["ip link add link net1 name mac0 type macvlan mode bridge; ip link set mac0 up"],
]


class Containers(PciBase):
    """VFs of igb, of which the host has set one interface before."""

    kind = IgbGuest
    limit_s = 1200
    maxDiff = None
    long_tests = ("test_fifty_lives",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        guest = cls.guest
        guest.up(cls.pf)
        guest.wait_link(cls.pf, timeout=30, up=True)
        guest.set_numvfs(2)
        guest.wait_link(cls.pf, timeout=30, up=True)
        name = cls.netdev(1)
        guest.ip("link", "set", "dev", name, "name", "lan1", "mtu", "1400")
        guest.up("lan1")
        cls.before = guest.snapshot()
        guest.start_daemon()
        guest.says("nic", "create", "nic0", "--device", cls.pf, "--num-vfs", "2")

    def tearDown(self):
        for name in ("web", "other"):
            self.guest.shunt("adapter", "delete", name)
            self.guest.ip("netns", "del", name, check=False)
        self.assertEqual(self.guest.difference(self.before), "", self.guest.log())

    @classmethod
    def netdev(cls, vf):
        """Interface of a VF on the host."""
        return cls.guest.run("sh", "-c", f"ls {cls.guest.pci()}/virtfn{vf}/net").strip()

    def create(self, *words, vf=1):
        """Makes the adapter in a new namespace."""
        container = self.guest.namespace("web")
        self.guest.says("adapter", "create", "web", *WEB, "--vf", str(vf), *words)
        return container

    def adapter(self):
        """The adapter as the daemon shows it."""
        return next(one for one in json.loads(self.guest.says("adapter", "list", "--json")) if one["name"] == "web")

    def link(self, container, name="net1"):
        """An interface of a container."""
        return json.loads(container.ip("-d", "-j", "addr", "show", "dev", name))[0]

    def test_a_container_has_the_interface_with_its_settings(self):
        """Name, address, MTU, IP addresses and route are as given; VLAN and rate are the PF's to enforce."""
        container = self.create("--vlan", "100", "--max-tx-mbps", "50", "--mtu", "1450",
                                "--ip", "10.0.0.1/24,fd00::1/64", "--gateway", "10.0.0.254")  # fmt: skip
        link = self.link(container)
        self.assertEqual((link["address"], link["mtu"], "UP" in link["flags"]), (MAC, 1450, True))
        ips = [one["local"] for one in link["addr_info"] if one["scope"] == "global"]
        self.assertEqual(ips, ["10.0.0.1", "fd00::1"])
        self.assertIn("default via 10.0.0.254 dev net1", container.ip("route"))
        seen = self.guest.vfs()[1]
        self.assertEqual((seen["address"], seen["vlan_list"], seen["tx_rate"]), (MAC, [{"vlan": 100}], 50))
        self.assertEqual(self.netdev(1), "")
        adapter = self.adapter()
        self.assertEqual((adapter["actual_path"], adapter["actual_vf"], adapter["actual_device_state"]), ("vf", 1, "up"))
        done = self.guest.shunt("nic", "set", "nic0", "--num-vfs", "1")
        self.assertEqual(done.status, 2, done)
        self.assertIn("adapter web has one", done.err)
        # Settings of the VF change in place; others reset the interface.
        self.guest.says("adapter", "set", "web", "--vlan", "101")
        self.assertEqual(self.link(container)["mtu"], 1450)
        self.guest.says("adapter", "set", "web", "--mac", "52:54:00:aa:bb:02", "--mtu", "1460")
        link = self.link(container)
        self.assertEqual((link["address"], link["mtu"]), ("52:54:00:aa:bb:02", 1460))

    def test_frames_pass_between_containers_of_one_vlan(self):
        """Two containers with VFs reach each other in their VLAN, and not across VLANs."""
        container = self.create("--vlan", "100", "--ip", "10.0.0.1/24", vf=0)
        other = self.guest.namespace("other")
        self.guest.says("adapter", "create", "other", "--nic", "nic0", "--iov-weight", "100", "--mac", "52:54:00:aa:bb:03",
                        "--attachment", "vf:net1", "--netns", "other", "--ip", "10.0.0.2/24", "--vlan", "100")  # fmt: skip
        for place in (container, other):
            self.eventually(lambda place=place: self.link(place)["operstate"], "UP")
        ping = ("ping", "-c", "3", "-W", "2", "10.0.0.2")
        self.assertEqual(container.ask(*ping).status, 0)
        self.guest.says("adapter", "set", "other", "--vlan", "101")
        self.assertNotEqual(container.ask(*ping).status, 0)
        self.guest.says("adapter", "set", "other", "--vlan", "100")
        self.assertEqual(container.ask(*ping).status, 0)
        self.guest.says("adapter", "delete", "other")
        self.guest.ip("netns", "del", "other")

    def lives(self, count):
        """A container gets the interface, misuses it, and ends: by the adapter's deletion, or by its namespace's."""
        for number in range(count):
            container = self.create("--ip", "10.0.0.1/24", "--vlan", str(1 + number), vf=number % 2)
            container.run("sh", "-ec", *MISUSES[number % len(MISUSES)])
            if number % 3:
                self.guest.ip("netns", "del", "web")
                self.eventually(lambda: self.adapter()["actual_device_state"], "gone")
            self.guest.says("adapter", "delete", "web")
            self.assertEqual(self.netdev(1), "lan1", number)
            if not number % 3:
                self.guest.ip("netns", "del", "web")
            self.assertEqual(self.guest.difference(self.before), "", (number, self.guest.log()))

    def test_five_lives(self):
        """The VF is back as it was, whatever the container did."""
        self.lives(len(MISUSES))

    def test_fifty_lives(self):
        """The same, fifty times."""
        self.lives(50)

    def test_the_interface_follows_its_namespace(self):
        """A namespace that ends and comes again gets the interface again; a killed daemon leaves it where it is."""
        container = self.create("--ip", "10.0.0.1/24")
        container.run("ip", "link", "set", "net1", "mtu", "1300")
        self.guest.kill_daemon()
        self.guest.start_daemon()
        self.assertEqual(self.link(container)["mtu"], 1300)
        self.assertEqual(self.adapter()["actual_device_state"], "up")
        self.guest.ip("netns", "del", "web")
        self.eventually(lambda: self.adapter()["actual_device_state"], "gone")
        self.assertEqual(self.netdev(1), "lan1")
        container = self.guest.namespace("web")
        self.eventually(lambda: self.adapter()["actual_device_state"], "up")
        self.assertEqual(self.link(container)["mtu"], 1500)
        self.assertIn("VF 1: its interface is in web now", self.guest.says("events"))

    def test_a_namespace_may_come_later_and_a_name_that_it_has_is_refused(self):
        """A missing namespace is a reason that is shown; a taken name is an error, and nothing has changed."""
        self.guest.says("adapter", "create", "web", *WEB, "--vf", "1")
        self.assertEqual(self.adapter()["actual_device_state"], "gone")
        self.assertIn("web does not exist", self.adapter()["actual_device_reason"])
        container = self.guest.namespace("web")
        self.eventually(lambda: self.adapter()["actual_device_state"], "up")
        self.assertEqual(self.link(container)["address"], MAC)
        self.guest.says("adapter", "delete", "web")
        container.run("sh", "-ec", "ip link set lo down; ip link set lo name net1")
        done = self.guest.shunt("adapter", "create", "web", *WEB, "--vf", "1")
        self.assertEqual(done.status, 2, done)
        self.assertIn("File exists", done.err)
        self.assertIn("netns", done.err)

    def test_an_interface_that_the_host_uses_is_refused(self):
        """With an IP address, or an interface on it, it stays the host's, and the VF has its settings."""
        self.guest.namespace("web")
        uses = [("has IP addresses on the host", ["addr", "add", "10.0.9.1/24", "dev", "lan1"], ["addr", "del", "10.0.9.1/24", "dev", "lan1"]),
                ("the host has lan9 on", ["link", "add", "link", "lan1", "name", "lan9", "type", "vlan", "id", "9"], ["link", "del", "lan9"])]  # fmt: skip
        for text, use, end in uses:
            with self.subTest(text):
                self.guest.ip(*use)
                done = self.guest.shunt("adapter", "create", "web", *WEB, "--vf", "1", "--vlan", "100")
                self.guest.ip(*end)
                self.assertEqual(done.status, 2, done)
                self.assertIn(text, done.err)
        self.guest.says("adapter", "create", "web", *WEB, "--vf", "1")
        self.assertEqual(self.adapter()["actual_device_state"], "up")


if __name__ == "__main__":
    unittest.main()
