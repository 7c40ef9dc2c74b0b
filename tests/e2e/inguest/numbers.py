#!/usr/bin/env python3
"""Numbered datagrams, or a stream of numbers, for seeing what became of each.

    numbers.py send ADDRESS PORT RATE       until SIGTERM; then how many
    numbers.py receive PORT                 until SIGTERM; then what came, as JSON
    numbers.py talk ADDRESS PORT RATE [S]   a TCP connection to `listen`, on which each number comes back within S seconds
    numbers.py listen PORT

Runs in guests and in namespaces of the host, with nothing but Python.
"""

import json
import signal
import socket
import struct
import sys
import time

GAP_S = 0.1  # longer times between two datagrams are told one by one

ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))


def say(**values):
    print(json.dumps(values), flush=True)


def paced(rate):
    """The numbers, each when it is due; what is late is made up for."""
    begun, number = time.monotonic(), 0
    while not ended:
        if time.monotonic() - begun >= number / rate:
            yield number
            number += 1
        else:
            time.sleep(0.2 / rate)


def send(address, port, rate):
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    sent = 0
    print("ready", flush=True)
    for number in paced(float(rate)):
        to.sendto(struct.pack("!Q", number) + bytes(number % 900), (address, int(port)))
        sent += 1
    say(sent=sent)


def receive(port):
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, 33):  # 33: SO_RCVBUFFORCE
        try:
            at.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
        except OSError:
            pass
    at.bind(("", int(port)))
    at.settimeout(0.1)
    seen, last, late, twice, gaps, when = set(), -1, 0, 0, [0.0], None
    print("ready", flush=True)
    while not ended:
        try:
            data = at.recv(2048)
        except TimeoutError:
            continue
        (number,) = struct.unpack("!Q", data[:8])
        now = time.monotonic()
        gaps.append(now - (when or now))
        when = now
        twice += number in seen
        late += number < last
        last = max(last, number)
        seen.add(number)
    missing = sorted(set(range(last + 1)) - seen)
    say(received=len(seen), last=last, lost=len(missing), first_lost=missing[:20], twice=twice, late=late,
        gap_ms=round(max(gaps) * 1000), gaps_ms=[round(gap * 1000) for gap in gaps if gap > GAP_S][:1000])


def talk(address, port, rate, limit=60):
    with socket.create_connection((address, int(port)), 30) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(float(limit))
        answers = peer.makefile("rb")
        asked, longest, longest_at, start = 0, 0.0, 0.0, time.monotonic()
        print("ready", flush=True)
        for number in paced(float(rate)):
            begun = time.monotonic()
            peer.sendall(struct.pack("!Q", number))
            (answer,) = struct.unpack("!Q", answers.read(8))
            assert answer == number, f"{answer} for {number}"
            asked, took = asked + 1, time.monotonic() - begun
            if took > longest:
                longest, longest_at = took, begun - start
    say(answered=asked, longest_ms=round(longest * 1000), longest_at_ms=round(longest_at * 1000))


def listen(port):
    listener = socket.create_server(("", int(port)))
    print("ready", flush=True)
    peer, _ = listener.accept()
    answered = 0
    with peer:
        while data := peer.recv(8, socket.MSG_WAITALL):
            peer.sendall(data)
            answered += 1
    say(answered=answered)


if __name__ == "__main__":
    {"send": send, "receive": receive, "talk": talk, "listen": listen}[sys.argv[1]](*sys.argv[2:])
