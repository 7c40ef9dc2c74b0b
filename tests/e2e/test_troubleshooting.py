"""docs/troubleshooting.md: each symptom is made, and the command of the page shows what the page says."""

import re
import socket

from pages import blocks, page
from test_service import Installed

PAGE = "troubleshooting.md"
MACS = {"web": "02:00:00:00:00:01", "a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}


class Symptoms(Installed):
    """The service of docs/service.md, and two namespaces `a` and `b` behind taps."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for number, name in enumerate("ab", 1):
            cls.host.run(
                f"ip netns add {name}; shunt adapter create {name} --switch sw0 --mac {MACS[name]} --attachment tap:e0 --attachment-set netns={name};"
                f"ip -n {name} address add 10.1.0.{number}/24 dev e0; ip -n {name} link set e0 up"
            )
        cls.page = page(PAGE)

    def setUp(self):
        self.assertEqual(self.lost(), 0, "the two namespaces reach each other")

    def lost(self):
        """Pings of five that are lost from `a` to `b`, of which the first ones look for a route."""
        said = self.host.ask("ip netns exec a ping -c 5 -i 0.2 -W 1 10.1.0.2").stdout
        received = int(re.search(r"(\d+) received", said)[1])
        return 0 if received >= 3 else 5 - received

    def shows(self, command, text, status=None):
        """Checks that the page has this text, and that the command prints it."""
        self.assertIn(text, self.page)
        done = self.host.ask(command)
        self.assertIn(text, done.stdout + done.stderr)
        if status is not None:
            self.assertEqual(done.returncode, status)

    def row(self, name):
        """Row of an adapter in `shunt adapter list`, as columns."""
        lines = self.host.run("shunt adapter list").splitlines()
        return next(re.split(r"  +", line) for line in lines if line.startswith(f"{name} "))

    def log(self):
        """Log of the service."""
        return self.host.run("journalctl -u shunt --no-pager")

    def remedy(self, command, **names):
        """A command of the page, with these names in place of its own."""
        self.assertIn(f"`{command}`", self.page)
        for old, new in names.items():
            command = command.replace(old, new)
        self.host.run(command)

    def test_no_daemon(self):
        """Without a daemon, for another user, and with another run directory."""
        self.shows("setpriv --reuid 65534 --clear-groups shunt adapter list", "no daemon of this user runs", 1)
        for other in ("shunt adapter list --run-dir /run/other", "SHUNT_RUN_DIR=/run/other shunt adapter list"):
            self.shows(other, "does not run", 1)
        self.host.run("systemctl stop shunt")
        self.shows("shunt adapter list", "no daemon of this user runs", 1)
        self.remedy("systemctl start shunt")
        self.host.run("ip -n a address replace 10.1.0.1/24 dev e0; ip -n b address replace 10.1.0.2/24 dev e0; ip -n a link set e0 up; ip -n b link set e0 up")

    def test_no_start(self):
        """Each reason for which the daemon does not start."""
        up = "shunt up --config broken.toml"
        for text, message in (("lane = 1", "unknown field"), ('run_dir = "/run/shunt"', "is in use by another daemon"), ('run_dir = "/proc/x/y"', "cannot create run_dir")):
            self.host.run(f"echo '{text}' >broken.toml")
            self.shows(up, message)

    def test_stored_state(self):
        """A file with other objects is overridden, and the page's command shows the difference."""
        (command, *_) = blocks(PAGE, "sh")
        self.host.run("cp /etc/shunt/shunt.toml good.toml; printf '[[nic]]\\nname = \"other\"\\nkind = \"soft\"\\ntotal_vfs = 1\\n' >>/etc/shunt/shunt.toml")
        try:
            self.host.run("systemctl restart shunt")
            self.shows("journalctl -u shunt --no-pager", "the stored state is in force")
            self.assertIn("version = 1", self.host.run("sed -i '1i version = 1' /etc/shunt/shunt.toml; head -n 1 /etc/shunt/shunt.toml"))
            self.assertIn("other", self.host.run(command))
        finally:
            self.host.run("cp good.toml /etc/shunt/shunt.toml; systemctl restart shunt")
            self.host.run("ip -n a address replace 10.1.0.1/24 dev e0; ip -n b address replace 10.1.0.2/24 dev e0; ip -n a link set e0 up; ip -n b link set e0 up")

    def test_guests(self):
        """Guests that are absent, and links that are down."""
        self.assertEqual(self.row("web")[-1], "absent")
        self.host.run("shunt adapter set a --link-state disable")
        self.assertEqual(self.row("a")[-2], "down")
        self.remedy("shunt adapter set web --link-state auto", web="a")
        self.addCleanup(self.host.run, "shunt nic set nic0 --uplink none")
        self.host.run("shunt nic set nic0 --uplink xdp:missing")
        self.host.wait_until(lambda: [self.row(name)[-2] for name in "ab"] == ["down", "down"], "the links")
        self.shows("shunt nic list", "gone")
        self.assertIn("no interface", self.host.run("shunt nic show nic0"))
        self.host.run("shunt nic set nic0 --uplink none")
        self.host.wait_until(lambda: self.row("a")[-2] == "up", "the link")

    def test_vlan(self):
        """Ends in different VLANs do not reach each other."""
        self.host.run("shunt adapter set a --vlan 7")
        self.assertGreater(self.lost(), 0)
        self.assertIn("7", self.row("a"))
        self.remedy("shunt adapter set web --vlan 0", web="a")

    def test_drops(self):
        """Counters of frames with another address, denied by a rule, or without a receiver."""
        change = "ip -n a link set e0 down; ip -n a link set e0 address {}; ip -n a link set e0 up"
        self.host.run(change.format("02:00:00:00:00:0c"))
        self.assertGreater(self.lost(), 0)
        self.shows("shunt stats", "tx_switch_mac_limit")
        self.host.run("shunt adapter set a --iov-weight 100")
        self.assertGreater(self.lost(), 0)
        self.shows("shunt stats", "tx_spoofed_mac")
        self.host.run("shunt adapter set a --iov-weight 0")
        self.host.run(change.format(MACS["a"]))
        self.assertEqual(self.lost(), 0)
        self.host.run("shunt switch acl sw0 a --add 'deny protocol=icmp'")
        self.assertGreater(self.lost(), 0)
        self.shows("shunt stats", "tx_switch_acl_deny")
        self.assertRegex(self.host.run("shunt switch acl sw0 a"), r"deny .* [1-9]\d*\n")
        self.remedy("shunt switch acl sw0 web --remove 1", web="a")
        self.shows("shunt stats", "rx_down")
        self.host.run("ip -n b link set e0 down; ip -n a neighbour replace 10.1.0.2 lladdr 02:00:00:00:00:0b dev e0")
        self.assertGreater(self.lost(), 0)
        self.shows("shunt stats", "rx_no_buffer")
        self.host.run("ip -n b link set e0 up")
        self.assertIn("cause", self.host.run("shunt explain tx_spoofed_mac"))

    def test_vfs(self):
        """Reasons for which an adapter has no VF."""
        self.assertIn("WeightZero", self.row("a"))
        self.host.run("shunt adapter set a --path vf")
        self.assertIn("WeightZero", self.row("a"))
        self.remedy("shunt adapter set web --iov-weight 100", web="a")
        self.assertTrue(self.row("a")[5].startswith("vf "), self.row("a"))
        self.host.run("shunt nic set nic0 --num-vfs 0")
        self.assertIn("VfDisabled", self.row("a"))
        self.remedy("shunt nic set nic0 --num-vfs 4")
        self.host.run("shunt switch acl sw0 a --add 'count protocol=icmp'")
        self.assertIn("PortPolicy", self.row("a"))
        self.host.run("shunt switch acl sw0 a --clear; shunt nic set nic0 --num-vfs 0; shunt nic set nic0 --num-vfs 1; shunt adapter set b --iov-weight 50")
        self.assertIn("NoFreeVf", self.row("b"))
        self.host.run("shunt nic create nic1 --total-vfs 1; shunt switch create sw1 --nic nic1")
        self.addCleanup(self.host.run, "shunt adapter delete c; shunt switch delete sw1; shunt nic delete nic1")
        self.host.run("shunt adapter create c --switch sw1 --mac 02:00:00:00:00:0d --socket /run/shunt/c.sock --iov-weight 9")
        self.assertIn("SwitchNotIov", self.row("c"))
        for code in ("WeightZero", "NoFreeVf", "VfDisabled", "SwitchNotIov", "PortPolicy"):
            self.assertIn(f"| `{code}` |", self.page)
        self.host.run("shunt adapter set a --iov-weight 0; shunt adapter set b --iov-weight 0; shunt nic set nic0 --num-vfs 0; shunt nic set nic0 --num-vfs 4")

    def test_refused(self):
        """Refused settings: exit code 2, and the message of the page."""
        create = "shunt adapter create new --switch sw0 --mac"
        self.shows("shunt nic set nic0 --num-vfs 3", "cannot change while 4 VFs are enabled", 2)
        self.shows(f"{create} {MACS['a']} --socket /run/shunt/new.sock", "is in this VLAN the address of adapter", 2)
        self.shows("shunt switch delete sw0", "still has adapters", 2)
        self.shows(f"{create} 02:00:00:00:00:0e --attachment tap:lo", "exists and is not a tap", 2)
        self.shows("shunt adapter set a --mirror-file /var/tmp/a.pcapng", "Read-only file system", 2)

    def test_front_ends(self):
        """A second front-end, and one of another user."""
        path = self.host.path("run/shunt/web.sock")
        with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
            first.connect(path)
            self.host.wait_until(lambda: "nic0/web: front-end connected" in self.log(), "the first")
            second.connect(path)
            self.host.wait_until(lambda: "a second front-end was rejected" in self.log(), "the second")
        self.assertIn("a second front-end was rejected", self.page)
        as_other = "setpriv --reuid 65534 --clear-groups python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"/run/shunt/web.sock\")'"
        self.shows(as_other, "Permission denied")

    def test_other_blocks(self):
        """Every block of commands of the page runs."""
        _, look, trace, slow, report = blocks(PAGE, "sh")
        for script in (look, trace, slow, report):
            self.host.run(script)
        self.assertIn("busy % of polls", self.host.run(slow))
