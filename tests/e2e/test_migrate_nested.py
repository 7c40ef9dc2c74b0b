"""A VM moves between two servers with an SR-IOV card each, by the commands of docs/commands.md: hyperv-2012's story.

The servers are guests (see `nested`). On the wire, a bridge that learns, are their cards and a peer with a TCP connection to
the VM. Another network, between the servers, has QEMU's stream, and the sockets of daemon and QEMU, passed on as by ssh.
A processor emulated in an emulated one is slow: plugging the VF keeps the VM from answering for a minute or more.
"""

import json
import os
import tempfile
import unittest

from devices import Netdev, VirtioNet
from guest import skip_without_guests
from moving import Command
from nested import ADDRESS, ECHO_PORT, PAIR, PEER, Image, Server, assert_reached
from netns import Network
from pages import fenced
from pci import PROGRAM, RUN_DIR

STREAM_PORT, QMP_PORT, API_PORT = 4444, 4445, 4446
QMP, OTHER = "/run/web.qmp", "/run/other"
SLOW = ("--timeout", "1800", "--start-timeout", "1800", "--verify-timeout", "600", "--primary-timeout", "600")
MOVE_S = 3600
RATE = 2


class Servers:
    """`servers`: both, and `at`, the number of the one that has the VM; `peer`: a namespace on the wire."""

    def __init__(self):
        self.network = Network()
        self.at = 0
        try:
            self.wire, self.peer = self.network.namespace("wire"), self.network.namespace("peer")
            self.wire.silent()
            self.network.veth((self.peer, "e0"), (self.wire, "h2"), offload=False)
            for tap in ("h0", "h1"):
                self.wire.ip("tuntap", "add", "dev", tap, "mode", "tap")
            self.wire.bridge("br0", "h0", "h1", "h2")
            self.peer.up("e0", f"{PEER}/24")
            disk = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
            self.network.ending.callback(disk.cleanup)
            image = Image(disk.name)
            self.servers = [self.server(number, image) for number in (0, 1)]
        except BaseException:
            self.close()
            raise

    def server(self, number, image):
        """A server, not started."""
        tap = Netdev("tap", {"ifname": f"h{number}", "script": "no", "downscript": "no", "vnet_hdr": False})
        socket = {"server": number == 0, "addr.type": "unix", "addr.path": self.network.path("between")}
        between = VirtioNet(mac(number), Netdev("stream", socket), id="between")
        made = Server(
            self.network.run_dir, image, wire=tap, number=number, further=[between], name=f"server{number}",
            within=self.wire.within([]),
        )  # fmt: skip
        self.network.ending.callback(made.close)
        return made

    def start(self):
        """Boots both; their daemons have a VF for a VM each."""
        for number, server in enumerate(self.servers):
            server.boot()
            server.up(server.interface(mac(number)), f"{address(number)}/24")
            server.start_daemon()
            server.set_up_card(adapter=number == self.at)
            server.run("mkdir", OTHER)
            here, there = address(number), address(1 - number)
            words = [f"{here}:{QMP_PORT}", QMP, f"{here}:{API_PORT}", f"{RUN_DIR}/api.sock"]
            words += [f"{OTHER}/web.qmp", f"{there}:{QMP_PORT}", f"{OTHER}/api.sock", f"{there}:{API_PORT}"]
            server.start("python3", "-BIS", "/inguest/forward.py", *words).wait_said("ready", 90)

    def move(self, *more):
        """Moves the VM to the other server; the report."""
        here, to = self.servers[self.at], 1 - self.at
        words = ["migrate", "web", "--from-qmp", QMP, "--to", OTHER, "--to-qmp", f"{OTHER}/web.qmp"]
        words += ["--uri", f"tcp:{address(to)}:{STREAM_PORT}", "--json", *SLOW, *more]
        running = here.start(PROGRAM, *words, "--run-dir", RUN_DIR)
        self.servers[to].start_vm("-incoming", "defer")
        done = running.wait(MOVE_S)
        if done.status != 0:
            raise AssertionError("\n".join([f"shunt migrate: {done}", *(server.told() for server in self.servers)]))
        self.at = to
        return json.loads(done.out)

    def close(self):
        """Ends and removes everything."""
        self.network.close()


def address(number):
    """Address of a server, for the other one."""
    return f"10.2.0.{number + 1}"


def mac(number):
    """MAC address of the interface with that address."""
    return f"02:0e:2f:00:00:{number:02x}"


class TwoServers(unittest.TestCase):
    """The VM of docs/qemu.md, with VF 0 of docs/cards.md on each server that has one."""

    limit_s = 7200
    long_tests = ("test_a_vf_on_both_servers_on_one_and_on_none",)

    def vm(self, command, *more):
        """A command for the pair where the VM is; what it says."""
        return json.loads(self.both.servers[self.both.at].says("vm", command, "web", "--qmp", QMP, "--json", *more))

    def vfs(self, number, count):
        """A server has so many VFs from now on."""
        self.both.servers[number].says("nic", "set", "card0", "--num-vfs", str(count))

    def vf_address(self, number):
        """PCI address of VF 0 of a server."""
        server = self.both.servers[number]
        return os.path.basename(server.run("readlink", f"{server.pci()}/virtfn0").strip())

    def move(self, before, after, reason="Supported"):
        """A move, asking for a VF at the target; the paths are right. Prints the time line."""
        self.assertEqual(self.vm("status")["frames_to"], "primary" if before else "standby")
        report = self.both.move("--to-primary", f"web=vfio-pci,host={self.host},bus=slot1")
        self.assertEqual((report["outcome"], report["error"], report["lost"]), ("moved", None, 0))
        print(f"     {'VF' if before else 'no VF'} -> {'VF' if after else 'no VF'}, downtime {report['downtime_ms']} ms: "
              + ", ".join(f"{one['at_ms']} ms {one['host']} {one['path']}" for one in report["time_line"]), flush=True)  # fmt: skip
        line = [("source", path) for path in (("vf", "synthetic") if before else ("synthetic",))] + [("source", "none")]
        line += [("target", path) for path in (("synthetic", "vf") if after else ("synthetic",))]
        self.assertEqual([(one["host"], one["path"]) for one in report["time_line"]], line)
        planned = report["plan"]["adapters"][0]
        paths = ["vf" if it else "synthetic" for it in (before, after)]
        self.assertEqual([planned["from"], planned["to"], planned["reason"]], [*paths, reason])
        status = self.vm("status")
        self.assertEqual((status["frames_to"], status["in_use"], status["remedy"]), ("primary" if after else "standby", after, None))
        [here] = json.loads(self.both.servers[self.both.at].says("adapter", "list", "--json"))
        self.assertEqual((here["actual_path"], here["actual_reason"]), ("vf" if after else "synthetic", "Supported"))
        self.assertEqual(json.loads(self.both.servers[1 - self.both.at].says("adapter", "list", "--json")), [])
        assert_reached(self.both.peer)

    def test_a_vf_on_both_servers_on_one_and_on_none(self):
        """The VM's connection to a peer lives through all of it."""
        skip_without_guests()
        if os.geteuid() != 0:
            raise unittest.SkipTest("namespaces need root")
        self.both = both = Servers()
        self.addCleanup(both.close)
        both.start()
        self.host = self.vf_address(0)
        self.assertEqual(self.vf_address(1), self.host)
        both.servers[both.at].start_vm("-incoming", "file:/q/vm.state")
        assert_reached(both.peer)
        talker = Command(both.peer, "talk", ADDRESS, ECHO_PORT, RATE, MOVE_S)
        self.addCleanup(talker.kill)
        attach = fenced(PAIR, "sh")[0].splitlines()[0]
        both.servers[both.at].does(f"{attach} --timeout 600", timeout=700)
        assert_reached(both.peer)
        self.move(True, True)
        self.vfs(0, 0)
        self.move(True, False, "VfDisabled")
        self.vfs(1, 0)
        self.move(False, False, "VfDisabled")
        self.vfs(0, 4)
        self.move(False, True)
        answered = talker.stop()
        print(f"     {answered['answered']} questions answered by TCP, the longest after {answered['longest_ms']} ms, "
              f"asked at {answered['longest_at_ms']} ms", flush=True)  # fmt: skip
        self.assertGreater(answered["answered"], 10)


if __name__ == "__main__":
    unittest.main()
