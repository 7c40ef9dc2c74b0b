"""A soft NIC in switchdev mode: representors in a namespace, whose kernel does what the NIC's bridge does else.

Guests are namespaces with a tap, as is the wire's other end. What is asked is the same of the NIC's own bridge, of a Linux
bridge over the representors, and of rules that lead frames past that.
"""

import json
import subprocess
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench import cpus
from managed import Managed
from netns import Network, NetworkError
from tagging import tag
from test_uplinks import root
from tools import Iperf, ping, wait_ping

GUESTS = 3
BRIDGE = "br0"


def rep(of):
    """Name of a representor's tap here."""
    return f"rep-{of}"


class Guest:
    """A namespace with the interface `e0`; `of` is its function."""

    def __init__(self, network, of, number):
        self.of, self.number = of, number
        self.space = network.namespace(of)
        self.mac = f"02:0e:5d:00:00:{number:02x}"
        self.v4, self.v6 = f"10.9.0.{number}", f"fd09::{number:x}"

    def up(self, mtu=None):
        """Its interface up, with an address of either kind."""
        self.space.wait_link("e0")
        self.space.up("e0", f"{self.v4}/24", f"{self.v6}/64", mac=self.mac, mtu=mtu)


class Bed:
    """A daemon in the namespace `host`, where the representors are, its guests, and the wire."""

    def __init__(self, mode="switchdev", **options):
        self.mode = mode
        self.network = Network()
        try:
            self.host = self.network.namespace("host")
            self.host.silent()
            self.guests = [Guest(self.network, f"vf{n}", n + 1) for n in range(GUESTS)]
            self.wire = Guest(self.network, "wire", 99)
            self.network.veth((self.host, "u0"), (self.wire.space, "e0"), offload=False)
            self.daemon = Managed(cpu=cpus()[0])
            self.network.ending.callback(self.daemon.close)
            self.daemon.within = self.host.within([])
            self.options = options
        except BaseException:
            self.network.close()
            raise

    def representor(self, of):
        """A representor in the document."""
        return {"of": of, "attachment": {"kind": "tap", "interface": rep(of)}}

    def document(self):
        """The state that it is to have."""
        nic = {"name": "nic0", "mode": self.mode, "total_vfs": GUESTS, "num_vfs": GUESTS, "uplink": "packet:u0"}
        if self.mode == "switchdev":
            nic["representor"] = [self.representor(of) for of in self.functions()]
        adapters = [
            {"name": guest.of, "nic": "nic0", "vf": n, "mac": guest.mac, "iov_weight": 1,
             "attachment": {"kind": "tap", "interface": "e0", "netns": guest.space.path}, **self.options}
            for n, guest in enumerate(self.guests)
        ]  # fmt: skip
        return {"version": 1, "nic": [nic], "adapter": adapters}

    def functions(self):
        """Everything that has a representor."""
        return ["uplink", *(guest.of for guest in self.guests)]

    def start(self):
        """The daemon, the document, and everybody's addresses."""
        self.daemon.start()
        self.daemon.wait_ready()
        self.daemon.apply(self.document())
        for member in self.members():
            member.up()

    def members(self):
        """Guests and the wire."""
        return [*self.guests, self.wire]

    def bridge(self):
        """A Linux bridge over the representors, which are up then."""
        self.host.bridge(BRIDGE, *map(rep, self.functions()))
        self.wait_carriers()

    def wait_carriers(self):
        """Waits until each guest has a carrier."""
        for guest in self.guests:
            guest.space.wait_link("e0", up=True)

    def patch(self, path, patch, status=200):
        """Changes part of the state; the answer, which must have this status."""
        headers = {"Content-Type": "application/merge-patch+json"}
        reply = self.daemon.ask(path, "PATCH", body=json.dumps(patch), headers=headers)
        if reply.status != status:
            raise NetworkError(f"{path} {patch}: {reply.status} {reply.body}")
        return reply.body

    def set_rules(self, rules):
        """Rules from now on."""
        self.patch("/v1/nics/nic0", {"rule": rules})

    def counted(self):
        """Frames of each rule."""
        return [one["frames"] for one in self.daemon.ask("/v1/stats").body.get("offloads", [])]

    def forwarded(self):
        """Frames that came to the host by all representors."""
        return sum(self.host.link(rep(of))["stats64"]["rx"]["packets"] for of in self.functions())

    def nic(self):
        """The NIC in force."""
        return self.daemon.ask("/v1/actual").body["actual"]["nics"][0]

    def wait_for(self, what, true, timeout=5.0):
        """Waits until `true()`."""
        deadline = time.monotonic() + timeout
        while not true():
            if time.monotonic() > deadline:
                raise NetworkError(f"{what} after {timeout} s; the log:\n{self.daemon.log()[-3000:]}")
            time.sleep(0.02)

    def matrix(self, count=3):
        """Connectivity over IPv4 and IPv6: each sender and receiver."""
        found = {}
        for sender in self.members():
            others = [other for other in self.members() if other is not sender]
            addresses = [address for other in others for address in (other.v4, other.v6)]
            with ThreadPoolExecutor() as pool:
                asked = pool.map(partial(ping, sender.space, count=count, timeout=1), addresses)
                found |= {(sender.of, address): answers > 0 for address, answers in zip(addresses, asked, strict=True)}
        return found

    def close(self):
        """Ends and removes everything."""
        self.network.close()


class SwitchdevCase(unittest.TestCase):
    """Questions about a NIC in switchdev mode."""

    limit_s = 100
    options = {}

    def bed(self, mode="switchdev", **options):
        bed = Bed(mode, **options)
        self.addCleanup(bed.close)
        bed.start()
        return bed

    def assert_all_reached(self, bed):
        """Everybody answers everybody, small and cut."""
        for sender in bed.members():
            for receiver in bed.members():
                if sender is not receiver:
                    wait_ping(sender.space, receiver.v4)
                    answers = ping(sender.space, receiver.v6, size=4000)
                    self.assertEqual(answers, 3, f"{sender.of} to {receiver.of}: {answers.text}")

    def direct(self, bed):
        """Rules that lead off the host what the guests and the wire say to each other's addresses."""
        members = bed.members()
        name = {member: "uplink" if member is bed.wire else member.of for member in members}
        return [
            {"from": name[sender], "to": name[receiver], "to_mac": receiver.mac}
            for sender in members for receiver in members if sender is not receiver
        ]  # fmt: skip


@root
class Bridge(SwitchdevCase):
    """A Linux bridge over representors."""

    def test_connects_as_the_veb_does(self):
        """The same connectivity as the VEB with a bridge, and none without."""
        legacy = self.bed("legacy")
        self.assert_all_reached(legacy)
        expected = legacy.matrix()
        legacy.close()
        bed = self.bed()
        bed.bridge()
        self.assert_all_reached(bed)
        self.assertEqual(bed.matrix(), expected)
        bed.host.ip("link", "set", "dev", BRIDGE, "down")
        self.assertFalse(any(bed.matrix(count=1).values()), "without the host nobody reaches anybody")

    def test_rules_take_traffic_off_the_bridge(self):
        """With rules the bridge sees none of it, the rules count it, and the answers are the same."""
        bed = self.bed()
        bed.bridge()
        self.assert_all_reached(bed)  # neighbours are known from now on
        expected = bed.matrix()
        rules = self.direct(bed)
        bed.set_rules(rules)
        before = bed.forwarded()
        one, other = bed.guests[:2]
        self.assertEqual(ping(one.space, other.v4, count=100, timeout=5), 100)
        self.assertEqual(ping(one.space, bed.wire.v4, count=100, timeout=5), 100)
        for udp in (False, True):
            found = Iperf(other.space, one.space, other.v4).run(udp=udp)
            self.assertGreater(found.bytes, 1_000_000)
        counted = dict(zip([(rule["from"], rule["to"]) for rule in rules], bed.counted(), strict=True))
        for pair in (("vf0", "vf1"), ("vf1", "vf0"), ("vf0", "uplink"), ("uplink", "vf0")):
            self.assertGreaterEqual(counted[pair], 100, pair)
        self.assertLess(counted["vf2", "vf0"], 20, "others' counters stand still, neighbours that are asked again aside")
        # A kernel asks again for neighbours now and then: that is a broadcast, which no rule has.
        self.assertLess(bed.forwarded() - before, 20)
        self.assertEqual(bed.matrix(), expected)
        bed.set_rules([])
        before = bed.forwarded()
        self.assertEqual(ping(one.space, other.v4, count=100, timeout=5), 100)
        self.assertGreaterEqual(bed.forwarded() - before, 200)

    def test_rules_change_while_tcp_flows(self):
        """A connection lives through rules that come and go."""
        bed = self.bed()
        bed.bridge()
        one, other = bed.guests[:2]
        wait_ping(one.space, other.v4)
        rules = self.direct(bed)
        until = time.monotonic() + 3
        ping_all = one.space.start("ping", "-n", "-q", "-i", "0.005", "-w", "4", other.v4, stdout=subprocess.PIPE)
        while time.monotonic() < until:
            bed.set_rules(rules)
            time.sleep(0.05)
            bed.set_rules([])
            time.sleep(0.05)
        said = ping_all.communicate(timeout=10)[0].decode()
        self.assertIn(" 0% packet loss", said)

    def test_a_host_that_routes(self):
        """The host is whatever it is: here a router between the guests, with an address on each representor."""
        bed = Bed()
        self.addCleanup(bed.close)
        bed.start()
        bed.host.sysctls({"net/ipv4/ip_forward": 1})
        for n, guest in enumerate(bed.guests[:2]):
            bed.host.up(rep(guest.of), f"10.{50 + n}.0.1/24")
            guest.space.ip("address", "add", f"10.{50 + n}.0.2/24", "dev", "e0")
            guest.space.wait_link("e0", up=True)
            guest.space.ip("route", "add", f"10.{51 - n}.0.0/24", "via", f"10.{50 + n}.0.1")
        wait_ping(bed.guests[0].space, "10.51.0.2")
        self.assertEqual(ping(bed.guests[1].space, "10.50.0.2", size=4000), 3)


@root
class Vlans(SwitchdevCase):
    """VLAN isolation."""

    def test_a_bridge_for_each(self):
        """Guests of different bridges do not reach each other."""
        bed = self.bed()
        bed.host.bridge("blue", rep("vf0"), rep("vf1"))
        bed.host.bridge("red", rep("vf2"), rep("uplink"))
        bed.wait_carriers()
        wait_ping(bed.guests[0].space, bed.guests[1].v4)
        wait_ping(bed.guests[2].space, bed.wire.v4)
        self.assertEqual(ping(bed.guests[0].space, bed.guests[2].v4, count=3, timeout=1), 0)
        self.assertEqual(ping(bed.guests[0].space, bed.wire.v4, count=3, timeout=1), 0)

    def test_a_bridge_that_filters(self):
        """A bridge with VLANs: access ports, and a trunk to the wire. As the VEB does it with `vlan` of the VFs."""
        vids = {"vf0": 5, "vf1": 5, "vf2": 6}
        bed = self.bed()
        try:
            bed.host.ip("link", "add", "name", BRIDGE, "type", "bridge", "vlan_filtering", "1", "stp_state", "0")
        except NetworkError as error:
            self.skipTest(f"this kernel's bridges know no VLANs: {error}")
        for of in bed.functions():
            bed.host.ip("link", "set", "dev", rep(of), "master", BRIDGE, "up")
            bed.host.run("bridge", "vlan", "del", "dev", rep(of), "vid", "1")
            for vid in sorted(set(vids.values())) if of == "uplink" else [vids[of]]:
                access = [] if of == "uplink" else ["pvid", "untagged"]
                bed.host.run("bridge", "vlan", "add", "dev", rep(of), "vid", str(vid), *access)
        bed.host.ip("link", "set", "dev", BRIDGE, "up")
        bed.wait_carriers()
        self.assert_vlans(bed)

    def test_a_switch_of_ours(self):
        """The same with a switch of ours in the bridge's place: another daemon at the representors' interfaces."""
        bed = self.bed()
        for of in bed.functions():
            bed.host.ip("link", "set", "dev", rep(of), "up")
        bed.wait_carriers()
        adapters = [
            {"name": f"at-{guest.of}", "switch": "sw0", "mac": f"02:0e:5d:01:00:{guest.number:02x}", "spoof_check": False,
             "vlan": {"id": 6 if guest.of == "vf2" else 5}, "attachment": f"packet:{rep(guest.of)}"}
            for guest in bed.guests
        ]  # fmt: skip
        software = Managed(cpu=cpus()[1])
        bed.network.ending.callback(software.close)
        software.within = bed.host.within([])
        software.start()
        software.wait_ready()
        nic = {"name": "nic0", "total_vfs": 0, "uplink": f"packet:{rep('uplink')}"}
        switch = {"name": "sw0", "nic": "nic0"}
        software.apply({"version": 1, "nic": [nic], "switch": [switch], "adapter": adapters})
        self.assert_vlans(bed)
        bed.set_rules([{"from": "vf0", "to": "vf1", "to_mac": bed.guests[1].mac}])
        wait_ping(bed.guests[0].space, bed.guests[1].v4)
        self.assertGreater(bed.counted()[0], 0)

    def test_rules_that_push_and_pop(self):
        """The same by rules alone: tags come and go on the way to the wire."""
        bed = self.bed()
        for of in bed.functions():
            bed.host.ip("link", "set", "dev", rep(of), "up")
        bed.wait_carriers()
        vids = {"vf0": 5, "vf1": 5, "vf2": 6}
        rules = [{"from": of, "to": "uplink", "to_mac": bed.wire.mac, "push_vlan": {"id": vid}} for of, vid in vids.items()]
        rules += [{"from": "vf0", "to": "vf1"}, {"from": "vf1", "to": "vf0"}]
        rules += [{"from": "uplink", "to": guest.of, "vlan": vids[guest.of], "to_mac": guest.mac, "pop_vlan": True}
                  for guest in bed.guests]  # fmt: skip
        bed.set_rules(rules)
        # No flooding: guests without a rule for broadcasts know their neighbours in advance.
        for guest in bed.guests:
            guest.space.ip("neighbour", "add", bed.wire.v4, "lladdr", bed.wire.mac, "dev", "e0")
            bed.wire.space.ip("neighbour", "add", guest.v4, "lladdr", guest.mac, "dev", "e0")
        self.assert_vlans(bed)
        self.assertGreater(min(bed.counted()[:3]), 0)

    def assert_vlans(self, bed):
        """VF 0 and VF 1 reach each other and the wire in VLAN 5; VF 2 is in VLAN 6, which the wire is not in."""
        tag(bed.wire.space, "e0", 5)
        one, other, third = bed.guests
        wait_ping(one.space, other.v4)
        wait_ping(one.space, bed.wire.v4)
        wait_ping(bed.wire.space, other.v4)
        for sender, receiver in ((one, third), (third, other), (third, bed.wire), (bed.wire, third)):
            self.assertEqual(ping(sender.space, receiver.v4, count=3, timeout=1), 0, f"{sender.of} {receiver.of}")


@root
class Contract(SwitchdevCase):
    """Link and MTU, and representors that come and go."""

    def carrier(self, guest):
        """Returns true if its interface has a carrier."""
        return "LOWER_UP" in guest.space.link("e0")["flags"]

    def test_link_follows(self):
        """A representor is made switched off; up and down are the guest's carrier, and a rule's too."""
        bed = self.bed()
        one, other = bed.guests[:2]
        for of in bed.functions():
            self.assertNotIn("UP", bed.host.link(rep(of))["flags"], "as the kernel leaves them")
        bed.wait_for("the guests have a carrier", lambda: not any(map(self.carrier, bed.guests)))
        bed.bridge()
        wait_ping(one.space, other.v4)
        bed.set_rules(self.direct(bed))
        wait_ping(one.space, other.v4)
        for _ in range(3):
            bed.host.ip("link", "set", "dev", rep("vf1"), "down")
            bed.wait_for("its carrier stays", lambda: not self.carrier(other))
            self.assertTrue(self.carrier(one))
            self.assertEqual([vf["link_up"] for vf in bed.nic()["vfs"]], [True, False, True])
            self.assertEqual(ping(one.space, other.v4, count=2, timeout=1), 0)
            bed.host.ip("link", "set", "dev", rep("vf1"), "up")
            bed.wait_for("its carrier does not come", lambda: self.carrier(other))
            wait_ping(one.space, other.v4)
        names = [(one["of"], one["name"], one["up"]) for one in bed.nic()["representors"]]
        self.assertEqual(names[:2], [("uplink", "p0", True), ("vf0", "pf0vf0", True)])

    def test_mtu_follows(self):
        """The guest's interface has the representor's MTU, up to its own attachment's."""
        bed = self.bed()
        bed.bridge()
        guest = bed.guests[0]
        for mtu, expected in ((1400, 1400), (600, 600), (9000, 1500), (1500, 1500)):
            bed.host.ip("link", "set", "dev", rep("vf0"), "mtu", str(mtu))
            bed.wait_for(f"its MTU is not {expected}", lambda e=expected: guest.space.link("e0")["mtu"] == e)
            bed.wait_for("it is not told", lambda m=mtu: bed.nic()["representors"][1]["mtu"] == m)
        wait_ping(guest.space, bed.guests[1].v4)

    def test_vanishes_and_comes_back(self):
        """A representor is deleted: it is made again, switched off, and works again once it is in its bridge."""
        bed = self.bed()
        bed.bridge()
        one, other, third = bed.guests
        wait_ping(one.space, other.v4)
        for _ in range(3):
            before = bed.host.link(rep("vf1"))["ifindex"]
            bed.host.ip("link", "del", "dev", rep("vf1"))
            bed.wait_for("it is not made again", lambda b=before: (bed.host.link(rep("vf1")) or {"ifindex": b})["ifindex"] != b)
            bed.wait_for("its carrier stays", lambda: not self.carrier(other))
            wait_ping(one.space, third.v4)
            bed.host.ip("link", "set", "dev", rep("vf1"), "master", BRIDGE, "up")
            wait_ping(one.space, other.v4)

    def test_stays_when_the_operator_made_it(self):
        """A tap that was there before outlives the daemon in its bridge, and is used by the next one."""
        bed = Bed()
        self.addCleanup(bed.close)
        for of in bed.functions():
            bed.host.ip("tuntap", "add", "dev", rep(of), "mode", "tap")
        bed.start()
        bed.bridge()
        wait_ping(bed.guests[0].space, bed.wire.v4)
        bed.daemon.kill()
        bed.daemon.start()
        bed.daemon.wait_ready()
        for guest in bed.guests:
            guest.up()
        wait_ping(bed.guests[0].space, bed.wire.v4)

    def test_an_upgrade_keeps_everything(self):
        """A hot restart: representors stay in their bridge, links up, rules go on counting, no echo request is lost."""
        bed = self.bed()
        bed.bridge()
        one, other, third = bed.guests
        wait_ping(one.space, other.v4)
        wait_ping(one.space, third.v4)
        bed.set_rules([{"from": "vf0", "to": "vf1", "to_mac": other.mac}])
        before = bed.host.link(rep("vf2"))["ifindex"]
        with_rule, without = (
            one.space.start("ping", "-n", "-q", "-i", "0.01", "-w", "6", to.v4, stdout=subprocess.PIPE) for to in (other, third)
        )
        time.sleep(1)
        counted = bed.counted()[0]
        bed.daemon.upgrade()
        bed.wait_for("the rule counts no more", lambda: bed.counted()[0] > counted + 50)
        for process in (with_rule, without):
            self.assertIn(" 0% packet loss", process.communicate(timeout=15)[0].decode())
        self.assertEqual(bed.host.link(rep("vf2"))["ifindex"], before)
        self.assertTrue(all(self.carrier(guest) for guest in bed.guests))

    def test_what_a_bridge_means_is_refused(self):
        """As a card refuses it: with the field, and what does it instead."""
        bed = self.bed()
        for patch, words in (({"vlan": {"id": 5}}, "push_vlan"), ({"link_state": "enable"}, "ip link set its representor")):
            self.assertIn(words, json.dumps(bed.patch("/v1/adapters/vf0", patch, status=422)))
        for patch in ({"max_tx_mbps": 100}, {"spoof_check": False}):
            bed.patch("/v1/adapters/vf0", patch)
