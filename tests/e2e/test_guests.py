"""Real Linux guests with virtio_net: whatever its driver negotiates and its user toggles, traffic passes and nothing is lost untold.

Two guests and a namespace behind a tap are on one NIC. Each kind of ring boots its guests once; each test leaves them as it found them.
"""

import json
import os

from daemon import Daemon
from pair import MACS, PORT, V4, V6, PairCase
from tools import Iperf, ping, wait_ping

ENDLESS = 10**12
RING_RESET = 40
DIMMS = 12
SIZES = ["1-120", "121-3000-37", "3001-64900-997", "1472", "1473", "2952", "2953", "65000"]


class Traffic(PairCase):
    """Traffic that must pass."""

    def test_features(self):
        """The driver has what this kind of ring is to exercise."""
        bits = self.guests[0].read(f"/sys/class/net/{self.name}/device/features")
        features = self.options.get("features", {})
        for bit, name, default in ((15, "mrg_rxbuf", True), (34, "packed", False), (29, "event_idx", True), (28, "indirect_desc", True)):
            self.assertEqual(bits[bit] == "1", features.get(name, default), name)
        for bit in (0, 1, 3, 5, 7, 8, 11, 12, 16, 32):  # CSUM, MTU, MAC, TSO, STATUS, VERSION_1
            self.assertEqual(bits[bit], "1", f"bit {bit}")
        text = self.guests[0].run("ethtool", "-l", self.name)
        self.assertEqual([int(line.split()[1]) for line in text.splitlines() if line.startswith("Combined")], [self.pair.pairs] * 2)

    def test_ping_sizes(self):
        """Echoes from 1 to 65000 bytes, each compared, between guests and to the namespace."""
        for source, destination in ((0, 1), (1, 2)):
            said = self.pair.numbered(source, "echo", V4[destination], *SIZES, timeout=60)
            self.assertEqual(said["missing"], [])
            self.assertGreater(said["asked"], 250)

    def test_tcp(self):
        """TCP over IPv4 and IPv6, between guests and with the namespace, both ways; every frame is accounted for."""
        before, guest_before = self.counters_with_guest(0)
        for source, destination in ((0, 1), (1, 0)):
            self.stream(source, destination, V4[destination])
            self.stream(source, destination, V6[destination])
        for source, destination in ((0, 1), (1, 0), (0, 2), (2, 0)):
            flow = Iperf(self.pair.ends[destination], self.pair.ends[source], V4[destination]).run(seconds=1, streams=self.pair.pairs)
            self.assertGreater(flow.bytes, 100_000, f"{source} to {destination}")
        after, guest_after = self.counters_with_guest(0)
        self.assert_adds_up(before, after)
        for way in ("rx", "tx"):
            told = after["g0"][way] - before["g0"][way]
            told += sum(after["g0"]["drops"].get(reason, 0) - before["g0"]["drops"].get(reason, 0)
                        for reason in after["g0"]["drops"] if reason.startswith(way) and way == "tx")  # fmt: skip
            self.assertEqual(guest_after[way] - guest_before[way], told, way)
        self.assert_no_faults()

    def test_numbered_datagrams(self):
        """Numbered datagrams and frames at a rate that rings take: all arrive, in order."""
        for words in (["receive", PORT], ["take", self.name]):
            taker = self.pair.start_numbered(1, *words)
            to = [V4[1], PORT] if words[0] == "receive" else [self.name, MACS[1]]
            said = self.pair.numbered(0, "send" if words[0] == "receive" else "frames", *to, "--count", 500, "--rate", 500)
            taker.terminate()
            self.assert_all_arrived(said, taker)

    def test_offloads_toggled(self):
        """Each offload off and on again in the guest that sends, and in the one that receives, while they send both ways."""
        flows, names = [], [self.pair.interface(number) for number in (0, 1)]
        for source, destination in ((0, 1), (1, 0)):
            flows.append(self.pair.start_numbered(destination, "drain", PORT + destination))
            flows.append(self.pair.start_numbered(source, "stream", V4[destination], PORT + destination, "--bytes", ENDLESS))
        for state in ("off", "on"):
            for feature in ("tx", "sg", "tso", "gso", "gro", "rx-gro-hw", "lro", "rx", "tx-udp-segmentation"):
                before = self.pair.counters()
                for number, name in enumerate(names):
                    self.guests[number].ask("ethtool", "-K", name, feature, state)
                self.assert_flows(before)
        for flow in flows:
            self.assertIsNone(flow.poll(), f"ended: {flow.done}")
            flow.kill()
            flow.wait()
        self.assert_no_faults()
        # Each feature with whole streams, checked.
        for feature in ("tx", "tso", "gro", "rx-gro-hw"):
            self.guests[0].ask("ethtool", "-K", self.name, feature, "off")
            self.stream(0, 1, V4[1])
            self.stream(1, 0, V6[0])
            self.guests[0].ask("ethtool", "-K", self.name, feature, "on")
        self.guests[0].run("ethtool", "-K", self.name, "tso", "on", "sg", "on", "gso", "on")
        self.stream(0, 1, V4[1])

    def test_segments_of_udp(self):
        """Datagrams that are cut into fragments arrive whole; those that are left to be cut come one by one."""
        for words in (["--bytes", 8000], ["--bytes", 1000, "--together", 20], ["--bytes", 500, "--together", 50]):
            taker = self.pair.start_numbered(1, "receive", PORT)
            said = self.pair.numbered(0, "send", V4[1], PORT, *words, "--count", 200, "--rate", 400)
            taker.terminate()
            self.assert_all_arrived(said, taker)

    def test_mtu(self):
        """A smaller MTU in the guest holds; what is too long for the wire is refused by the guest itself."""
        guest, other = self.guests
        guest.ip("link", "set", "dev", self.name, "mtu", "1000")
        self.assertEqual(ping(guest, V4[1], size=1000, whole=True), 3)
        self.assertEqual(ping(guest, V4[1], size=1001, whole=True, count=1), 0)
        self.assertEqual(ping(other, V4[0], size=1400), 3, "others may still send as much as the device takes")
        self.stream(0, 1, V4[1])
        self.stream(1, 0, V4[0])
        guest.ip("link", "set", "dev", self.name, "mtu", str(self.pair.mtu))
        self.assertNotEqual(guest.ask("ip", "link", "set", "dev", self.name, "mtu", str(self.pair.mtu + 1)).status, 0)
        self.pair.settle(0)  # Linux has dropped its IPv6 addresses at so small an MTU
        self.assertEqual(ping(guest, V4[1], size=self.pair.mtu, whole=True), 3)


class Life(PairCase):
    """Rings, drivers, guests and the daemon under traffic. The last tests restart something."""

    def test_stopped_and_continued(self):
        """The sending guest is stopped and continued ten times, which stops its rings: no frame is lost or duplicated.
        """
        taker = self.pair.start_numbered(1, "take", self.pair.interface(1))
        sender = self.pair.start_numbered(0, "frames", self.name, MACS[1], "--rate", 1000)
        qmp = self.guests[0].qmp
        for _ in range(10):
            before = self.pair.counters()
            qmp.run("stop")
            qmp.run("cont")
            self.wait_for(lambda before=before: self.pair.counters()["g1"]["rx"] > before["g1"]["rx"] + 20, "no frames come")
        sender.terminate()
        sent = json.loads(sender.wait().out.splitlines()[-1])
        taker.terminate()
        self.assert_all_arrived(sent, taker)

    def test_queues_changed(self):
        """With several queue pairs: fewer and more of them under traffic."""
        if self.pair.pairs == 1:
            self.assertNotEqual(self.guests[0].ask("ethtool", "-L", self.name, "combined", "2").status, 0)
            return
        drain = self.pair.start_numbered(1, "drain", PORT)
        flow = self.pair.start_numbered(0, "stream", V4[1], PORT, "--bytes", ENDLESS)
        for count in (1, 3, 2, self.pair.pairs) * 3:
            before = self.pair.counters()
            for number in (0, 1):
                self.guests[number].run("ethtool", "-L", self.pair.interface(number), "combined", str(count))
            self.assert_flows(before)
        for command in (flow, drain):
            self.assertIsNone(command.poll(), f"ended: {command.done}")
            command.kill()
        wait_ping(self.guests[0], V4[1])
        self.assert_no_faults()

    def test_ring_sizes(self):
        """Rings keep their size: QEMU would not tell the daemon that a guest has changed it, so it is not offered."""
        self.assertEqual(self.guests[0].read(f"/sys/class/net/{self.name}/device/features")[RING_RESET], "0")
        self.assertNotEqual(self.guests[0].ask("ethtool", "-G", self.name, "rx", "64").status, 0)
        self.stream(1, 0, V4[0])

    def test_memory_plugged(self):
        """Memory is plugged under traffic, in more pieces than one message of vhost-user can tell, used, and unplugged."""
        guest = self.guests[0]
        flood = self.start_flood()
        total = int(guest.run("free", "-m").split()[7])
        for number in range(DIMMS):
            guest.qmp.run("object-add", **{"qom-type": "memory-backend-memfd"}, id=f"m{number}", size=128 << 20, share=True)
            guest.qmp.run("device_add", driver="pc-dimm", id=f"d{number}", memdev=f"m{number}")
        self.wait_for(lambda: int(guest.run("free", "-m").split()[7]) > total + 100 * DIMMS, "the memory does not come")
        # Later buffers of the driver are in the new memory: Linux first uses memory above 4 GiB.
        guest.ip("link", "set", "dev", self.name, "down")
        self.pair.settle(0)
        self.stream(1, 0, V4[0])
        self.stream(0, 1, V4[1])
        self.assertEqual(self.pair.numbered(1, "echo", V4[0], *SIZES, timeout=60)["missing"], [])
        self.end_flood(flood)

    def test_unbind(self):
        """The driver is unbound and bound twenty times while frames come; each is delivered or counted."""
        device = os.path.basename(self.guests[0].run("readlink", "-f", f"/sys/class/net/{self.name}/device").strip())
        before = self.settled_counters()
        flood = self.start_flood()
        driver = "/sys/bus/virtio/drivers/virtio_net"
        self.guests[0].run("sh", "-ec", f"""
            for turn in $(seq 20); do
                echo {device} >{driver}/unbind
                echo {device} >{driver}/bind
                ip link set dev {self.name} multicast off arp off up
            done""", timeout=60)  # fmt: skip
        flood_said = flood.said()
        self.pair.settle(0)
        self.end_flood(flood)
        self.assertTrue(flood_said)
        self.assert_adds_up(before, self.settled_counters())

    def test_interface_down_and_up(self):
        """The interface goes down and up twenty times while frames come for it."""
        flood = self.start_flood()
        for _ in range(20):
            self.guests[0].ip("link", "set", "dev", self.name, "down")
            self.guests[0].ip("link", "set", "dev", self.name, "up")
        self.pair.settle(0)
        self.end_flood(flood)

    def test_wait_reboot(self):
        """The guest reboots, without notifying the device, while frames arrive for it."""
        flood = self.start_flood()
        self.guests[0].reboot()
        self.pair.settle(0)
        self.end_flood(flood)
        self.stream(0, 1, V4[1])

    def test_wait_qemu_killed(self):
        """QEMU is killed while both send, and started again."""
        flood = self.start_flood()
        self.pair.start_numbered(0, "frames", self.name, MACS[1], "--rate", 600)
        self.guests[0].kill()
        self.guests[0].boot()
        self.pair.settle(0)
        self.end_flood(flood)
        self.stream(1, 0, V4[0])

    def test_wait_daemon_killed(self):
        """The daemon is killed, or ended, and started five times under a stream: QEMU comes back, and not a byte is wrong."""
        drain = self.pair.start_numbered(1, "drain", PORT)
        flow = self.pair.start_numbered(0, "stream", V4[1], PORT, "--bytes", 400_000_000)
        for turn in range(5):
            if turn % 2 == 0:
                self.pair.daemon.kill()
            else:
                Daemon.close(self.pair.daemon)  # its directory stays
            self.pair.daemon.start()
            self.pair.daemon.wait_ready()
            self.wait_rings()
        self.assertIn('"answered": true', flow.wait(60).out)
        self.assertEqual(json.loads(drain.wait().out.splitlines()[-1]), {"got": 400_000_000, "wrong": 0})
        self.pair.host.wait_link("e0")
        self.pair.settle(2)
        for source, destination in ((0, 1), (1, 0), (2, 0), (0, 2)):
            wait_ping(self.pair.ends[source], V4[destination])
        self.assert_no_faults()


class Link(PairCase):
    """Tests that are the same with each kind of ring."""

    def test_link_cut(self):
        """QEMU says that there is no link: the guest sees it, and has traffic again with the link."""
        carrier = f"/sys/class/net/{self.name}/carrier"
        for up in (False, True) * 3:
            self.guests[0].qmp.run("set_link", name="net0", up=up)
            self.wait_for(lambda up=up: self.guests[0].read(carrier) == str(int(up)), f"carrier is not {up}")
            self.assertEqual(ping(self.guests[0], V4[1], count=1, timeout=1), int(up))

    def test_link_disabled(self):
        """The daemon lets nothing pass an adapter whose link is disabled, and all pass once it is not."""
        for state, answers in (("disable", 0), ("auto", 1), ("disable", 0), ("enable", 1), ("auto", 1)):
            self.pair.daemon.says("adapter", "set", "g0", "--link-state", state)
            for source, destination in ((0, 1), (1, 0)):
                self.assertEqual(ping(self.guests[source], V4[destination], count=1, timeout=1), answers, state)


# Tests of half a minute: one kind of ring has them in CI, all four with `run --all`. Two kinds run only with it.
REPEATED = {"test_wait_qemu_killed", "test_offloads_toggled"}


def load_tests(loader, _standard, _pattern):
    """One class per kind of ring; the names are what `run --only` selects by."""
    suite = loader.suiteClass()
    kinds = {
        "split,mrg_rxbuf=1,pairs=1": {"bases": (Link, Traffic, Life)},
        "packed,mrg_rxbuf=0,pairs=1": {"features": {"packed": True, "mrg_rxbuf": False}, "long": True},
        "split,mrg_rxbuf=0,pairs=4": {"pairs": 4, "cpus_each": 2, "features": {"mrg_rxbuf": False}, "long": True},
        "packed,mrg_rxbuf=1,pairs=4,synthetic": {
            "pairs": 4, "cpus_each": 2, "path": "synthetic", "mtu": 9000, "features": {"packed": True}, "long": REPEATED
        },
    }
    for title, options in kinds.items():
        bases, long = options.pop("bases", (Traffic, Life)), options.pop("long", ())
        kind = type(title, bases, {"options": options, "long_tests": long, "__module__": __name__})
        kind.__qualname__ = title
        suite.addTests(loader.loadTestsFromTestCase(kind))
    return suite
