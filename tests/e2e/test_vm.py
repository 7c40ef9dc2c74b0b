"""Failover pairs: a Linux guest with an adapter and, in place of a VF, QEMU's e1000e, as one interface.

The VM and the commands are those of docs/qemu.md. There is no IOMMU here. The e1000e is on a NIC of its own, "card", which is on the wire beside the uplink of the switch: frames
to it pass neither the switch nor the adapter, as with a VF. QEMU's commands are those for a VF, but for the driver's name.
"""

import functools
import itertools
import json
import subprocess
import time
import unittest

from bench import cpus
from devices import Module, Netdev, Options
from guest import Guest, skip_without_guests
from literal import section
from managed import Managed
from moving import Command
from netns import Network
from pages import fenced, page
from pci import WIRE_MAC, IgbGuest
from test_pci import PciBase
from tools import wait_ping

PAGE = section(page("qemu.md"), "A VF beside the adapter")
MAC, ADDRESS = "02:00:00:00:00:01", "10.1.0.99"
NEAR = "02:0e:2e:0a:00:02"
PRIMARY = "e1000e,netdev=n1,romfile="
PEERS = {"far": "10.1.0.1", "near": "10.1.0.2"}  # on the wire, and on the switch
PORTS = itertools.count(7000, 10)
CHANGES = 10
RATE = 100


class PairBase(unittest.TestCase):
    """A guest of its own for each class."""

    limit_s = 600
    append = ""

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.network = Network()
        cls.addClassCleanup(cls.network.close)
        cls.host, cls.wire, far, near = (cls.network.namespace(name) for name in ("host", "wire", "far", "near"))
        cls.spaces = {"far": far, "near": near}
        cls.wire.silent()
        for space, name, port in ((cls.host, "u0", "h0"), (cls.host, "c0", "h1"), (far, "e0", "h2")):
            cls.network.veth((space, name), (cls.wire, port), offload=False)
        cls.wire.bridge("br0", "h0", "h1", "h2")
        cls.daemon = Managed(cpu=cpus()[0])
        cls.network.ending.callback(cls.daemon.close)
        cls.daemon.within = cls.host.within([])
        cls.daemon.start()
        cls.daemon.wait_ready()
        tap = {"kind": "tap", "interface": "e0", "netns": near.path}
        adapters = [
            {"name": "web", "switch": "sw0", "mac": MAC, "path": "synthetic", "attachment": {"socket": cls.daemon.path("web.sock")}},
            {"name": "vf", "nic": "card", "mac": MAC, "iov_weight": 100, "attachment": f"stream:{cls.daemon.path('vf.sock')}"},
            {"name": "near", "switch": "sw0", "mac": NEAR, "path": "synthetic", "attachment": tap},
        ]
        nics = [{"name": "nic0", "total_vfs": 1, "uplink": "packet:u0"}, {"name": "card", "total_vfs": 1, "num_vfs": 1, "uplink": "packet:c0"}]
        cls.daemon.apply({"version": 1, "nic": nics, "switch": [{"name": "sw0", "nic": "nic0"}], "adapter": adapters})
        far.up("e0", f"{PEERS['far']}/24")
        near.wait_link("e0")
        near.up("e0", f"{PEERS['near']}/24", mac=NEAR)
        socket = {"server": False, "addr.type": "unix", "addr.path": cls.daemon.path("vf.sock")}
        words = fenced(PAGE, "text")[0].replace("/run/shunt", cls.daemon.run_dir).split()
        words = words[: words.index("-qmp")]  # the guest has one of another name
        devices = [Options((*words, *Netdev("stream", socket).words("n1")), ("virtio_net",)), Module(("net_failover", "e1000e"))]
        cls.guest = Guest(cls.network.run_dir, devices, name="web", append=cls.append)
        cls.network.ending.callback(cls.guest.close)
        cls.boot()
        cls.name = cls.guest.interface(MAC)
        cls.guest.up(cls.name, f"{ADDRESS}/24")

    @classmethod
    def boot(cls):
        """Starts the guest."""
        cls.guest.boot()

    @classmethod
    def words(cls, command, *more, adapter="web"):
        """Words of a command for the pair."""
        if command == "attach":
            more = ("--bus", "slot1", "--primary", PRIMARY, *more)
        return ["vm", command, adapter, "--qmp", cls.guest.machine.qmp_path, *more]

    @classmethod
    def start(cls, command, *more):
        """Starts a command for the pair."""
        argv = [cls.daemon.program, *cls.words(command, *more), "--run-dir", cls.daemon.run_dir]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cls.network.processes.append(process)
        return process

    @classmethod
    def vm(cls, command, *more):
        """Output of a command for the pair, which must succeed."""
        return json.loads(cls.daemon.says(*cls.words(command, "--json", *more)))

    def fails(self, code, words, says):
        """A command that must fail with this code and text."""
        done = self.daemon.command(*words)
        self.assertEqual(done.returncode, code, done)
        self.assertIn(says, done.stderr)

    def traffic(self):
        """Numbered datagrams both ways between the guest and each peer, and a connection to each."""

        def command(place, *words):
            made = Command(place, *words)
            self.addCleanup(made.kill)
            return made

        parts = []
        for name, address in PEERS.items():
            port, space = next(PORTS), self.spaces[name]
            listener = command(space, "listen", port)
            talker = command(self.guest, "talk", address, port, 20)
            receivers = [command(self.guest, "receive", port), command(space, "receive", port)]
            senders = [command(space, "send", ADDRESS, port, RATE), command(self.guest, "send", address, port, RATE)]
            parts.append((name, listener, talker, receivers, senders))
        return parts

    def assert_alive(self, parts):
        """Ends it all: each connection lives, and nothing has come twice. Prints the times without frames."""
        for name, listener, talker, receivers, senders in parts:
            sent = [sender.stop()["sent"] for sender in senders]
            answered = talker.stop()
            heard = listener.result()["answered"]
            for way, count, one in zip(("to the guest", "from the guest"), sent, [receiver.stop() for receiver in receivers]):
                gaps = sorted(one["gaps_ms"])
                median = gaps[len(gaps) // 2] if gaps else 0
                print(f"     {name} {way}: {count} sent, {one['lost']} lost, {len(gaps)} gaps, median {median} ms, "
                      f"longest {one['gap_ms']} ms, {one['twice']} twice, {one['late']} late")  # fmt: skip
                self.assertEqual(one["twice"], 0, one)
                self.assertGreater(one["received"], 0)
            print(f"     {name}: {heard} questions answered by TCP, the longest after {answered['longest_ms']} ms", flush=True)
            self.assertEqual(heard, answered["answered"])
            self.assertGreater(heard, 10)

    def assert_reached(self):
        """Both peers reach the guest, and the guest them."""
        for name, address in PEERS.items():
            wait_ping(self.spaces[name], ADDRESS, timeout=40)
            wait_ping(self.guest, address, timeout=40)

    def link(self):
        """Link state of the adapter, as desired."""
        return next(one for one in self.daemon.export()["adapter"] if one["name"] == "web").get("link_state", "auto")


class Ten(PairBase):
    """A guest that answers."""

    @classmethod
    def boot(cls):
        """Starts it, and tries before its driver is there."""
        cls.guest.start_machine()
        cls.early = cls.daemon.command(*cls.words("attach"))
        cls.guest.wait_boot()

    def test_ten_times_to_the_switch_and_back(self):
        """Connections live; the guest gets frames on either device, from the wire and from the switch."""
        self.assertEqual(self.early.returncode, 2, self.early)
        self.assertIn("has not started the adapter's device", self.early.stderr)
        self.assertEqual(self.link(), "auto")
        self.assert_reached()
        traffic = self.traffic()
        times = {"attach": [], "detach": []}
        for command in ["attach"] + CHANGES * ["detach", "attach"]:
            report = self.vm(command)
            times[command].append(sum(step["ms"] for step in report["steps"]))
            on_primary = command == "attach"
            self.assertEqual((report["frames_to"], report["in_use"]), ("primary" if on_primary else "standby", on_primary))
            self.assertIsNone(report["remedy"])
            self.assert_reached()
        print(f"     attach took {times['attach']} ms, detach {times['detach']} ms")
        self.assertIn("net_failover", self.guest.run("ethtool", "-i", self.name))
        self.assert_alive(traffic)
        table = self.daemon.says(*self.words("status"))
        self.assertRegex(table, r"web +standby +yes +primary-web +yes +primary")
        self.fails(2, self.words("attach"), "has the primary primary-web already")
        self.vm("detach")
        self.assertEqual(self.vm("detach")["steps"], [])

    def test_page(self):
        """The commands of the page, but for the VF."""
        daemon, socket = self.daemon, self.guest.machine.qmp_path
        script = fenced(PAGE, "sh")[0].replace("/run/web.qmp", socket).replace("vm attach", f"vm attach --primary {PRIMARY}")
        function = f'shunt() {{ {daemon.program} "$@" --run-dir {daemon.run_dir}; }}\n'
        done = subprocess.run(["sh", "-ec", function + script], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = [line.split()[0] for line in done.stdout.splitlines()]
        self.assertEqual(steps[:3] + steps[-2:], ["frames", "plug", "guest", "unplug", "frames"], done.stdout)
        self.assert_reached()


class Ignoring(PairBase):
    """A guest without hot plug: it sees a device only by a scan of its own, and never lets go of it."""

    append = "acpiphp.disable=1"

    def test_the_guest_answers_neither_plug_nor_unplug(self):
        """The frames go back, or stay where they are, and connections live."""
        self.assert_reached()
        traffic = self.traffic()
        self.fails(1, self.words("attach", "--timeout", "3"), "the guest does not take primary-web")
        self.assertEqual((self.link(), self.vm("status")["frames_to"]), ("auto", "standby"))
        self.assert_reached()
        process = self.start("attach", "--timeout", "60")
        self.guest.run("sh", "-ec", "echo 1 >/sys/bus/pci/rescan")
        self.assertEqual((process.wait(90), self.link()), (0, "disable"), process.stderr.read())
        self.assert_reached()
        self.fails(1, self.words("detach", "--timeout", "3"), "frames go to the primary as before")
        status = self.vm("status")
        self.assertEqual((status["frames_to"], status["in_use"], status["remedy"]), ("primary", True, None))
        self.assert_reached()
        self.assert_alive(traffic)

        # Other faults of the same guest: last, as QEMU is killed.
        self.guest.qmp.run("stop")
        self.fails(2, self.words("detach"), "is paused")
        self.guest.qmp.run("cont")
        self.fails(2, self.words("attach", adapter="near"), "is no device of a VM")
        for path, says in (("/none", "no QEMU answers"), (self.daemon.path("api.sock"), "")):
            self.fails(1, ["vm", "status", "web", "--qmp", path], says)
        process = self.start("detach", "--timeout", "60")
        time.sleep(2)  # it waits for the guest
        self.assertIsNone(process.poll())
        self.guest.kill()
        _, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, self.link()), (1, "auto"), err)
        self.assertIn("QEMU closed the connection", err)
        self.fails(1, self.words("attach"), "no QEMU answers")


class Card(PciBase):
    """docs/cards.md: an adapter of a switch on igb's PF, whose VF is bound to vfio-pci. No VM runs here."""

    kind = functools.partial(IgbGuest, iommu=True)

    def test_the_vf_has_the_adapters_settings_on_path_vf(self):
        """On path vf the VF has the address, and frames to it go to the wire; the VF and the switch are as before without."""
        guest = self.guest
        guest.up(self.pf)
        guest.wait_link(self.pf, timeout=30, up=True)
        wire = guest.interface(WIRE_MAC)
        guest.up(wire)
        guest.wait_link(wire, timeout=30, up=True)
        before = guest.snapshot()
        guest.start_daemon()
        [commands] = fenced(section(page("cards.md"), "Virtual machines"), "sh")
        function = 'shunt() { /bin/shunt "$@" --run-dir /run/shunt; }\n'
        guest.run("sh", "-ec", function + commands.replace("eth0", self.pf))
        guest.wait_link(self.pf, timeout=30, up=True)  # igb resets it when it makes VFs
        self.eventually(lambda: json.loads(guest.says("adapter", "list", "--json"))[0]["actual_link_up"], True)
        driver = f"/sys/bus/pci/devices/{self.function(0)}/driver"
        own = guest.vfs()[0]
        self.assertNotEqual(own["address"], MAC)
        xml = guest.says("vm", "xml", "web")
        bus, slot = self.function(0)[5:].split(".")[0].split(":")
        self.assertIn(f"bus='0x{bus}' slot='0x{slot}'", xml)
        heard = guest.start("tcpdump", "-i", wire, "-nn", "-l", "-Z", "root", "rarp")
        time.sleep(1)  # until it hears
        for path, address, port in (("vf", MAC, "uplink"), ("synthetic", own["address"], "web"), ("vf", MAC, "uplink")):
            guest.says("adapter", "set", "web", "--path", path)
            self.assertEqual(guest.vfs()[0]["address"], address)
            entry = next(one for one in json.loads(guest.says("switch", "fdb", "sw0", "--json")) if one["mac"] == MAC)
            self.assertEqual((entry["port"], entry["kind"]), (port, "static"))
            self.assertIn("vfio-pci", guest.run("readlink", driver))
        self.eventually(lambda: heard.said().count(MAC) > 0, True)
        time.sleep(1)  # for another one
        said = heard.said()
        heard.kill()
        self.assertEqual(len(said.splitlines()), 1, "announced once, as it came to the switch")
        done = guest.shunt("nic", "set", "card0", "--num-vfs", "2")
        self.assertIn("adapter web has one", done.err)
        guest.says("adapter", "delete", "web")
        self.assertEqual(guest.vfs()[0], own)
        guest.says("vf", "set", "card0", "0", "--driver", "none")
        self.assertIn("igbvf", guest.run("readlink", driver))
        guest.says("vf", "set", "card0", "0", "--driver", "vfio-pci")
        guest.says("switch", "delete", "sw0")
        guest.says("nic", "delete", "card0")
        self.assertEqual(guest.difference(before), "", guest.log())

    def function(self, vf):
        """PCI address of a VF."""
        return self.guest.run("sh", "-c", f"basename $(readlink -f {self.guest.pci()}/virtfn{vf})").strip()


if __name__ == "__main__":
    unittest.main()
