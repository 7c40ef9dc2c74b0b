"""docs/install.md, docs/service.md and docs/upgrade.md, run literally on a host with systemd in namespaces."""

import os
import re
import shutil
import subprocess
import sys
import time
import unittest

from daemon import binary
from pages import blocks, page
from systemd import Host, remove

HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = os.path.join(HERE, "..", "..", "deploy", "shunt.service")


class Runner(unittest.TestCase):
    """The process that makes a host."""

    def test_killed(self):
        """The host ends with it, even if it is killed."""
        script = "from systemd import Host; h = Host(); print(h.init(), h.dir, h.cgroup, flush=True); input()"
        made = subprocess.Popen([sys.executable, "-c", script], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with made:
            init, directory, cgroup = made.stdout.readline().split()
            made.kill()
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{init}"):
            self.assertLess(time.monotonic(), deadline, "systemd runs on")
            time.sleep(0.05)
        remove(directory, cgroup)


class Installed(unittest.TestCase):
    """A host on which the pages were followed up to the first adapters."""

    @classmethod
    def setUpClass(cls):
        cls.host = Host()
        cls.addClassCleanup(cls.host.close)
        # The directory of the sources, after `cargo build --release`.
        os.makedirs(os.path.join(cls.host.dir, "target/release"))
        os.mkdir(os.path.join(cls.host.dir, "deploy"))
        shutil.copy(binary(), os.path.join(cls.host.dir, "target/release/shunt"))
        shutil.copy(UNIT, os.path.join(cls.host.dir, "deploy"))
        build, install, cls.remove = blocks("install.md", "sh")
        assert build == "cargo build --release\n", build
        cls.host.run(install)
        cls.configure, start, adapters, addresses = blocks("service.md", "sh")
        cls.host.run(cls.configure)
        cls.status = cls.host.run(start)
        cls.adapters = cls.host.run(adapters)
        cls.host.run(addresses)


class Service(Installed):
    """The service from its start to its end."""

    def pid(self):
        """Main process of the service, as systemd knows it."""
        return int(self.host.run("systemctl show -P MainPID shunt"))

    def wait_active(self):
        """Waits until the service runs again."""
        self.host.wait_until(lambda: self.host.ask("systemctl is-active shunt").stdout == "active\n", "the service")

    def assert_kept(self):
        """Both adapters are there, and the interface of one."""
        table = self.host.run("shunt adapter list")
        for name in ("web", "probe"):
            self.assertIn(f"\n{name} ", table)
        self.host.run("ip link show probe0")

    def test_unit(self):
        """systemd finds no fault with the unit, and its exposure is at most what it was."""
        done = self.host.ask("systemd-analyze verify --man=no /etc/systemd/system/shunt.service")
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        said = self.host.run("systemd-analyze security shunt --no-pager | tail -n 1")
        exposure = float(re.search(r": ([0-9.]+) ", said)[1])
        self.assertLess(exposure, 5.0, said)

    def test_start(self):
        """The commands of the page end with a running service and two adapters."""
        self.assertIn("Active: active (running)", self.status)
        self.assertRegex(self.adapters, r"\nprobe ")
        self.assert_kept()
        mode = self.host.run("stat -c '%a %G' /run/shunt/web.sock")
        self.assertEqual(mode, "660 kvm\n", "of the configuration of the page")
        self.assertIn("state.json", self.host.run("ls /var/lib/shunt"))
        self.assertIn("changes are stored", self.host.run("journalctl -u shunt --no-pager"))

    def test_priorities_of_the_log(self):
        """The journal tells lines on which the operator must act from others."""
        self.host.run("systemctl kill -s HUP --kill-whom=main shunt")
        urgent = "journalctl -u shunt -p warning --no-pager"
        self.host.wait_until(lambda: "SIGHUP ignored" in self.host.run(urgent), "the line")
        self.assertNotIn(" INFO ", self.host.run(urgent))

    def test_confined(self):
        """The process has the capabilities and the file system that the page says."""
        bounding = int(re.search(r"CapBnd:\s+(\w+)", self.host.run(f"cat /proc/{self.pid()}/status"))[1], 16)
        self.assertEqual(bounding.bit_count(), 9)
        refused = self.host.ask("shunt adapter set web --mirror-file /var/tmp/web.pcapng")
        self.assertNotEqual(refused.returncode, 0, refused.stdout)
        self.assertIn("Read-only file system", refused.stderr)
        self.assertEqual(refused.returncode, 2)

    def test_devices(self):
        """Confined as it is, the service opens packet sockets, AF_XDP, and taps of other namespaces."""
        self.host.run("ip netns add green; ip link add wire0 type veth peer name wire1; ip link set wire0 up; ip link set wire1 up")
        for uplink in ("packet:wire0", "xdp:wire0", "none"):
            self.host.run(f"shunt nic set nic0 --uplink {uplink}")
            self.host.run("shunt stats")
        self.host.run("shunt adapter create pod --switch sw0 --mac 02:00:00:00:00:03 --attachment tap:eth0 --attachment-set netns=green")
        self.assertIn("eth0", self.host.run("ip -n green link show eth0"))
        self.host.run("shunt adapter delete pod")

    def test_commands_of_every_day(self):
        """Each command of the table that ends by itself succeeds."""
        table = re.search(r"^\| task \| command \|$(.*?)^$", page("service.md"), re.MULTILINE | re.DOTALL)[1]
        commands = [one for one in re.findall(r"`(shunt .*?|systemctl re.*?)`", table) if "--follow" not in one]
        self.assertGreater(len(commands), 6, commands)
        for command in commands:
            self.host.run(command.replace("`", ""))
        self.wait_active()
        self.assert_kept()

    def test_upgrade(self):
        """The pages' hot restart changes the main process of the service, and loses no adapter; a restart neither."""
        before, install, restart = blocks("upgrade.md", "sh")
        self.host.run(before)
        old = self.pid()
        said = self.host.run(install)
        self.assertIn("took over from", said.splitlines()[-1])
        self.assertIn(" ms", said)
        self.host.wait_until(lambda: self.pid() != old, "systemd to see the new process")
        self.assertEqual(self.host.run("systemctl is-active shunt"), "active\n")
        self.assert_kept()
        self.host.run("systemctl stop shunt")
        self.assertEqual(self.host.run("systemctl show -P Result shunt"), "success\n", "it was not killed")
        self.assertIn("probe", self.host.run(restart))
        self.assert_kept()

    def test_reload(self):
        """A reload applies the objects of the file beside others, with the process that runs; a wrong file changes nothing."""
        old = self.pid()
        self.host.run("systemctl reload shunt")  # the file of the page names no object
        self.assert_kept()
        self.host.run("printf '[[nic]]\\nname = \"nic8\"\\ntotal_vfs = 2\\n' >>/etc/shunt/shunt.toml; systemctl reload shunt")
        try:
            self.assertIn("nic8", self.host.run("shunt nic list"))
            self.assert_kept()
            self.host.run("sed -i 's/total_vfs = 2/total_vfs = 2000/' /etc/shunt/shunt.toml")
            self.assertNotEqual(self.host.ask("systemctl reload shunt").returncode, 0)
            self.assertIn("total_vfs", self.host.run("journalctl -u shunt --no-pager -n 20"))
            self.assertEqual(self.host.run("systemctl is-active shunt"), "active\n")
        finally:
            self.host.run(self.configure + "shunt nic delete nic8")
        self.assertEqual(self.pid(), old)

    def test_failed_upgrade(self):
        """With a program that does not work, the hot restart fails and the service continues."""
        old = self.pid()
        self.host.run("cp /usr/local/bin/shunt good; install -m 0755 /bin/false /usr/local/bin/shunt")
        try:
            done = self.host.ask("shunt upgrade")
            self.assertNotEqual(done.returncode, 0)
        finally:
            self.host.run("install -m 0755 good /usr/local/bin/shunt")
        self.assertEqual(self.pid(), old)
        self.assert_kept()

    def test_without_a_file(self):
        """`shunt up` alone has the default settings, and `shunt apply` fills it."""
        self.host.run("systemctl stop shunt; mv /var/lib/shunt kept; setsid shunt up </dev/null >up.log 2>&1 & echo $! >up.pid")
        try:
            self.host.run("until grep -q ready up.log; do sleep 0.1; done")
            self.assertEqual(self.host.run("shunt nic list").count("soft"), 0)
            self.host.run("printf '[[nic]]\\nname = \"nic7\"\\ntotal_vfs = 2\\n' | shunt apply --file -")
            self.assertIn("nic7", self.host.run("shunt export"))
        finally:
            self.host.run("kill $(cat up.pid); while kill -0 $(cat up.pid) 2>/dev/null; do sleep 0.1; done; rm -rf /var/lib/shunt; mv kept /var/lib/shunt; systemctl start shunt")
        self.assert_kept()

    def test_killed(self):
        """A killed daemon starts again by itself; a wrong configuration does not start over and over."""
        old = self.pid()
        self.host.run("systemctl kill -s KILL shunt")
        self.host.wait_until(lambda: self.pid() not in (0, old), "another process")
        self.wait_active()
        self.assert_kept()
        self.host.run("echo 'lane = 1' >>/etc/shunt/shunt.toml")
        try:
            self.assertNotEqual(self.host.ask("systemctl restart shunt").returncode, 0)
            self.assertEqual(self.host.ask("systemctl is-active shunt").stdout, "failed\n")
            self.assertIn("lane", self.host.ask("systemctl status shunt --no-pager").stdout)
        finally:
            self.host.run(self.configure)
            self.host.run("systemctl restart shunt")
        self.assert_kept()

    def test_stands_still(self):
        """systemd ends a daemon whose main thread stands still; one that was hot-restarted gives signs of life."""
        drop_in = "/etc/systemd/system/shunt.service.d"
        self.host.run(f"mkdir {drop_in}; printf '[Service]\\nWatchdogSec=5\\n' >{drop_in}/watchdog.conf; systemctl daemon-reload; systemctl restart shunt")
        try:
            first = self.pid()
            # Refused while guests may return.
            self.host.run("until shunt upgrade 2>/dev/null; do sleep 0.1; done")
            self.host.wait_until(lambda: self.pid() != first, "systemd to see the new process")
            old = self.pid()
            time.sleep(12)
            self.assertEqual(self.pid(), old, self.host.log())
            self.host.run(f"kill -STOP {old}")
            self.host.wait_until(lambda: self.pid() not in (0, old), "another process", timeout=40)
            self.wait_active()
            self.assertEqual(self.host.run("systemctl show -P NRestarts shunt"), "1\n")
        finally:
            # Guests may return for half a second; no hot restart before that.
            self.host.run(f"rm -r {drop_in}; systemctl daemon-reload; systemctl restart shunt; sleep 1")
        self.assert_kept()

    def test_removed(self):
        """The last block of install.md leaves nothing; it runs on a second installation."""
        host = Host()
        self.addCleanup(host.close)
        shutil.copytree(os.path.join(self.host.dir, "target"), os.path.join(host.dir, "target"))
        shutil.copytree(os.path.join(self.host.dir, "deploy"), os.path.join(host.dir, "deploy"))
        _, install, _ = blocks("install.md", "sh")
        _, start, *_ = blocks("service.md", "sh")
        host.run(install + self.configure + start)
        host.run(self.remove)
        left = "/usr/local/bin/shunt /etc/systemd/system/shunt.service /etc/shunt/* /run/shunt/* /var/lib/shunt/*"
        self.assertEqual(host.ask(f"ls -d {left}").stdout, "")
