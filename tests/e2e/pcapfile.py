"""Capture files (the classic format of libpcap), as lists of frames."""

import struct

MAGICS = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
ETHERNET = 1


class PcapError(Exception):
    """It is no capture of Ethernet frames, or one that was cut."""


def read(path):
    """The frames of a file, as bytes. A last record that is cut off is an error, as is a frame that was cut."""
    with open(path, "rb") as file:
        data = file.read()
    order = MAGICS.get(data[:4])
    if order is None or len(data) < 24:
        raise PcapError(f"{path}: no capture: {data[:24].hex()}")
    if (link := struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF) != ETHERNET:
        raise PcapError(f"{path}: link type {link}, not Ethernet")
    frames, at = [], 24
    while at < len(data):
        if len(data) - at < 16:
            raise PcapError(f"{path}: cut off after {len(frames)} frames")
        kept, whole = struct.unpack_from(order + "8xII", data, at)
        if kept != whole or at + 16 + kept > len(data):
            raise PcapError(f"{path}: frame {len(frames) + 1} has {kept} of {whole} bytes")
        frames.append(data[at + 16 : at + 16 + kept])
        at += 16 + kept
    return frames


def write(path, frames, gap_us=100):
    """Writes frames, `gap_us` apart."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, ETHERNET))
        for number, frame in enumerate(frames):
            seconds, micros = divmod(number * gap_us, 1_000_000)
            file.write(struct.pack("<IIII", 1_700_000_000 + seconds, micros, len(frame), len(frame)) + frame)
