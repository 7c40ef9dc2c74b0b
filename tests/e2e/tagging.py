"""A namespace's interface within a VLAN: what leaves it gets a tag, what comes with another tag or none is dropped.

Two programs at the interface do it (cls_bpf), so the kernel needs no 802.1Q module, which small kernels leave out.
"""

import os
import tempfile

from bpf import SCHED_CLS, insn, load, pin
from netns import call

TPID = 0x0081  # 0x8100 in the order of the network
VLAN_PUSH, VLAN_POP = 18, 19  # helpers
PRESENT, TCI = 20, 24  # fields of struct __sk_buff


def _push(vid):
    """Tags a frame: skb_vlan_push(skb, TPID, vid)."""
    return [insn(0xB7, 2, imm=TPID), insn(0xB7, 3, imm=vid), insn(0x85, imm=VLAN_PUSH), insn(0xB7, 0), insn(0x95)]


def _pop(vid):
    """Takes the tag off a frame that has this one; drops any other frame."""
    return [
        insn(0x61, 2, 1, PRESENT),
        insn(0x15, 2, off=6, imm=0),  # untagged: to the drop
        insn(0x61, 2, 1, TCI),
        insn(0x57, 2, imm=0xFFF),
        insn(0x55, 2, off=3, imm=vid),  # another VLAN: to the drop
        insn(0x85, imm=VLAN_POP),
        insn(0xB7, 0),
        insn(0x95),
        insn(0xB7, 0, imm=2),  # TC_ACT_SHOT
        insn(0x95),
    ]


def tag(space, interface, vid):
    """Puts an interface of a namespace into a VLAN, for as long as it lives."""
    place = tempfile.mkdtemp(prefix="bpf-", dir=space.network.run_dir)
    call(["mount", "-t", "bpf", "bpf", place])
    try:
        space.run("tc", "qdisc", "add", "dev", interface, "clsact")
        for direction, instructions in (("egress", _push(vid)), ("ingress", _pop(vid))):
            program = load(instructions, SCHED_CLS)
            try:
                pin(program, f"{place}/{direction}")
            finally:
                os.close(program)
            space.run("tc", "filter", "add", "dev", interface, direction, "bpf", "direct-action",
                      "object-pinned", f"{place}/{direction}")  # fmt: skip
    finally:
        call(["umount", place])  # the interface holds its programs
