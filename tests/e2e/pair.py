"""Two Linux guests on one daemon, and a namespace behind a tap: the bench of the suites with real guests."""

import json
import os
import time
import unittest

from bench import cpus
from devices import VhostUser, VirtioNet
from guest import Guest, GuestError, skip_without_guests
from managed import Managed
from netns import Network
from qemu import HERE
from tools import wait_ping

STREAM_BYTES = 8_000_000
PORT = 7000
NUMBERED = "/inguest/numbered.py"
MACS = ["02:0e:2e:00:00:01", "02:0e:2e:00:00:02", "02:0e:2e:00:00:03"]
V4 = ["10.9.0.1", "10.9.0.2", "10.9.0.3"]
V6 = ["fd09::1", "fd09::2", "fd09::3"]
MACHINE = {"slots": 16, "append": "memhp_default_state=online"}  # room for memory to be plugged
NAMES = ["g0", "g1", "host"]


class Pair:
    """`guests` are two `guest.Guest`, the third end, `host`, is a namespace with a tap `e0`. `ends` are all three.

    `features`: of the guests' devices, as QEMU calls them; `attachment`: fields of the daemon's.
    """

    def __init__(self, *, pairs=1, path="vf", mtu=1500, cpus_each=1, features=None, attachment=None):
        self.network = Network()
        self._running = []
        try:
            self.host = self.network.namespace("host")
            self.daemon = Managed(cpu=cpus()[0])
            self.network.ending.callback(self.daemon.close)
            self.daemon.start()
            self.daemon.wait_ready()
            self.mtu, self.pairs = mtu, pairs
            self.daemon.apply(self._document(pairs, path, attachment or {}))
            # One where the daemon listens, and one where QEMU does.
            self.guests = [
                Guest(self.daemon.run_dir, [self._device(number, features or {})], name=NAMES[number], **MACHINE, cpus=cpus_each)
                for number in (0, 1)
            ]
        except BaseException:
            self.network.close()
            raise
        self.ends = [*self.guests, self.host]

    def _document(self, pairs, path, attachment):
        adapters = []
        for number, (name, mac) in enumerate(zip(NAMES, MACS)):
            where = {"socket": self.daemon.path(f"{name}.sock"), "mode": ("server", "client")[number % 2],
                     "queue_pairs": pairs, "mtu": self.mtu, **attachment}  # fmt: skip
            if name == "host":
                where = {"kind": "tap", "interface": "e0", "netns": self.host.path, "mtu": self.mtu}
            weight = 100 if path == "vf" else 0
            adapters.append({"name": name, "switch": "sw0", "mac": mac, "attachment": where, "iov_weight": weight, "vmq_weight": 0})
        nic = {"name": "nic0", "total_vfs": 8, "num_vfs": 8}
        switch = {"name": "sw0", "nic": "nic0", "iov": True}
        return {"version": 1, "nic": [nic], "switch": [switch], "adapter": adapters}

    def _device(self, number, features):
        net = VhostUser(self.daemon.path(f"{NAMES[number]}.sock"), listens=number % 2 == 1, queues=self.pairs)
        return VirtioNet(MACS[number], net, features={"host_mtu": self.mtu, **features})

    def start(self):
        """Boots both, at the same time, and gives everybody its addresses."""
        for guest in self.guests:
            guest.start_machine()
        for guest in self.guests:
            guest.wait_boot()
        self.host.wait_link("e0")
        for number in range(3):
            self.settle(number)

    def interface(self, number):
        """The name of an end's interface."""
        return self.ends[number].interface(MACS[number]) if number < 2 else "e0"

    def settle(self, number):
        """Brings an end's interface up. Its kernel knows the neighbours, so it sends no unsolicited frames."""
        end, name = self.ends[number], self.interface(number)
        lines = [f"ip link set dev {name} multicast off arp off mtu {self.mtu} up"]
        for address, bits in ((V4[number], 24), (V6[number], 64)):
            lines.append(f"ip addr replace {address}/{bits} dev {name} {'nodad' * (bits == 64)}")
        if number < 2 and self.pairs > 1:
            lines.append(f"ethtool -L {name} combined {self.pairs} || :")
        for other in range(3):
            if other != number:
                for address in (V4[other], V6[other]):
                    lines.append(f"ip neigh replace {address} lladdr {MACS[other]} dev {name} nud permanent")
        end.run("sh", "-ec", "\n".join(lines), timeout=30)

    def numbered(self, number, *words, **options):
        """Final result of a run of `inguest/numbered.py` at an end."""
        end = self.ends[number]
        text = end.run(*self.program(number), *map(str, words), **options)
        return json.loads(text.splitlines()[-1])

    def start_numbered(self, number, *words):
        """Starts it at an end (a guest). `stop_commands` ends it if it still runs."""
        running = self.ends[number].start(*self.program(number), *map(str, words))
        self._running.append(running)
        if words[0] != "stream":
            running.wait_said("listening" if words[0] == "drain" else "started")
        return running

    def stop_commands(self):
        """Ends what was started in guests that still run."""
        while self._running:
            running = self._running.pop()
            try:
                if running.poll() is None:
                    running.kill()
                    running.wait()
            except GuestError:
                pass  # its guest has ended, and it with that

    def program(self, number):
        """Command line of `numbered.py` at an end. In a guest it is pinned to one processor: a sender that moves
        between processors moves its packets between queues, which reorders them."""
        return ["taskset", "1", "python3", NUMBERED] if number < 2 else ["python3", os.path.join(HERE, "inguest", "numbered.py")]

    def counters(self):
        """The ports' counters, by adapter: `rx`, `tx`, and `drops` of each reason."""
        return {
            name: {"rx": port["rx_frames"], "tx": port["tx_frames"], "drops": port["drops"], "faults": port["faults"]}
            for port in self.daemon.stats()["ports"]
            for name in NAMES
            if port["name"] == f"nic0/{name}"
        }

    def close(self):
        """Ends and removes everything."""
        for guest in getattr(self, "guests", []):
            guest.close()
        self.network.close()


class PairCase(unittest.TestCase):
    """Tests of one pair of guests, booted once; `options` are the pair's."""

    options = {}
    limit_s = 300

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        if os.geteuid() != 0:
            raise unittest.SkipTest("namespaces need root")
        cls.pair = Pair(**cls.options)
        cls.addClassCleanup(cls.pair.close)
        cls.pair.start()

    def setUp(self):
        self.addCleanup(self.pair.stop_commands)
        self.guests = self.pair.guests
        self.name = self.pair.interface(0)

    def stream(self, source, destination, address, size=STREAM_BYTES):
        """TCP between two ends, checked byte for byte."""
        drain = self.pair.start_numbered(destination, "drain", PORT)
        said = self.pair.numbered(source, "stream", address, PORT, "--bytes", size, timeout=60)
        self.assertEqual(said, {"sent": size, "answered": True})
        self.assertEqual(json.loads(drain.wait().out.splitlines()[-1]), {"got": size, "wrong": 0})

    def assert_adds_up(self, before, after):
        """Frames in are frames delivered and drops counted; no multicast meanwhile."""
        took = sum(after[name]["tx"] - before[name]["tx"] for name in after)
        gave = sum(after[name]["rx"] - before[name]["rx"] for name in after)
        dropped = {
            f"{name}: {reason}": count - before[name]["drops"].get(reason, 0)
            for name in after
            for reason, count in after[name]["drops"].items()
            if count != before[name]["drops"].get(reason, 0)
        }
        self.assertEqual(took, gave + sum(dropped.values()), f"{before}\n{after}")
        return dropped

    def assert_no_faults(self):
        """No ring was stopped for a fault."""
        faults = {name: port["faults"] for name, port in self.pair.counters().items() if port["faults"]}
        self.assertEqual(faults, {})

    def guest_counters(self, number):
        """A guest's own: frames received, and sent."""
        stats = self.guests[number].link(self.pair.interface(number))["stats64"]
        return {"rx": stats["rx"]["packets"], "tx": stats["tx"]["packets"]}

    def settled_counters(self):
        """The counters once they stand still: the last acknowledgements may be on their way."""
        seen = None
        while (now := self.pair.counters()) != seen:
            seen = now
            time.sleep(0.2)
        return now

    def counters_with_guest(self, number):
        """The settled counters, and a guest's own of the same moment: no frame passed in between."""
        while True:
            now = self.settled_counters()
            of_guest = self.guest_counters(number)
            if self.pair.counters() == now and self.guest_counters(number) == of_guest:
                return now, of_guest

    def assert_all_arrived(self, said, taker):
        """All numbered packets that were sent have come, once and in order."""
        got = json.loads(taker.wait().out.splitlines()[-1])
        kept = {name: got[name] for name in ("got", "lost", "doubled", "overtaken", "damaged")}
        self.assertEqual(kept, {"got": said["sent"], "lost": 0, "doubled": 0, "overtaken": 0, "damaged": 0})

    def assert_flows(self, before):
        """Both guests receive more."""

        def more():
            now = self.pair.counters()
            return all(now[name]["rx"] > before[name]["rx"] for name in ("g0", "g1"))

        self.wait_for(more, f"one receives nothing since {before}")

    def wait_for(self, true, what, timeout=10.0):
        """Waits until `true()` is."""
        deadline = time.monotonic() + timeout
        while not true():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def start_flood(self):
        """The second guest sends numbered frames to the first for as long as it runs."""
        return self.pair.start_numbered(1, "frames", self.pair.interface(1), MACS[0], "--rate", 600)

    def end_flood(self, flood):
        """It has sent all the time, and guests have traffic."""
        self.assertIsNone(flood.poll())
        flood.terminate()
        self.assertGreater(json.loads(flood.wait().out.splitlines()[-1])["sent"], 100)
        for source, destination in ((0, 1), (1, 0), (2, 0)):
            wait_ping(self.pair.ends[source], V4[destination])
        self.assert_no_faults()

    def wait_rings(self):
        """Waits until both guests' rings are attached, and frames come."""

        def attached():
            ports = {port["name"]: port["rings_attached"] for port in self.pair.daemon.stats()["ports"]}
            return all(ports.get(f"nic0/{name}", 0) >= 2 for name in ("g0", "g1"))

        self.wait_for(attached, "a guest has not come back")
        self.assert_flows(self.pair.counters())
