"""Emulates a network card's flow rules, at the far end of a veth: frames for an address go to a receive queue.

A veth's end receives by the queue that its peer has sent by, so a program at the peer (cls_bpf) chooses.
"""

import os
import tempfile

from bpf import SCHED_CLS, insn, load, pin
from netns import call

DATA, DATA_END, QUEUE_MAPPING = 76, 80, 12  # fields of struct __sk_buff


def _choose(mac, queue):
    """Frames for `mac` to `queue`, all others to queue 0."""
    first, last = (int.from_bytes(part, "little") for part in (mac[:4], mac[4:]))
    first -= (first & 1 << 31) << 1  # an immediate is signed
    return [
        insn(0x61, 2, 1, DATA),
        insn(0x61, 3, 1, DATA_END),
        insn(0xBF, 4, 2),
        insn(0x07, 4, imm=14),
        insn(0x2D, 4, 3, 7),  # too short to have an address: to queue 0
        insn(0x61, 5, 2),
        insn(0x56, 5, off=5, imm=first),
        insn(0x69, 5, 2, 4),
        insn(0x55, 5, off=3, imm=last),
        insn(0xB7, 5, imm=queue + 1),  # the kernel counts from 1 there
        insn(0x63, 1, 5, QUEUE_MAPPING),
        insn(0x05, off=2),
        insn(0xB7, 5, imm=1),
        insn(0x63, 1, 5, QUEUE_MAPPING),
        insn(0xB7, 0),
        insn(0x95),
    ]


def steer(space, interface, mac, queue):
    """From now on frames for `mac` leave an interface by `queue`, and others by queue 0."""
    place = tempfile.mkdtemp(prefix="bpf-", dir=space.network.run_dir)
    call(["mount", "-t", "bpf", "bpf", place])
    try:
        program = load(_choose(bytes.fromhex(mac.replace(":", "")), queue), SCHED_CLS)
        try:
            pin(program, f"{place}/steer")
        finally:
            os.close(program)
        space.run("tc", "qdisc", "add", "dev", interface, "clsact")
        space.run("tc", "filter", "add", "dev", interface, "egress", "bpf", "direct-action",
                  "object-pinned", f"{place}/steer")  # fmt: skip
    finally:
        call(["umount", place])  # the interface holds its program
