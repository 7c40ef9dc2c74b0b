#!/usr/bin/env python3
"""A wire's other end that sends the same frame again and again, 64 with each system call (AF_PACKET, sendmmsg).

It sleeps between its turns, so a guest that never sleeps may share its CPU. Run it in the interface's namespace.
usage: flood.py INTERFACE DESTINATION BYTES CPU RATE; RATE in frames a second, 0 for as fast as it can. Prints how many it
has sent in each tenth of a second, until it is ended.
"""

import ctypes
import os
import signal
import socket
import struct
import sys
import time

BURST = 64  # frames of one system call, and of one poll of the interface at the other end
TURN = 4  # bursts between two sleeps, when there is a rate: they find room in a veth's ring of 256
SOL_PACKET, QDISC_BYPASS = 263, 20
_LIBC = ctypes.CDLL(None, use_errno=True)


class Burst:
    """`BURST` times the same frame, as sendmmsg takes them."""

    def __init__(self, interface, frame):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0))
        self._socket.setsockopt(SOL_PACKET, QDISC_BYPASS, 1)
        self._frame = ctypes.create_string_buffer(frame, len(frame))
        self._vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(self._frame), len(frame)))
        message = struct.pack("QIxxxxQQQQIxxxxIxxxx", 0, 0, ctypes.addressof(self._vector), 1, 0, 0, 0, 0)
        self._messages = ctypes.create_string_buffer(message * BURST, len(message) * BURST)

    def send(self):
        """Sends them; how many went out."""
        sent = _LIBC.sendmmsg(self._socket.fileno(), self._messages, BURST, 0)
        if sent < 0 and (error := ctypes.get_errno()) not in (11, 105):  # EAGAIN, ENOBUFS: the wire is full
            raise OSError(error, os.strerror(error))
        return max(0, sent)


def main():
    interface, destination, size, cpu, rate = sys.argv[1:]
    rate = int(rate)
    os.sched_setaffinity(0, [int(cpu)])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if rate:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(3))
    addresses = bytes.fromhex(destination.replace(":", "")) + bytes.fromhex("020000000099")
    burst = Burst(interface, (addresses + b"\x88\xb5").ljust(int(size), b"\0"))
    next_at = told_at = time.monotonic()
    sent = 0
    while True:
        for _ in range(TURN):
            sent += burst.send()
        now = time.monotonic()
        if now - told_at > 0.1:
            print(sent, flush=True)
            told_at, sent = now, 0
        if rate:
            next_at = max(next_at + TURN * BURST / rate, now)  # what was missed is not made up for
            time.sleep(next_at - now)


if __name__ == "__main__":
    main()
