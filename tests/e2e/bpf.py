"""The bpf system call, as far as the tests want it: programs of a few instructions, loaded, pinned and run.

Little-endian x86-64 only. `libbpf` and a compiler are not needed for programs this small.
"""

import ctypes
import os
import struct

SYS_BPF = 321  # x86_64
PROG_LOAD, OBJ_PIN, PROG_TEST_RUN = 5, 6, 10
SCHED_CLS, XDP = 3, 6  # kinds of programs
LIVE_FRAMES = 2  # of PROG_TEST_RUN: what the program says is done with the frames
_LIBC = ctypes.CDLL(None, use_errno=True)


class BpfError(Exception):
    """The kernel refused; the text holds the verifier's log."""


def insn(code, dst=0, src=0, off=0, imm=0):
    """One instruction: struct bpf_insn."""
    return struct.pack("<BBhi", code, src << 4 | dst, off, imm)


def _bpf(command, attributes):
    result = _LIBC.syscall(SYS_BPF, command, ctypes.create_string_buffer(attributes, 128), 128)
    if result < 0:
        error = ctypes.get_errno()
        raise BpfError(f"bpf({command}): {os.strerror(error)}") from OSError(error, os.strerror(error))
    return result


def load(instructions, kind):
    """Loads a program; its file descriptor."""
    code = ctypes.create_string_buffer(b"".join(instructions))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(16384)
    at = ctypes.addressof
    head = struct.pack("<IIQQIIQ", kind, len(instructions), at(code), at(licence), 1, len(log), at(log))
    try:
        return _bpf(PROG_LOAD, head)
    except BpfError as error:
        raise BpfError(f"{error}: {log.value.decode(errors='replace')}") from error


def pin(program, path):
    """Gives a program a name in a bpf file system."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    _bpf(OBJ_PIN, struct.pack("<QII", ctypes.addressof(name), program, 0))


def run_live(program, frame, repeat, batch=64):
    """Lets an XDP program have `repeat` copies of a frame, as if they had come in."""
    data = ctypes.create_string_buffer(frame, len(frame))
    context = ctypes.create_string_buffer(struct.pack("<IIIIII", 0, len(frame), 0, 0, 0, 0), 24)
    at = ctypes.addressof
    head = struct.pack("<IIIIQQII", program, 0, len(frame), 0, at(data), 0, repeat, 0)
    head += struct.pack("<IIQQIII", 24, 0, at(context), 0, LIVE_FRAMES, 0, batch)
    _bpf(PROG_TEST_RUN, head)
