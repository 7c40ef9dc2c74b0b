"""CPU time of this machine: all that was spent between two looks, and what of it others spent."""

import contextlib
import os
import time
from dataclasses import dataclass

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
POLLING = ("lane", "rte-worker")  # what threads that never sleep are called, ours and DPDK's
KERNEL_THREAD = 0x00200000  # in the flags of /proc/PID/stat


@dataclass(frozen=True)
class Look:
    """Ticks of all CPUs at one moment; `users` has those of each process except kernel threads.

    The time of a process that began and ended between two readings is in no account; it counts as our own.
    """

    busy: int
    users: dict
    time_s: float

    @staticmethod
    def now():
        """Looks."""
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _idle, _wait, irq, softirq, *_ = map(int, file.readline().split()[1:])
        return Look(user + nice + system + irq + softirq, _users(), time.monotonic())

    def since(self, earlier, own):
        """(CPU seconds of the machine, those of processes that are not in `own` or children of one)."""
        others = sum(
            ticks - earlier.users.get(pid, (0, 0))[0]
            for pid, (ticks, parent) in self.users.items()
            if pid in earlier.users and pid not in own and parent not in own
        )
        return (self.busy - earlier.busy) / TICKS_PER_S, others / TICKS_PER_S


def _users():
    """(ticks, parent) of each process."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if not int(fields[6]) & KERNEL_THREAD:
            found[int(name)] = (int(fields[11]) + int(fields[12]), int(fields[1]))
    return found


def polling_threads(pid):
    """The ids of a process's threads that poll."""
    for tid in map(int, os.listdir(f"/proc/{pid}/task")):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as file:
            if file.read().startswith(POLLING):
                yield tid


def polling_ticks(pid):
    """(user, kernel) ticks of a process's threads that poll."""
    user = kernel = 0
    for tid in polling_threads(pid):
        with open(f"/proc/{pid}/task/{tid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        user, kernel = user + int(fields[11]), kernel + int(fields[12])
    return user, kernel


@contextlib.contextmanager
def real_time(pids):
    """Lets the polling threads of processes go before all that is not real-time, for a `with` of less than 0.9 s.

    Longer, and the kernel takes them off their CPU. Their other threads wait meanwhile: ask nothing of them.
    """
    threads = [tid for pid in pids for tid in polling_threads(pid)]
    try:
        for tid in threads:
            os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(1))
        yield
    finally:
        for tid in threads:
            os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
