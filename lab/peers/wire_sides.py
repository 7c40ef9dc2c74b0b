"""The sides of `wire`: a veth pair, a switch whose uplink is one end of it by AF_XDP, and a guest over vhost-user.

The other end of the pair is the wire: `flood.py` sends there, and a program throws away what comes out. What the kernel
has to do at either end of the wire is done by threads of its own on the guest's CPU (threaded NAPI), as a network card
does it beside the switch's CPU.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile

from bpf import SCHED_CLS, insn, load, pin
from cputime import polling_ticks
from daemon import Daemon, Vf, config_text
from netns import call
from testpmd import Guest, Process, VirtioUser, command_line

HERE = os.path.dirname(os.path.abspath(__file__))
MAC = "02:00:00:00:00:01"
FAR_MAC = "02:00:00:00:00:99"
UPLINK, WIRE = "up", "wire"  # with the side's letter: threads of the kernel bear the interface's name only


class Side:
    """Namespaces `host` and `wire`, the switch in the first, a guest."""

    name = ""
    letter = ""

    def __init__(self, network, args):
        self.args = args
        self.host = network.namespace(f"{self.name}-host")
        self.wire = network.namespace(f"{self.name}-wire")
        self.network = network
        self.uplink, self.far = UPLINK + self.letter, WIRE + self.letter
        self.run_dir = network.path(self.name)
        self.socket = os.path.join(self.run_dir, "vf0.sock")
        self.guest = None

    def start(self):
        """Starts switch and guest, and waits until both are up."""
        os.mkdir(self.run_dir)
        self.network.veth((self.host, self.uplink), (self.wire, self.far), offload=False)
        self._sink()
        self.guest = Guest([VirtioUser(self.socket, MAC)], cpu=self.args.guest_cpu, run_dir=self.run_dir, hugepages=True)
        self.network.ending.callback(self.guest.close)
        self.make()
        self.network.ending.callback(self.resume)  # before anything is ended: what is stopped cannot end
        self.guest.wait_ready(timeout=30)
        self.guest.command(f"set eth-peer 0 {FAR_MAC}")
        self.ready()
        for space, interface in ((self.host, self.uplink), (self.wire, self.far)):
            self._own_thread(space, interface)

    def _sink(self):
        """Whatever comes out of the wire ends there, as early as it can."""
        self.wire.ethtool(self.far, gro=True)  # else there is no NAPI, and the sender's CPU would do this too
        place = tempfile.mkdtemp(prefix="bpf-", dir=self.run_dir)
        call(["mount", "-t", "bpf", "bpf", place])
        try:
            program = load([insn(0xB7, 0, imm=2), insn(0x95)], SCHED_CLS)  # TC_ACT_SHOT
            pin(program, f"{place}/drop")
            os.close(program)
            self.wire.run("tc", "qdisc", "add", "dev", self.far, "clsact")
            self.wire.run("tc", "filter", "add", "dev", self.far, "ingress", "bpf", "direct-action",
                          "object-pinned", f"{place}/drop")  # fmt: skip
        finally:
            call(["umount", place])

    def _own_thread(self, space, interface):
        """The kernel polls an interface by a thread on the guest's CPU, which goes before the guest."""
        space.run("sh", "-c", f"echo 1 >/sys/class/net/{interface}/threaded")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    mine = file.read().startswith(f"napi/{interface}-")
            except OSError:
                continue
            if mine:
                os.sched_setaffinity(int(pid), [self.args.guest_cpu])
                os.sched_setscheduler(int(pid), os.SCHED_FIFO, os.sched_param(2))

    def make(self):
        """Starts the switch."""
        raise NotImplementedError

    def ready(self):
        """Waits until it forwards."""
        raise NotImplementedError

    def switch_pid(self):
        """The process with the polling thread."""
        raise NotImplementedError

    def pids(self):
        """All processes, the polling thread's first."""
        return [self.switch_pid(), *([self.guest.process.pid] if self.guest else [])]

    def pause(self):
        """Stops switch and guest."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def resume(self):
        """Lets them go on."""
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)

    def ticks(self):
        """(user, kernel) clock ticks of the polling thread."""
        return polling_ticks(self.switch_pid())

    def flood(self, size, rate):
        """Starts a generator at the wire."""
        argv = [sys.executable, os.path.join(HERE, "flood.py"), self.far, MAC, str(size), str(self.args.guest_cpu)]
        return self.wire.start(*argv, str(rate), stdout=subprocess.DEVNULL)

    def far_counters(self):
        """(frames sent by the generator, frames that came out of the wire)."""
        counters = self.wire.link(self.far)["stats64"]
        return counters["tx"]["packets"], counters["rx"]["packets"]


class Dpdk(Side):
    """testpmd with net_af_xdp and a vhost port, forwarding between them as they are (`io`)."""

    name = "dpdk"
    letter = "d"
    switch = None

    def make(self):
        vdevs = [f"net_af_xdp0,iface={self.uplink}{self.args.af_xdp}", f"net_vhost0,iface={self.socket},client=1"]
        argv = command_line(vdevs, cpu=self.args.switch_cpu, prefix="switch", hugepages=True,
                            args=["--record-core-cycles"])  # fmt: skip
        self.switch = Process(self.host.within(argv), self.run_dir)
        self.network.ending.callback(self.switch.close)

    def ready(self):
        self.switch.wait_ready(30)
        self.switch.command("start")

    def switch_pid(self):
        return self.switch.process.pid

    def clear(self):
        """Counts from here on."""
        self.switch.command("clear fwd stats all")

    def counters(self):
        """(frames received, cycles of the turns that received some) since `clear`."""
        text = self.switch.command("show fwd stats all")
        found = re.search(r"total cycles=(\d+) / total io packets=(\d+)", text)
        return (int(found[2]), int(found[1])) if found else (0, 0)


class Shunt(Side):
    """The daemon: a soft NIC with an AF_XDP uplink and one VF, classified by MAC, with spoof check."""

    name = "shunt"
    letter = "s"
    switch = None
    _cleared = (0, 0)

    def make(self):
        text = config_text(self.run_dir, [Vf(MAC, self.socket)], self.args.switch_cpu)
        text = text.replace("[lanes]", "[lanes]\npoll_us = 1000000")  # like testpmd: it never sleeps
        uplink = f'kind = "soft"\nuplink = {self.args.uplink % self.uplink}'
        self.switch = Daemon(self.run_dir, [], cpu=self.args.switch_cpu, config=text.replace('kind = "soft"', uplink))
        self.switch.within = self.host.within([])
        self.network.ending.callback(self.switch.close)
        self.switch.start()

    def ready(self):
        self.switch.wait_ready()

    def switch_pid(self):
        return self.switch.pids()[0]

    def _lanes(self):
        lanes = self.switch.stats()["lanes"]
        return sum(lane["frames"] for lane in lanes), sum(lane["busy_cycles"] for lane in lanes)

    def clear(self):
        """Counts from here on."""
        self._cleared = self._lanes()

    def counters(self):
        """(frames received, cycles of the turns that received some) since `clear`."""
        frames, cycles = self._lanes()
        return frames - self._cleared[0], cycles - self._cleared[1]


SIDES = {"dpdk": Dpdk, "shunt": Shunt}
