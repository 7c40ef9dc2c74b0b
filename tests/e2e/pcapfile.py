"""Capture files as lists of frames: libpcap's classic format, and pcapng as far as captures of one interface go."""

import struct

MAGICS = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6  # blocks of pcapng
ETHERNET = 1


class PcapError(Exception):
    """It is no capture of Ethernet frames, or one that was cut."""


def read(path):
    """The frames of a file, as bytes. A last record that is cut off is an error, as is a frame that was cut."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] == struct.pack("<I", SECTION):
        return list(_blocks(path, data))
    order = MAGICS.get(data[:4])
    if order is None or len(data) < 24:
        raise PcapError(f"{path}: no capture: {data[:24].hex()}")
    _check_link(path, struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF)
    return list(_records(path, data, order))


def _check_link(path, link):
    if link != ETHERNET:
        raise PcapError(f"{path}: link type {link}, not Ethernet")


def _records(path, data, order):
    """The frames of the classic format."""
    at = 24
    while at < len(data):
        kept, whole = struct.unpack_from(order + "8xII", data, at) if len(data) - at >= 16 else (0, 1)
        if kept != whole or at + 16 + kept > len(data):
            raise PcapError(f"{path}: a record is cut off at byte {at}")
        yield data[at + 16 : at + 16 + kept]
        at += 16 + kept


def _blocks(path, data):
    """The frames of pcapng, one section."""
    at, order = 0, "<" if data[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    while at < len(data):
        kind, length = struct.unpack_from(order + "II", data, at) if len(data) - at >= 12 else (0, 0)
        if length < 12 or at + length > len(data):
            raise PcapError(f"{path}: a block is cut off at byte {at}")
        if kind == INTERFACE:
            _check_link(path, struct.unpack_from(order + "H", data, at + 8)[0])
        if kind == PACKET:
            kept, whole = struct.unpack_from(order + "II", data, at + 20)
            if kept != whole:
                raise PcapError(f"{path}: a frame has {kept} of {whole} bytes")
            yield data[at + 28 : at + 28 + kept]
        at += length


def write(path, frames, gap_us=100, first_after_us=0):
    """Writes frames in the classic format, `gap_us` apart; the second one is `first_after_us` later still."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, ETHERNET))
        for number, frame in enumerate(frames):
            seconds, micros = divmod(number * gap_us + (first_after_us if number else 0), 1_000_000)
            file.write(struct.pack("<IIII", 1_700_000_000 + seconds, micros, len(frame), len(frame)) + frame)
