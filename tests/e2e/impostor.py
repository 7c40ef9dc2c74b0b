"""A program that is to take over from a daemon and does not: Python's own, which runs this text as `sitecustomize`.

`shunt upgrade --binary` starts a program with the arguments `up --take-over` and one end of a socket as standard input,
in `/`. Python then imports `sitecustomize` from PYTHONPATH first. `MODE` stands in the line before this text.
"""

import array
import json
import os
import socket
import struct
import sys
import time

MAGIC = b"SHUNTUP\n"
MODE = globals().get("MODE", "")
line = None


def exactly(count):
    """So many bytes, and what descriptors come beside them are closed."""
    data = b""
    while len(data) < count:
        some, ancillary, _, _ = line.recvmsg(count - len(data), socket.CMSG_SPACE(253 * 4))
        if not some:
            sys.exit(9)
        for _, _, descriptors in ancillary:
            numbers = array.array("i")
            numbers.frombytes(descriptors[: len(descriptors) // 4 * 4])
            for number in numbers:
                os.close(number)
        data += some
    return data


def hear():
    """The next message."""
    head = exactly(16)
    length, descriptors = struct.unpack("<II", head[8:])
    for _ in range(-(-descriptors // 250)):
        exactly(1)
    return json.loads(exactly(length))


def say(reply):
    """A message without descriptors."""
    text = json.dumps(reply).encode()
    line.sendall(MAGIC + struct.pack("<II", len(text), 0) + text)


def main():
    """Does what `MODE` says."""
    if MODE == "ends":
        sys.exit(3)
    if MODE == "silent":
        time.sleep(60)
    if MODE == "babbles":
        line.sendall(b"Usage: nothing that you know, and more of it")
        time.sleep(60)
    hear()
    if MODE == "refuses":
        say({"failed": {"why": "shunt 9 knows better"}})
        sys.exit(1)
    say({"understood": {"version": "9.9"}})
    if MODE == "ends early":
        os.kill(os.getpid(), 11)
    hear()
    if MODE == "cannot map":
        say({"failed": {"why": "the session of adapter web cannot be taken up: no memory"}})
        sys.exit(1)
    say("ready")
    hear()
    if MODE == "fails late":
        say({"failed": {"why": "a ring does not start"}})
    elif MODE == "serves unasked":
        say("serving")
        time.sleep(60)
    elif MODE == "ends late":
        sys.exit(0)
    elif MODE == "silent late":
        time.sleep(60)


if MODE:
    line = socket.socket(fileno=0)
    try:
        main()
    except SystemExit as end:  # which Python does not expect here
        os._exit(end.code)
    os._exit(0)
