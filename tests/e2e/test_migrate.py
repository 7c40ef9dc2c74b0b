"""A real Linux guest moves between two daemons while it sends and receives: nothing is lost, and what fails changes nothing."""

import itertools
import json
import os
import time
import unittest

from devices import Intel, Module, Netdev, VirtioNet, VirtioPf
from guest import skip_without_guests
from moving import ADDRESS, MAC, Command, Moves
from tools import wait_ping

RATE = 100
PORTS = itertools.count(7000, 10)
MOVES = 10


class MigrateBase(unittest.TestCase):
    """A guest of its own for each class."""

    limit_s = 600
    options = {}

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        if os.geteuid() != 0:
            raise unittest.SkipTest("namespaces need root")
        cls.moves = Moves(**cls.options)
        cls.addClassCleanup(cls.moves.close)
        cls.moves.start()

    def traffic(self, count=2):
        """Numbered datagrams both ways between the guest and the namespaces of the first hosts, and a connection."""
        guest, peers = self.moves.guest, self.moves.peers[:count]
        port = next(PORTS)

        def command(place, *words):
            made = Command(place, *words)
            self.addCleanup(made.kill)
            return made

        listener = command(peers[0].space, "listen", port)
        receivers = [command(peer.space, "receive", port) for peer in peers]
        # The first program in the guest is not starved by the later ones.
        talker = command(guest, "talk", peers[0].v4, port, 20)
        receivers = [command(guest, "receive", port + n) for n, _ in enumerate(peers)] + receivers
        senders = [command(guest, "send", peer.v4, port, RATE) for peer in peers]
        senders = [command(peer.space, "send", ADDRESS, port + n, RATE) for n, peer in enumerate(peers)] + senders
        return receivers, senders, listener, talker

    def assert_nothing_lost(self, traffic, in_order=True):
        """Ends it all; every number has arrived, once and in order, and the connection lives."""
        receivers, senders, listener, talker = traffic
        sent = [sender.stop()["sent"] for sender in senders]
        answered = talker.stop()
        heard = listener.result()["answered"]
        said = [receiver.stop() for receiver in receivers]
        for count, one in zip(sent, said):
            print(f"     {one['received']} arrived of {count}, {one['lost']} lost, longest gap {one['gap_ms']} ms")
        print(f"     {answered['answered']} questions answered by TCP, the longest after {answered['longest_ms']} ms", flush=True)
        for count, one in zip(sent, said):
            self.assertEqual((one["received"], one["lost"], one["twice"]), (count, 0, 0), one)
            if in_order:
                self.assertEqual(one["late"], 0, one)
        self.assertEqual(heard, answered["answered"])
        self.assertGreater(heard, 10)


class Ten(MigrateBase):
    """Back and forth."""

    def test_ten_times_back_and_forth(self):
        traffic = self.traffic()
        for number in range(MOVES):
            report = self.moves.move()
            self.assertEqual(report["outcome"], "moved")
            here = self.moves.adapter(self.moves.at)
            self.assertEqual((here["path"], here["connected"], here["reason"]), ("vf", True, "Supported"))
            self.assertIsNone(self.moves.adapter(1 - self.moves.at))
            print(
                f"     {number}: total {report['total_ms']} ms, downtime {report['downtime_ms']} ms, "
                f"switch {report['switch_ms']} ms, carried {report['carried']}, lost {report['lost']}"
            )
            self.assertEqual(report["lost"], 0)
        self.assert_nothing_lost(traffic)


class Killed(MigrateBase):
    """The mover is gone, and the guest is at the target all the same."""

    def test_a_move_whose_mover_is_killed_is_finished(self):
        traffic = self.traffic()
        self.moves.kill_mover(self.moves.start_move("--bandwidth-mbps", "8"))
        source, target = self.moves.guest.qmp, self.moves.machine
        # By hand, without moving its addresses.
        source.run("migrate-continue", state="pre-switchover")
        self.moves.wait_migration(None, "completed")
        refused = self.moves.end_by_hand("--abort")
        self.assertEqual(refused.returncode, 2, refused)
        self.assertIn("the guest may be at the target; finish the migration with --finish", refused.stderr)
        done = self.moves.end_by_hand("--finish")
        self.assertEqual(done.returncode, 0, done)
        self.moves.guest.moved(target)
        self.moves.at = 1
        self.assertIsNone(self.moves.adapter(0))
        self.moves.wait_adapter(1, "it is there", lambda one: one["connected"] and one["path"] == "vf")
        # Frames received before its addresses had moved waited at the source, and arrive after later ones.
        self.assert_nothing_lost(traffic, in_order=False)


class Scarce(MigrateBase):
    """The target has one VF, which an adapter of greater weight holds."""

    options = {"vfs": (8, 1)}

    def test_arrives_on_the_switch_and_gets_a_vf_when_one_is_free(self):
        target = self.moves.hosts[1].daemon
        self.moves.hosts[0].daemon.says("adapter", "set", "vm", "--vmq-weight", "0")
        target.says(
            "adapter", "create", "hog", "--switch", "sw0", "--mac", "02:0e:2e:0a:00:02", "--socket", target.path("hog.sock"),
            "--mode", "server", "--iov-weight", "100",
        )  # fmt: skip
        plan = self.moves.command("--dry-run")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertIn("vf -> synthetic (NoFreeVf: ", plan.stdout)
        self.assertIsNone(self.moves.adapter(1), "a plan changes nothing")
        traffic = self.traffic()
        report = self.moves.move()
        adapter = report["plan"]["adapters"][0]
        self.assertEqual((adapter["from"], adapter["to"], adapter["reason"]), ("vf", "synthetic", "NoFreeVf"))
        here = self.moves.adapter(1)
        self.assertEqual((here["path"], here["reason"], here["connected"]), ("synthetic", "NoFreeVf", True))
        target.says("adapter", "delete", "hog")
        self.moves.wait_adapter(1, "it has the VF that is free", lambda one: one["path"] == "vf")
        self.assertEqual(self.moves.adapter(1)["reason"], "Supported")
        self.assert_nothing_lost(traffic)


class Failing(MigrateBase):
    """A failed migration leaves the guest where it is, and frames arrive."""

    def setUp(self):
        self.before = self.moves.hosts[0].daemon.export()

    def assert_is_here(self):
        """The guest is on host 0 as if nothing had been tried."""
        here = self.moves.adapter(0)
        self.assertEqual((here["path"], here["connected"]), ("vf", True))
        self.assertEqual(self.moves.hosts[0].daemon.export(), self.before)
        self.assertEqual(self.moves.guest.qmp.run("query-status")["status"], "running")

    def assert_as_before(self, traffic):
        """The target has nothing of the guest, which runs on at the source and has lost nothing."""
        self.assertIsNone(self.moves.adapter(1))
        self.assert_is_here()
        self.moves.machine.kill()
        self.assert_nothing_lost(traffic)

    def failed(self, process, says):
        """The report of a move that was to fail."""
        code, report, err = self.moves.end_move(process)
        self.assertEqual((code, report.get("outcome")), (1, "rolled-back"), (report, err))
        self.assertIn(says, report["error"])
        return report

    def test_too_slow(self):
        traffic = self.traffic()
        process = self.moves.start_move("--bandwidth-mbps", "8", "--timeout", "4")
        report = self.failed(process, "after 4 s QEMU's migration is still active")
        self.assertEqual(report["steps"][-1]["text"], "the guest continues at the source")
        self.assert_as_before(traffic)

    def test_the_targets_qemu_is_killed(self):
        traffic = self.traffic()
        process = self.moves.start_move("--bandwidth-mbps", "8")
        self.moves.wait_migration(process, "active")
        self.moves.machine.kill()
        self.failed(process, "QEMU's migration is failed")
        self.assertIsNone(self.moves.adapter(1))
        self.assert_is_here()
        self.assert_nothing_lost(traffic)

    def test_the_targets_daemon_is_killed(self):
        traffic = self.traffic(1)  # to and from that host nothing passes meanwhile
        process = self.moves.start_move("--bandwidth-mbps", "8", "--timeout", "6")
        self.moves.wait_migration(process, "active")
        target = self.moves.hosts[1].daemon
        target.kill()
        report = self.failed(process, "after 6 s")
        self.assertIn("it removes the adapter by itself", report["steps"][-1]["text"])
        self.assert_is_here()
        self.moves.machine.kill()
        # It comes back with what it was told to hold, and lets that go.
        target.start()
        target.wait_ready()
        self.moves.peers[1].up()
        self.assertEqual(self.moves.adapter(1)["reason"], "MigrationInProgress")
        body = json.dumps({"id": report["id"], "step": "abort"})
        self.assertEqual(target.ask("/v1/adapters/vm/move", "POST", body=body).status, 200)
        self.assertIsNone(self.moves.adapter(1))
        self.assert_nothing_lost(traffic)

    def test_the_mover_is_killed_and_its_move_aborted(self):
        traffic = self.traffic()
        self.moves.kill_mover(self.moves.start_move("--bandwidth-mbps", "8"))
        self.assertNotEqual(self.moves.guest.qmp.run("query-status")["status"], "running")
        refused = self.moves.end_by_hand("--finish")
        self.assertEqual(refused.returncode, 2, refused)
        self.assertIn("the guest is at the source; end the migration with --abort", refused.stderr)
        done = self.moves.end_by_hand("--abort")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("the guest is running at the source; taken back: vm", done.stdout)
        self.assert_as_before(traffic)

    def test_interrupted(self):
        traffic = self.traffic()
        process = self.moves.start_move("--bandwidth-mbps", "8")
        self.moves.wait_migration(process, "active")
        process.terminate()
        self.failed(process, "interrupted")
        self.assert_as_before(traffic)


class Functions(MigrateBase):
    """A guest that has VFs of its own, which QEMU 11.1 would leave dead."""

    options = {
        "devices": (
            VirtioPf(
                VirtioNet("02:0e:2e:0b:00:00", Netdev("hubport", {"hubid": 7}), id="pf"),
                (VirtioNet("02:0e:2e:0b:00:01", Netdev("hubport", {"hubid": 7})),),
            ),
            Intel("igb", "02:0e:2e:0c:00:00", Netdev("hubport", {"hubid": 8})),
        ),
        "agent": True,
    }

    def numvfs(self, mac, count):
        """Enables so many VFs of the guest's PF with this address."""
        name = self.moves.guest.interface(mac)
        self.moves.guest.ip("link", "set", name, "up")
        path = self.moves.guest.run("sh", "-c", f"ls /sys/class/net/{name}/device/sriov_numvfs /sys/class/net/{name}/device/../sriov_numvfs 2>/dev/null; true")
        self.assertEqual(self.moves.guest.write(path.split()[0], str(count)).status, 0)

    def test_enabled_vfs_are_found_before_anything_moves(self):
        guest = self.moves.guest
        for mac in ("02:0e:2e:0b:00:00", "02:0e:2e:0c:00:00"):
            self.numvfs(mac, 1)
            before = [host.daemon.export() for host in self.moves.hosts]
            for further in ((), ("--dry-run",)):
                done = self.moves.command(*further)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn(" has VFs enabled (", done.stderr + done.stdout)
                self.assertIn("failover", done.stderr + done.stdout)
            self.assertEqual([host.daemon.export() for host in self.moves.hosts], before)
            self.assertEqual(guest.qmp.run("query-migrate").get("status", "none"), "none")
            self.numvfs(mac, 0)
        traffic = self.traffic()
        self.moves.move()
        self.assert_nothing_lost(traffic)
        for mac in ("02:0e:2e:0b:00:00", "02:0e:2e:0c:00:00"):
            self.numvfs(mac, 1)  # which are alive there
            self.numvfs(mac, 0)

    def vfs(self):
        """Number of VFs of each PF of the guest."""
        said = self.moves.guest.run("sh", "-c", "cat /sys/bus/pci/devices/*/sriov_numvfs")
        return [int(number) for number in said.split()]

    def test_the_guests_agent_takes_vfs_away_and_gives_them_back(self):
        guest, moves = self.moves.guest, self.moves
        for mac in ("02:0e:2e:0b:00:00", "02:0e:2e:0c:00:00"):
            self.numvfs(mac, 1)
        running = guest.start("python3", "/inguest/guestagent.py")
        self.addCleanup(running.kill)
        running.wait_said("ready", 90)
        here, there = moves.agent_socket(guest.machine), moves.agent_socket()
        traffic = self.traffic()
        # One that does not move has them again.
        process = moves.start_move("--guest-agent", here, "--to-guest-agent", there, "--bandwidth-mbps", "8", "--timeout", "4")
        code, report, err = moves.end_move(process)
        self.assertEqual((code, report.get("outcome")), (1, "rolled-back"), (report, err))
        self.assertEqual(report["steps"][-1]["text"], "the guest continues at the source")
        self.assertEqual(self.vfs(), [1, 1])
        moves.machine.kill()
        report = moves.move("--guest-agent", here, "--to-guest-agent", moves.agent_socket())
        self.assertEqual([step["step"] for step in report["steps"]][:2], ["inspect", "functions"])
        self.assert_nothing_lost(traffic)
        self.assertEqual(self.vfs(), [1, 1])


class Failover(MigrateBase):
    """A pair: the adapter is the standby, and QEMU takes the primary out and plugs another at the target."""

    options = {
        "features": {"failover": True},
        "devices": (
            Intel("e1000e", MAC, Netdev("hubport", {"hubid": 9}), {"failover_pair_id": "nic"}, id="primary"),
            Module(("net_failover",)),
        ),
    }

    def test_the_primary_is_taken_out_and_plugged_again(self):
        guest, qmp = self.moves.guest, self.moves.guest.qmp
        # Linux hears nothing on the standby while there is a primary, and this one leads nowhere.
        self.assertIn("net_failover", guest.run("ethtool", "-i", self.moves.name))
        events = len(qmp.events)
        self.moves.move()
        self.assertIn("UNPLUG_PRIMARY", [event["event"] for event in qmp.events[events:]])
        devices = [one["name"] for one in guest.qmp.run("qom-list", path="/machine/peripheral")]
        self.assertIn("primary", devices)
        guest.qmp.run("device_del", id="primary")
        guest.qmp.event("DEVICE_DELETED", 60)
        wait_ping(guest, self.moves.peers[1].v4, timeout=40)
        wait_ping(self.moves.peers[0].space, ADDRESS, timeout=40)


class Primaries(MigrateBase):
    """A pair whose primary, e1000e in place of a VF, has the frames: it does not migrate, and the guest does."""

    long_tests = True
    options = {"features": {"failover": True}, "card": True}
    primary = "e1000e,netdev=n1,bus=slot1,romfile="

    def pair(self, command, *more):
        """A command for the pair where the guest is; what it says."""
        daemon = self.moves.hosts[self.moves.at].daemon
        return json.loads(daemon.says("vm", command, "vm", "--qmp", self.moves.guest.machine.qmp_path, "--json", *more))

    def move(self, plugs):
        """A move with or without a primary at the target, whose paths must be right; prints the time line."""
        before = self.pair("status")["frames_to"] == "primary"
        report = self.moves.move(*(("--to-primary", f"vm={self.primary}") if plugs else ()))
        self.assertEqual((report["outcome"], report["error"], report["lost"]), ("moved", None, 0))
        line = [(one["host"], one["path"]) for one in report["time_line"]]
        source = [("source", path) for path in (("vf", "synthetic") if before else ("synthetic",))]
        target = [("target", path) for path in (("synthetic", "vf") if plugs else ("synthetic",))]
        self.assertEqual(line, [*source, ("source", "none"), *target])
        print(f"     {'VF' if before else 'no VF'} -> {'VF' if plugs else 'no VF'}, downtime {report['downtime_ms']} ms: "
              + ", ".join(f"{one['at_ms']} ms {one['host']} {one['path']}" for one in report["time_line"]))  # fmt: skip
        planned = report["plan"]["adapters"][0]
        self.assertEqual(planned["from"], "vf" if before else "synthetic")
        self.assertEqual((planned["to"], planned["reason"]), ("vf", "Supported") if plugs else ("synthetic", "Supported"))
        status = self.pair("status")
        self.assertEqual((status["frames_to"], status["in_use"], status["remedy"]), ("primary" if plugs else "standby", plugs, None))
        here = self.moves.adapter(self.moves.at)
        self.assertEqual((here["path"], here["reason"], here["connected"]), ("synthetic", "Supported", True))
        self.assertIsNone(self.moves.adapter(1 - self.moves.at))
        for peer in self.moves.peers:
            wait_ping(peer.space, ADDRESS, timeout=40)

    def test_with_a_primary_on_both_sides_on_one_and_on_none(self):
        traffic = self.traffic()
        self.pair("attach", "--primary", self.primary)
        for plugs in (True, False, False, True, True):
            self.move(plugs)
        # One that does not arrive has its primary again.
        before = self.moves.hosts[self.moves.at].daemon.export()
        process = self.moves.start_move("--to-primary", f"vm={self.primary}", "--bandwidth-mbps", "8", "--timeout", "4")
        code, report, err = self.moves.end_move(process)
        self.assertEqual((code, report.get("outcome")), (1, "rolled-back"), (report, err))
        self.assertEqual(report["steps"][-1]["text"], "the guest continues at the source")
        self.assertEqual(self.moves.hosts[self.moves.at].daemon.export(), before)
        status = self.pair("status")
        self.assertEqual((status["frames_to"], status["in_use"], status["primary"]), ("primary", True, "primary-vm"))
        self.moves.machine.kill()
        self.assert_alive(traffic)

    def assert_alive(self, traffic):
        """Ends it all: the connection lives, and nothing has come twice. Frames of a path that ends are lost, as with a VF."""
        receivers, senders, listener, talker = traffic
        sent = [sender.stop()["sent"] for sender in senders]
        answered = talker.stop()
        heard = listener.result()["answered"]
        for count, one in zip(sent, [receiver.stop() for receiver in receivers]):
            print(f"     {one['received']} arrived of {count}, {one['lost']} lost, {one['twice']} twice, longest gap {one['gap_ms']} ms")
            self.assertEqual(one["twice"], 0, one)
        print(f"     {answered['answered']} questions answered by TCP, the longest after {answered['longest_ms']} ms", flush=True)
        self.assertEqual(heard, answered["answered"])
        self.assertGreater(heard, 10)


if __name__ == "__main__":
    unittest.main()
