"""docs/containers.md, run literally: namespaces and Podman containers; and what outlives the daemon.

Podman and shunt run in a mount namespace of the test, with its own /run/netns, images and containers.
"""

import ctypes
import json
import os
import re
import socket
import struct
import threading
import time
import unittest

from bench import cpus
from daemon import Daemon
from literal import MountNamespace
from managed import Managed
from netns import Network, call
from pages import fenced, page

PAGE = page("containers.md")
PRIVATE = ("/run/netns", "/run/shunt", "/var/lib/shunt", "/run/containers", "/var/lib/containers", "/run/crun", "/run/libpod")
# A container of CI has control groups of both versions, which crun does not take.
CGROUPS = "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec sleep infinity"
CONTAINERS = """[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
"""
STORAGE = """[storage]
driver = "vfs"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
"""
ECHO = 'CMD ["/bin/busybox", "nc", "-ll", "-p", "7", "-e", "/bin/busybox", "cat"]'

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x2, 0x1000, 0x4000
SWITCH = {"version": 1, "nic": [{"name": "nic0", "total_vfs": 2, "num_vfs": 2}], "switch": [{"name": "sw0", "nic": "nic0"}]}


def within(path, work):
    """The result of `work` in a network namespace, by its path: a thread enters it, and no other is moved."""
    result = []

    def enter():
        with open(path, "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {path}")
        result.append(work())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return result[0]


def tcp(path):
    """A TCP socket in a network namespace."""
    made = within(path, socket.socket)
    made.settimeout(20)
    return made


def image(site):
    """The image `my-app`: busybox, which answers on TCP port 7 with what it receives."""
    root = os.path.join(site.dir, "image")
    # A static one has none, and ldd fails.
    libraries = re.findall(r"/\S+", site.run("sh", "-c", "ldd /bin/busybox || true"))
    for path in ("/bin/busybox", *libraries):
        site.run("install", "-D", path, root + path)
    site.shell(f"tar -C {root} -c . | podman import --quiet --change '{ECHO}' - my-app")


class Echo:
    """A connection to one that answers with what it receives."""

    def __init__(self, connection):
        self.connection = connection
        self.number = 0

    def send(self):
        """Sends a further line."""
        self.number += 1
        self.connection.sendall(f"line {self.number}\n".encode())

    def receive(self):
        """The last line sent, once it has come back."""
        expected, got = f"line {self.number}\n".encode(), b""
        while len(got) < len(expected):
            part = self.connection.recv(len(expected) - len(got))
            if not part:
                raise AssertionError(f"the connection has ended after {got!r}")
            got += part
        if got != expected:
            raise AssertionError(f"{got!r} came back for {expected!r}")


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no commands")
@unittest.skipUnless(os.geteuid() == 0, "needs root: makes network namespaces")
class Page(unittest.TestCase):
    """The page, from its beginning to its end."""

    def setUp(self):
        self.site = MountNamespace(PRIVATE, CGROUPS)
        self.addCleanup(self.site.close)
        for name, text in (("CONTAINERS_CONF", CONTAINERS), ("CONTAINERS_STORAGE_CONF", STORAGE)):
            path = self.site.environment[name] = os.path.join(self.site.dir, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self.site.wait_until(lambda: "cgroup.procs" in self.site.ask("ls", "/sys/fs/cgroup").stdout, "the namespace")
        image(self.site)
        self.addCleanup(self.site.ask, "podman", "rm", "--force", "--all", "--time", "0")
        self.config, self.adapter = fenced(PAGE, "toml")
        self.daemon = Daemon(self.site.dir, [], cpu=cpus()[0], config=self.config)
        self.daemon.within = self.site.within
        self.addCleanup(self.daemon.close)
        self.start()

    def start(self):
        """Starts the daemon."""
        self.daemon.start()
        self.daemon.wait_ready()

    def ip(self, netns, *args):
        """`ip` in a namespace."""
        return self.site.run("ip", "-n", netns, *args)

    def test_page(self):
        """Each command does what the page says, and a connection to a container survives kill -9 and a stop."""
        namespace, run, attach, change, remove = fenced(PAGE, "sh")
        self.assertIn("10.0.0.1/24", self.site.shell(namespace))
        self.assertIn("3 received", self.site.shell(run))
        echo = Echo(tcp(self.site.path("/run/netns/web")))
        self.addCleanup(echo.connection.close)
        echo.connection.connect(("10.0.0.2", 7))
        echo.send()
        echo.receive()
        self.assertIn("3 received", self.site.shell(attach))
        self.assertIn("default via 10.0.0.1 dev net0", self.ip("cache", "route"))
        self.assertIn("default via fd00::1 dev net0", self.ip("cache", "-6", "route"))

        before = self.site.run("ip", "-json", "-n", "db", "link", "show", "net0")
        for end in (self.daemon.kill, self.daemon.close):
            end()
            self.assertIn("NO-CARRIER", self.ip("db", "link", "show", "net0"))
            self.assertIn("default via 10.0.0.1 dev net0", self.ip("db", "route"))
            echo.send()
            self.start()
            echo.receive()
        after = self.site.run("ip", "-json", "-n", "db", "link", "show", "net0")
        self.assertEqual(json.loads(before)[0]["ifindex"], json.loads(after)[0]["ifindex"], "it is the same interface")

        self.site.shell("podman restart --time 0 db")
        again = tcp(self.site.path("/run/netns/web"))
        self.addCleanup(again.close)
        self.site.wait_until(lambda: again.connect_ex(("10.0.0.2", 7)) == 0, "the restarted container")
        shown = self.site.shell(change)
        self.assertIn('gateway = ["10.0.0.1", "fd00::1"]', shown)
        self.assertIn("fd00::2/64", self.ip("db", "address", "show", "net0"))
        self.site.shell(remove)
        self.assertNotIn("cache", self.site.run("ip", "netns"))
        self.site.shell("shunt adapter delete db")
        self.assertNotIn("net0", self.ip("db", "link"))

    def test_file(self):
        """The adapter of the file is that of the command."""
        self.site.shell(fenced(PAGE, "sh")[0])
        by_command = self.site.shell("shunt adapter show web --json")
        self.site.shell("shunt adapter delete web")
        self.daemon.close()
        with open(os.path.join(self.site.dir, "shunt.toml"), "w", encoding="utf-8") as file:
            file.write(f"{self.config}\n{self.adapter}")
        self.site.shell("rm -r /var/lib/shunt/*")
        self.start()
        self.assertEqual(self.site.shell("shunt adapter show web --json"), by_command)
        self.assertIn("fd00::1/64", self.ip("web", "address", "show", "net0"))


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no commands")
@unittest.skipUnless(os.geteuid() == 0, "needs root: makes network namespaces")
class Taps(unittest.TestCase):
    """Two adapters with taps in namespaces, and whose interface is whose."""

    def setUp(self):
        self.network = Network()
        self.addCleanup(self.network.close)
        self.daemon = Managed(cpu=cpus()[0])
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.daemon.wait_ready()
        self.daemon.apply(SWITCH)
        self.web, self.db = self.network.namespace("web"), self.network.namespace("db")

    def create(self, space, number, *flags):
        """Creates the adapter of a namespace by the command."""
        given = ["--attachment", "tap:net0", "--netns", space.path, "--ip", f"10.0.0.{number}/24,fd00::{number}/64"]
        name = space.name.rsplit("-", 1)[1]
        return self.daemon.command("adapter", "create", name, "--switch", "sw0", "--mac", f"02:00:00:00:00:0{number}", *given, *flags)

    def both(self):
        """Creates both adapters."""
        for done in (self.create(self.web, 1), self.create(self.db, 2, "--gateway", "10.0.0.1,fd00::1")):
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def restart(self):
        """Kills the daemon and starts it again."""
        self.daemon.kill()
        self.daemon.start()
        self.daemon.wait_ready()

    def wait_gone(self, space):
        """Waits until the interface is deleted, once the daemon has started."""
        deadline = time.monotonic() + 5
        while space.link("net0"):
            self.assertLess(time.monotonic(), deadline, "the tap is there after 5 s")
            time.sleep(0.05)

    def addresses(self, space, interface="net0"):
        """Global addresses of an interface."""
        shown = json.loads(space.ip("-json", "address", "show", "dev", interface, "scope", "global"))
        return {f"{one['local']}/{one['prefixlen']}" for one in shown[0]["addr_info"] if one}

    def gateways(self, space):
        """Gateways of default routes."""
        shown = [json.loads(space.ip("-json", version, "route", "show", "default")) for version in ("-4", "-6")]
        return {route["gateway"] for routes in shown for route in routes}

    def test_hot_restart(self):
        """A connection survives `shunt upgrade`, and a kill after it."""
        self.both()
        server = tcp(self.db.path)
        self.addCleanup(server.close)
        server.bind(("10.0.0.2", 7))
        server.listen()
        echo = Echo(tcp(self.web.path))
        self.addCleanup(echo.connection.close)
        echo.connection.connect(("10.0.0.2", 7))
        far, _address = server.accept()
        self.addCleanup(far.close)
        far.settimeout(20)
        for again in (self.daemon.upgrade, self.restart):
            again()
            echo.send()
            far.sendall(far.recv(100))
            echo.receive()

    def test_what_the_container_sets_stays(self):
        """Its own routes and addresses outlive the daemon; what it removed of the document's is set again."""
        self.both()
        self.db.ip("route", "add", "192.0.2.0/24", "via", "10.0.0.1")
        self.db.ip("address", "add", "10.1.0.2/24", "dev", "net0")
        self.db.ip("address", "del", "fd00::2/64", "dev", "net0")
        self.db.ip("route", "del", "default")
        self.restart()
        self.assertEqual(self.addresses(self.db), {"10.0.0.2/24", "10.1.0.2/24", "fd00::2/64"})
        self.assertEqual(self.gateways(self.db), {"10.0.0.1", "fd00::1"})
        self.assertIn("192.0.2.0/24 via 10.0.0.1", self.db.ip("route"))

    def test_changed_addresses(self):
        """Addresses and gateways that the document no longer has are removed, also over a kill; the index stays."""
        self.both()
        index = self.db.link("net0")["ifindex"]
        self.daemon.says("adapter", "set", "db", "--ip", "10.0.0.3/24", "--gateway", "10.0.0.254")
        self.assertEqual((self.addresses(self.db), self.gateways(self.db)), ({"10.0.0.3/24"}, {"10.0.0.254"}))
        adapter = self.daemon.export()["adapter"]
        adapter[1]["attachment"] |= {"ip": ["10.0.0.4/24"], "gateway": []}
        self.daemon.restart_with(toml({**SWITCH, "adapter": adapter}))
        self.assertEqual((self.addresses(self.db), self.gateways(self.db)), ({"10.0.0.4/24"}, set()))
        self.assertEqual(self.db.link("net0")["ifindex"], index)

    def test_a_former_address_that_the_container_adds(self):
        """An address that left the document is removed once: one that the container adds later outlives a reopening."""
        self.both()
        index = self.db.link("net0")["ifindex"]
        self.daemon.says("adapter", "set", "db", "--ip", "10.0.0.3/24", "--gateway", "10.0.0.1")
        self.assertEqual(self.addresses(self.db), {"10.0.0.3/24"})
        self.db.ip("address", "add", "10.0.0.2/24", "dev", "net0")
        other = self.daemon.path("other")
        with open(other, "w", encoding="utf-8"):
            call(["mount", "--bind", self.db.path, other])
        self.addCleanup(call, ["umount", other])
        call(["umount", self.db.path])
        self.wait_listed(r"db .* gone$")
        self.assertRegex(self.daemon.says("adapter", "show", "db"), r": its network namespace was removed\n")
        call(["mount", "--bind", other, self.db.path])
        self.wait_listed(r"db .* up$")
        self.assertEqual(self.addresses(self.db), {"10.0.0.2/24", "10.0.0.3/24"})
        self.assertEqual(self.db.link("net0")["ifindex"], index)

    def wait_listed(self, pattern, timeout=5.0):
        """Waits until a line of the list of adapters has this."""
        deadline = time.monotonic() + timeout
        while not re.search(pattern, listed := self.daemon.says("adapter", "list"), re.MULTILINE):
            self.assertLess(time.monotonic(), deadline, f"not {pattern!r} after {timeout} s:\n{listed}")
            time.sleep(0.05)

    def test_a_rejected_change_leaves_all_as_it_was(self):
        """Addresses, routes and interfaces are those of before, and nothing is created; the wrong field is named."""
        self.both()
        another = self.network.namespace("another")
        self.web.ip("route", "add", "192.0.2.0/24", "via", "10.0.0.7", "src", "10.0.0.1")  # lost with its address
        self.db.ip("tuntap", "add", "dev", "taken", "mode", "tap")

        def shown():
            taken = self.db.link("taken")["linkinfo"]
            return [self.web.ip("-json", "address"), self.web.ip("-json", "route"), another.ip("-json", "link"), taken]

        before = shown()
        document = self.daemon.export()
        web, db = document["adapter"]
        web["attachment"] |= {"ip": ["10.1.0.1/24"]}
        new = {"kind": "tap", "interface": "net0", "netns": another.path}
        taken = {"kind": "tap", "interface": "taken", "netns": self.db.path}
        wrong = {"kind": "packet", "interface": "net0", "netns": "/proc/self/ns/mnt"}
        document["adapter"] = [
            web,
            db,
            {"name": "new", "switch": "sw0", "mac": "02:00:00:00:00:08", "attachment": new},
            {"name": "taken", "switch": "sw0", "mac": "02:00:00:00:00:0a", "attachment": taken},
            {"name": "wrong", "switch": "sw0", "mac": "02:00:00:00:00:09", "attachment": wrong},
        ]
        done = self.daemon.command("apply", "-f", "-", "--yes", "--json", given=json.dumps(document))
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(shown(), before)
        [error] = json.loads(done.stdout or done.stderr)["errors"]
        self.assertEqual((error["object"], error["field"]), ("adapter wrong", "attachment.netns"))
        self.assertIn("/proc/self/ns/mnt", error["value"])

    def test_what_cannot_be_set_is_noted(self):
        """A gateway beside another default route, and an address without IPv6: notes, all of them, of an adapter that is up."""
        self.db.ip("link", "add", "dum0", "type", "bridge")
        self.db.up("dum0", "10.9.0.1/24")
        self.db.ip("route", "add", "default", "via", "10.9.0.9")
        self.db.sysctls({"net/ipv6/conf/default/disable_ipv6": 1})
        for done in (
            self.create(self.db, 2, "--gateway", "10.0.0.8"),
            self.daemon.command("adapter", "set", "db", "--gateway", "10.0.0.9"),
        ):
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("there is another default route beside gateway 10.0.0.", done.stderr)
            self.assertIn("net0 cannot have fd00::2/64", done.stderr)
        self.assertEqual((self.addresses(self.db), self.gateways(self.db)), ({"10.0.0.2/24"}, {"10.9.0.9"}))
        self.wait_listed(r"(?m)db .* up$")

    def test_a_tap_that_cannot_be_opened(self):
        """A change is refused, and the tap before it stays; at a start the adapter is gone until the tap can be opened."""
        self.both()
        index = self.db.link("net0")["ifindex"]
        for name in ("lo", "other"):
            if name == "other":
                self.db.ip("link", "add", name, "type", "bridge")
            done = self.daemon.command("adapter", "set", "db", "--attachment", f"tap:{name}")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, rf"{name}.* is not a tap")
            self.assertEqual(self.db.link("net0")["ifindex"], index)
            self.assertEqual(self.gateways(self.db), {"10.0.0.1", "fd00::1"})
        self.assertRegex(self.daemon.says("adapter", "list"), r"(?m)db .* up$")
        self.daemon.kill()
        self.db.ip("link", "del", "dev", "net0")
        self.db.ip("link", "add", "net0", "type", "bridge")
        self.daemon.start()
        self.daemon.wait_ready()
        self.assertRegex(self.daemon.says("adapter", "list"), r"(?m)db .* gone$")
        self.assertRegex(self.daemon.says("adapter", "show", "db"), r"gone since .*net0.* is not a tap \(bridge\)")
        self.db.ip("link", "del", "dev", "net0")
        deadline = time.monotonic() + 5  # the interface is there before its addresses and gateways
        while self.gateways(self.db) != {"10.0.0.1", "fd00::1"} and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.gateways(self.db), {"10.0.0.1", "fd00::1"})
        self.assertEqual(self.addresses(self.db), {"10.0.0.2/24", "fd00::2/64"})

    def test_another_name(self):
        """A renamed tap has the addresses and gateways of the one before it, which is deleted."""
        self.both()
        done = self.daemon.command("adapter", "set", "db", "--attachment", "tap:net7")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIsNone(self.db.link("net0"))
        self.assertEqual(self.addresses(self.db, "net7"), {"10.0.0.2/24", "fd00::2/64"})
        self.assertEqual(self.gateways(self.db), {"10.0.0.1", "fd00::1"})

    def test_a_namespace_without_its_name(self):
        """A tap is deleted with its adapter, or changed, once its namespace has a name again; a warning, once, tells why not."""
        self.both()
        for space in (self.web, self.db):
            other = self.daemon.path(space.name)
            with open(other, "w", encoding="utf-8"):
                call(["mount", "--bind", space.path, other])
            self.addCleanup(call, ["umount", other], check=False)
            call(["ip", "netns", "delete", space.name])
        self.daemon.says("adapter", "delete", "web")
        for change in (["--ip", "10.0.0.3/24", "--gateway", "10.0.0.254"], ["--link-state", "enable"]):
            self.assertEqual(self.daemon.command("adapter", "set", "db", *change).returncode, 0)
        warnings = [line for line in self.daemon.complaints() if "stays as it is" in line]
        self.assertEqual(len(warnings), 2, warnings)
        self.daemon.kill()
        for space in (self.web, self.db):
            with open(space.path, "w", encoding="utf-8"):
                call(["mount", "--bind", self.daemon.path(space.name), space.path])
        self.daemon.start()
        self.daemon.wait_ready()
        self.wait_gone(self.web)
        self.db.wait_link("net0", up=True)
        self.assertEqual((self.addresses(self.db), self.gateways(self.db)), ({"10.0.0.3/24"}, {"10.0.0.254"}))

    def test_two_names_of_a_namespace(self):
        """An interface has one adapter, whatever its namespace is called; the adapter may change the name, and keeps the tap."""
        self.both()
        index = self.db.link("net0")["ifindex"]
        other = self.daemon.path("other")
        with open(other, "w", encoding="utf-8"):
            call(["mount", "--bind", self.db.path, other])
        self.addCleanup(call, ["umount", other])
        flags = ["--switch", "sw0", "--mac", "02:00:00:00:00:07", "--attachment", "tap:net0", "--netns", other]
        done = self.daemon.command("adapter", "create", "two", *flags)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("db has it, under another name of its network namespace", done.stderr)
        self.daemon.says("adapter", "set", "db", "--netns", other, "--ip", "10.0.0.4/24,fd00::2/64")
        self.assertEqual(self.addresses(self.db), {"10.0.0.4/24", "fd00::2/64"})
        self.assertEqual(self.db.link("net0")["ifindex"], index)

    def test_a_tap_without_its_adapter_is_deleted(self):
        """With the adapter; and at the next start if the document lost the adapter while no daemon ran."""
        self.both()
        self.daemon.says("adapter", "delete", "web")
        self.assertIsNone(self.web.link("net0"))
        self.daemon.restart_with(toml(SWITCH))
        self.wait_gone(self.db)

    def test_a_tap_of_others_is_not_deleted(self):
        """One that was there before is used with its own settings, and stays."""
        self.db.ip("tuntap", "add", "dev", "net0", "mode", "tap")
        self.db.up("net0", "10.5.0.2/24", mac="02:00:00:00:00:02")
        done = self.create(self.db, 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("10.0.0.2/24 is not set, since the daemon did not create the interface", done.stderr)
        self.restart()
        self.daemon.says("adapter", "delete", "db")
        self.assertEqual(self.addresses(self.db), {"10.5.0.2/24"})
        # One that took the name of ours while no daemon ran.
        another = self.network.namespace("another")
        self.assertEqual([self.create(self.web, 1).returncode, self.create(another, 3).returncode], [0, 0])
        self.daemon.kill()
        self.web.ip("link", "del", "dev", "net0")
        self.web.ip("tuntap", "add", "dev", "net0", "mode", "tap")
        self.daemon.restart_with(toml(SWITCH))
        self.wait_gone(another)
        self.assertIsNotNone(self.web.link("net0"))

    def test_no_other_process_opens_it(self):
        """Root without capabilities, and other users, cannot open the tap while no daemon runs."""
        self.both()
        self.daemon.kill()
        request = struct.pack("16sH22x", b"net0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)
        code = f"import fcntl; fcntl.ioctl(open('/dev/net/tun', 'r+b', buffering=0), {TUNSETIFF}, {request!r})"
        drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        for user in ("0", "65534", str(2**32 - 3)):
            said = self.db.run("sh", "-c", '"$@" 2>&1 || true', "sh", *drop, "--reuid", user, "python3", "-c", code)
            self.assertIn("Operation not permitted", said, f"user {user}")
        self.db.run("python3", "-c", code)  # an administrator of the namespace may

    def test_the_daemon_starts_whatever_a_container_does(self):
        """An interface that took the name is no reason for the daemon not to serve the others."""
        self.both()
        self.daemon.kill()
        self.db.ip("link", "del", "dev", "net0")
        self.db.ip("link", "add", "net0", "type", "bridge")
        self.daemon.start()
        self.daemon.wait_ready()
        self.assertRegex(self.daemon.says("adapter", "list"), r"(?m)db .* gone$")
        self.assertRegex(self.daemon.says("adapter", "show", "db"), r"gone since .*net0.* is not a tap \(bridge\)")
        self.db.ip("link", "del", "dev", "net0")
        self.db.wait_link("net0")
        self.assertEqual(self.addresses(self.db), {"10.0.0.2/24", "fd00::2/64"})


def toml(document):
    """The document as a configuration file: its tables in lines, for `Managed.restart_with`."""
    lines = []
    for kind in ("nic", "switch", "adapter"):
        for one in document.get(kind, []):
            lines.append(f"[[{kind}]]")
            lines += [f"{name} = {inline(value)}" for name, value in one.items()]
    return "\n".join(lines)


def inline(value):
    """A value in TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {inline(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


if __name__ == "__main__":
    unittest.main()
