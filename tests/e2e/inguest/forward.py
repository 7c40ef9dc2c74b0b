#!/usr/bin/env python3
"""Passes connections on, as `ssh -N -L FROM:TO` does: FROM is listened at, and TO connected to.

    forward.py FROM TO [FROM TO ...]        until it is killed

Each is the path of a UNIX socket, or HOST:PORT of this network.
"""

import os
import socket
import sys
import threading


def made(place):
    """A socket for a place, and its address."""
    if place.startswith("/"):
        return socket.socket(socket.AF_UNIX), place
    host, port = place.split(":")
    return socket.socket(socket.AF_INET), (host, int(port))


def copy(one, other):
    """Copies what one connection has to say to another, and tells it of the end."""
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended


def serve(near, place):
    """One client. It is closed if nothing listens there."""
    far, address = made(place)
    with near, far:
        try:
            far.connect(address)
        except OSError:
            return
        back = threading.Thread(target=copy, args=(far, near), daemon=True)
        back.start()
        copy(near, far)
        back.join()


def listen(place, to):
    """Accepts clients at a place."""
    listener, address = made(place)
    if isinstance(address, str) and os.path.exists(address):
        os.unlink(address)
    listener.bind(address)
    listener.listen()

    def accept():
        while True:
            near, _ = listener.accept()
            threading.Thread(target=serve, args=(near, to), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


if __name__ == "__main__":
    for number in range(1, len(sys.argv), 2):
        listen(*sys.argv[number : number + 2])
    print("ready", flush=True)
    threading.Event().wait()
