"""Front-ends whose files make each call on them wait: no lane and no control thread makes one.

Two honest peers send numbered frames to each other on the same lane meanwhile: none is lost, and the
longest gap is printed. Files and threads of the daemon are as many afterwards as before.
"""

import array
import contextlib
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
import unittest

from bench import cpus
from daemon import Daemon
from frontend import REPLY_ACK, Frontend
from stall import Stall

GET_INFLIGHT_FD, SET_DEVICE_STATE_FD, CHECK_DEVICE_STATE = 31, 42, 43
INFLIGHT_SHMFD, DEVICE_STATE = 1 << 12, 1 << 19
SAVE, LOAD = 0, 1
WAIT_S = 20.0  # for what must happen: only a bug makes it last
LINGER_S = 3600
GiB = 1 << 30
root = unittest.skipUnless(os.geteuid() == 0, "needs root")


def until(what, done):
    """Waits for `what`."""
    end = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"waited too long for {what}")
        time.sleep(0.01)


def lingering():
    """A TCP socket that closes only when its peer has read all that it sent, and the peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    sender.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sender.send(bytes(1 << 16))
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    return sender, peer


def drain(peer):
    """Reads to the end, so that a lingering socket closes."""
    peer.settimeout(WAIT_S)
    while peer.recv(1 << 20):
        pass
    peer.close()


class Honest:
    """Two stream peers that send numbered frames to each other for the time of a `with`."""

    def __init__(self, paths):
        self._peers = [socket.socket(socket.AF_UNIX) for _ in paths]
        for peer, path in zip(self._peers, paths, strict=True):
            peer.settimeout(WAIT_S)
            peer.connect(path)
        self._stop = threading.Event()
        self._error = None
        self.frames, self.longest_gap = 0, 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    @staticmethod
    def _frame(number, to):
        header = bytes([2, 0, 0, 0, 0, to + 1, 2, 0, 0, 0, 0, 2 - to]) + b"\x88\xb5"
        return header + struct.pack(">I", number) + bytes(42)

    def _meet(self):
        """Waits until frames go both ways, and none is left on its way."""
        for to in (1, 0):
            self._peers[to].settimeout(0.1)
            hello = self._frame(0, to)
            met = False
            while not met:
                self._peers[1 - to].sendall(struct.pack(">I", len(hello)) + hello)
                with contextlib.suppress(TimeoutError):
                    met = bool(self._peers[to].recv(1 << 16))
            with contextlib.suppress(TimeoutError):
                while self._peers[to].recv(1 << 16):
                    pass
            self._peers[to].settimeout(WAIT_S)

    def _run(self):
        try:
            self._meet()
            last, number = time.monotonic(), 0
            while not self._stop.is_set():
                for to in (1, 0):
                    frame = self._frame(number, to)
                    self._peers[1 - to].sendall(struct.pack(">I", len(frame)) + frame)
                    came = self._peers[to].recv(4 + len(frame), socket.MSG_WAITALL)
                    if came[4:] != frame:
                        raise AssertionError(f"frame {number}: {came[:40].hex()} came")
                    self.longest_gap = max(self.longest_gap, time.monotonic() - last)
                    last = time.monotonic()
                    self.frames += 1
                number += 1
        except (OSError, AssertionError) as error:
            self._error = error

    def go_on(self):
        """Waits until a hundred more frames have passed: the lane is alive."""
        want = self.frames + 100
        until("the honest pair's frames", lambda: self._error or self.frames >= want)
        if self._error:
            raise self._error

    def __enter__(self):
        self._thread.start()
        self.go_on()
        return self

    def __exit__(self, *exception):
        self._stop.set()
        self._thread.join(WAIT_S)
        for peer in self._peers:
            peer.close()
        if exception == (None, None, None):
            if self._error:
                raise self._error
            gap_ms = self.longest_gap * 1e3
            print(f"     honest pair: {self.frames} frames, 0 lost, longest gap {gap_ms:.2f} ms")


class Blocking(unittest.TestCase):
    """One lane, with two honest stream peers, a third one, and two vhost-user sockets."""

    limit_s = 100

    def setUp(self):
        self.run_dir = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.run_dir, ignore_errors=True)
        ends = ["stream:a", "stream:b", "stream:bad"]
        ends += ["vhost-user:bad.sock", "vhost-user:spare.sock"]
        lines = [f'run_dir = "{self.run_dir}"', "[lanes]", f"cpus = [{cpus()[0]}]"]
        lines += ["[[nic]]", 'name = "n"', 'kind = "soft"']
        for i, end in enumerate(ends, start=1):
            lines += ["[[nic.vf]]", f'mac = "02:00:00:00:00:{i:02x}"', f'attachment = "{end}"']
        self.daemon = Daemon(self.run_dir, [], cpu=cpus()[0], config="\n".join(lines) + "\n")
        self.addCleanup(self.daemon.close)
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self.daemon.wait_ready()
        self.can_be_reached()
        self.before = self.held()

    def path(self, name):
        """A socket's path."""
        return os.path.join(self.run_dir, name)

    def honest(self):
        """The honest pair."""
        return Honest([self.path("a"), self.path("b")])

    def held(self):
        """Number of open files and of threads for calls that may wait, once they do not change."""
        seen = None
        while True:
            files, threads = self.listed()
            now = (len(files), threads.count("closer"))
            if now == seen:
                return now
            seen = now
            time.sleep(0.3)

    def can_be_reached(self):
        """A new front-end is served."""
        frontend = Frontend(self.path("spare.sock"))
        self.assertTrue(frontend.lives())
        frontend.close()

    def nothing_is_left(self):
        """As many files and threads as before."""
        end = time.monotonic() + WAIT_S
        while (now := self.held()) != self.before and time.monotonic() < end:
            pass
        self.assertEqual(now, self.before, self.listed())

    def listed(self):
        """The daemon's open files and threads, by name."""
        proc, files, threads = f"/proc/{self.daemon.pids()[0]}", [], []
        with contextlib.suppress(FileNotFoundError):  # it continues meanwhile
            for fd in os.listdir(f"{proc}/fd"):
                files.append(os.readlink(f"{proc}/fd/{fd}"))
            for task in os.listdir(f"{proc}/task"):
                with open(f"{proc}/task/{task}/comm", encoding="utf-8") as file:
                    threads.append(file.read().strip())
        return sorted(files), threads

    def send(self, file, head=b"\0"):
        """Passes a file to the daemon as its only owner, by the third stream port, which hangs up."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(WAIT_S)
            line.connect(self.path("bad"))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 3))]
            line.sendmsg([head], rights)
            # It waits if the daemon has closed its own already.
            threading.Thread(target=file.close, daemon=True).start()
            with contextlib.suppress(ConnectionError):
                self.assertEqual(line.recv(1), b"", "it is hung up on")

    def test_descriptors_to_a_stream_port(self):
        """A lingering TCP socket beside the bytes: closed, and not by the lane."""
        peers = []
        with self.honest() as pair:
            for _ in range(5):
                sender, peer = lingering()
                peers.append(peer)
                self.send(sender)
                pair.go_on()
                self.can_be_reached()
        for peer in peers:
            drain(peer)
        self.nothing_is_left()

    @root
    def test_a_pipe_to_a_stream_port(self):
        """A pipe whose mutex is held: closing it waits for ever."""
        stall = Stall()
        self.addCleanup(stall.close)
        with self.honest() as pair:
            read, write = os.pipe()
            stall.write(write)
            self.send(open(read, "rb", buffering=0))
            pair.go_on()
            self.can_be_reached()
        stall.close()
        os.close(write)
        self.nothing_is_left()

    @root
    def test_a_states_pipe_that_does_not_answer(self):
        """The session's thread writes and reads it; the front-end gets an error after a second."""
        for direction in (SAVE, LOAD):
            stall = Stall()
            self.addCleanup(stall.close)
            with self.honest() as pair:
                bad = Frontend(self.path("bad.sock"), REPLY_ACK | DEVICE_STATE)
                read, write = os.pipe()
                stall.write(write)
                end = write if direction == SAVE else read
                wish = struct.pack("<II", direction, 0)
                self.assertEqual(bad.ask(SET_DEVICE_STATE_FD, wish, [end]), 0x100)
                self.can_be_reached()
                bad.say(CHECK_DEVICE_STATE)
                self.can_be_reached()
                pair.go_on()
                self.assertEqual(bad.answer(), 1)
                until("the line of the log", lambda: "another process blocks it" in self.daemon.log())
                bad.close()
                pair.go_on()
                self.can_be_reached()
            stall.close()
            os.close(read)
            os.close(write)
            self.nothing_is_left()

    @root
    def test_records_in_flight_whose_lock_is_held(self):
        """Asked for again while a write to them does not return: the same file."""
        stall = Stall()
        self.addCleanup(stall.close)
        with self.honest() as pair:
            bad = Frontend(self.path("bad.sock"), REPLY_ACK | INFLIGHT_SHMFD)
            wish = struct.pack("<QQHH", 0, 0, 2, 256)
            _, [file] = bad.ask_file(GET_INFLIGHT_FD, wish)
            stall.write(file)
            _, [again] = bad.ask_file(GET_INFLIGHT_FD, wish)
            self.assertTrue(os.path.samestat(os.fstat(file), os.fstat(again)))
            self.can_be_reached()
            bad.close()
            self.can_be_reached()
            pair.go_on()
        stall.close()
        os.close(file)
        os.close(again)
        # The file stays for the socket's next front-end.
        files, threads = self.before
        self.before = (files + 1, threads)
        self.nothing_is_left()

    def test_memory_of_a_guest_that_ends(self):
        """2 GiB whose last hold is the daemon's: freed by the session's thread."""
        with self.honest() as pair:
            for _ in range(3):
                bad = Frontend(self.path("bad.sock"), memory=2 * GiB)
                bad.touch()
                bad.close()
                self.can_be_reached()
                pair.go_on()
        self.nothing_is_left()
        pid = self.daemon.pids()[0]
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            self.assertNotIn("memfd:guest", maps.read())


if __name__ == "__main__":
    unittest.main()
