"""docs/libvirt.md, run literally: the configuration, commands and XML of the page, with Debian's libvirt and QEMU.

libvirt's daemon, QEMU and shunt run in a mount namespace of the test, with empty directories in place of the host's
/etc/libvirt, /run/libvirt, /run/shunt and so on: a libvirt of the host is not touched.
"""

import os
import re
import socket
import unittest

import guest
from bench import cpus
from daemon import Daemon
from guest import Agent, Place, initrd, skip_without_guests
from literal import MountNamespace
from pages import fenced, page
from qemu import KERNEL, Tree
from tools import ping, wait_ping

PAGE = page("libvirt.md")
MACS = ("52:54:00:00:00:01", "52:54:00:00:00:02")
PRIVATE = ("/run/libvirt", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt", "/run/shunt", "/run/shunt-vm", "/var/lib/shunt")
# No systemd, no AppArmor and no control groups in a container of CI; ownership (DAC) stays as libvirt sets it.
QEMU_CONF = 'stdio_handler = "file"\nsecurity_driver = "none"\ncgroup_controllers = []'
CONFIGURE = f"""cp -a /etc/libvirt {{dir}}/etc
printf '%s\\n' '{QEMU_CONF}' >>{{dir}}/etc/qemu.conf
mount --bind {{dir}}/etc /etc/libvirt
exec libvirtd"""
DOMAIN = """<domain type='qemu'><name>web</name><memory unit='MiB'>384</memory><vcpu>1</vcpu>{memory}
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd><cmdline>{cmdline}</cmdline></os>
<features><acpi/></features><on_crash>destroy</on_crash>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}
<channel type='unix'><source mode='bind'/><target type='virtio' name='shunt.agent'/></channel>
<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng><memballoon model='none'/></devices></domain>"""


class Site(MountNamespace):
    """A mount namespace with libvirt's daemon in it."""

    def __init__(self):
        super().__init__(PRIVATE, CONFIGURE)
        self.wait_until(lambda: self.ask("virsh", "version").returncode == 0, "libvirtd")

    def log(self):
        """Log of libvirtd, and of QEMU."""
        return super().log() + self.ask("sh", "-c", "tail -n 20 /var/log/libvirt/qemu/*.log").stdout

    def connect(self, path):
        """A connection to a socket in the namespace."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.path(path))
        return connection

    def close(self):
        """Ends the guest and libvirtd."""
        self.ask("virsh", "destroy", "web")
        super().close()


class Page(unittest.TestCase):
    """One guest, started as the page says."""

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.site = Site()
        cls.addClassCleanup(cls.site.close)
        (config,) = fenced(PAGE, "toml")
        make_directory, start, cls.save = fenced(PAGE, "sh")
        cls.site.run("sh", "-ec", make_directory)
        cls.daemon = Daemon(cls.site.dir, [], cpu=cpus()[0], config=config)
        cls.daemon.within = cls.site.within
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        cls.daemon.wait_ready()
        memory, devices = fenced(PAGE, "xml")
        cmdline = f"{KERNEL} pci=nomsi shunt.modules=virtio_net"  # QEMU 7.2 without KVM dies of vhost with MSI-X
        text = DOMAIN.format(memory=memory, devices=devices, kernel=Tree().kernel, initrd=initrd(), cmdline=cmdline)
        xml = os.path.join(cls.site.dir, "web.xml")
        with open(xml, "w", encoding="utf-8") as file:
            file.write(text)
        cls.site.run("virsh", "define", xml)
        cls.said = cls.site.shell(start)
        cls.agent = Agent("web")
        cls.attach_agent()
        cls.agent.wait_boot(1, 90, lambda: "running" in cls.site.run("virsh", "domstate", "web"))
        cls.guest = Guest(cls.agent, "web")
        # The second interface is in a namespace of its own, so that frames between the two pass the daemon.
        cls.guest.run("ip", "netns", "add", "other")
        cls.other = Place(cls.agent, "other", ["ip", "netns", "exec", "other"])
        first, second = (cls.guest.interface(mac) for mac in MACS)
        cls.guest.run("ip", "link", "set", second, "netns", "other")
        cls.guest.run("ip", "address", "add", "10.0.0.1/24", "dev", first)
        cls.guest.run("ip", "link", "set", first, "up")
        cls.other.run("ip", "address", "add", "10.0.0.2/24", "dev", second)
        cls.other.run("ip", "link", "set", second, "up")

    @classmethod
    def attach_agent(cls):
        """Connects to the agent of the guest that runs now."""
        number = cls.site.run("virsh", "domid", "web").strip()
        cls.agent.attach(cls.site.connect(f"/var/lib/libvirt/qemu/channel/target/domain-{number}-web/shunt.agent"))

    def assert_traffic(self):
        """Both interfaces carry frames."""
        wait_ping(self.guest, "10.0.0.2")
        self.assertEqual(ping(self.guest, "10.0.0.2"), 3)

    def test_start(self):
        """The commands of the page start the guest; both interfaces work; libvirt's user may connect to their socket only."""
        self.assertIn("nic0/vf0", self.said)
        self.assert_traffic()
        as_qemu = ["setpriv", "--reuid", "libvirt-qemu", "--regid", "kvm", "--init-groups"]
        for name, may in (("web0.sock", True), ("api.sock", False), ("counters", False), ("lock", False)):
            done = self.site.ask(*as_qemu, "test", "-w", f"/run/shunt/{name}")
            self.assertEqual(done.returncode == 0, may, f"{name}: {done.stderr}")

    def test_restart(self):
        """The daemon is killed and starts again: both interfaces reconnect."""
        self.assert_traffic()
        for _ in range(2):
            self.daemon.kill()
            self.daemon.start()
            self.daemon.wait_ready()
            self.assert_traffic()

    def test_link(self):
        """libvirt's commands for links and counters fail as the page says; those of shunt work."""
        self.assert_traffic()
        done = self.site.ask("virsh", "domif-setlink", "web", MACS[0], "down")
        self.assertIn("unable to change config on 'vhostuser' network type", done.stderr)
        self.assertIn("Interface not found", self.site.ask("virsh", "domifstat", "web", MACS[0]).stderr)
        down, up, stats = (self.command_for(text) for text in ("domif-setlink web MAC down", "domif-setlink web MAC up", "domifstat"))
        self.site.shell(down)
        self.assertEqual(ping(self.guest, "10.0.0.2", count=1), 0)
        self.assertIn("up", self.site.run("virsh", "domif-getlink", "web", MACS[0]))
        self.assertEqual(self.guest.read(f"/sys/class/net/{self.guest.interface(MACS[0])}/carrier"), "1")
        self.site.shell(up)
        self.assert_traffic()
        self.assertIn("nic0/vf0", self.site.shell(stats))
        self.site.shell(self.command_for("domiftune"))

    def test_save(self):
        """A saved and restored guest connects again."""
        self.assert_traffic()
        self.site.shell(self.save)
        self.attach_agent()
        self.assert_traffic()

    def test_pair(self):
        """libvirt's schema and its rules accept the XML of `shunt vm xml`, with both interfaces as a team."""
        for more in ("queue_pairs=2", "mode=client"):
            adapter = ("pair", "--nic", "nic0", "--mac", "52:54:00:00:00:03", "--vlan", "7", "--iov-weight", "1")
            self.site.run("shunt", "adapter", "create", *adapter, "--socket", "/run/shunt/a&b.sock", "--attachment-set", more)
            said = self.site.run("shunt", "vm", "xml", "pair", "--vf", "0000:01:10.2")
            self.site.run("shunt", "adapter", "delete", "pair")
            memory, _ = fenced(PAGE, "xml")
            text = DOMAIN.format(memory=memory, devices=said, kernel="/k", initrd="/i", cmdline="").replace("<name>web<", "<name>pair<")
            xml = os.path.join(self.site.dir, "pair.xml")
            with open(xml, "w", encoding="utf-8") as file:
                file.write(text)
            self.site.run("virsh", "define", "--validate", xml)
            kept = self.site.run("virsh", "dumpxml", "--inactive", "pair")
            self.site.run("virsh", "undefine", "pair")
            for part in ("<teaming type='persistent'/>", "<teaming type='transient' persistent='ua-pair'/>", "<alias name='ua-pair'/>"):
                self.assertIn(part, kept)
            self.assertEqual(kept.count("<mac address='52:54:00:00:00:03'/>"), 2)

    @staticmethod
    def command_for(libvirt):
        """Shunt's command beside one of libvirt's in the table of the page."""
        return re.search(rf"^\| `virsh {libvirt}.*?` \| `(.*?)`", PAGE, re.MULTILINE)[1]


class Guest(Place):
    """The guest, with what `guest.Guest` knows of interfaces and files."""

    interface = guest.Guest.interface
    read = guest.Guest.read
