"""`shunt conform --nic` on the VFs of a card: igb in a guest, whose other interface is the wire."""

import errno
import json
import os
import re
import signal
import time

from pci import PROGRAM, RUN_DIR, WIRE_MAC, IgbGuest
from test_pci import PciBase

# What the tests say of QEMU's igb: result, a part of the observation, and tests.
RESULTS = (
    ("pass", "", """late-release-spares-new-owner no-two-vfs-with-one-mac vf-returned-after-its-user-died vlan-gone-after-release
        all-vfs-or-a-reason settings-need-no-restart unsupported-options-refused out-of-range-refused vlan-qos-enforced
        all-multicast-not-ignored vfs-are-named-after-their-nic mac-is-there-before-up"""),
    ("not-enforced", "igb reports spoof_check in force", """defaults-after-release old-mac-gone-after-release
        wrong-spoof-check-word-refused mac-spoof-check-enforced vlan-spoof-check-enforced"""),
    ("not-enforced", "igb reports max_tx_mbps in force", "max-tx-rate-enforced"),
    ("fail", "ff:ff:ff:ff:ff:ff) arrived at a untagged", "access-vlan-per-vf"),
    ("fail", "the counters are (0, 0)", "counters-while-a-guest-has-the-vf"),
    ("n/a", "refuses min_tx_mbps = ", "min-tx-rate-alone-keeps-max max-tx-rate-alone-keeps-min min-above-max-refused"),
    ("n/a", "refuses vlan = 20 proto 802.1ad", "vlan-proto-enforced"),
    ("n/a", "refuses link_state = disable", "link-state-disable-enforced"),
    ("n/a", "promiscuous: true cannot be set on a card", "promiscuous-needs-trust promiscuous-vf-hears-unknown-macs"),
    ("n/a", "trunks of a VF", "trunk-per-vf vlan-zero-keeps-the-trunk"),
    ("n/a", "further addresses of a VF", "further-macs-need-no-trust"),
    ("n/a", "would restart the daemon", """late-release-after-restart mac-unique-after-restart unclean-teardown-resets-the-vf
        guests-return-after-the-manager guests-return-before-the-manager capacity-right-after-restart
        no-false-shortage-after-restart no-stale-ports-after-restart vf-numbers-last no-two-guests-read-one-mac"""),
    ("n/a", "are VFs with settings, not adapters", """no-vf-leaks num-vfs-changes-through-zero vfs-of-two-kinds-of-guests-talk
        path-flapping-is-bounded"""),
    ("n/a", "adapters of a switch on a card", """vf-and-switch-port-on-one-pf-talk bridge-behind-the-pf-is-reached
        added-macs-behind-pf-are-reached switch-clients-reach-vf-peers properties-on-every-adapter
        nobody-loses-a-vf-without-cause no-frame-lost-on-a-path-change first-frame-of-a-flow-arrives
        broadcasts-arrive-once-on-each-path"""),
    ("n/a", "representors of a card", "switchdev-back-to-legacy switchdev-with-vfs-present representor-names-last"),
    ("n/a", "numbers in a reboot only", "iommu-group-changes-do-not-matter"),
    ("n/a", "number of VFs is the card's", "total-vfs-needs-no-reboot"),
    ("n/a", "uplink of a card is its port", "link-state-enable-enforced pf-need-not-be-up-first"),
    ("n/a", "does not cut the wire", "link-state-auto-follows-the-uplink"),
    ("n/a", "a card is hardware", "no-hardware-needed"),
    ("n/a", "needs two machines", "vf-back-after-migration vf-state-migrates"),
)


def anonymised(text):
    """Without the last three bytes of MAC addresses."""
    return re.sub(r"\b([0-9a-f]{2}(:[0-9a-f]{2}){2})(:[0-9a-f]{2}){3}\b", r"\1:xx:xx:xx", text)


class Conform(PciBase):
    """One guest with a NIC of kind pci; after each test the machine and the document are as before."""

    long_tests = ("test_interrupted_and_killed", "test_results", "test_without_a_wire")
    maxDiff = None
    kind = IgbGuest

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wire = cls.guest.interface(WIRE_MAC)
        for name in (cls.pf, cls.wire):
            cls.guest.up(name)
            cls.guest.wait_link(name, timeout=30, up=True)
        cls.guest.start_daemon()
        cls.guest.says("nic", "create", "card0", "--device", cls.pf, "--num-vfs", "2")

    def setUp(self):
        self.before = self.state()
        self.addCleanup(self.assert_as_before)

    def state(self):
        """Document, and machine."""
        return self.guest.says("export", "--json"), self.guest.snapshot()

    def assert_as_before(self):
        """Nothing of a run is left."""
        document, machine = self.before
        self.assertEqual(self.guest.says("export", "--json"), document)
        self.assertEqual(self.guest.difference(machine), "")
        self.assertEqual(self.guest.run("ls", RUN_DIR).count("conform-"), 0)

    def conform(self, *words):
        """The words of a run."""
        return ["conform", "--nic", "card0", "--wire", self.wire, *words]

    def test_results(self):
        """Each entry has exactly this result; what QEMU's igb does not enforce is told."""
        done = self.guest.shunt(*self.conform("--json"), timeout=220)
        self.assertEqual(done.status, 1, done.err)
        report = {test["name"]: test for test in json.loads(done.out)["tests"]}
        expected = {name: row for row in RESULTS for name in row[2].split()}
        self.assertEqual(sorted(report), sorted(expected))
        for name, (result, text, _) in expected.items():
            with self.subTest(name):
                self.assertEqual(report[name]["result"], result, report[name]["detail"])
                self.assertIn(text, report[name]["detail"])
        self.assert_reported(done.out)

    def assert_reported(self, results):
        """A report has the card, these results with the driver's error numbers, and nothing that tells whose machine it is."""
        self.guest.run("hostname", "host-name-of-a-user")
        self.guest.put("/tests.json", data=results.encode())
        for _ in range(20):  # links of the card come back after the run
            text = self.guest.run(PROGRAM, "doctor", "--report", "-", "--conform", "/tests.json")
            report = json.loads(text)
            shown = json.loads(anonymised(self.guest.says("nic", "show", self.pf, "--json")))["facts"]
            pf = next(nic for nic in report["pci"]["nics"] if nic["address"] == os.path.basename(self.guest.pci()))
            if pf == shown:
                break
            time.sleep(0.5)
        self.assertEqual(pf, shown)
        self.assertEqual(report["conform"], json.loads(anonymised(results)))
        self.assertEqual(report["conform"]["nic"], f"card {os.path.basename(self.guest.pci())}")
        refused = {}
        for test in report["conform"]["tests"]:
            for setting, error in re.findall(r"refuses (?:min_tx_mbps = 0, )?(\w+) = .*\(os error (\d+)\)", test["detail"]):
                refused[setting] = int(error)
        self.assertEqual(refused, {"min_tx_mbps": errno.EINVAL, "vlan": errno.EPROTONOSUPPORT, "link_state": errno.EOPNOTSUPP})
        for link in json.loads(self.guest.ip("-j", "link")):
            self.assertTrue(link["ifname"] == "lo" or link["address"] not in text, link)
        self.assertNotIn("host-name-of-a-user", text)

    def test_without_a_wire(self):
        """Tests of the wire are n/a, and settings that are not enforced do not change the exit code."""
        done = self.guest.shunt("conform", "--nic", "card0", "--json", "vlan-gone", "mac-spoof", timeout=100)
        self.assertEqual(done.status, 0, done.err)
        results = [(test["result"], "with --wire" in test["detail"]) for test in json.loads(done.out)["tests"]]
        self.assertEqual(results, [("n/a", True), ("not-enforced", False)])

    def test_interrupted_and_killed(self):
        """A signal ends a run in order; what a killed run left is restored by the next."""
        run = self.begin()
        run.kill(signal.SIGINT)
        self.assertNotEqual(run.wait(60).status, 0)
        self.assertIn("interrupted after", run.done.err)
        self.assert_as_before()
        run = self.begin()
        run.kill(signal.SIGKILL)
        run.wait()
        self.assertNotEqual(self.guest.says("export", "--json"), self.before[0])
        done = self.guest.shunt(*self.conform("named-after"))
        self.assertEqual((done.status, done.out.splitlines()[-1:]), (0, ["1 pass, 0 fail, 0 n/a"]), done)

    def begin(self):
        """A run whose first test has its guests."""
        run = self.guest.start(PROGRAM, *self.conform("--run-dir", RUN_DIR))
        function = f"{self.guest.pci()}/virtfn1/net"
        deadline = time.monotonic() + 60
        while self.guest.ask("ls", function).out.strip():
            self.assertIsNone(run.poll(), run.done)
            self.assertLess(time.monotonic(), deadline, "no guest on VF 1")
            time.sleep(0.05)
        return run

    def test_refusals(self):
        """A NIC in use, and a wire that is not the card's, are refused before anything is changed."""
        name = self.guest.run("ls", f"{self.guest.pci()}/virtfn1/net").strip()
        self.guest.namespace("owner")
        self.addCleanup(self.guest.ip, "netns", "del", "owner", check=False)
        cases = [
            (["vf", "set", "card0", "0", "--vlan", "5"], ["vf", "reset", "card0", "0"], "it has settings"),
            (["switch", "create", "sw0", "--nic", "card0"], ["switch", "delete", "sw0"], "switch"),
        ]
        for there, back, text in cases:
            self.guest.says(*there)
            self.assert_refused(text, "card0", self.wire)
            self.guest.says(*back)
        self.guest.up(name)
        self.assert_refused(f"its interface {name} is up", "card0", self.wire)
        self.guest.ip("link", "set", "dev", name, "down")
        self.guest.ip("link", "set", "dev", name, "netns", "owner")
        self.assert_refused("not in this network namespace", "card0", self.wire)
        self.guest.ip("netns", "exec", "owner", "ip", "link", "set", "dev", name, "netns", "1")
        self.assert_refused("do not arrive at", "card0", "lo")
        self.assert_refused("does not exist", "card1", self.wire)

    def assert_refused(self, text, nic, wire):
        """The command ends with this error."""
        done = self.guest.shunt("conform", "--nic", nic, "--wire", wire)
        self.assertNotEqual(done.status, 0, done)
        self.assertIn(text, done.err)
