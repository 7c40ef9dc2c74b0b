"""SR-IOV NICs of a guest (`kind = "pci"`): igb with real PCI, sysfs and drivers, and netdevsim for what igb has not."""

import errno
import json
import os
import random
import re
import tempfile
import time
import unittest

from daemon import binary
from guest import skip_without_guests
from literal import section
from pages import page
from pci import PID, PROGRAM, RUN_DIR, IgbGuest, NetdevsimGuest
from test_sandbox import CAP_IPC_LOCK, PARTS

MAC = "52:54:00:aa:bb:01"
SEED = int(os.environ.get("SHUNT_E2E_SEED") or random.randrange(1 << 32))
# A life of a NIC: `sh -c CYCLE sh PROGRAM PF`.
CYCLE = """
    run() { "$@" --run-dir /run/shunt; }
    run $1 nic create nic0 --device $2 --num-vfs 3
    for vf in 0 1 2; do run $1 vf set nic0 $vf --vlan 5 --trust on --mac 52:54:00:00:00:0$vf; done
    run $1 nic delete nic0
"""
# What the scripts below may use: `sh -c PRELUDE+SCRIPT sh PF DEVICE`.
PRELUDE = """
    pf=$1 device=$2 igb=/sys/bus/pci/drivers/igb
    vf() { ip link set dev $pf vf "$@"; }
    store() { python3 -BIS -c 'import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY), sys.argv[2].encode())' "$@"; }
    unprivileged() { python3 -BIS -c 'import os, sys; os.setuid(65534); os.execvp(sys.argv[1], sys.argv[1:])' "$@"; }
"""
# Scripts that get an answer of a driver, by setting and error of docs/errors-sriov.md. There are two VFs.
IGB_ANSWERS = {
    ("num_vfs", "EBUSY"): "store $device/sriov_numvfs 3",
    ("num_vfs", "ERANGE"): "store $device/sriov_numvfs 8",
    ("num_vfs", "EACCES"): "unprivileged sh -c 'echo 3 >$0' $device/sriov_numvfs",
    ("mode", "EOPNOTSUPP"): f"{PROGRAM} nic set nic0 --mode switchdev --run-dir {RUN_DIR}",
    ("vlan", "EPROTONOSUPPORT"): "vf 0 vlan 100 proto 802.1ad",
    ("vlan", "EINVAL"): "vf 0 vlan 100 qos 8",
    ("mac", "EINVAL"): "vf 0 mac 01:00:5e:00:00:01",
    ("min_tx_mbps", "EINVAL"): "vf 0 max_tx_rate 50 min_tx_rate 10",
    ("spoof_check", "EINVAL"): "vf 2 spoofchk on",
    ("trust", "EINVAL"): "vf 2 trust on",
    ("link_state", "EOPNOTSUPP"): "vf 0 state disable",
    ("query_rss", "EOPNOTSUPP"): "vf 0 query_rss on",
    ("any", "EPERM"): "unprivileged ip link set dev $pf vf 0 trust on",
    ("any", "ENODEV"): "ip link set dev if999 vf 0 trust on",
    ("any", "EOPNOTSUPP"): "vf 0 node_guid 00:11:22:33:44:55:66:77",
    # The VF's own VLANs fill the card's table.
    ("vlan", "EEXIST"): """
        net=$(ls $device/virtfn0/net)
        ip link set dev $net up
        id=101; while [ $id -lt 140 ] && ip link add link $net name vlan$id type vlan id $id; do id=$((id + 1)); done 2>/dev/null
        vf 1 vlan 200
    """,
    # Afterwards the card has another interface.
    ("num_vfs", "ENOENT"): """
        trap 'store $igb/bind ${device##*/}' EXIT
        store $igb/unbind ${device##*/}
        store $device/sriov_numvfs 2
    """,
}
NETDEVSIM_ANSWERS = {
    ("vlan", "EINVAL"): "vf 0 vlan 100 qos 8",
    ("mac", "EINVAL"): "vf 0 mac 01:00:5e:00:00:01",
    ("min_tx_mbps", "EINVAL"): "vf 3 max_tx_rate 100 min_tx_rate 10 && vf 3 rate 7",
    ("spoof_check", "EINVAL"): "vf 4 spoofchk on",
    ("trust", "EINVAL"): "vf 4 trust on",
    ("link_state", "EINVAL"): "vf 4 state enable",
    ("min_tx_mbps", "EOPNOTSUPP"): "devlink dev eswitch set $device mode switchdev && vf 0 max_tx_rate 100",
    ("mode", "EBUSY"): """
        trap 'devlink port function rate del $device/group; devlink dev eswitch set $device mode legacy' EXIT
        devlink port function rate add $device/group && devlink dev eswitch set $device mode legacy
    """,
}


def example(name):
    """An example program of the workspace, of the debug build beside the program under test, as `cargo test` makes it."""
    path = os.path.join(os.path.dirname(binary()), "..", "debug", "examples", name)
    if not os.path.exists(path):
        raise AssertionError(f"there is no {path}: run cargo build -p shunt-sriov --example {name}")
    return path


class PciBase(unittest.TestCase):
    """One guest for all tests of a class."""

    limit_s = 240
    kind = None

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        cls.run_dir = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        cls.addClassCleanup(cls.run_dir.cleanup)
        cls.guest = cls.kind(cls.run_dir.name, memory_mib=256)
        cls.addClassCleanup(cls.guest.close)
        cls.guest.boot()
        cls.pf = cls.guest.pf()

    def eventually(self, found, expected, timeout=60.0):
        """Waits until a function returns a value."""
        deadline = time.monotonic() + timeout
        while (last := found()) != expected and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(last, expected)

    def set_vf(self, vf, *words):
        """`ip link set ... vf`; how it ended."""
        return self.guest.ask("ip", "link", "set", "dev", self.pf, "vf", str(vf), *words)

    def assert_answers(self, driver, answers, device):
        """The driver gives each answer that docs/errors-sriov.md calls seen with it, and there is a script for each."""
        rows = re.findall(r"^\| (\w+) \| \w+ \| (E\w+) \|.*\| ([^|]+) \|$", page("errors-sriov.md"), re.MULTILINE)
        seen = {(setting, error) for setting, error, drivers in rows if driver in drivers.split(", ")}
        self.assertEqual(set(answers), seen)
        for (setting, error), script in answers.items():
            with self.subTest(f"{setting}: {error}"):
                done = self.guest.ask("sh", "-c", PRELUDE + script, "sh", self.pf, device)
                self.assertNotEqual(done.status, 0, done)
                self.assertIn(os.strerror(getattr(errno, error)), done.err)


class Snapshots(PciBase):
    """What the other tests compare with: a snapshot has all that a release must restore."""

    kind = IgbGuest

    def test_changes_are_seen_and_what_is_random_is_not(self):
        """VFs, their settings and drivers are differences; without them the snapshot is as it was, twice."""
        self.guest.up(self.pf)
        self.guest.wait_link(self.pf, timeout=30, up=True)
        before = self.guest.snapshot()
        for vlan in ("100", "0"):
            self.assertEqual(self.guest.set_numvfs(2).status, 0)
            made = self.guest.snapshot()
            self.assertEqual(self.set_vf(0, "vlan", vlan).status, 0)
            self.assertEqual(self.set_vf(1, "mac", MAC).status, 0)
            self.assertEqual(self.guest.write(f"{self.guest.pci()}/virtfn0/driver_override", "vfio-pci").status, 0)
            seen = self.guest.difference(made, timeout=0)
            self.assertIn('driver_override: "(null)" -> "vfio-pci"', seen)
            self.assertIn(f'vfinfo_list/1/address: "random" -> "{MAC}"', seen)
            self.assertEqual("vfinfo_list/0/vlan_list/0/vlan: none -> 100" in seen, vlan == "100", seen)
            self.assertEqual(self.guest.set_numvfs(0).status, 0)
            self.assertEqual(self.guest.difference(before), "")


class Netdevsim(PciBase):
    """The module built for the guests' kernel: settings that igb refuses, eswitch modes, ports and rates."""

    kind = NetdevsimGuest

    def devlink(self, *words):
        """Output of devlink as JSON, or None."""
        text = self.guest.run("devlink", "-j", *words)
        return json.loads(text) if text.strip() else None

    def test_vfs_and_eswitch(self):
        """A VF's settings are read back; in switchdev mode each VF has a port with a rate object."""
        for words in (["vlan", "100", "qos", "3", "proto", "802.1ad"], ["state", "disable"], ["query_rss", "on"],
                      ["max_tx_rate", "100", "min_tx_rate", "10"], ["trust", "on"], ["mac", MAC]):  # fmt: skip
            self.assertEqual(self.set_vf(0, *words).status, 0, words)
        seen = self.guest.link(self.pf)["vfinfo_list"][0]
        self.assertEqual(seen["vlan_list"], [{"vlan": 100, "protocol": "802.1ad", "qos": 3}])
        self.assertEqual(seen["rate"], {"max_tx": 100, "min_tx": 10})
        self.assertEqual([seen[key] for key in ("address", "link_state", "query_rss_en", "trust")], [MAC, "disable", True, True])
        device = self.guest.device
        self.assertEqual(self.devlink("dev", "eswitch", "show", device), {"dev": {device: {"mode": "legacy"}}})
        self.devlink("dev", "eswitch", "set", device, "mode", "switchdev")
        ports = self.devlink("port", "show")["port"]
        self.assertEqual([port["vfnum"] for port in ports.values() if port["flavour"] == "pcivf"], [0, 1, 2, 3])
        vf = next(name for name, port in ports.items() if port.get("vfnum") == 0)
        self.devlink("port", "function", "rate", "set", vf, "tx_max", "50mbit")
        self.assertEqual(self.devlink("port", "function", "rate", "show", vf)["rate"][vf]["tx_max"], 6250000)
        self.devlink("dev", "eswitch", "set", device, "mode", "legacy")
        self.assertEqual(len(self.devlink("port", "show")["port"]), 1)

    def shown_by_devlink(self):
        """What devlink shows of the device, as the example of crates/sriov does."""
        of = lambda *words: self.devlink(*words) or {}  # noqa: E731
        device = self.guest.device
        ports = {"port": ("flavour", "netdev", "pfnum", "vfnum"), "rate": ("type", "tx_share", "tx_max", "parent")}
        shown = {"port": of("port", "show"), "rate": of("port", "function", "rate", "show")}
        objects = {
            kind: {name.split("/")[-1]: {key: one[key] for key in fields if key in one} for name, one in shown[kind].get(kind, {}).items()}
            for kind, fields in ports.items()
        }
        info, eswitch = of("dev", "info", device)["info"], of("dev", "eswitch", "show", device)["dev"]
        return {"info": info[device], "eswitch": eswitch[device], **objects}

    def test_devlink_is_as_devlink_shows_it(self):
        """Eswitch mode, versions, ports, rates and groups; a change by either is seen by both, and so is an error."""
        program = os.path.join(os.path.dirname(PROGRAM), "devlink-example")
        self.guest.put(program, source=example("devlink"))
        device = self.guest.device

        def ask(*words):
            return self.guest.ask(program, device, *words)

        self.guest.run("devlink", "dev", "eswitch", "set", device, "mode", "legacy")
        changes = [(), ("mode", "switchdev"), ("tx_max", "128", "6250000"), ("tx_share", "129", "1250000"), ("add", "group"),
                   ("tx_max", "group", "12500000"), ("parent", "128", "group"), ("parent", "128"), ("delete", "group"),
                   ("mode", "legacy")]  # fmt: skip
        before = None
        for words in changes:
            done = ask(*words)
            self.assertEqual(done.status, 0, (words, done))
            seen = json.loads(ask().out)
            self.assertNotEqual(seen, before, words)
            self.assertEqual(seen, self.shown_by_devlink(), words)
            before = seen
        for words, theirs in [
            (("mode", "switchdev"), None),
            (("mac", "128", MAC), ["port", "function", "set", f"{device}/128", "hw_addr", MAC]),
            (("active", "128"), ["port", "function", "set", f"{device}/128", "state", "active"]),
            (("add", "group"), None),
            (("parent", "128", "group"), None),
            (("delete", "group"), ["port", "function", "rate", "del", f"{device}/group"]),
            (("mode", "legacy"), ["dev", "eswitch", "set", device, "mode", "legacy"]),
            (("tx_max", "0", "1"), ["port", "function", "rate", "set", f"{device}/0", "tx_max", "8bit"]),
        ]:
            done = ask(*words)
            self.assertEqual(done.status != 0, theirs is not None, (words, done))
            if theirs:
                told = self.guest.ask("devlink", *theirs).err
                for line in told.splitlines():
                    self.assertIn(line.removeprefix("Error: ").removeprefix("kernel answers: ").rstrip("."), done.err)
        for words in (("parent", "128"), ("delete", "group"), ("mode", "legacy")):
            self.assertEqual(ask(*words).status, 0, words)

    def test_answers_are_those_of_the_page(self):
        """What docs/errors-sriov.md calls seen with netdevsim is seen; a rate that is too large is cut."""
        self.assert_answers("netdevsim", NETDEVSIM_ANSWERS, self.guest.device)
        self.assertEqual(self.set_vf(2, "max_tx_rate", "1000000").status, 0)
        self.assertEqual(self.guest.link(self.pf)["vfinfo_list"][2]["rate"]["max_tx"], 1000000 % (1 << 16))


class Managed(PciBase):
    """igb as a NIC of the daemon; after each test it is given back, and all is as it was before."""

    kind = IgbGuest
    limit_s = 3600
    long_tests = ("test_a_hundred_cycles", "test_a_hundred_kills")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.random = random.Random(SEED)
        cls.guest.up(cls.pf)
        cls.guest.wait_link(cls.pf, timeout=30, up=True)
        cls.before = cls.guest.snapshot()
        cls.guest.start_daemon()

    def setUp(self):
        self.create()
        self.addCleanup(self.give_back)

    def create(self):
        """Makes the card a NIC with two VFs."""
        self.guest.says("nic", "create", "nic0", "--device", self.pf, "--num-vfs", "2")

    def give_back(self):
        """Deletes the NIC."""
        self.guest.says("nic", "delete", "nic0")
        self.assert_as_before()

    def assert_as_before(self, *told):
        """All is as it was before Shunt."""
        self.assertEqual(self.guest.difference(self.before), "", told)

    def seen(self, vf=0):
        """A VF as `ip -d -j link` has it."""
        return self.guest.vfs()[vf]

    def vlan(self, vf=0):
        """Its VLAN."""
        return self.seen(vf)["vlan_list"][0].get("vlan", 0)

    def card(self, field):
        """A field of the card as the daemon shows it."""
        nics = json.loads(self.guest.says("nic", "list", "--json"))
        return next(nic for nic in nics if nic["name"] == "nic0")[field]

    def differences(self):
        """Settings that are not as in the document."""
        return self.card("differences")

    def test_each_setting_is_as_ip_says(self):
        """A setting made by shunt is what `ip -d -j link` shows; the others, and the other VF, stay."""
        cases = [
            (["--vlan", "100"], {"vlan_list": [{"vlan": 100}]}),
            (["--vlan", "100", "--qos", "3"], {"vlan_list": [{"vlan": 100, "qos": 3}]}),
            (["--vlan", "none"], {"vlan_list": [{}]}),
            (["--mac", MAC], {"address": MAC}),
            (["--spoof-check", "off"], {"spoofchk": False}),
            (["--spoof-check", "on"], {"spoofchk": True}),
            (["--trust", "on"], {"trust": True}),
            (["--trust", "off"], {"trust": False}),
            (["--max-tx-mbps", "50"], {"tx_rate": 50, "rate": {"max_tx": 50, "min_tx": 0}}),
        ]
        for words, expected in cases:
            with self.subTest(" ".join(words)):
                one, other = self.seen(0), self.seen(1)
                self.guest.says("vf", "set", "nic0", "0", *words)
                self.assertEqual((self.seen(0), self.seen(1)), (one | expected, other))
        self.assertEqual(self.differences(), [])

    def test_a_rejection_changes_nothing(self):
        """What igb rejects is one sentence with the VF, the setting and the error number; nothing has changed."""
        self.guest.says("vf", "set", "nic0", "0", "--vlan", "7", "--mac", MAC)
        before = self.guest.snapshot()
        cases = [
            (["--vlan", "100", "--proto", "802.1ad"], "vlan = 100 proto 802.1ad", "Protocol not supported"),
            (["--min-tx-mbps", "10", "--max-tx-mbps", "50"], "min_tx_mbps = 10", "Invalid argument"),
            (["--max-tx-mbps", "5000"], "max_tx_mbps = 5000", "Invalid argument"),
            (["--trust", "on", "--link-state", "disable"], "link_state = disable", "Operation not supported"),
        ]
        for words, setting, error in cases:
            with self.subTest(" ".join(words)):
                done = self.guest.shunt("vf", "set", "nic0", "0", *words)
                self.assertNotEqual(done.status, 0, done)
                self.assertIn("VF 0", done.err)
                self.assertIn(setting, done.err)
                self.assertIn(error, done.err)
                self.assertEqual(self.guest.difference(before, timeout=0), "")

    def test_answers_are_those_of_the_page(self):
        """What docs/errors-sriov.md calls seen with igb is seen; the NIC is as in the document afterwards."""
        self.assert_answers("igb", IGB_ANSWERS, self.guest.pci())
        self.guest.wait_link(self.pf, timeout=30)
        self.eventually(lambda: len(self.guest.vfs()), 2)
        self.guest.up(self.pf)
        self.guest.wait_link(self.pf, timeout=30, up=True)
        self.eventually(self.differences, [])

    def test_commands_of_the_page(self):
        """The commands of docs/commands.md for cards, one after the other; then all is as before."""
        self.give_back()
        rows = [row.split(" | ") for row in section(page("commands.md"), "Cards").splitlines() if row.startswith("| ")]
        commands = [command for row in rows for command in re.findall(r"`(shunt [^`]+)`", row[-1])]
        self.assertEqual(len(commands), len(rows) - 1)
        for command in commands:
            with self.subTest(command):
                done = self.guest.ask("sh", "-c", command.replace("eth0", self.pf), timeout=60)
                self.assertEqual(done.status, 0, done)
        self.assert_as_before(commands)
        self.create()

    def test_others_change_a_vf(self):
        """`ip link set ... vf` by others is told, and put right only with drift = "repair"."""
        self.guest.says("vf", "set", "nic0", "0", "--vlan", "100")
        self.assertEqual(self.set_vf(0, "vlan", "99").status, 0)
        self.eventually(self.differences, ["VF 0, vlan: 99, not 100"])
        time.sleep(2)
        self.assertEqual(self.vlan(), 99)
        print(f"    seen after {self.times_to_see(10)} ms")
        self.guest.says("nic", "set", "nic0", "--drift", "repair")
        self.eventually(self.vlan, 100)
        self.assertEqual(self.set_vf(0, "trust", "on").status, 0)
        self.eventually(lambda: self.seen()["trust"], False)
        self.assertEqual(self.guest.set_numvfs(0).status, 0)
        self.eventually(lambda: [self.vlan(vf) for vf in range(len(self.guest.vfs()))], [100, 0])
        self.eventually(self.differences, [])

    def times_to_see(self, count):
        """Milliseconds from each of some changes by others to its event, by the guest's clock; in order of size."""
        began = []
        for vlan in range(201, 201 + count):
            script = "import subprocess, sys, time; subprocess.run(sys.argv[1:], check=True); print(time.time_ns())"
            command = ("ip", "link", "set", "dev", self.pf, "vf", "0", "vlan", str(vlan))
            began.append(int(self.guest.run("python3", "-BISc", script, *command)) // 1_000_000)
            self.eventually(self.differences, [f"VF 0, vlan: {vlan}, not 100"])
            time.sleep(self.random.uniform(0, 0.5))
        events = json.loads(self.guest.says("events", "--json"))
        seen = [event["time_ms"] for event in events if event["kind"] == "card" and re.search("vlan: 2[0-9][0-9], not", event["text"])]
        self.assertEqual(len(seen), count)
        return sorted(end - start for start, end in zip(began, seen))

    def test_another_number_of_vfs(self):
        """VFs that stay keep their settings; while one is in another namespace none are removed."""
        self.guest.says("vf", "set", "nic0", "0", "--vlan", "100", "--mac", MAC)
        self.guest.says("nic", "set", "nic0", "--num-vfs", "4")
        self.assertEqual((len(self.guest.vfs()), self.seen()["address"], self.vlan()), (4, MAC, 100))
        self.guest.namespace("owner")
        self.addCleanup(self.guest.ip, "netns", "del", "owner", check=False)
        name = self.guest.run("ls", f"{self.guest.pci()}/virtfn1/net").strip()
        self.guest.ip("link", "set", "dev", name, "netns", "owner")
        before = self.guest.snapshot()
        for words in (["nic", "set", "nic0", "--num-vfs", "2"], ["nic", "delete", "nic0"]):
            done = self.guest.shunt(*words)
            self.assertNotEqual(done.status, 0, done)
            self.assertIn("VF 1", done.err)
            self.assertIn("network namespace", done.err)
            self.assertEqual(self.guest.difference(before, timeout=0), "")
        self.guest.ip("netns", "del", "owner")
        self.eventually(lambda: self.guest.run("ls", f"{self.guest.pci()}/virtfn1/net").strip(), name)

    def test_the_driver_is_reloaded_and_the_card_vanishes(self):
        """Both are told; when the card is back, its VFs are as in the document."""
        self.guest.says("vf", "set", "nic0", "0", "--vlan", "100", "--mac", MAC)
        pci = self.guest.pci()
        address = os.path.basename(pci)
        ends = [("/sys/bus/pci/drivers/igb/unbind", address, "/sys/bus/pci/drivers/igb/bind", address),
                (f"{pci}/remove", "1", "/sys/bus/pci/rescan", "1")]  # fmt: skip
        for gone, text, back, other in ends:
            with self.subTest(gone):
                self.assertEqual(self.guest.write(gone, text).status, 0)
                self.eventually(lambda: self.card("actual_card_interface"), None)
                self.assertEqual(self.guest.write(back, other).status, 0)
                self.guest.wait_link(self.pf, timeout=30)
                self.eventually(lambda: len(self.guest.vfs()), 2)
                self.eventually(lambda: (self.vlan(), self.seen()["address"]), (100, MAC))
                # The driver has made a new interface, which is down.
                self.guest.up(self.pf)
                self.guest.wait_link(self.pf, timeout=30, up=True)

    def test_the_sandbox_is_in_force(self):
        """The daemon that has just made VFs has no rights, and filters of system calls and files; its lanes have more."""
        text = self.guest.run("sh", "-c", f"cat /proc/$(cat {PID})/task/*/status")
        threads = [dict(re.findall(r"^(\w+):\t(.*)$", one, re.MULTILINE)) for one in re.split(r"^(?=Name:)", text, flags=re.MULTILINE)[1:]]
        filters = {thread["Name"]: int(thread["Seccomp_filters"]) for thread in threads}
        self.assertGreater(filters["lane0"], filters["shunt"])
        for thread in threads:
            self.assertEqual(int(thread["CapPrm"], 16) & ~CAP_IPC_LOCK, 0, thread)
            self.assertEqual((thread["NoNewPrivs"], thread["Seccomp"]), ("1", "2"), thread)
        stats = json.loads(self.guest.says("stats", "--json"))
        self.assertEqual((stats["sandbox"], stats["forbidden_calls"]), (PARTS, 0))

    def cycles(self, count):
        """A NIC is made, set and given back, with other numbers and values each time."""
        for number in range(count):
            self.guest.says("nic", "delete", "nic0")
            self.assert_as_before("cycle", number)
            self.create()
            self.guest.says("nic", "set", "nic0", "--num-vfs", str(1 + number % 4))
            words = ["--vlan", str(1 + number), "--mac", f"52:54:00:00:00:{number:02x}", "--trust", "on"]
            self.guest.says("vf", "set", "nic0", str(number % 2 * (number % 4)), *words)
            self.assertEqual(len(self.guest.vfs()), 1 + number % 4)

    def test_a_cycle(self):
        """A release leaves all as it was."""
        self.cycles(1)

    def test_a_hundred_cycles(self):
        """The same, a hundred times."""
        self.cycles(100)

    def kills(self, count):
        """The daemon is killed at random moments of a NIC's life; the next daemon gives the card back."""
        self.guest.says("nic", "delete", "nic0")
        began = time.monotonic()
        self.guest.run("sh", "-c", CYCLE, "sh", PROGRAM, self.pf, timeout=300)
        cycle_s = time.monotonic() - began
        for number in range(count):
            running = self.guest.start("sh", "-c", CYCLE, "sh", PROGRAM, self.pf)
            time.sleep(self.random.uniform(0, cycle_s))
            self.guest.kill_daemon()
            running.kill()
            self.guest.start_daemon()
            deleted = self.guest.shunt("nic", "delete", "nic0")
            self.assert_as_before("kill", number, "seed", SEED, deleted, self.guest.log())
        self.create()

    def test_two_kills(self):
        """Nothing of the card is left changed."""
        self.kills(2)

    def test_a_hundred_kills(self):
        """The same, a hundred times."""
        self.kills(100)
