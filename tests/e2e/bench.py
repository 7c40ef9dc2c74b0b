"""Shared by the suites: a back-end and a guest in a temporary directory, and queries to them."""

import os
import shutil
import tempfile
import time
import unittest

from daemon import Daemon, Vf
from standin import Standin
from testpmd import BURST, Guest, VirtioUser

MACS = ["02:00:00:00:00:01", "02:00:00:00:00:02"]
MRG_RXBUF, VERSION_1, RING_PACKED, IN_ORDER = 1 << 15, 1 << 32, 1 << 34, 1 << 35


def cpus():
    """(switch's CPU, guest's CPU): the first and the last that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


class Bench:
    """Two VFs, their back-end, and one testpmd that holds both."""

    def __init__(self, *, mode="client", offer_in_order=True, offer_packed=True, guest=None):
        self.run_dir = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        self.mode = mode
        self.guest_options = guest or {}
        offer = {"in_order": offer_in_order, "packed": offer_packed}
        queue_pairs = self.guest_options.get("queues", 1)
        vfs = [Vf(mac, f"vf{i}.sock", mode, queue_pairs=queue_pairs, **offer) for i, mac in enumerate(MACS)]
        back_end = Standin if os.environ.get("SHUNT_E2E_STANDIN") else Daemon
        self.back_end = back_end(self.run_dir, vfs, cpu=cpus()[0])
        self.guest = None

    def start_guest(self):
        """Starts testpmd; does not wait."""
        ports = [
            VirtioUser(self.back_end.socket(i), mac, self.mode == "client", **self.guest_options)
            for i, mac in enumerate(MACS)
        ]
        self.guest = Guest(ports, cpu=cpus()[1], run_dir=self.run_dir)

    def start(self):
        """Starts both and waits until the guest's ports are up."""
        self.back_end.start()
        if self.mode == "server" or self.back_end.name == "shunt":
            self.back_end.wait_ready()
        self.start_guest()
        self.back_end.wait_ready()
        self.guest.wait_ready()

    def close(self):
        """Ends what was started and removes the directory."""
        if self.guest:
            self.guest.close()
        self.back_end.close()
        shutil.rmtree(self.run_dir, ignore_errors=True)


class Counts:
    """The difference between two `Guest.stats()`."""

    def __init__(self, before, after):
        self.rx = [b.rx_frames - a.rx_frames for a, b in zip(before, after)]
        self.tx = [b.tx_frames - a.tx_frames for a, b in zip(before, after)]
        self.rx_bytes = [b.rx_bytes - a.rx_bytes for a, b in zip(before, after)]
        self.tx_bytes = [b.tx_bytes - a.tx_bytes for a, b in zip(before, after)]
        self.faults = sum(
            b.rx_missed + b.rx_errors + b.rx_nombuf + b.tx_errors
            - a.rx_missed - a.rx_errors - a.rx_nombuf - a.tx_errors
            for a, b in zip(before, after)
        )  # fmt: skip


class BenchCase(unittest.TestCase):
    """A test case with the questions that several suites ask."""

    def wait_for_frames(self, guest, before, timeout, every=True, more=0):
        """Waits until every port (or any) has received `more` frames than `before` and one; returns the time that took in s."""
        start = time.monotonic()
        while True:
            now = guest.stats()
            took = time.monotonic() - start
            idle = [i for i, (a, b) in enumerate(zip(before, now)) if b.rx_frames <= a.rx_frames + more]
            if not idle or (not every and len(idle) < len(now)):
                return took
            if took > timeout:
                self.fail(f"after {took:.2f} s port {idle} of the guest still receives no frame")

    def assert_drained(self, guest, before, frame_bytes, expected, at_least=False):
        """Stops the guest and empties its rings; what comes out must be all that ever went in.

        While it forwards, Tx minus Rx of the guest says nothing: a frame that the switch has lost looks
        like one in flight. The exact question is what is found when everything is taken in and nothing is
        sent: as many frames as were put in flight, with the addresses and the length they left with.
        """
        self.assertEqual(guest.stop()["tx_dropped"], 0, "testpmd had no room in its transmit rings")
        frames = guest.drain()
        found = [0, 0]
        for src, dst, length in frames:
            self.assertIn(dst, MACS)
            self.assertEqual((src, length), (MACS[1 - MACS.index(dst)], frame_bytes))
            found[MACS.index(dst)] += 1
        counts = Counts(before, guest.stats())
        self.assertEqual(counts.faults, 0, "testpmd counted errors")
        for port in (0, 1):
            if at_least:
                self.assertGreaterEqual(found[port], expected, f"port {port}: frames were lost")
            else:
                self.assertEqual(found[port], expected, f"frames that came back to port {port}")
                self.assertEqual(counts.rx[port], counts.tx[1 - port])
                self.assertEqual(counts.rx_bytes[port], counts.tx_bytes[1 - port])
        return found, counts


__all__ = ["BURST", "IN_ORDER", "MACS", "MRG_RXBUF", "RING_PACKED", "VERSION_1", "Bench", "BenchCase", "Counts"]
