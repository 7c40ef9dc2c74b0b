"""Numbered datagrams, frames and streams: what was lost, doubled, overtaken or damaged is told as JSON.

    numbered.py send ADDRESS PORT [--bytes N] [--rate N] [--count N]      datagrams; --rate a second
    numbered.py receive PORT                                              until SIGTERM, or --count
    numbered.py frames INTERFACE DESTINATION ... (as send)                frames of the type below instead
    numbered.py take INTERFACE                                            (as receive)
    numbered.py stream ADDRESS PORT --bytes N                             TCP, checked byte for byte by
    numbered.py drain PORT                                                which listens, and prints `listening`
    numbered.py echo ADDRESS SIZE...                                      an echo request of each size, or of FROM-TO-STEP

Needs no more than Python's smallest library, so that it runs in a guest as well as on the host.
"""

import json
import os
import select
import signal
import socket
import struct
import sys
import time

RCVBUFFORCE = 33  # SO_RCVBUFFORCE: past the limit that the system sets; a slow receiver is not what is asked about
UDP_SEGMENT = 103
TYPE = 0x88B5  # for local experiments, IEEE 802
HEAD = struct.Struct("!8sQ")
PATTERN = bytes(range(251)) * 1100  # its length has no factor in common with a packet's


def content(mark, number, size):
    """The bytes of one numbered packet."""
    at = number % 251
    return HEAD.pack(mark, number) + PATTERN[at : at + size - HEAD.size]


ended = []  # not empty after SIGTERM; an exception in the middle of a packet would miscount it


def on_term(_signal, _frame):
    ended.append(True)


def option(args, name, default):
    """The number behind an option, which goes from the list."""
    if name not in args:
        return default
    at = args.index(name)
    value = int(args[at + 1])
    del args[at : at + 2]
    return value


def say(said):
    """One line of JSON."""
    print(json.dumps(said), flush=True)


def send_paced(args, put):
    """Sends numbered packets by `put`, and says how many."""
    size, rate, count = option(args, "--bytes", 200), option(args, "--rate", 500), option(args, "--count", 1 << 62)
    mark, start, sent, refused = os.urandom(8), time.monotonic(), 0, 0
    say({"started": True})
    while sent < count and not ended:
        try:
            put(content(mark, sent, size))
        except OSError:  # no carrier, or no room: then it was not sent
            refused += 1
            time.sleep(0.01)
            continue
        sent += 1
        ahead = start + (sent + refused) / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        elif ahead < -0.2:
            start -= ahead  # what could not be sent in time is not made up for by a burst
    say({"sent": sent, "refused": refused, "bytes": size})


class Tally:
    """Packets of one sender that have arrived."""

    def __init__(self):
        self.seen, self.highest, self.got = set(), -1, 0
        self.doubled = self.overtaken = self.damaged = 0
        self.gap_s, self.last = 0.0, None

    def take(self, mark, number, data):
        """Counts one."""
        now = time.monotonic()
        if self.last is not None:
            self.gap_s = max(self.gap_s, now - self.last)
        self.last = now
        self.got += 1
        self.damaged += data != content(mark, number, len(data))
        self.doubled += number in self.seen
        self.overtaken += number < self.highest
        self.seen.add(number)
        self.highest = max(self.highest, number)

    def said(self):
        """Everything about it. `lost`: of those up to the highest number."""
        keep = ("got", "highest", "doubled", "overtaken", "damaged", "gap_s")
        return {**{name: getattr(self, name) for name in keep}, "lost": self.highest + 1 - len(self.seen)}


def receive(args, taken, get):
    """Takes what `get` gives until SIGTERM, and what had come by then; tells of the sender from whom most has come."""
    count, tallies = option(args, "--count", 1 << 62), {}
    say({"started": True})
    while sum(tally.got for tally in tallies.values()) < count:
        if not select.select([taken], [], [], 0.2)[0]:
            if ended:
                break
            continue
        data = get()
        if data and len(data) >= HEAD.size:
            mark, number = HEAD.unpack_from(data)
            tallies.setdefault(mark, Tally()).take(mark, number, data)
    best = max(tallies.values(), key=lambda tally: tally.got, default=Tally())
    say({**best.said(), "senders": len(tallies)})


def datagrams(address, kind=socket.SOCK_DGRAM):
    """A socket of the address's family."""
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)


def raw(interface):
    """A socket for frames of our type."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE))
    made.bind((interface, TYPE))
    made.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    return made


def do_send(args):
    """Datagrams; with `--together N` as many in one call, for the kernel or the device to cut."""
    address, port = args[0], int(args[1])
    out, together, batch = datagrams(address), option(args, "--together", 1), []
    if together > 1:
        out.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, int(args[args.index("--bytes") + 1]))

    def put(data):
        batch.append(data)
        if len(batch) == together:
            whole = b"".join(batch)
            batch.clear()
            out.sendto(whole, (address, port))

    send_paced(args, put)


def do_receive(args):
    """Datagrams, of either family."""
    taken = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    taken.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    taken.bind(("::", int(args[0])))
    receive(args, taken, lambda: taken.recv(65536))


def do_frames(args):
    """Frames; `--source ADDRESS` sets another source than the interface's."""
    interface, destination = args[0], bytes.fromhex(args[1].replace(":", ""))
    out = raw(interface)
    source = out.getsockname()[4]
    if "--source" in args:
        source = bytes.fromhex(args[args.index("--source") + 1].replace(":", ""))
    head = destination + source + struct.pack("!H", TYPE)
    send_paced(args, lambda data: out.send(head + data))


def do_take(args):
    """Frames that came from outside."""
    taken = raw(args[0])

    def get():
        data, origin = taken.recvfrom(65536)
        return None if origin[2] == socket.PACKET_OUTGOING else data[14:]

    receive(args, taken, get)


def do_stream(args):
    """TCP."""
    size = option(args, "--bytes", 1 << 20)
    with socket.create_connection((args[0], int(args[1])), 10) as out:
        out.settimeout(None)
        sent = 0
        while sent < size:
            at = sent % 251
            sent += out.send(PATTERN[at : at + min(size - sent, 250_000)])
        out.shutdown(socket.SHUT_WR)
        answer = out.recv(1)
    say({"sent": sent, "answered": answer == b"."})


def do_drain(args):
    """TCP: one connection, checked."""
    listener = socket.create_server(("::", int(args[0])), family=socket.AF_INET6, dualstack_ipv6=True)
    print("listening", flush=True)
    taken, _peer = listener.accept()
    got, wrong = 0, 0
    while data := taken.recv(250_000):
        at = got % 251
        wrong += data != PATTERN[at : at + len(data)]
        got += len(data)
    taken.sendall(b".")
    say({"got": got, "wrong": wrong})


def do_echo(args):
    """Echo requests; each answer must come, and be what was sent."""
    address, sizes = args[0], []
    for word in args[1:]:
        first, _, rest = word.partition("-")
        last, _, step = rest.partition("-")
        sizes += range(int(first), int(last or first) + 1, int(step or 1))
    ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    ping.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    ping.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ping.connect((address, 0))
    missing, number = [], os.getpid() & 0xFFFF
    for sequence, size in enumerate(sizes):
        data = content(b"shuntech", sequence, max(size, HEAD.size))[HEAD.size - 16 :][:size]
        head = struct.pack("!BBHHH", 8, 0, 0, number, sequence & 0xFFFF)
        ping.send(struct.pack("!BBHHH", 8, 0, checksum(head + data), number, sequence & 0xFFFF) + data)
        if not answered(ping, struct.pack("!HH", number, sequence & 0xFFFF) + data):
            missing.append(size)
    say({"asked": len(sizes), "missing": missing})


def answered(ping, wanted, timeout=2.0):
    """True if this answer arrives."""
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0 and select.select([ping], [], [], left)[0]:
        packet = ping.recv(70000)[20:]
        if packet[:2] == b"\0\0" and packet[4:] == wanted:
            return True
    return False


def checksum(data):
    """The internet checksum (RFC 1071)."""
    # A number of 2^16 to some power is its digits' sum modulo 2^16 - 1.
    return 0xFFFF - (int.from_bytes(data + b"\0" * (len(data) % 2), "big") % 0xFFFF)


def main():
    signal.signal(signal.SIGTERM, on_term)
    {"send": do_send, "receive": do_receive, "frames": do_frames, "take": do_take, "stream": do_stream,
     "drain": do_drain, "echo": do_echo}[sys.argv[1]](sys.argv[2:])  # fmt: skip


if __name__ == "__main__":
    main()
