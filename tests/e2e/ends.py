"""Ends that send the frames of a capture, and keep the received ones: one class for each kind of attachment.

An end has `attachment`, its part of the document; `prepare` makes what must exist before the daemon attaches,
`attached` does the steps that come after it, `play` sends, `received` returns the received frames.
"""

import os
import socket
import struct
import sys
import threading
import time

from bench import cpus
from pcapfile import read, write
from testpmd import Process, command_line
from tools import Capture

# Sent by an end without frames of its own, and before all others. No other frame has this type.
FIRST = bytes.fromhex("ffffffffffff0280000000ff88b5").ljust(60, b"\0")
BURST, GAP_S = 16, 0.001  # what is sent at once: no ring is to be full
MTU = 9000


class End:
    """Base class of the ends."""

    kind = ""

    def __init__(self, network, host, name, frames):
        self.network, self.host, self.name, self.frames = network, host, name, frames
        self.attachment = {}
        self.apply = None  # applies the document, with the present `attachment`

    def path(self, suffix):
        """A path for a file of this end."""
        return self.network.path(f"{self.name}.{suffix}")

    def prepare(self):
        """Before the daemon attaches."""

    def attached(self):
        """After that."""

    def play(self):
        """Sends all frames."""

    def all_received(self):
        """Every frame that came."""
        raise NotImplementedError

    def count(self):
        """Number of received frames so far."""
        return len(self.received())

    def received(self):
        """Every frame that came, but for the first one."""
        return [frame for frame in self.all_received() if frame != FIRST]


class PcapEnd(End):
    """The daemon's own player. It begins when it is opened: so there is one file until it is time, and then another."""

    kind = "pcap"

    def prepare(self):
        write(self.path("nothing"), [FIRST])
        write(self.path("pcap"), [FIRST, *self.frames], gap_us=300, first_after_us=200_000)
        self._open("nothing")

    def _open(self, file):
        sink = self.path(f"{file}.pcapng")
        self.attachment.update({"kind": "pcap", "file": self.path(file), "sink": sink})

    def play(self):
        self._open("pcap")
        self.apply()

    def all_received(self):
        sinks = [self.path(f"{file}.pcapng") for file in ("nothing", "pcap")]
        return [frame for sink in sinks if os.path.exists(sink) for frame in read(sink)]


class InterfaceEnd(End):
    """An interface `e0` of a namespace that is otherwise silent: a tap, or the other end of a veth pair."""

    def prepare(self):
        self.space = self.network.namespace(self.name)
        self.space.silent()
        self.capture = None
        if self.kind == "tap":
            self.attachment = {"kind": "tap", "interface": "e0", "netns": self.space.path, "mtu": MTU}
            return
        self.attachment = {"kind": self.kind, "interface": self.name}
        self.network.veth((self.host, self.name), (self.space, "e0"), mtu=MTU, offload=False)
        self._listen()

    def attached(self):
        if self.kind == "tap":
            self.space.wait_link("e0")
            self.space.up("e0", mtu=MTU)
            self._listen()

    def _listen(self):
        self.capture = self.network.ending.enter_context(Capture(self.space, "e0", count=100_000, inbound=True))

    def play(self):
        play_at(self.space, "e0", self.frames)

    def all_received(self):
        return read(self.capture.file)


class TapEnd(InterfaceEnd):
    """A tap."""

    kind = "tap"


class PacketEnd(InterfaceEnd):
    """AF_PACKET on a veth."""

    kind = "packet"


class XdpEnd(InterfaceEnd):
    """AF_XDP on a veth."""

    kind = "xdp"


class StreamEnd(End):
    """A socket as QEMU's `-netdev stream` has it: each frame after its length, 32 bits in the order of the network."""

    kind = "stream"

    def prepare(self):
        self.attachment = {"kind": "stream", "socket": self.path("sock"), "mode": "server", "mtu": MTU}
        self._socket = None
        self._got = b""

    def attached(self):
        self._socket = socket.socket(socket.AF_UNIX)
        self.network.ending.callback(self._socket.close)
        self._socket.settimeout(5)
        self._socket.connect(self.path("sock"))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            self._got += data

    def play(self):
        for at in range(0, len(self.frames), BURST):
            frames = self.frames[at : at + BURST]
            self._socket.sendall(b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))
            time.sleep(GAP_S)

    def all_received(self):
        frames, got = [], self._got
        while len(got) >= 4 and len(got) >= 4 + (length := struct.unpack(">I", got[:4])[0]):
            frames.append(got[4 : 4 + length])
            got = got[4 + length :]
        return frames


class VhostEnd(End):
    """testpmd between a virtio-user port and a port that plays a capture and writes another."""

    kind = "vhost-user"

    def prepare(self):
        self.attachment = {"kind": "vhost-user", "socket": self.path("sock"), "mode": "server", "mtu": MTU}
        self._process = None

    def attached(self):
        write(self.path("pcap"), self.frames)
        files = f"rx_pcap={self.path('pcap')},tx_pcap={self.path('out.pcap')}"
        virtio = f"net_virtio_user0,path={self.path('sock')},server=0,queues=1,queue_size=1024,mrg_rxbuf=1"
        argv = command_line([virtio, f"net_pcap0,{files}"], cpu=cpus()[1], prefix=self.name,
                            args=["--max-pkt-len=9100", "--mbuf-size=10240"])  # fmt: skip
        self._process = Process(argv, self.network.run_dir)
        self.network.ending.callback(self._close)
        self._process.wait_ready(20)

    def _close(self):
        if self._process:
            self._process.close()
            self._process = None

    def play(self):
        self._process.command("start")

    def count(self):
        return self._process.stats()[1].tx_frames

    def all_received(self):
        self._close()  # the file is written to its end then
        return read(self.path("out.pcap"))


def play_at(space, interface, frames):
    """Sends frames by an interface of a namespace, a few at a time."""
    file = os.path.join(space.network.run_dir, f"play-{interface}-{time.monotonic_ns()}.pcap")
    write(file, frames)
    space.run("python3", os.path.abspath(__file__), interface, file, timeout=30)


def _main(interface, file):
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind((interface, 0))
    for number, frame in enumerate(read(file)):
        sender.send(frame)
        if number % BURST == BURST - 1:
            time.sleep(GAP_S)


if __name__ == "__main__":
    _main(*sys.argv[1:])
