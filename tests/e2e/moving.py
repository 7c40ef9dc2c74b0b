"""Two hosts on a wire, and a real guest that moves between them while it talks.

The wire is a bridge that learns, so an address that has moved without a word is not reached. On each host is a namespace
behind a tap beside the guest's adapter.
"""

import json
import os
import subprocess
import time

from devices import Module, Netdev, Options, RootPort, SerialPort, VhostUser, VirtioNet
from guest import Guest
from hosts import TwoHosts
from qemu import QemuError

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inguest", "numbers.py")
MAC = "02:0e:2e:0a:00:01"
ADDRESS = "10.1.0.99"
VFS = 8


class Command:
    """One of the commands of numbers.py, in a guest or a namespace."""

    def __init__(self, place, *args):
        self.of_guest = hasattr(place, "agent")
        words = [str(word) for word in args]
        if self.of_guest:
            self._running = place.start("python3", "/inguest/numbers.py", *words)
        else:
            self._running = place.start("python3", SCRIPT, *words, stdout=subprocess.PIPE, text=True)
        self._wait_ready()

    def _wait_ready(self):
        if self.of_guest:
            self._running.wait_said("ready", 90)
        elif (line := self._running.stdout.readline()) != "ready\n":
            raise AssertionError(f"numbers.py says {line!r}")

    def result(self, timeout=90):
        """Waits for its end; what it says of itself."""
        if self.of_guest:
            done = self._running.wait(timeout)
            if done.status != 0:
                raise AssertionError(f"numbers.py ended with {done.status}: {done.err[-2000:]}")
            text = done.out
        else:
            text, _ = self._running.communicate(timeout=timeout)
        return json.loads(text.splitlines()[-1])

    def kill(self):
        """Ends it, whatever it has to say."""
        if self._running.poll() is None:
            self._running.kill()

    def stop(self):
        """Ends it; what it says of itself."""
        self._running.terminate()
        return self.result()


def card_netdev(host):
    """QEMU's netdev on the VF of a host's card."""
    socket = {"server": False, "addr.type": "unix", "addr.path": host.daemon.path("vf.sock")}
    return Options(Netdev("stream", socket).words("n1"), ())


class Moves:
    """`hosts`, `peers` (a namespace on each), and `guest`, which is on host `at`. `options`: of the guest's machine.

    With `agent` each machine has the port of QEMU's guest agent, see `agent_socket`. With `card` each host has a second
    NIC "card" on the wire, whose VF is QEMU's netdev n1: an emulated device on it stands for a VF.
    """

    def __init__(self, *, features=None, vfs=(VFS, VFS), devices=(), agent=False, card=False, **options):
        self.both = TwoHosts(uplink={"kind": "packet", "interface": "u0"})
        self.network = self.both.network
        try:
            self.hosts = self.both.hosts
            self.peers = self.both.guests("peer", iov_weight=0)
            self.features = features or {}
            self.further = list(devices)
            self.with_agent = agent
            if card:
                self.with_cards()
            self.both.start()
            for host, count in zip(self.hosts, vfs):
                if count != VFS:
                    host.daemon.says("nic", "set", "nic0", "--num-vfs", "0")
                    if count:
                        host.daemon.says("nic", "set", "nic0", "--num-vfs", str(count))
            self.at = 0
            self.vm = ("--path", "synthetic") if card else ("--iov-weight", "50")
            self.hosts[0].daemon.says(
                "adapter", "create", "vm", "--switch", "sw0", "--mac", MAC, "--socket", self.socket(0), "--mode", "server", *self.vm
            )  # fmt: skip
            self.run_dir = self.network.path("machines")
            os.mkdir(self.run_dir)
            self.guest = None
            self.guest = Guest(self.run_dir, self.devices(0), name="vm", **options)
            self.network.ending.callback(self.guest.close)
            self._count = 0
            self.machine = None  # that it moves to
        except BaseException:
            self.close()
            raise

    def with_cards(self):
        """Puts a card on each host."""
        for host in self.hosts:
            port = f"c{host.number}"
            self.network.veth((host.space, "c0"), (self.both.wire, port), offload=False)
            self.both.wire.ip("link", "set", port, "master", "br0", "up")
            vf = {"name": "vf", "nic": "card", "mac": MAC, "iov_weight": 100, "attachment": f"stream:{host.daemon.path('vf.sock')}"}
            host.further = {"nic": [{"name": "card", "total_vfs": 1, "num_vfs": 1, "uplink": "packet:c0"}], "adapter": [vf]}
        self.further += [RootPort("slot1"), card_netdev, Module(("net_failover", "e1000e"))]

    def socket(self, host):
        """Path of the adapter's socket on a host."""
        return self.hosts[host].daemon.path("vm.sock")

    def devices(self, host):
        """The guest's devices on a host."""
        net = VirtioNet(MAC, VhostUser(self.socket(host)), self.features, id="nic")
        further = [one(self.hosts[host]) if callable(one) else one for one in self.further]
        agent = [SerialPort("org.qemu.guest_agent.0", self.agent_socket(), listens=True)] if self.with_agent else []
        return [net, *further, *agent]

    def agent_socket(self, machine=None):
        """Path of the guest agent's socket of a machine; by default the next one."""
        machines = self.guest._machines if self.guest else []
        number = machines.index(machine) if machine else len(machines)
        return os.path.join(self.run_dir, f"agent-{number}.sock")

    def start(self):
        """Boots the guest on host 0 and gives it its address."""
        self.guest.boot()
        self.name = self.guest.interface(MAC)
        self.guest.up(self.name, f"{ADDRESS}/24")

    def arguments(self, *more, to=None):
        """The words of `shunt migrate` for the next move."""
        to = 1 - self.at if to is None else to
        self._uri = f"unix:{self.run_dir}/migration.{self._count}"
        self._waiting = os.path.join(self.run_dir, f"vm-{len(self.guest._machines)}.qmp")
        return [
            "migrate", self.guest.machine.name, "--from-qmp", self.guest.machine.qmp_path, "--to-qmp", self._waiting, "--uri", self._uri,
            "--to", self.hosts[to].daemon.run_dir, "--socket", f"vm={self.socket(to)}", *more,
        ]  # fmt: skip

    def command(self, *more, timeout=120):
        """Runs `shunt migrate` without a target's QEMU; what `subprocess.run` returns."""
        daemon = self.hosts[self.at].daemon
        argv = [daemon.program, *self.arguments(*more), "--run-dir", daemon.run_dir]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)

    def start_move(self, *more):
        """Starts `shunt migrate` and the target's QEMU, which waits for its socket."""
        daemon = self.hosts[self.at].daemon
        argv = [daemon.program, *self.arguments("--json", *more), "--run-dir", daemon.run_dir]
        self._count += 1
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.network.processes.append(process)
        # Not in a thread of its own, with which it would end.
        try:
            self.machine = self.guest.incoming(self.devices(1 - self.at))
        except QemuError as error:
            process.kill()
            raise AssertionError(f"{error}; shunt migrate says: {process.communicate()}") from None
        return process

    def end_by_hand(self, *words, timeout=120):
        """Runs `shunt migrate` to end a move that its mover did not end; what `subprocess.run` returns."""
        here, there = self.hosts[self.at].daemon, self.hosts[1 - self.at].daemon
        machine = self.guest.machine
        argv = [here.program, "migrate", machine.name, *words, "--from-qmp", machine.qmp_path, "--to", there.run_dir, "--run-dir", here.run_dir]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)

    def kill_mover(self, process):
        """Kills it while QEMU copies memory, and waits until QEMU has stopped the guest and waits for a word of its."""
        self.wait_migration(process, "active")
        process.kill()
        process.communicate()
        self.guest.qmp.run("migrate-set-parameters", **{"max-bandwidth": 1 << 30})
        self.wait_migration(None, "pre-switchover")

    def wait_migration(self, process, status, timeout=60):
        """Waits until QEMU's migration is so, while `process` runs."""
        deadline = time.monotonic() + timeout
        while (now := self.guest.qmp.run("query-migrate").get("status")) != status:
            if process is not None and process.poll() is not None:
                raise AssertionError(f"shunt migrate has ended: {process.communicate()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the migration is {now}, not {status}")
            time.sleep(0.05)

    def end_move(self, process, timeout=180):
        """Waits for the end; exit code, report and what was complained of."""
        out, err = process.communicate(timeout=timeout)
        return process.returncode, json.loads(out) if out.strip() else {}, err

    def move(self, *more):
        """Moves the guest to the other host; the report."""
        code, report, err = self.end_move(self.start_move(*more))
        if code != 0:
            logs = [host.daemon.log()[-3000:] for host in self.hosts]
            raise AssertionError(f"shunt migrate: {code}: {err}\n{json.dumps(report, indent=1)}\n{logs}\n{self.guest.machine.said()}\n{self.machine.said()}")
        self.guest.moved(self.machine)
        self.at = 1 - self.at
        return report

    def adapter(self, host):
        """The guest's adapter in force on a host, or None."""
        return next((one for one in self.hosts[host].actual()["adapters"] if one["name"] == "vm"), None)

    def wait_adapter(self, host, what, true, timeout=10):
        """Waits until the adapter is as it should be."""
        deadline = time.monotonic() + timeout
        while not true(adapter := self.adapter(host)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: {adapter}")
            time.sleep(0.05)

    def close(self):
        """Ends and removes everything."""
        self.both.close()
