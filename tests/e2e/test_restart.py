"""A guest or the daemon is killed under load and restarted: traffic resumes without intervention."""

import os
import sys
import time

from bench import BURST, Bench, BenchCase

TIMES = 10 if "--all" in sys.argv else 4
BURSTS = 8  # 256 frames from each port; a kill may double up to a burst of them, which must find room
FRAME_BYTES = 60


class RestartBase(BenchCase):
    """The two ways to die."""

    def bench(self, **options):
        """A bench with frames in flight."""
        bench = Bench(**options)
        self.addCleanup(bench.close)
        bench.start()
        nothing = bench.guest.stats()
        bench.guest.inject(FRAME_BYTES, BURSTS)
        self.wait_for_frames(bench.guest, nothing, 2.0)
        return bench

    def kill_guest(self, bench, times):
        """testpmd is killed and started again; measured from its ports being up to frames on both."""
        limit = bench.back_end.resume_limit_s
        for turn in range(1, times + 1):
            time.sleep(0.2)
            bench.guest.kill()
            bench.start_guest()
            listening = self.wait_listening(bench)
            bench.guest.wait_ready()
            up = time.monotonic()
            nothing = bench.guest.stats()
            bench.guest.inject(FRAME_BYTES, BURSTS)
            self.wait_for_frames(bench.guest, [zero(port) for port in nothing], limit)
            now = time.monotonic()
            print(f"    {turn}: ports up {up - listening:.3f} s, frames {now - listening:.3f} s after it listened")
            # testpmd's own start is its own; what is promised is that frames flow once it is there.
            self.assertLess(now - up, limit, "from ports that are up to frames on both, in s")
            bench.back_end.check_alive()
        self.assert_drained(bench.guest, nothing, FRAME_BYTES, BURSTS * BURST)

    def wait_listening(self, bench):
        """Waits until the guest has bound its first socket; with the sockets the daemon's, does not wait."""
        deadline = time.monotonic() + 10
        while not os.path.exists(bench.back_end.socket(0)):
            self.assertLess(time.monotonic(), deadline, "testpmd made no socket within 10 s")
            time.sleep(0.002)
        return time.monotonic()

    def settled(self, guest):
        """The guest's counters once it has taken in what its rings still held."""
        before = guest.stats()
        for _ in range(20):
            time.sleep(0.05)
            now = guest.stats()
            if rx(now) == rx(before):
                return now
            before = now
        self.fail("the guest goes on receiving without a daemon")

    def kill_daemon(self, bench, times):
        """The daemon is killed and started again; measured from its start, which includes getting ready."""
        guest, back_end = bench.guest, bench.back_end
        before_all = guest.stats()
        for turn in range(1, times + 1):
            time.sleep(0.2)
            back_end.kill()
            before = self.settled(guest)
            time.sleep(0.1)
            self.assertEqual(rx(guest.stats()), rx(before), "frames without a daemon")
            started = time.monotonic()
            back_end.start()
            back_end.wait_ready()
            ready = time.monotonic() - started
            limit = back_end.resume_limit_s + ready
            self.wait_for_frames(guest, before, limit, every=back_end.keeps_frames)
            took = time.monotonic() - started
            print(f"    {turn}: ready {ready:.3f} s, frames {took:.3f} s after its start")
            self.assertLess(took, limit, "from the daemon's start to frames on both ports, in s")
        expected = BURSTS * BURST if back_end.keeps_frames else 0
        found, _ = self.assert_drained(guest, before_all, FRAME_BYTES, expected, at_least=True)
        doubled = sum(found) - 2 * BURSTS * BURST
        print(f"    {times} kills: {doubled} frames more than were put in flight")
        self.assertLessEqual(doubled, 2 * 64 * times, "more than a burst per port and kill")


    def kill_daemon_anew(self, bench, times):
        """As `kill_daemon`, for a guest that empties its rings when the daemon has gone, as testpmd does with packed
        ones: all frames in flight are lost by it, and new ones must flow."""
        guest, back_end = bench.guest, bench.back_end
        for turn in range(1, times + 1):
            time.sleep(0.2)
            back_end.kill()
            self.settled(guest)
            guest.stop()
            started = time.monotonic()
            back_end.start()
            back_end.wait_ready()
            time.sleep(0.2)  # testpmd empties its rings once it is connected; earlier frames are lost
            guest.drain()
            before = guest.stats()
            guest.inject(FRAME_BYTES, BURSTS)
            self.wait_for_frames(guest, before, back_end.resume_limit_s)
            print(f"    {turn}: frames {time.monotonic() - started:.3f} s after its start")
            self.assert_drained(guest, before, FRAME_BYTES, BURSTS * BURST)
            before = guest.stats()
            guest.inject(FRAME_BYTES, BURSTS)
            self.wait_for_frames(guest, before, 2.0)


def rx(stats):
    """The received frames of each port."""
    return [port.rx_frames for port in stats]


def zero(_port):
    """A port that has received nothing."""
    return type("Nothing", (), {"rx_frames": 0})


class Restart(RestartBase):
    """The daemon connects, so that either side can go and come back."""

    def test_guest_killed(self):
        """testpmd killed, `TIMES` times."""
        self.kill_guest(self.bench(), TIMES)

    def test_guest_killed_server_mode(self):
        """testpmd killed, with the sockets the daemon's."""
        self.kill_guest(self.bench(mode="server"), 3)

    def test_daemon_killed(self):
        """The daemon killed, `TIMES` times."""
        self.kill_daemon(self.bench(), TIMES)

    def test_daemon_killed_not_in_order(self):
        """The same with rings that carry their own order, and without mergeable buffers."""
        self.kill_daemon(self.bench(guest={"in_order": False, "mrg_rxbuf": False}), TIMES)

    def test_guest_killed_packed(self):
        """testpmd with packed rings killed, `TIMES` times."""
        self.kill_guest(self.bench(guest={"packed": True}), TIMES)

    def test_daemon_killed_packed(self):
        """The daemon killed, with packed rings, which the guest sets up again when it is back."""
        self.kill_daemon_anew(self.bench(guest={"packed": True}), TIMES)

    def test_daemon_killed_packed_vectorized(self):
        """The same with testpmd's vectorized code."""
        guest = {"packed": True, "mrg_rxbuf": False, "vectorized": True}
        self.kill_daemon_anew(self.bench(guest=guest), TIMES)
