"""docs/qemu.md, run literally but for the directory of the sockets: a Linux guest with the options of the page."""

import subprocess
import time
import unittest

from bench import cpus
from guest import Guest, skip_without_guests
from literal import section
from managed import Managed
from pages import fenced, page
from tools import ping, wait_ping

MACS = ("52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03")
RUN_DIR = "/run/shunt"


class Page(unittest.TestCase):
    """One guest, whose interfaces are in namespaces, so that frames between them pass the daemon."""

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.daemon = Managed(cpu=cpus()[0])
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        cls.daemon.wait_ready()
        text = page("qemu.md")
        text = text.replace(section(text, "A VF beside the adapter"), "")  # test_vm.py runs that
        adapters, cls.in_guest = fenced(text, "sh")
        cls.shell(adapters)
        cls.memory, devices, cls.plug, cls.unplug = (text.replace(RUN_DIR, cls.daemon.run_dir) for text in fenced(text, "text"))
        options = devices.split()
        cls.guest = Guest(cls.daemon.run_dir, [], append="shunt.modules=virtio_net", options=options, cpus=2)
        cls.addClassCleanup(cls.guest.close)
        cls.guest.boot()
        cls.places = [cls.place(number) for number in (0, 1)]

    @classmethod
    def shell(cls, script):
        """Output of commands of the page."""
        function = f'shunt() {{ {cls.daemon.program} "$@" --run-dir {cls.daemon.run_dir}; }}\n'
        script = function + script.replace(RUN_DIR, cls.daemon.run_dir)
        done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{script}: exit code {done.returncode}: {done.stderr}")
        return done.stdout

    @classmethod
    def place(cls, number):
        """A namespace in the guest with one of the interfaces."""
        made = cls.guest.namespace(f"p{number}")
        name = cls.guest.interface(MACS[number])
        cls.guest.ip("link", "set", name, "netns", f"p{number}")
        made.up(name, f"10.0.0.{number + 1}/24")
        return made

    def monitor(self, commands):
        """Commands of QEMU's monitor, each of which must succeed."""
        for line in commands.splitlines():
            said = self.guest.qmp.run("human-monitor-command", command_line=line)
            wrong = [one for one in said.splitlines() if not one.startswith("warning: ")]
            self.assertEqual(wrong, [], line)

    def test_memory(self):
        """The guest of this test has the memory that the page says, but for its size."""
        words = self.memory.split()
        line = self.guest.machine.command_line("initrd")
        size = f"{self.guest.machine.memory_mib}M"
        self.assertIn(words[words.index("-object") + 1].replace("2G", size), line)
        self.assertIn("memory-backend=mem", words[words.index("-machine") + 1])
        self.assertTrue(any("memory-backend=mem" in word for word in line))

    def test_traffic(self):
        """Both interfaces carry frames, the second with two queue pairs; they do so again after a restart."""
        self.assertIn("lo:", self.guest.run("sh", "-ec", self.in_guest))
        for _ in range(2):
            wait_ping(self.places[0], "10.0.0.2")
            self.assertEqual(ping(self.places[0], "10.0.0.2"), 3)
            self.assertIn("Combined:\t2", self.places[1].run("ethtool", "-l", self.interface(1)))
            self.daemon.kill()
            self.daemon.start()
            self.daemon.wait_ready()

    def interface(self, number):
        """Name of an interface in its namespace."""
        links = self.places[number].ip("-o", "link")
        return next(line.split()[1].rstrip(":") for line in links.splitlines() if MACS[number] in line)

    def test_plug(self):
        """An interface is plugged, works, and is unplugged."""
        wait_ping(self.places[0], "10.0.0.2")
        self.monitor(self.plug)
        deadline = time.monotonic() + 30
        while MACS[2] not in self.guest.ip("link"):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.2)
        place = self.place(2)
        wait_ping(place, "10.0.0.1")
        self.guest.ip("netns", "delete", "p2")
        first, *rest = self.unplug.splitlines()
        self.monitor(first)
        self.guest.qmp.event("DEVICE_DELETED", 30)
        self.monitor("\n".join(rest))
        self.assertEqual(self.guest.ip("link").count(MACS[2]), 0)

    def test_link(self):
        """A disabled link drops frames and leaves the carrier; `set_link` switches the carrier off."""
        wait_ping(self.places[0], "10.0.0.2")
        carrier = f"/sys/class/net/{self.interface(0)}/carrier"
        self.shell("shunt adapter set web --link-state disable")
        self.assertEqual(ping(self.places[0], "10.0.0.2", count=1), 0)
        self.assertEqual(self.places[0].run("cat", carrier).strip(), "1")
        self.shell("shunt adapter set web --link-state auto")
        self.monitor("set_link n0 off")
        self.assertEqual(self.places[0].run("cat", carrier).strip(), "0")
        self.monitor("set_link n0 on")
        wait_ping(self.places[0], "10.0.0.2")
