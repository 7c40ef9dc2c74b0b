"""Effects of the host on the measurement: huge pages that it lends, CPU time that it takes away."""

import contextlib
import os
import time
from dataclasses import dataclass

HUGEPAGES = "/proc/sys/vm/nr_hugepages"


class HugepagesError(Exception):
    """The host did not lend the huge pages."""


class Hugepages:
    """Reserves 2 MiB pages for the time of a `with`, then sets the number back to what it was."""

    def __init__(self, count):
        self.count = count
        self._before = 0

    def __enter__(self):
        if not self.count:
            return self
        self._before = _read_number(HUGEPAGES)
        try:
            _write_number(HUGEPAGES, self._before + self.count)
        except PermissionError as error:
            raise HugepagesError("only root can reserve huge pages; or use --no-hugepages") from error
        got = _read_number(HUGEPAGES) - self._before
        if got < self.count:
            _write_number(HUGEPAGES, self._before)
            raise HugepagesError(
                f"the host lends {got} of {self.count} huge pages (its memory is in pieces); "
                "free some memory, or use --no-hugepages"
            )
        return self

    def __exit__(self, *_exception):
        if self.count:
            _write_number(HUGEPAGES, self._before)


def _read_number(path):
    with open(path, encoding="ascii") as file:
        return int(file.read())


def _write_number(path, number):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(number))


def put_first(pid):
    """Lets the threads of a process have their CPU before all others (nice -20). Only root may."""
    for tid in os.listdir(f"/proc/{pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(tid), -20)
    # If the kernel groups processes by session, a nice value counts only within the session.
    autogroup = f"/proc/{pid}/autogroup"
    if os.path.exists(autogroup):
        _write_number(autogroup, -20)


@contextlib.contextmanager
def own_first(priority=1):
    """Lets this process, and those that it starts meanwhile, go before all others for the time of a `with`.

    Switch and guest never sleep; a question put to them from behind would wait for a good part of a slot.
    """
    policies = {}
    for tid in map(int, os.listdir("/proc/self/task")):
        policies[tid] = os.sched_getscheduler(tid), os.sched_getparam(tid)
        os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(priority))
    try:
        yield
    finally:
        for tid, before in policies.items():
            with contextlib.suppress(ProcessLookupError):  # the thread has ended
                os.sched_setscheduler(tid, *before)


@dataclass(frozen=True)
class Load:
    """CPU time and run-queue wait of the threads of a process, in nanoseconds."""

    threads: dict
    time_ns: int

    @staticmethod
    def of(pid):
        """Reads /proc/PID/task/*/schedstat."""
        threads = {}
        for tid in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                    run, wait, _ = file.read().split()
            except OSError:  # the thread has just ended
                continue
            threads[tid] = (int(run), int(wait))
        return Load(threads, time.monotonic_ns())

    def taken_since(self, earlier):
        """The share of the time in which the busiest thread wanted a CPU and did not have it."""
        _run, wait = max(
            (run - earlier.threads[tid][0], wait - earlier.threads[tid][1])
            for tid, (run, wait) in self.threads.items()
            if tid in earlier.threads
        )
        return wait / (self.time_ns - earlier.time_ns)
