"""A vhost-user front-end of a few messages, which does to its session what an honest one does not; or a `Receiver`.

    frontend.py SOCKET PAIRS      a `Receiver`: until SIGTERM, then the number of frames of each ring, and their bytes, as JSON

Needs no more than Python's smallest library, so that it runs in a guest as well as on the host.
"""

import array
import json
import mmap
import os
import signal
import socket
import struct
import sys
import time

VERSION, NEED_REPLY = 1, 8
GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL = 8, 9, 10, 12, 13
SET_PROTOCOL_FEATURES, SET_VRING_ENABLE = 16, 18
VERSION_1, PROTOCOL_FEATURES, REPLY_ACK = 1 << 32, 1 << 30, 1 << 3
MEMORY, USER = 1 << 21, 0x7F00_0000_0000


class Frontend:
    """A session with features and memory, and no ring."""

    def __init__(self, path, protocol=REPLY_ACK, memory=MEMORY):
        self._line = socket.socket(socket.AF_UNIX)
        self._line.settimeout(10)
        self._line.connect(path)
        self.ask(GET_FEATURES)
        self.say(SET_OWNER)
        self.say(SET_PROTOCOL_FEATURES, struct.pack("<Q", protocol))
        self.say(SET_FEATURES, struct.pack("<Q", VERSION_1 | PROTOCOL_FEATURES))
        self._memory = os.memfd_create("guest")
        os.ftruncate(self._memory, memory)
        region = struct.pack("<IIQQQQ", 1, 0, 0, memory, USER, 0)
        if self.acknowledged(SET_MEM_TABLE, region, [self._memory]) != 0:
            raise ValueError("the memory was refused")

    def say(self, request, payload=b"", descriptors=(), flags=VERSION):
        """Sends a request."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self._line.sendmsg([struct.pack("<III", request, flags, len(payload)) + payload], beside)

    def ask(self, request, payload=b"", descriptors=(), flags=VERSION):
        """A number that is the answer."""
        self.say(request, payload, descriptors, flags)
        return self.answer()

    def answer(self):
        """A number that is the answer to what was said."""
        reply = self._line.recv(20, socket.MSG_WAITALL)
        if len(reply) < 20:
            raise EOFError("the session has ended")
        return struct.unpack("<IIIQ", reply)[3]

    def acknowledged(self, request, payload, descriptors=()):
        """0 if the request was carried out, another number if it was refused."""
        return self.ask(request, payload, descriptors, VERSION | NEED_REPLY)

    def ask_file(self, request, payload):
        """The answer's payload, and the files beside it."""
        self.say(request, payload)
        reply, files, _, _ = socket.recv_fds(self._line, 12 + len(payload), 1)
        return reply[12:], files

    def touch(self):
        """Has all of its memory allocated."""
        os.posix_fallocate(self._memory, 0, os.fstat(self._memory).st_size)

    def shrink(self):
        """Truncates its memory; existing mappings must not crash."""
        os.ftruncate(self._memory, 0)

    def start_nowhere(self):
        """Has a ring start whose addresses are none of its memory's: what the answer is."""
        self.say(SET_VRING_NUM, struct.pack("<II", 0, 256))
        addresses = [USER + MEMORY * at for at in (2, 3, 4)]
        self.say(SET_VRING_ADDR, struct.pack("<IIQQQQ", 0, 0, addresses[0], addresses[2], addresses[1], 0))
        kick = os.eventfd(0)
        refused = self.acknowledged(SET_VRING_KICK, struct.pack("<Q", 0), [kick])
        os.close(kick)
        return self.acknowledged(SET_VRING_ENABLE, struct.pack("<II", 0, 1)) or refused

    def lives(self):
        """Returns true if the session is still served."""
        try:
            return self.ask(GET_FEATURES) & VERSION_1 != 0
        except (EOFError, ConnectionError):
            return False

    def close(self):
        """Leaves."""
        self._line.close()
        os.close(self._memory)


class Receiver(Frontend):
    """A guest whose receive rings have buffers, once: it keeps the frames that come, and sends none."""

    SIZE, HEADER, BUFFER, RINGS = 256, 12, 2048, 1 << 16  # descriptors; bytes: header, buffer, before the buffers

    def __init__(self, path, pairs, memory=MEMORY):
        super().__init__(path, memory=memory)
        self._map = mmap.mmap(self._memory, MEMORY)
        self._rings = range(0, 2 * pairs, 2)  # those between transmit
        for ring in range(2 * pairs):
            self._start(ring)

    def _start(self, ring):
        descriptors, available, used = (self._at(ring) + 0x1000 * part for part in range(3))
        if ring in self._rings:
            for index in range(self.SIZE):
                struct.pack_into("<QIHH", self._map, descriptors + 16 * index, self._buffer(ring, index), self.BUFFER, 2, 0)
            struct.pack_into(f"<HH{self.SIZE}H", self._map, available, 0, self.SIZE, *range(self.SIZE))
        kick, call = os.eventfd(1), os.eventfd(0)
        self.say(SET_VRING_NUM, struct.pack("<II", ring, self.SIZE))
        self.say(SET_VRING_BASE, struct.pack("<II", ring, 0))
        self.say(SET_VRING_ADDR, struct.pack("<IIQQQQ", ring, 0, USER + descriptors, USER + used, USER + available, 0))
        self.say(SET_VRING_CALL, struct.pack("<Q", ring), [call])
        self.say(SET_VRING_KICK, struct.pack("<Q", ring), [kick])
        if self.acknowledged(SET_VRING_ENABLE, struct.pack("<II", ring, 1)) != 0:
            raise ValueError(f"ring {ring} was refused")

    def _at(self, ring):
        return ring * 0x3000

    def _buffer(self, ring, index):
        return self.RINGS + (ring // 2 * self.SIZE + index) * self.BUFFER

    def received(self, ring):
        """Frames of a receive ring, in the order in which they came."""
        used = self._at(ring) + 0x2000
        count = struct.unpack_from("<H", self._map, used + 2)[0]
        ends = (struct.unpack_from("<II", self._map, used + 4 + 8 * place) for place in range(count))
        starts = ((self._buffer(ring, index), length) for index, length in ends)
        return [self._map[start + self.HEADER : start + length] for start, length in starts]


def main(path, pairs):
    """Receives until SIGTERM."""
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    receiver = Receiver(path, int(pairs))
    print("started", flush=True)
    while not ended:
        time.sleep(0.05)
    print(json.dumps([[frame.hex() for frame in receiver.received(ring)] for ring in receiver._rings]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
