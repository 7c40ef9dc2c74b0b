"""One side of the comparison: a switch, its guest, and their directory.

Both sides live at the same time, but only one runs: the processes of the other are stopped (SIGSTOP), every
one of them by its id. A stopped side costs no CPU time and answers nothing, so whatever asks it something
does so within `running`. Neither switch minds: their connections are local sockets, which are not probed.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time

from daemon import Daemon, Vf
from host import Load, own_first, put_first
from ovs import Ovs
from rules import switch_config
from testpmd import Guest, VirtioUser

NAMES = ["ovs", "shunt"]
MACS = ["02:00:00:00:00:01", "02:00:00:00:00:02"]
SOCKETS = ["vf0.sock", "vf1.sock"]
FCS_BYTES = 4  # on the wire, never in memory


class ContenderError(Exception):
    """A process could not be stopped, or no frame passed."""


class Shunt(Daemon):
    """The daemon with the counters the comparison asks for."""

    def __init__(self, run_dir, *, cpu, rules):
        vfs = [Vf(mac, socket) for mac, socket in zip(MACS, SOCKETS)]
        config = switch_config(run_dir, vfs, cpu) if rules else None
        super().__init__(run_dir, vfs, cpu=cpu, config=config)
        self._cleared = (0, 0)

    def _lanes(self):
        lanes = self.stats()["lanes"]
        return sum(lane["frames"] for lane in lanes), sum(lane["busy_cycles"] for lane in lanes)

    def clear(self):
        """Counts from here on."""
        self._cleared = self._lanes()

    def counters(self):
        """(frames, busy cycles) since `clear`."""
        frames, cycles = self._lanes()
        return frames - self._cleared[0], cycles - self._cleared[1]


class Contender:
    """A switch and its guest. Close it, whatever happens: that resumes what is stopped, and ends it."""

    def __init__(self, name, args):
        self.name = name
        self.args = args
        self.guest = None
        self.run_dir = tempfile.mkdtemp(prefix=f"shunt-peers-{name}-")
        if name == "shunt":
            self.switch = Shunt(self.run_dir, cpu=args.switch_cpu, rules=args.rules)
        else:
            sockets = [os.path.join(self.run_dir, socket) for socket in SOCKETS]
            huge = not args.no_hugepages
            self.switch = Ovs(
                self.run_dir, sockets, cpu=args.switch_cpu, main_cpu=args.guest_cpu, hugepages=huge,
                rules=args.rules,
            )  # fmt: skip

    def start(self):
        """Starts switch and guest, waits until both are up, and stops them."""
        self.switch.start()
        self.switch.wait_ready()
        ports = [VirtioUser(os.path.join(self.run_dir, s), mac) for s, mac in zip(SOCKETS, MACS)]
        huge = not self.args.no_hugepages
        self.guest = Guest(ports, cpu=self.args.guest_cpu, run_dir=self.run_dir, hugepages=huge)
        self.guest.wait_ready(timeout=30)
        with own_first():
            if self.args.first:
                put_first(self.switch.pids()[-1])
                put_first(self.guest.process.pid)
            time.sleep(0.3)  # Open vSwitch enables a port's queues a moment after the guest has
            self.pause()

    def _pids(self):
        """All processes of this side that live."""
        guest = [self.guest.process.pid] if self.guest and self.guest.process.poll() is None else []
        return self.switch.pids() + guest

    def pause(self, timeout=5.0):
        """Stops all processes, and waits until none of their threads runs."""
        pids = self._pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + timeout
        while not all(_is_stopped(pid) for pid in pids):
            if time.monotonic() > deadline:
                raise ContenderError(f"{self.name}: one of the processes {pids} did not stop within {timeout} s")
            time.sleep(0.0002)

    def resume(self):
        """Lets all processes go on; those that run are not disturbed."""
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def running(self):
        """Resumes for the time of a `with`."""
        self.resume()
        try:
            yield
        finally:
            self.pause()

    def inject(self, frame_bytes):
        """Puts frames of this size, as on the wire, in flight."""
        with self.running():
            self.guest.inject(frame_bytes - FCS_BYTES, self.args.bursts)

    def drain(self):
        """Takes all frames out again; says how many came back, and how many the guest had no room for."""
        with self.running():
            dropped = self.guest.stop()["tx_dropped"]
            return {"tx_dropped": dropped, "frames_back": len(self.guest.drain())}

    def slot(self):
        """One slot: what the switch counted and what the guest received in it. Counters are read before the stop."""
        if len(processes := self._pids()) < 2 or self.guest.process.poll() is not None:
            raise ContenderError(f"{self.name}: a process has ended by itself")
        processes = processes[-2:]  # the one with the polling thread, and the guest
        with self.running():
            time.sleep(self.args.settle)
            self.guest.stats()  # its rates count from here
            self.switch.clear()
            # Without the questions, which take CPU time as well, some milliseconds of it, on both sides.
            loads = [Load.of(pid) for pid in processes]
            time.sleep(self.args.slot)
            now = [Load.of(pid) for pid in processes]
            frames, cycles = self.switch.counters()
            received_per_s = sum(port.rx_rate for port in self.guest.stats())
        if frames == 0:
            raise ContenderError(f"{self.name}: no frame passed in {self.args.slot} s")
        return {
            "cycles_per_frame": cycles / frames,
            "mpps": received_per_s / 1e6,
            "busy_cycles_per_s": cycles / frames * received_per_s,
            "cpu_taken": max(b.taken_since(a) for a, b in zip(loads, now)),
        }

    def lookups(self):
        """How Open vSwitch finds a frame's flow; None for shunt."""
        if not isinstance(self.switch, Ovs):
            return None
        with self.running():
            return self.switch.describe()

    def close(self):
        """Resumes all processes, without which they could not end, ends them and removes the directory."""
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.run_dir, ignore_errors=True)
            stack.enter_context(own_first())
            stack.callback(self.switch.close)
            if self.guest:
                stack.callback(self.guest.close)
            self.resume()


def _is_stopped(pid):
    """Whether all threads of a process are stopped, or it has ended."""
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/stat", encoding="ascii", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
            if state not in "TtZX":
                return False
    except (FileNotFoundError, ProcessLookupError):
        pass
    return True
