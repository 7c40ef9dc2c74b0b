"""vDPA devices of a host's own kernel: the attachment `vduse`, in a guest that is the host.

The daemon runs in the guest, whose kernel (virtio-vdpa) makes interfaces of its devices; namespaces there are the containers.
"""

import json
import os
import tempfile
import time
import unittest

from guest import skip_without_guests
from tools import ping, wait_ping
from vdpa import MACS, NAMES, V4, VdpaHost

STREAM_BYTES = 20_000_000
PORT = 7000
SIZES = ["1-120", "121-3000-37", "3001-64900-1997", "1472", "1473", "65000"]


class VdpaBase(unittest.TestCase):
    """One host for all tests of a class; each leaves it with its two devices, in their namespaces."""

    limit_s = 240

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        directory = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        cls.addClassCleanup(directory.cleanup)
        cls.host = VdpaHost(directory.name)
        cls.addClassCleanup(cls.host.close)
        cls.host.prepare()


class Kernel(VdpaBase):
    """Rejections, with the reason, if the kernel is unsuitable."""

    def refusal(self, document):
        """Error of the daemon for a document that it cannot apply."""
        done = self.host.shunt("apply", "-f", "-", given=json.dumps(document), check=False)
        self.assertEqual(done.status, 2, done)
        return done.err

    def test_refused(self):
        """No module; then a device of another program's; neither leaves anything behind."""
        host = self.host
        host.start_daemon()
        self.assertIn("modprobe vduse", self.refusal(host.document()))
        self.assertEqual(host.on_bus(), [])
        host.load_modules()
        other = host.start("python3", "/inguest/vduse.py", "hold", "v1")
        other.wait_said("held")
        self.assertIn("another process", self.refusal(host.document()))
        self.assertEqual(host.read_names("/dev/vduse"), ["control", "v1"], "v0 was made, and removed again")
        self.assertEqual(host.on_bus(), [])
        other.terminate()
        other.wait()

    def test_the_control_queue_is_refused(self):
        """Why there is none: Linux lets no network device have one."""
        self.host.load_modules()
        said = json.loads(self.host.run("python3", "/inguest/vduse.py", "try", "t0"))
        self.assertEqual(said, {"plain": 0, "ctrl_vq": 22, "no_access_platform": 22})


class DevicesBase(VdpaBase):
    """Two devices, and traffic between them; the subclasses below say of which kind their rings are."""

    packed = True

    @classmethod
    def document(cls, **options):
        """The state with both devices, or with what the test wants."""
        return cls.host.document(**{"mtu": 9000, "packed": cls.packed, **options})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.host.load_modules()
        cls.host.start_daemon()
        cls.host.apply(cls.document())
        for number in (0, 1):
            cls.host.plug(number, mtu=1500)
        wait_ping(cls.host.spaces[0], V4[1], timeout=20)

    def setUp(self):
        self.spaces = self.host.spaces

    def stream(self, source, destination, size=STREAM_BYTES):
        """TCP between the two, checked byte for byte."""
        drain = self.host.start_numbered(destination, "drain", PORT)
        said = self.host.numbered(source, "stream", V4[destination], PORT, "--bytes", size, timeout=90)
        self.assertEqual(said, {"sent": size, "answered": True})
        self.assertEqual(json.loads(drain.wait().out.splitlines()[-1]), {"got": size, "wrong": 0})

    def assert_traffic(self):
        """Both ways, and no ring is broken."""
        for source, destination in ((0, 1), (1, 0)):
            wait_ping(self.spaces[source], V4[destination], timeout=20)
        ports = json.loads(self.host.shunt("stats", "--json"))["ports"]
        self.assertEqual([port["faults"] for port in ports if port["faults"]], [])

    def replug(self, mtu=1500):
        """After devices were recreated."""
        for number in (0, 1):
            if self.spaces[number].ask("ip", "link", "show", "net").status != 0:
                self.host.plug(number, mtu=mtu)
        self.assert_traffic()

    def test_devices(self):
        """State of the kernel: two devices with their addresses, MTU, features and a link."""
        self.assertEqual(self.host.on_bus(), ["v0", "v1"])
        config = json.loads(self.host.run("vdpa", "-j", "dev", "config", "show"))["config"]
        for number, mac in enumerate(MACS):
            said = {name.strip(): value for name, value in config[f"v{number}"].items()}
            self.assertEqual((said["mac"], said["link"], said["mtu"]), (mac, "up", 9000))
            taken = said["negotiated_features"]
            for feature in ("CSUM", "GUEST_CSUM", "HOST_TSO4", "GUEST_TSO6", "MRG_RXBUF", "STATUS", "MTU", "RING_EVENT_IDX", "ACCESS_PLATFORM"):
                self.assertIn(feature, taken)
            self.assertNotIn("CTRL_VQ", taken)
            self.assertEqual("RING_PACKED" in taken, self.packed)
        self.assertEqual([said["actual_device_state"] for said in self.host.adapters().values()], ["up", "up"])

    def test_ping_sizes(self):
        """Echoes from 1 to 65000 bytes, each compared."""
        for source, destination in ((0, 1), (1, 0)):
            said = self.host.numbered(source, "echo", V4[destination], *SIZES, timeout=90)
            self.assertEqual(said["missing"], [])
            self.assertGreater(said["asked"], 200)

    def test_tcp(self):
        """TCP both ways, checked byte for byte."""
        for source, destination in ((0, 1), (1, 0)):
            self.stream(source, destination)
        self.assert_traffic()

    def test_offloads_off(self):
        """The same where the driver leaves nothing to be done."""
        for feature in ("tx", "tso", "gso", "gro", "rx"):
            self.spaces[0].ask("ethtool", "-K", "net", feature, "off")
        for source, destination in ((0, 1), (1, 0)):
            self.stream(source, destination)
        for feature in ("tx", "tso", "gso", "gro", "rx"):
            self.spaces[0].ask("ethtool", "-K", "net", feature, "on")

    def test_mtu(self):
        """Packets of 9000 bytes pass whole; a longer MTU is refused by the driver."""
        for space in self.spaces:
            space.ip("link", "set", "net", "mtu", "9000")
        self.assertEqual(ping(self.spaces[0], V4[1], size=9000, whole=True), 3)
        self.assertNotEqual(self.spaces[0].ask("ip", "link", "set", "net", "mtu", "9001").status, 0)
        for space in self.spaces:
            space.ip("link", "set", "net", "mtu", "1500")
        self.assertEqual(ping(self.spaces[0], V4[1], size=1500, whole=True), 3)
        self.assertEqual(ping(self.spaces[0], V4[1], size=1501, whole=True, count=1), 0)

    def carrier(self, number):
        """Returns true if the interface has a carrier."""
        return self.spaces[number].run("cat", "/sys/class/net/net/carrier").strip() == "1"

    def test_link_state(self):
        """The adapter's link goes down and up, and the interface's carrier with it."""
        document = self.document()
        document["adapter"][0]["link_state"] = "disable"
        self.host.apply(document)
        self.host.wait(lambda: not self.carrier(0), "without carrier")
        self.assertEqual(ping(self.spaces[1], V4[0], count=1, timeout=1), 0)
        self.assertTrue(self.carrier(1))
        self.host.apply(self.document())
        self.host.wait(lambda: self.carrier(0), "with carrier")
        self.assert_traffic()

    def test_interface_down_and_up(self):
        """Twenty times, while frames come for it."""
        flood = self.host.start_numbered(1, "frames", "net", MACS[0], "--rate", 300)
        for _ in range(20):
            self.spaces[0].ip("link", "set", "net", "down")
            self.spaces[0].ip("link", "set", "net", "up")
        flood.terminate()
        flood.wait()
        self.assert_traffic()

    def test_driver_unbound(self):
        """The driver is taken away and given back five times, while frames come for it."""
        device = os.path.basename(self.spaces[0].run("readlink", "-f", "/sys/class/net/net/device").strip())
        flood = self.host.start_numbered(1, "frames", "net", MACS[0], "--rate", 300)
        driver = "/sys/bus/virtio/drivers/virtio_net"
        for _ in range(5):
            self.host.run("sh", "-ec", f"echo {device} >{driver}/unbind; echo {device} >{driver}/bind")
            self.host.plug(0, mtu=1500)
        flood.terminate()
        flood.wait()
        self.assert_traffic()

    def test_wait_daemon_killed(self):
        """Killed and started five times under a stream: devices stay, and not a byte is wrong."""
        drain = self.host.start_numbered(1, "drain", PORT)
        flow = self.host.start_numbered(0, "stream", V4[1], PORT, "--bytes", 60_000_000)
        ends = (self.host.kill_daemon,) * 4 + (self.host.stop_daemon,)
        for end in ends:
            before = self.received()
            end()
            self.assertEqual(self.host.on_bus(), ["v0", "v1"])
            self.host.start_daemon()
            self.host.wait(lambda before=before: self.received() > before or flow.poll() is not None, "traffic")
        self.assertIn('"answered": true', flow.wait(90).out)
        self.assertEqual(json.loads(drain.wait().out.splitlines()[-1]), {"got": 60_000_000, "wrong": 0})
        self.assert_traffic()

    def test_wait_upgraded(self):
        """Three hot restarts under a stream: devices stay, and no byte is wrong."""
        drain = self.host.start_numbered(1, "drain", PORT)
        flow = self.host.start_numbered(0, "stream", V4[1], PORT, "--bytes", 40_000_000)
        for _ in range(3):
            before, pid = self.received(), self.host.run("pidof", "shunt")
            self.host.shunt("upgrade")
            self.assertNotEqual(self.host.run("pidof", "shunt"), pid)
            self.assertEqual(self.host.on_bus(), ["v0", "v1"])
            self.host.wait(lambda before=before: self.received() > before or flow.poll() is not None, "traffic")
        self.assertIn('"answered": true', flow.wait(90).out)
        self.assertEqual(json.loads(drain.wait().out.splitlines()[-1]), {"got": 40_000_000, "wrong": 0})
        self.assert_traffic()

    def received(self):
        """Frames that the second interface has received."""
        return int(self.spaces[1].run("cat", "/sys/class/net/net/statistics/rx_packets"))

    def test_wait_driver_changed_without_daemon(self):
        """While no daemon runs the driver goes, and waits for an answer; the next daemon gives it."""
        self.host.kill_daemon()
        gone = self.host.start("vdpa", "dev", "del", "v0")
        time.sleep(1)
        self.assertIsNone(gone.poll())
        self.host.start_daemon()
        self.assertEqual(gone.wait().status, 0)
        self.replug()  # the daemon has put it back on the bus

    def test_taken_off_the_bus_by_hand(self):
        """While the daemon runs a device stays off the bus until it is put back."""
        self.host.run("vdpa", "dev", "del", "v0")
        self.assertEqual(self.host.on_bus(), ["v1"])
        self.host.wait(lambda: self.host.adapters()["a"]["actual_device_state"] == "down", "down")
        self.host.run("vdpa", "dev", "add", "name", "v0", "mgmtdev", "vduse")
        self.replug()

    def test_removed_and_added(self):
        """An adapter that goes takes its device with it; another of the same name gets a new one."""
        for _ in range(3):
            self.host.apply(self.document(count=1))
            self.host.wait(lambda: self.host.on_bus() == ["v0"], "off the bus")
            self.host.wait(lambda: self.host.read_names("/dev/vduse") == ["control", "v0"], "removed")
            self.assertNotEqual(self.spaces[1].ask("ip", "link", "show", "net").status, 0)
            self.host.apply(self.document())
            self.replug()

    def test_settings_changed(self):
        """Other settings are another device, also when they were changed while no daemon ran."""
        self.host.apply(self.document(mergeable=False))
        self.replug()
        self.stream(0, 1)
        self.host.apply(self.document(offload=False))
        self.replug()
        self.stream(1, 0)
        self.assertIn("off [fixed]", self.spaces[0].run("ethtool", "-k", "net").split("tx-checksumming:")[1])
        self.host.apply(self.document())
        self.replug()

    def test_exchanged(self):
        """Two adapters exchange their devices."""
        document = self.document()
        a, b = document["adapter"]
        a["attachment"], b["attachment"] = b["attachment"], a["attachment"]
        self.host.apply(document)
        self.replug()
        config = json.loads(self.host.run("vdpa", "-j", "dev", "config", "show"))["config"]
        self.assertEqual([config[name]["mac"] for name in ("v1", "v0")], MACS)
        self.host.apply(self.document())
        self.replug()
        self.assertEqual(list(self.host.adapters()), NAMES)


class Packed(DevicesBase):
    """Both have packed rings."""


class Split(DevicesBase):
    """Both have split rings."""

    long_tests = True
    packed = False


class Vhost(VdpaBase):
    """A driver in user space, behind vhost-vdpa, as QEMU is one; a tap is who answers it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.host.run("modprobe", "-a", "vduse", "vhost_vdpa", "tun")
        # The driver counts frames, so the namespaces must send none unasked.
        for which in ("all", "default"):
            cls.host.spaces[1].run("sh", "-c", f"echo 1 >/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        cls.host.start_daemon()
        document = cls.host.document()
        document["adapter"][1]["attachment"] = {"kind": "tap", "interface": "net", "netns": NAMES[1]}
        cls.host.apply(document)
        cls.host.spaces[1].ip("addr", "add", f"{V4[1]}/24", "dev", "net")
        cls.host.wait(lambda: "vhost-vdpa-0" in cls.host.read_names("/dev"), "/dev/vhost-vdpa-0")

    def test_driver(self):
        """Its own memory, which grows while rings run; rings report their position, and continue; a bad one harms no
        other."""
        for _ in range(2):
            said = self.host.run("python3", "/inguest/vduse.py", "drive", "/dev/vhost-vdpa-0", f"{MACS[0]},{V4[0]}", V4[1], timeout=60)
            self.assertEqual(
                json.loads(said),
                {"answered": 30, "bases": [30, 30], "after_more_memory": True, "in_more_memory": True,
                 "after_reset": 5, "nowhere": None, "broken": False},
            )  # fmt: skip
        faults = {port["name"]: port["faults"] for port in json.loads(self.host.shunt("stats", "--json"))["ports"]}
        self.assertEqual([sum(count for count in faults["nic0/a"].values()), faults["nic0/b"]], [2, {}])
        self.assertEqual(self.host.adapters()["b"]["actual_device_state"], "up")


def load_tests(loader, _standard, _pattern):
    """Without the base classes."""
    suite = loader.suiteClass()
    suite.addTests(loader.loadTestsFromTestCase(kind) for kind in (Kernel, Packed, Split, Vhost))
    return suite
