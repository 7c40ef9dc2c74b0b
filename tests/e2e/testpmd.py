"""DPDK's testpmd as a guest: virtio-user ports, driven by its prompt.

Model: one testpmd process holds one port per VF. Its main lcore sits in a blocking read on the
prompt; its one forwarding lcore spins. Both are pinned to the same CPU, so a guest takes one CPU.
Needs neither hugepages nor root: `--no-huge` backs the guest's memory with one memfd.

Frames have no FCS in memory: a "64 B frame" is 60 bytes here.
"""

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

BURST = 32  # testpmd's default burst; `start tx_first N` sends N bursts from every port
RING_SIZE = 1024
RING_SIZE_MANY = 256  # with several queues: what fills all rings must fit into memory


class TestpmdError(Exception):
    """testpmd did not do what it was told; the text holds the end of its output."""


@dataclass(frozen=True)
class VirtioUser:
    """One virtio-user port of the guest. `server`: testpmd listens, the back-end connects."""

    path: str
    mac: str
    server: bool = True
    mrg_rxbuf: bool = True
    in_order: bool = True
    vectorized: bool = False
    packed: bool = False
    queues: int = 1

    def vdev(self, index):
        """The `--vdev` argument."""
        flags = {
            "server": self.server,
            "mrg_rxbuf": self.mrg_rxbuf,
            "in_order": self.in_order,
            "packed_vq": self.packed,
            "vectorized": self.vectorized,
        }
        fields = [f"net_virtio_user{index}", f"path={self.path}", f"mac={self.mac}", f"queues={self.queues}"]
        fields.append(f"queue_size={RING_SIZE}")
        fields += [f"{name}={int(on)}" for name, on in flags.items()]
        return ",".join(fields)


@dataclass(frozen=True)
class PortStats:
    """The counters of one port since the process started; Rx and Tx as the guest sees them."""

    rx_frames: int
    rx_bytes: int
    rx_missed: int
    rx_errors: int
    rx_nombuf: int
    tx_frames: int
    tx_bytes: int
    tx_errors: int
    rx_rate: int  # frames per second since the statistics were last asked for, by testpmd's own clock


def command_line(vdevs, *, cpu, prefix, args=(), hugepages=False):
    """The whole command line of a testpmd pinned to `cpu`, as a list. `hugepages`: 128 of 2 MiB, in one memfd."""
    eal = ["--lcores", f"0@{cpu},1@{cpu}", "-m", "256", "--no-pci", "--no-telemetry"]
    eal += ["--in-memory", "--single-file-segments"] if hugepages else ["--no-huge"]
    eal += ["--file-prefix", prefix]
    for vdev in vdevs:
        eal += ["--vdev", vdev]
    eal += ["--log-level", "pmd.net.virtio.*:info"]
    app = ["-i", "--nb-cores=1", "--forward-mode=io", "--port-topology=paired", "--no-flush-rx", "--disable-link-check"]
    app += [f"--rxd={RING_SIZE}", f"--txd={RING_SIZE}", "--total-num-mbufs=8192", *args]
    return ["taskset", "-c", str(cpu), "dpdk-testpmd", *eal, "--", *app]


def guest_command_line(ports, *, cpu, prefix, hugepages=False):
    """As `command_line`, for ports in pairs: each one's frames are addressed to its neighbour. A single one has none."""
    peers = [f"--eth-peer={i},{ports[i ^ 1].mac}" for i in range(len(ports) & ~1)]
    vdevs = [port.vdev(i) for i, port in enumerate(ports)]
    queues = max(port.queues for port in ports)
    if queues > 1:
        peers += [f"--rxq={queues}", f"--txq={queues}", f"--rxd={RING_SIZE_MANY}", f"--txd={RING_SIZE_MANY}"]
        peers += ["--total-num-mbufs=16384"]
    return command_line(vdevs, cpu=cpu, prefix=prefix, args=peers, hugepages=hugepages)


class Process:
    """A testpmd process with its prompt. Every wait is bounded; `kill` ends only this process."""

    def __init__(self, argv, run_dir):
        # A terminal makes testpmd's output line by line; with a pipe it would come at the end.
        master, slave = os.openpty()
        env = dict(os.environ, RUNTIME_DIRECTORY=run_dir)
        self.argv = argv
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=slave, stderr=slave, env=env, start_new_session=True,
            restore_signals=False,  # SIGPIPE stays ignored: it would end testpmd if a back-end ends during its handshake
        )  # fmt: skip
        os.close(slave)
        self.output = ""
        self._marks = 0
        self._ended = False
        self._grown = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(master,), daemon=True)
        self._reader.start()

    def _read(self, master):
        # A thread, because testpmd blocks, in the middle of whatever it does, once 4 KiB wait unread.
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # EIO: the process has ended
                data = b""
            text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", data.decode("utf-8", "replace"))
            with self._grown:
                self.output += text.replace("\r", "")
                self._ended = not data
                self._grown.notify_all()
            if not data:
                os.close(master)
                return

    def wait_for(self, pattern, timeout, start=0):
        """Waits until `pattern` stands in the output from `start` on; returns the match."""
        compiled = re.compile(pattern)
        deadline = time.monotonic() + timeout
        with self._grown:
            while True:
                if match := compiled.search(self.output, start):
                    return match
                if self._ended:
                    raise TestpmdError(f"testpmd ended, waiting for {pattern!r}{self._tail()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TestpmdError(f"testpmd: no {pattern!r} within {timeout} s{self._tail()}")
                self._grown.wait(left)

    def _tail(self):
        return f"; exit code {self.process.poll()}; its last output:\n" + "\n".join(self.output.splitlines()[-30:])

    def wait_ready(self, timeout=20.0):
        """Waits until every port is up, which needs a back-end on every socket."""
        self.command("# ready?", timeout)

    def command(self, line, timeout=10.0):
        """Types a line, waits until it was carried out, returns what was printed meanwhile."""
        # testpmd echoes what it reads, and reads on only when a command is done: the echo of a
        # comment typed after the command says that it is. What another thread prints may tear that
        # echo apart, so the comment is typed again while there is time.
        start = len(self.output)
        self._type(line)
        deadline = time.monotonic() + timeout
        while True:
            self._marks += 1
            mark = f"#done-{self._marks}-"
            self._type(mark)
            left = deadline - time.monotonic()
            try:
                end = self.wait_for(mark, max(0.1, min(left, 0.3)), start).start()
                return self.output[start:end]
            except TestpmdError:
                if left <= 0.3 or self.process.poll() is not None:
                    raise

    def _type(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise TestpmdError(f"testpmd ended before {line!r}{self._tail()}") from None

    def stats(self):
        """A `PortStats` for each port."""
        text = self.command("show port stats all")
        found = []
        for block in re.split(r"NIC statistics for port \d+", text)[1:]:
            values = dict(re.findall(r"([RT][Xx]-[a-z]+):\s*(\d+)", block))
            names = [
                "RX-packets", "RX-bytes", "RX-missed", "RX-errors",
                "RX-nombuf", "TX-packets", "TX-bytes", "TX-errors", "Rx-pps",
            ]  # fmt: skip
            missing = [name for name in names if name not in values]
            if missing:
                raise TestpmdError(f"testpmd: no {missing} in its statistics:\n{text}")
            found.append(PortStats(*(int(values[name]) for name in names)))
        if not found:
            raise TestpmdError(f"testpmd: no statistics in:\n{text}")
        return found

    def rx_frames(self):
        """Frames received by all ports."""
        return sum(port.rx_frames for port in self.stats())

    def kill(self):
        """SIGKILL, and waits for the end."""
        self._end(signal.SIGKILL)

    def close(self):
        """`quit`, or SIGKILL when that takes long."""
        try:
            self._type("quit")
            self.process.stdin.close()
            self.process.wait(timeout=5)
        except (TestpmdError, OSError, subprocess.TimeoutExpired):
            pass
        self._end(signal.SIGKILL)

    def _end(self, signum):
        if self.process.poll() is None:
            self.process.send_signal(signum)
        self.process.wait(timeout=10)
        self._reader.join(timeout=5)
        try:
            self.process.stdin.close()
        except OSError:  # what was typed last was never read
            pass


class Guest(Process):
    """testpmd with VF ports that sends every frame it receives back where it came from.

    Ports in pairs: frames received on port 1 leave by port 0, still addressed to port 1's MAC
    and bearing port 0's as their source, so that the switch brings them to port 1 again, for ever;
    and the same the other way round.
    """

    def __init__(self, ports, *, cpu, run_dir, hugepages=False):
        self.ports = list(ports)
        for port in self.ports:
            if port.server and os.path.exists(port.path):
                os.unlink(port.path)  # left by a guest that was killed: testpmd does not bind over it
        argv = guest_command_line(self.ports, cpu=cpu, prefix="guest", hugepages=hugepages)
        super().__init__(argv, run_dir)

    def features(self):
        """The virtio features in force, as a number per port."""
        found = re.findall(r"\((\S+)\) set features: 0x([0-9a-f]+)", self.output)
        last = {path: int(bits, 16) for path, bits in found}
        return [last[port.path] for port in self.ports]

    def inject(self, frame_bytes, bursts):
        """Puts `bursts` * 32 frames in flight from every queue of every port, and forwards from then on."""
        self.command(f"set txpkts {frame_bytes}")
        self.command("set fwd io")
        text = self.command(f"start tx_first {bursts}")
        if "packet forwarding packets/burst" not in text:
            raise TestpmdError(f"testpmd did not start:\n{text}")

    def stop(self):
        """Stops forwarding: from now on every frame waits in a ring."""
        text = self.command("stop")
        if "Done." not in text:
            raise TestpmdError(f"testpmd did not stop:\n{text}")
        dropped = [int(n) for n in re.findall(r"TX-dropped: (\d+)", text)]
        return {"tx_dropped": sum(dropped[:-1])}  # the last line is the sum of the others

    def drain(self, settle_s=0.3, timeout=5.0):
        """Takes in whatever waits in the receive rings, sending nothing; returns `(addresses, length)` per frame."""
        self.command("set fwd rxonly")
        self.command("set verbose 1")
        start = len(self.output)
        self.command("start")
        deadline = time.monotonic() + timeout
        seen, since = -1, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - since < settle_s:
            now = self.rx_frames()
            if now != seen:
                seen, since = now, time.monotonic()
        self.command("stop")
        self.command("set verbose 0")
        pattern = r"src=([0-9A-F:]{17}) - dst=([0-9A-F:]{17})[^\n]*? - length=(\d+)"
        frames = re.findall(pattern, self.output[start:])
        return [(src.lower(), dst.lower(), int(length)) for src, dst, length in frames]
