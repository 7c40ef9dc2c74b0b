"""A namespace's interface within a VLAN: what leaves it gets a tag, what comes with another tag or none is dropped.

Two programs of a few instructions at the interface do it (cls_bpf), so the kernel needs no 802.1Q module, which small
kernels leave out. Little-endian machines only, as everything else here.
"""

import ctypes
import os
import struct
import tempfile

from netns import NetworkError, call

SYS_BPF = 321  # x86_64
PROG_LOAD, OBJ_PIN = 5, 6
SCHED_CLS = 3
TPID = 0x0081  # 0x8100 in the order of the network
VLAN_PUSH, VLAN_POP = 18, 19  # helpers
PRESENT, TCI = 20, 24  # fields of struct __sk_buff


def _insn(code, dst=0, src=0, off=0, imm=0):
    return struct.pack("<BBhi", code, src << 4 | dst, off, imm)


def _push(vid):
    """Tags a frame: skb_vlan_push(skb, TPID, vid)."""
    return [_insn(0xB7, 2, imm=TPID), _insn(0xB7, 3, imm=vid), _insn(0x85, imm=VLAN_PUSH),
            _insn(0xB7, 0, imm=0), _insn(0x95)]  # fmt: skip


def _pop(vid):
    """Takes the tag off a frame that has this one; drops any other frame."""
    return [
        _insn(0x61, 2, 1, PRESENT),
        _insn(0x15, 2, off=6, imm=0),  # untagged: to the drop
        _insn(0x61, 2, 1, TCI),
        _insn(0x57, 2, imm=0xFFF),
        _insn(0x55, 2, off=3, imm=vid),  # another VLAN: to the drop
        _insn(0x85, imm=VLAN_POP),
        _insn(0xB7, 0, imm=0),
        _insn(0x95),
        _insn(0xB7, 0, imm=2),  # TC_ACT_SHOT
        _insn(0x95),
    ]


def _bpf(command, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(SYS_BPF, command, attributes, len(attributes))
    if result < 0:
        raise NetworkError(f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return result


def _load(instructions, path):
    """Loads a program and pins it at `path`, in a bpf file system."""
    code = b"".join(instructions)
    log = ctypes.create_string_buffer(16384)
    held = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(os.fsencode(path))
    address = [ctypes.addressof(one) for one in held]
    load = struct.pack("<IIQQIIQ", SCHED_CLS, len(instructions), address[0], address[1], 1, len(log),
                       ctypes.addressof(log))  # fmt: skip
    try:
        program = _bpf(PROG_LOAD, load.ljust(120, b"\0"))
    except NetworkError as error:
        raise NetworkError(f"{error}: {log.value.decode()}") from error
    try:
        _bpf(OBJ_PIN, struct.pack("<QII", address[2], program, 0))
    finally:
        os.close(program)


def tag(space, interface, vid):
    """Puts an interface of a namespace into a VLAN, for as long as it lives."""
    place = tempfile.mkdtemp(prefix="bpf-", dir=space.network.run_dir)
    call(["mount", "-t", "bpf", "bpf", place])
    try:
        _load(_push(vid), f"{place}/push")
        _load(_pop(vid), f"{place}/pop")
        space.run("tc", "qdisc", "add", "dev", interface, "clsact")
        for direction, program in (("egress", "push"), ("ingress", "pop")):
            space.run("tc", "filter", "add", "dev", interface, direction, "bpf", "direct-action",
                      "object-pinned", f"{place}/{program}")  # fmt: skip
    finally:
        call(["umount", place])  # the interface holds its programs by itself
