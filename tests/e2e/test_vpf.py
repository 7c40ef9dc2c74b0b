"""Virtual PFs in real Linux guests: VFs that the guest enables, its own tool beside the host's rights, and igb with stock tools.

One guest has a PF with 7 VFs and may set them within limits; another has a PF with 2 VFs and may only look. All are on one NIC.
"""

import json
import os
import sys
import time
import unittest

from bench import cpus
from guest import skip_without_guests
from managed import Managed
from netns import Network, call
from tools import ping, wait_ping
from vpf import VpfGuest

VFS = 7
RATE_MBPS = 4
RATES_MBPS = (2, 4, 10, 40) if "--all" in sys.argv else (4, 40)
SECONDS = 10 if "--all" in sys.argv else 4  # for which a rate is measured
BURST_MBIT = 64 * 1442 * 8 / 1e6  # what may be sent at once, so a measurement is as exact as that: 0.18 Mbit/s in 4 s
FRAMES = 2000  # of which is counted how many come through
NUMBERED = "/inguest/numbered.py"
PORT = 7000
LIMITS = ["--grant", "all", "--grant-macs", "52:54:00", "--grant-vlans", "100-199", "--grant-max-tx-mbps", "500"]
FOREIGN = "52:54:01:00:00:99"  # no address that the host grants
GRANTED = "52:54:00:00:00:99"


def of_a(vf):
    """The address of a VF of the first guest."""
    return f"10.8.0.{1 + vf}/24"


def of_b(vf):
    """The address of a VF of the second guest."""
    return f"10.8.0.{101 + vf}/24"


def plain(address):
    """Without its prefix length."""
    return address.split("/")[0]


class VpfBase(unittest.TestCase):
    """A daemon with one NIC, and guests on it."""

    limit_s = 400
    nic = {"name": "nic0", "total_vfs": 16, "num_vfs": 16}

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.daemon = Managed(cpu=cpus()[0])
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        cls.daemon.wait_ready()
        cls.daemon.apply({"version": 1, "nic": [cls.nic]})

    @classmethod
    def boot(cls, *guests):
        """Boots guests at the same time."""
        for guest in guests:
            cls.addClassCleanup(guest.close)
            guest.start()
        for guest in guests:
            guest.ready()

    def assert_reaches(self, space, address):
        """An echo request is answered within some seconds."""
        wait_ping(space, plain(address), timeout=30)

    def assert_cut_off(self, space, address):
        """None of several echo requests is answered."""
        said = ping(space, plain(address), count=3, timeout=1)
        self.assertEqual(said, 0, said.text)

    def through(self, source, destination, mac, *words):
        """Number of FRAMES numbered frames to an address that arrive from one namespace in another."""
        taker = destination.start("python3", NUMBERED, "take", "net1")
        taker.wait_said("started", timeout=30)
        words = ["frames", "net1", mac, "--count", str(FRAMES), "--rate", "1000", *words]
        said = source.run("python3", NUMBERED, *words, timeout=60)
        self.assertEqual(json.loads(said.splitlines()[-1])["sent"], FRAMES)
        taker.terminate()
        return json.loads(taker.wait().out.splitlines()[-1])["got"]

    def sent_mbps(self, guest, function, spaces, address, seconds=SECONDS):
        """Rate that the daemon takes from a function's guest, while programs in these namespaces send at full speed."""
        send = ["python3", NUMBERED, "send", plain(address), str(PORT), "--bytes", "1400", "--rate", "100000"]
        floods = [space.start(*send) for space in spaces]
        try:
            for flood in floods:
                flood.wait_said("started", timeout=30)
            start, first = time.monotonic(), guest.counters(function)["tx_bytes"]
            time.sleep(seconds)
            # Read before the clock, so that what is counted took no longer than the time.
            last, took = guest.counters(function)["tx_bytes"], time.monotonic() - start
            return (last - first) * 8 / took / 1e6
        finally:
            for flood in floods:
                flood.kill()
                flood.wait()

    def assert_held(self, mbps, limit):
        """Something was sent, and no more than a limit allows in that time."""
        self.assertLessEqual(mbps, limit * 1.01 + BURST_MBIT / SECONDS)
        self.assertGreater(mbps, 0)

    def eventually(self, found, expected, timeout=10.0):
        """Waits until something is what is expected."""
        deadline = time.monotonic() + timeout
        while (now := found()) != expected:
            if time.monotonic() > deadline:
                self.assertEqual(now, expected)
            time.sleep(0.1)


class VirtualPfs(VpfBase):
    """virtio: a PF with VFs, each with a vhost-user socket of its own."""

    long_tests = {"test_vfs_come_and_go_often"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.a = VpfGuest(cls.daemon, "vma", "--vfs", str(VFS), "--nic", "nic0", *LIMITS, memory_mib=512)
        cls.b = VpfGuest(cls.daemon, "vmb", "--vfs", "2", "--nic", "nic0")
        cls.boot(cls.a, cls.b)
        cls.b.enable(2, of_b)

    def setUp(self):
        for vf in range(VFS):
            self.a.sets("vf", str(vf), "reset")
        self.spaces = self.a.enable(VFS, of_a)

    def test_states_of_a_guest(self):
        """The host sees which VFs a guest has enabled, and which of their devices are up."""
        self.a.disable()
        states = lambda: [vf["guest"] for vf in self.a.seen()["vfs"]]  # noqa: E731
        self.eventually(states, ["connected"] * VFS)
        self.assertEqual(self.a.seen()["enabled_vfs"], 0)
        self.assertEqual(self.a.told_by_qemu()["sriov_numvfs"], 0)
        self.a.enable(3, of_a)
        self.eventually(lambda: [state in ("driver", "running") for state in states()], [True] * 3 + [False] * 4)
        self.eventually(lambda: self.a.seen()["enabled_vfs"], 3)
        self.assertEqual(self.a.told_by_qemu()["sriov_numvfs"], 3)
        self.assertTrue(self.a.seen()["control"])
        shown = [vf["guest"] for vf in json.loads(self.daemon.says("vf", "list", "nic0", "--json")) if vf["guest"]]
        self.assertEqual(shown.count("absent"), 0)
        self.assertIn("connected", shown)

    def test_vfs_reach_each_other_and_another_guests(self):
        """Each VF of 7 reaches the next, and one of the other guest, through the NIC."""
        for vf, space in enumerate(self.spaces):
            self.assert_reaches(space, of_a((vf + 1) % VFS))
            self.assert_reaches(space, of_b(vf % 2))
        self.assertEqual([self.a.counters(vf)["faults"] for vf in range(VFS)], [{}] * VFS)

    def test_vlans_isolate(self):
        """The guest puts two VFs in a VLAN: they reach each other, and no other adapter reaches them."""
        for vf in ("0", "1"):
            self.a.sets("vf", vf, "vlan", "100", "qos", "3")
        self.assert_reaches(self.spaces[0], of_a(1))
        self.assert_cut_off(self.spaces[0], of_a(2))
        self.assert_cut_off(self.spaces[2], of_a(1))
        # The other guest's, once its host says so.
        self.daemon.says("adapter", "set", self.b.adapter(0), "--vlan", "100")
        self.addCleanup(self.daemon.says, "adapter", "set", self.b.adapter(0), "--vlan", "0")
        self.assert_reaches(self.spaces[0], of_b(0))
        self.assert_cut_off(self.spaces[2], of_b(0))
        self.a.sets("vf", "0", "vlan", "0")
        self.assert_reaches(self.spaces[0], of_a(2))

    def test_frames_of_a_vlan(self):
        """Of numbered frames all come through within a VLAN, and none into it or out of it."""
        for vf in ("0", "1"):
            self.a.sets("vf", vf, "vlan", "100")
        self.assert_reaches(self.spaces[0], of_a(1))
        within = self.through(self.spaces[0], self.spaces[1], self.a.mac(1))
        out = self.through(self.spaces[0], self.spaces[2], self.a.mac(2))
        into = self.through(self.spaces[2], self.spaces[1], self.a.mac(1))
        print(f"    of {FRAMES} frames came {within} within the VLAN, {out} out of it, {into} into it")
        self.assertEqual((within, out, into), (FRAMES, 0, 0))

    def test_vfs_come_and_go(self):
        """numvfs 7, 0, 3, five times; then all is as it was."""
        self.vfs_come_and_go(5)

    def test_vfs_come_and_go_often(self):
        """The same fifty times."""
        self.vfs_come_and_go(50)

    def vfs_come_and_go(self, cycles):
        """`cycles` times numvfs 7, 0, 3, 0; then all is as it was."""
        self.a.disable()
        script = f"""
            cd {self.a.pci}
            for i in $(seq {cycles}); do
                echo {VFS} >sriov_numvfs; ls -d virtfn* | wc -l
                echo 0 >sriov_numvfs; [ ! -e virtfn0 ]
                echo 3 >sriov_numvfs; ls -d virtfn* | wc -l
                echo 0 >sriov_numvfs
            done"""
        start = time.monotonic()
        said = self.a.guest.run("sh", "-ec", script, timeout=300).split()
        took = time.monotonic() - start
        self.assertEqual(said, [str(VFS), "3"] * cycles)
        self.assertEqual(self.a.told_by_qemu()["sriov_numvfs"], 0)
        print(f"    {cycles} times {VFS}, 0, 3, 0 VFs in {took:.0f} s")
        spaces = self.a.enable(VFS, of_a)
        for vf, space in enumerate(spaces):
            self.assert_reaches(space, of_a((vf + 1) % VFS))
        self.assertEqual([self.a.counters(vf)["faults"] for vf in range(VFS)], [{}] * VFS)
        self.assertEqual(self.daemon.complaints(), [])

    def test_spoof_check(self):
        """A foreign address is dropped and counted, until the guest sets it for its VF, or the check off."""
        space, before = self.spaces[0], self.a.counters(0)["drops"].get("tx_spoofed_mac", 0)
        own = self.a.mac(0)
        space.up("net1", mac=GRANTED)
        self.assert_cut_off(space, of_a(1))
        self.assertGreater(self.a.counters(0)["drops"]["tx_spoofed_mac"], before)
        self.a.sets("vf", "0", "mac", GRANTED)
        self.assert_reaches(space, of_a(1))
        space.up("net1", mac=FOREIGN)
        self.assert_cut_off(space, of_a(1))
        self.a.sets("vf", "0", "mac", own, "spoofchk", "off")
        # Frames to it go nowhere, but those that it sends are delivered now.
        taken = self.a.counters(0)["tx_frames"] - sum(self.a.counters(0)["drops"].values())
        ping(space, plain(of_a(1)), count=3, timeout=1)
        after = self.a.counters(0)
        self.assertGreater(after["tx_frames"] - sum(after["drops"].values()), taken)

    def test_spoofed_frames(self):
        """No numbered frame with another's or an unused address passes; all with the VF's own address pass."""
        to, before = self.a.mac(1), self.a.counters(0)["drops"].get("tx_spoofed_mac", 0)
        self.assert_reaches(self.spaces[0], of_a(1))
        forged = [self.through(*self.spaces[:2], to, "--source", mac) for mac in (FOREIGN, self.a.mac(2))]
        dropped = self.a.counters(0)["drops"]["tx_spoofed_mac"] - before
        own = self.through(*self.spaces[:2], to)
        print(f"    of {FRAMES} frames came {own} with the VF's address, {forged[0]} with a foreign, {forged[1]} with another VF's")
        self.assertEqual((own, forged, dropped), (FRAMES, [0, 0], 2 * FRAMES))

    def test_rate_limit(self):
        """A VF's guest sends no more than it set, and less than it could."""
        self.assert_reaches(self.spaces[0], of_a(1))
        free = self.sent_mbps(self.a, 0, self.spaces[:1], of_a(1))
        print(f"    sent: {free:.1f} Mbit/s free")
        for limit in RATES_MBPS:
            self.a.sets("vf", "0", "rate", str(limit))
            held = self.sent_mbps(self.a, 0, self.spaces[:1], of_a(1))
            print(f"    sent: {held:.2f} Mbit/s at a limit of {limit}")
            self.assert_held(held, limit)
        self.assertGreater(free, 2 * RATES_MBPS[0])

    def test_link_state(self):
        """A VF whose link the guest disables has no connectivity."""
        self.a.sets("vf", "0", "state", "disable")
        self.assert_cut_off(self.spaces[0], of_a(1))
        self.a.sets("vf", "0", "state", "auto")
        self.assert_reaches(self.spaces[0], of_a(1))

    def test_what_the_guest_sets_is_shown_on_both_sides(self):
        """Settings by the guest appear in its ip link, and on the host; the host's document stays."""
        self.a.sets("vf", "3", "mac", GRANTED, "vlan", "150", "max_tx_rate", "50", "trust", "on")
        text = self.a.sets("vf", "list")
        self.assertIn(f"vf 3     link/ether {GRANTED} brd ff:ff:ff:ff:ff:ff, vlan 150, tx rate 50 (Mbps), max_tx_rate 50Mbps, "
                      "spoof checking on, link-state auto, trust on", text)  # fmt: skip
        self.assertIn(f"{self.a.pf}: pf vma", text)
        self.assertEqual(self.a.vfs()[3]["vlan_list"], [{"vlan": 150}])
        listed = json.loads(self.daemon.says("vf", "list", "nic0", "--json"))
        vf = next(one for one in listed if one.get("mac") == GRANTED)
        self.assertEqual((vf["vlan_id"], vf["max_tx_mbps"], vf["trust"]), (150, 50, True))
        document = next(one for one in self.daemon.export()["adapter"] if one["name"] == self.a.adapter(3))
        self.assertEqual((document["max_tx_mbps"], document.get("vlan")), (0, None))
        # A guest causes one event in five seconds, once it has caused twenty: the tests before had theirs.
        for _ in range(12):
            events = json.loads(self.daemon.says("events", "--json"))
            told = [event["text"] for event in events if event["kind"] == "guest-control"]
            if any(f"mac {GRANTED} vlan 150" in text for text in told):
                return
            time.sleep(5)
            self.a.sets("vf", "3", "mac", GRANTED, "vlan", "150")
        self.fail(f"no event tells of it: {told}")

    def test_what_is_not_granted_is_refused(self):
        """Refusals have the kernel's words and exit code, and change nothing."""
        for words, told in [
            (["vlan", "99"], "Operation not permitted: the host does not grant VLAN 99"),
            (["mac", FOREIGN], "Operation not permitted: the host does not grant"),
            (["max_tx_rate", "501"], "Operation not permitted: the host grants a max_tx_rate of at most 500"),
            (["vlan", "5000"], "Invalid argument"),
            (["mac", self.a.mac(1), "trust", "on"], "Operation not permitted"),
        ]:
            before = self.a.vfs()
            done = self.a.tool("vf", "0", *words)
            self.assertEqual(done.status, 2, done)
            self.assertIn(told, done.err)
            self.assertEqual(self.a.vfs(), before)
        self.assertIn("Invalid argument: there is no VF 7", self.a.tool("vf", "7", "trust", "on").err)
        done = self.b.tool("-j", "vf", "0", "trust", "on")
        self.assertEqual((done.status, json.loads(done.err)["error"]["name"]), (2, "EPERM"))
        self.assertEqual(len(self.b.vfs()), 2)

    def test_a_hostile_channel(self):
        """Garbage, floods and requests with unread answers: the daemon serves all others, and the tool afterwards."""
        port = self.a.guest.run("sh", "-c", "grep -l shunt.vpf.vma /sys/class/virtio-ports/*/name").split("/")[-2]
        for flood in ("head -c 3000000 /dev/urandom", "yes ''", "yes xxxxxxxxxxxxxxx | tr -d '\\n'",
                      'yes \'{"v":1,"id":1,"op":"list"}\''):  # fmt: skip
            running = self.a.guest.start("sh", "-c", f"{flood} >/dev/{port}")
            self.assert_reaches(self.b.spaces[0], of_b(1))
            self.assertEqual(self.daemon.ask("/v1/vpfs").status, 200)
            time.sleep(1)
            running.kill()
            running.wait()
        deadline = time.monotonic() + 60  # what is in the sockets' buffers is answered first, as fast as the ration allows
        while (done := self.a.tool("vf", "0", "trust", "on")).status != 0:
            self.assertLess(time.monotonic(), deadline, done)
        self.assertTrue(self.a.vfs()[0]["trust"])
        self.assertEqual(self.daemon.complaints(), [])


class Restarts(VpfBase):
    """Settings by the guest, and the guest's channel, across a kill and restart of the daemon."""

    def test_a_killed_daemon_comes_back(self):
        """Settings are in force again, the channel is open again, VFs have traffic again."""
        guest = VpfGuest(self.daemon, "vmc", "--vfs", "2", "--nic", "nic0", *LIMITS)
        self.boot(guest)
        spaces = guest.enable(2, of_a)
        guest.sets("vf", "0", "vlan", "100")
        self.assert_cut_off(spaces[0], of_a(1))
        self.daemon.kill()
        self.daemon.start()
        self.daemon.wait_ready()
        self.eventually(lambda: guest.tool("vf", "list").status, 0)
        self.assertEqual(guest.vfs()[0]["vlan_list"], [{"vlan": 100}])
        self.assert_cut_off(spaces[0], of_a(1))
        guest.sets("vf", "1", "vlan", "100")
        self.assert_reaches(spaces[0], of_a(1))
        # The operator's setting wins, and is reported.
        self.assertEqual(self.daemon.command("vpf", "vmc", "--grant-vlans", "200").returncode, 0)
        self.assertEqual(guest.vfs()[0]["vlan_list"], [{}])
        self.assert_reaches(spaces[0], of_a(1))

        self.upgraded(guest, spaces)

    def upgraded(self, guest, spaces):
        """A hot restart: the guest's states and settings are as they were, and its channel comes back."""
        guest.sets("vf", "0", "max_tx_rate", "300")
        before = guest.seen()
        self.daemon.upgrade()
        self.assert_reaches(spaces[0], of_a(1))
        self.eventually(lambda: guest.tool("vf", "list").status, 0)
        self.assertEqual(guest.seen(), before)
        self.assertEqual(guest.vfs()[0]["tx_rate"], 300)


class Igb(VpfBase):
    """igb: stock tools set VFs in the guest, and the host holds all of them to what it allows at their common port."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.peer = VpfGuest(cls.daemon, "peer", "--vfs", "1", "--nic", "nic0")
        words = ["--model", "igb", "--nic", "nic0", "--max-tx-mbps", str(RATE_MBPS), "--trunks", "100-199"]
        cls.igb = VpfGuest(cls.daemon, "vmi", *words, modules=("igb", "igbvf", "8021q", "macvlan"))
        cls.boot(cls.peer, cls.igb)
        cls.peer.enable(1, of_b)

    def setUp(self):
        guest = self.igb.guest
        guest.up(self.igb.pf)  # without it the VFs have no link
        document = next(one for one in self.daemon.export()["adapter"] if one["name"] == "vmi-pf")
        self.macs = document["macs"]
        self.igb.disable()
        # A VF's driver takes the address when it starts, and after that only from the PF.
        guest.write(f"{self.igb.pci}/sriov_drivers_autoprobe", "0")
        self.assertEqual(self.igb.set_numvfs(2).status, 0)
        for vf in (0, 1):
            guest.ip("link", "set", "dev", self.igb.pf, "vf", str(vf), "mac", self.macs[vf])
        guest.write(f"{self.igb.pci}/sriov_drivers_autoprobe", "1")
        for vf in (0, 1):
            function = guest.run("readlink", "-f", f"{self.igb.pci}/virtfn{vf}").strip()
            self.assertEqual(guest.write("/sys/bus/pci/drivers_probe", os.path.basename(function)).status, 0)
        self.spaces = []
        for vf in (0, 1):
            space = self.igb.spaces.get(vf) or guest.namespace(f"v{vf}")
            self.igb.spaces[vf] = space
            guest.ip("link", "set", "dev", self.igb.device(vf), "netns", f"v{vf}", "name", "net1")
            space.up("net1", of_a(vf))
            self.assertEqual(space.link("net1")["address"], self.macs[vf])
            self.spaces.append(space)

    def test_stock_tools(self):
        """`ip link set ... vf` in the guest; VFs reach each other and the world; a VLAN of the guest's isolates."""
        guest, pf = self.igb.guest, self.igb.pf
        self.assert_reaches(self.spaces[0], of_a(1))
        self.assert_reaches(self.spaces[0], of_b(0))
        guest.ip("link", "set", "dev", pf, "vf", "0", "vlan", "100", "qos", "3")
        self.assert_cut_off(self.spaces[0], of_b(0))
        link = guest.link(pf)
        self.assertEqual(link["vfinfo_list"][0]["vlan_list"][0]["vlan"], 100)
        guest.ip("link", "set", "dev", pf, "vf", "0", "vlan", "0")
        self.assert_reaches(self.spaces[0], of_b(0))

    def test_what_igb_does_not_enforce_the_host_does(self):
        """Foreign addresses leave igb whatever its spoof check says, and are dropped by the daemon; so are foreign VLANs."""
        guest, pf, space = self.igb.guest, self.igb.pf, self.spaces[0]
        guest.ip("link", "set", "dev", pf, "vf", "0", "spoofchk", "on")
        space.ip("link", "add", "link", "net1", "name", "m0", "type", "macvlan", "mode", "bridge")
        space.up("m0", "10.8.0.77/24", mac=FOREIGN)
        before = self.igb.counters("pf")["drops"].get("tx_spoofed_mac", 0)

        def dropped():
            space.run("ping", "-c", "2", "-i", "0.2", "-w", "1", "-I", "m0", plain(of_b(0)), check=False)
            return self.igb.counters("pf")["drops"].get("tx_spoofed_mac", 0) > before

        self.eventually(dropped, True, timeout=30)
        self.assert_reaches(space, of_b(0))
        # VLAN 99 is none that the host lets out, whatever the guest says.
        before = self.igb.counters("pf")["drops"].get("tx_vlan_forbidden", 0)
        guest.ip("link", "set", "dev", pf, "vf", "0", "vlan", "99")
        self.assert_cut_off(space, of_b(0))
        self.assertGreater(self.igb.counters("pf")["drops"].get("tx_vlan_forbidden", 0), before)
        guest.ip("link", "set", "dev", pf, "vf", "0", "vlan", "0")

    def test_rate(self):
        """All functions together send no more than the host allows."""
        self.assert_reaches(self.spaces[0], of_b(0))
        held = self.sent_mbps(self.igb, "pf", self.spaces, of_b(0))
        print(f"    sent: {held:.2f} Mbit/s at a limit of {RATE_MBPS}")
        self.assert_held(held, RATE_MBPS)


class Taps(VpfBase):
    """A tap of QEMU's behind each function: no shared memory, and the daemon has it as any interface."""

    long_tests = True

    def test_a_vf_on_a_tap(self):
        """A VF on a tap reaches a namespace behind the daemon; its guest's settings hold there as well."""
        network = Network()
        self.addCleanup(network.close)
        peer = network.namespace("peer")
        guest = VpfGuest(self.daemon, "vpt", "--vfs", "1", "--nic", "nic0", "--backend", "tap", *LIMITS)
        tap = {"name": "peer", "nic": "nic0", "mac": "02:0e:2e:00:00:77", "iov_weight": 100,
               "attachment": {"kind": "tap", "interface": "e0", "netns": peer.path}}  # fmt: skip
        reply = self.daemon.ask("/v1/adapters/peer", "PUT", body=json.dumps(tap))
        self.assertEqual(reply.status, 201, reply.body)
        self.addClassCleanup(guest.close)
        guest.start()
        for function in ("pf", "vf0"):
            call(["ip", "link", "set", "dev", f"vpt-{function}", "up"])
        guest.ready()
        peer.wait_link("e0")
        peer.up("e0", "10.8.0.200/24")
        (space,) = guest.enable(1, of_a)
        self.assert_reaches(space, "10.8.0.200")
        self.eventually(lambda: guest.seen()["vfs"][0]["guest"], "running")
        guest.sets("vf", "0", "vlan", "100")
        self.assert_cut_off(space, "10.8.0.200")
        guest.sets("vf", "0", "reset")
        self.assert_reaches(space, "10.8.0.200")


class Commands(VpfBase):
    """`shunt vpf` itself, without a guest."""

    def test_again_is_nothing_and_removed_is_gone(self):
        """The same words again change nothing; removed, nothing is left but what was there before."""
        before = self.daemon.export()
        first = self.daemon.command("vpf", "vmx", "--vfs", "3", "--nic", "nic0", "--grant", "mac")
        self.assertEqual(first.returncode, 0, first.stderr)
        made = self.daemon.export()
        again = self.daemon.command("vpf", "vmx", "--vfs", "3", "--nic", "nic0", "--grant", "mac")
        self.assertEqual((again.stdout, self.daemon.export()), (first.stdout, made))
        self.assertEqual(self.daemon.command("vpf", "vmx").stdout, first.stdout)
        fewer = self.daemon.command("vpf", "vmx", "--vfs", "1")
        self.assertEqual(len(fewer.stdout.splitlines()), len(first.stdout.splitlines()) - 6)
        self.assertEqual(len(self.daemon.export()["adapter"]), len(before["adapter"]) + 2)
        for name in ("vmx-pf.sock", "vmx-vf0.sock", "vmx.ctl"):
            self.assertTrue(os.path.exists(self.daemon.path(name)), name)
        self.daemon.says("vpf", "vmx", "--remove")
        self.assertEqual(self.daemon.export(), before)
        self.assertFalse(os.path.exists(self.daemon.path("vmx.ctl")))

    def test_a_device_that_is_not_there(self):
        """A VF behind vhost-vdpa needs a device of the host's."""
        done = self.daemon.command("vpf", "vmy", "--vfs", "1", "--nic", "nic0", "--vdpa", "0=/dev/vhost-vdpa-99")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no /dev/vhost-vdpa-99;", done.stderr)
        self.assertEqual(self.daemon.export()["vpf"], [])


