"""Switchdev mode under a distribution's kernel, which has more than a test machine's: a bridge that filters VLANs, and tc flower.

The daemon runs in a real Linux guest (QEMU), with its guests as namespaces there.
"""

import json
import re
import tempfile
import time
import unittest

from daemon import binary
from guest import Guest, skip_without_guests
from tools import ping, wait_ping

FUNCTIONS = ["vf0", "vf1", "vf2"]
MODULES = ["bridge", "tun", "sch_ingress", "cls_flower", "act_mirred", "dummy"]
UDP = 17
CONFIG = '''
run_dir = "/run/shunt"
[[nic]]
name = "nic0"
kind = "soft"
mode = "switchdev"
'''


def rep(of):
    """Default name of a representor's tap."""
    return f"nic0pf0{of}"


def mac(of):
    """A guest's address."""
    return f"02:0e:5e:00:00:{FUNCTIONS.index(of) + 1:02x}"


def v4(of):
    """Likewise."""
    return f"10.8.0.{FUNCTIONS.index(of) + 1}"


class Kernel(unittest.TestCase):
    """One guest for all."""

    limit_s = 200

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.run_dir = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        cls.addClassCleanup(cls.run_dir.cleanup)
        cls.guest = Guest(cls.run_dir.name, [], name="kernel")
        cls.addClassCleanup(cls.guest.close)
        cls.guest.boot()
        for module in MODULES:
            cls.guest.run("modprobe", module)
        cls.spaces = {of: cls.guest.namespace(of) for of in FUNCTIONS}
        config = CONFIG
        for of in FUNCTIONS:
            attachment = f'{{ kind = "tap", interface = "e0", netns = "{of}" }}'
            config += f'[[nic.vf]]\nmac = "{mac(of)}"\nattachment = {attachment}\n'
        cls.guest.put("/shunt", source=binary())
        cls.guest.put("/shunt.toml", data=config.encode())
        cls.daemon = cls.guest.start("/shunt", "up", "--config", "/shunt.toml")
        cls.daemon.wait_said("ready", timeout=60)
        for of, space in cls.spaces.items():
            space.up("e0", f"{v4(of)}/24", mac=mac(of))

    def tearDown(self):
        for command in (["ip", "link", "del", "dev", "br0"], ["ip", "link", "del", "dev", "hole"]):
            self.guest.run(*command, check=False)
        for of in FUNCTIONS:
            self.guest.run("tc", "qdisc", "del", "dev", rep(of), "clsact", check=False)
            self.spaces[of].ip("neighbour", "flush", "all")
        self.set_rules([])

    def set_rules(self, rules):
        """Rules from now on."""
        words = [word for rule in rules for word in ("--add", rule)]
        self.guest.run("/shunt", "nic", "rules", "nic0", "--clear", *words, "--run-dir", "/run/shunt")

    def counted(self):
        """Frames of each rule."""
        text = self.guest.run("/shunt", "nic", "rules", "nic0", "--json", "--run-dir", "/run/shunt")
        return [rule["frames"] for rule in json.loads(text)]

    def bridge(self, *options):
        """A bridge over all representors."""
        self.guest.ip("link", "add", "name", "br0", "type", "bridge", "stp_state", "0", "mcast_snooping", "0", *options)
        for of in FUNCTIONS:
            self.guest.ip("link", "set", "dev", rep(of), "master", "br0", "up")
        self.guest.ip("link", "set", "dev", "br0", "up")
        for space in self.spaces.values():
            space.wait_link("e0", up=True)

    def test_a_bridge_that_filters(self):
        """Access ports of two VLANs: who shares one is reached, who does not is not."""
        self.bridge("vlan_filtering", "1", "vlan_default_pvid", "0")
        for of, vid in (("vf0", 5), ("vf1", 5), ("vf2", 6)):
            self.guest.run("bridge", "vlan", "add", "dev", rep(of), "vid", str(vid), "pvid", "untagged")
        wait_ping(self.spaces["vf0"], v4("vf1"))
        wait_ping(self.spaces["vf1"], v4("vf0"))
        for sender, receiver in (("vf0", "vf2"), ("vf2", "vf1")):
            self.assertEqual(ping(self.spaces[sender], v4(receiver), count=3, timeout=2), 0, f"{sender} {receiver}")
        self.guest.run("bridge", "vlan", "del", "dev", rep("vf2"), "vid", "6")
        self.guest.run("bridge", "vlan", "add", "dev", rep("vf2"), "vid", "5", "pvid", "untagged")
        wait_ping(self.spaces["vf2"], v4("vf1"))
        self.assertEqual(ping(self.spaces["vf0"], v4("vf2"), count=3), 3)

    def reached(self):
        """Connectivity: echo requests, and datagrams to two ports."""
        found = {}
        for sender in FUNCTIONS:
            for receiver in FUNCTIONS:
                if sender != receiver:
                    found[sender, receiver, "ping"] = self.echoes(sender, receiver)
        for sender, receiver, port in (("vf0", "vf1", 7001), ("vf0", "vf1", 7002), ("vf0", "vf2", 7001)):
            found[sender, receiver, port] = self.datagrams(sender, receiver, port)
        return found

    def echoes(self, sender, receiver):
        """Number of answers to three echo requests; no more are sent, answered or not."""
        words = ["ping", "-n", "-q", "-c", "3", "-i", "0.1", "-W", "1", v4(receiver)]
        return int(re.search(r"(\d+) received", self.spaces[sender].run(*words, check=False))[1])

    def datagrams(self, sender, receiver, port):
        """Number of five datagrams that arrive."""
        listen = (
            "import socket,sys; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('',int(sys.argv[1])))\n"
            "print('bound',flush=True)\n"
            "while True: s.recv(99); print('got',flush=True)"
        )
        send = (
            "import socket,sys; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            "for _ in range(5): s.sendto(b'x'*40,(sys.argv[1],int(sys.argv[2])))"
        )
        server = self.spaces[receiver].start("python3", "-c", listen, str(port))
        server.wait_said("bound")
        self.spaces[sender].run("python3", "-c", send, v4(receiver), str(port))
        time.sleep(0.5)
        said = server.said()
        server.kill()
        return said.count("got")

    def flower(self, of, *words):
        """A filter of tc on what arrives at a representor."""
        self.guest.run("tc", "filter", "add", "dev", rep(of), "ingress", "protocol", "ip", *words)

    def test_golden_rule(self):
        """Rules do what the same match does in tc at the representor: who is reached, and how many frames it was."""
        self.bridge()
        for sender in FUNCTIONS:
            for receiver in FUNCTIONS:
                if sender != receiver:
                    self.spaces[sender].ip("neighbour", "replace", v4(receiver), "lladdr", mac(receiver), "dev", "e0")
        everything = self.reached()
        self.assertTrue(all(everything.values()), everything)
        # Datagrams to port 7001 go nowhere, pings from VF 0 to VF 1 straight there, and whatever VF 1 sends to VF 2 to VF 0.
        self.guest.ip("link", "add", "name", "hole", "type", "dummy")
        self.guest.ip("link", "set", "dev", "hole", "up")
        for of in FUNCTIONS:
            self.guest.run("tc", "qdisc", "add", "dev", rep(of), "clsact")
        to = lambda device: ["action", "mirred", "egress", "redirect", "dev", device]  # noqa: E731
        self.flower("vf0", "prio", "1", "flower", "ip_proto", "udp", "dst_port", "7001", *to("hole"))
        self.flower("vf0", "prio", "2", "flower", "ip_proto", "icmp", "dst_mac", mac("vf1"), *to(rep("vf1")))
        self.flower("vf1", "prio", "1", "flower", "dst_mac", mac("vf2"), *to(rep("vf0")))
        software, matched = self.reached(), self.matched()
        for of in FUNCTIONS:
            self.guest.run("tc", "qdisc", "del", "dev", rep(of), "clsact")
        self.set_rules([
            f"vf0 drop ethertype=2048 protocol={UDP} to_port=7001 priority=1",
            f"vf0 vf1 ethertype=2048 protocol=1 to_mac={mac('vf1')} priority=2",
            f"vf1 vf0 ethertype=2048 to_mac={mac('vf2')} priority=1",
        ])  # fmt: skip
        self.assertEqual(self.reached(), software)
        self.assertNotEqual(software, everything)
        self.assertEqual((software["vf0", "vf1", 7001], software["vf0", "vf1", 7002]), (0, 5))
        self.assertEqual((software["vf0", "vf1", "ping"], software["vf1", "vf2", "ping"]), (3, 0))
        self.assertEqual(self.counted(), matched, "frames, as tc counts them")

    def matched(self):
        """Frames that each filter of tc has matched, in the order of the rules."""
        found = []
        for of, count in (("vf0", 2), ("vf1", 1)):
            text = self.guest.run("tc", "-s", "-json", "filter", "show", "dev", rep(of), "ingress")
            filters = [one for one in json.loads(text) if "options" in one and "actions" in one["options"]]
            filters.sort(key=lambda one: one["pref"])
            self.assertEqual(len(filters), count, text)
            found += [one["options"]["actions"][0]["stats"]["packets"] for one in filters]
        return found
