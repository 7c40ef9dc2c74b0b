"""Datagrams that the sender's kernel leaves to be cut (UDP_SEGMENT): numbered, so that each is known again.

usage in a namespace: segments.py receive ADDRESS COUNT | segments.py send ADDRESS BYTES COUNT
"""

import os
import socket
import struct
import subprocess
import sys

from netns import NetworkError, end

PORT, UDP_SEGMENT, SO_RCVBUFFORCE = 5300, 103, 33
AT_ONCE_BYTES = 56_000  # of one call


def _socket(address):
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)


def datagram(number, size):
    """The one with this number."""
    return struct.pack(">I", number).ljust(size, bytes([number % 251]))


def _send(address, size, count):
    with _socket(address) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        at_once = AT_ONCE_BYTES // size
        for first in range(0, count, at_once):
            numbers = range(first, min(first + at_once, count))
            sender.sendto(b"".join(datagram(number, size) for number in numbers), (address, PORT))


def _receive(address, count):
    with _socket(address) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)  # it may have to wait for a CPU
        receiver.bind((address, PORT))
        receiver.settimeout(3)
        print("listening", flush=True)
        good = 0
        try:
            while good < count:
                data = receiver.recv(65536)
                good += data == datagram(struct.unpack_from(">I", data)[0], len(data))
        except TimeoutError:
            pass
        print(good, flush=True)


def arrived(sender, receiver, address, size, count):
    """Number of `count` datagrams that arrived unchanged from one namespace in another."""
    this = os.path.abspath(__file__)
    process = receiver.start("python3", this, "receive", address, str(count), stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline() != "listening\n":
            raise NetworkError(f"{receiver.name}: nobody listens at {address}")
        sender.run("python3", this, "send", address, str(size), str(count))
        return int(process.stdout.readline())
    finally:
        end(process)


if __name__ == "__main__":
    role, where, *numbers = sys.argv[1:]
    (_send if role == "send" else _receive)(where, *map(int, numbers))
