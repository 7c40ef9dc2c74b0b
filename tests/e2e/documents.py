"""The documents that the kill test applies in turn, and what must be in force under each.

Adapters of one switch: two have testpmd, which stays, and two have guests of the lab, which come and go. Each
document differs from its neighbours in many places at once, so that a mixture of two would show: guests that talk to
each other change their VLAN together, VFs and paths go from hand to hand, `num_vfs` goes to 0 and back, and adapters,
further NICs, settings of VFs and of ports come and go. The ring may be gone round in both directions.
"""

import os
from dataclasses import dataclass, field

PAIR = ("a", "b")  # testpmd's: the daemon connects to them
LAB = ("c", "d")  # they connect to the daemon


@dataclass(frozen=True)
class Wanted:
    """One adapter of a document: `path` is the one that it must have then."""

    mac: int
    vlan: int | None = None
    path: str = "vf"
    settings: dict = field(default_factory=dict)


def mac_text(number):
    """02:00:00:00:00:xx, as the documents and the guests have it."""
    return f"02:00:00:00:00:{number:02x}"


@dataclass(frozen=True)
class Document:
    """A whole state, by what distinguishes it from the others."""

    name: str
    num_vfs: int
    adapters: dict
    nic: dict = field(default_factory=dict)
    switch: dict = field(default_factory=dict)
    more_nics: tuple = ()

    def state(self, run_dir):
        """It as `shunt apply` takes it."""
        nic = {"name": "nic0", "total_vfs": 6, "num_vfs": self.num_vfs, "vmq_queues": 3, **self.nic}
        switch = {"name": "sw0", "nic": "nic0", "iov": True, **self.switch}
        adapters = [self._adapter(run_dir, name, wanted) for name, wanted in self.adapters.items()]
        return {"version": 1, "nic": [nic, *self.more_nics], "switch": [switch], "adapter": adapters}

    def _adapter(self, run_dir, name, wanted):
        attachment = {"socket": os.path.join(run_dir, f"{name}.sock"), "in_order": True}
        attachment["mode"] = "client" if name in PAIR else "server"
        document = {"name": name, "switch": "sw0", "attachment": attachment, "mac": mac_text(wanted.mac)}
        document["iov_weight"] = 50 if wanted.path == "vf" else 0
        document["vmq_weight"] = 50 if wanted.path == "vmq" else 0
        if wanted.vlan:
            document["vlan"] = {"id": wanted.vlan}
        return document | wanted.settings

    def disagreements(self, in_force):
        """Differences between the answer of `/v1/actual` and this document, as sentences."""
        actual = in_force["actual"]
        found = []

        def compare(what, seen, expected):
            if seen != expected:
                found.append(f"{what}: {seen!r} in force, {expected!r} by document {self.name}")

        compare("paths", {one["name"]: one["path"] for one in actual["adapters"]},
                {name: wanted.path for name, wanted in self.adapters.items()})  # fmt: skip
        nics = {nic["name"]: nic for nic in actual["nics"]}
        compare("NICs", sorted(nics), sorted(["nic0", *(nic["name"] for nic in self.more_nics)]))
        vfs = nics["nic0"]["vfs"]
        compare("VFs", [vf["index"] for vf in vfs], list(range(self.num_vfs)))
        holders = {vf["adapter"]: (vf["mac"], vf["vlan"]) for vf in vfs if vf["adapter"]}
        compare("adapters with VFs, their MACs and VLANs", holders,
                {name: (mac_text(wanted.mac), wanted.vlan)
                 for name, wanted in self.adapters.items() if wanted.path == "vf"})  # fmt: skip
        own = {vf["index"]: (vf["mac"], vf["vlan"]["id"]) for vf in self.nic.get("vf", [])}
        # An unused VF has an address that the NIC generated, and no VLAN of its previous user.
        free = {vf["index"]: (vf["mac"], vf["vlan"]) for vf in vfs if not vf["adapter"]}
        left = {i: of for i, of in free.items() if of[0].startswith(mac_text(0)[:-2]) or of[1]}
        compare("VFs without adapters", left, own)
        owners = {vf: owner["holder"] for vf, owner in in_force["owners"].items()}
        expected = {f"nic0/vf{vf['index']}": vf["adapter"] for vf in vfs if vf["adapter"]}
        compare("owners", owners, expected | {f"nic0/vf{index}": "" for index in own})
        return found


def own_vf(index, mac, vlan):
    """Settings of a VF that no adapter has."""
    return {"index": index, "mac": mac_text(mac), "vlan": {"id": vlan}, "trust": True, "max_tx_mbps": 500}


def second_nic(name, bridging):
    """Another NIC, with unused VFs."""
    return {"name": name, "total_vfs": 3, "num_vfs": 3, "bridging": bridging}


RING = [
    Document("all on VFs", 6, {
        "a": Wanted(1, 10), "b": Wanted(2, 10), "c": Wanted(3, 30), "d": Wanted(4, 30),
    }, nic={"vf": [own_vf(5, 0x55, 500)]}),
    Document("swapped", 6, {
        "a": Wanted(1, 20, "synthetic"), "b": Wanted(2, 20), "c": Wanted(0x13, 31, "vmq"), "d": Wanted(0x14, 31),
    }, nic={"vf": [own_vf(0, 0x50, 501), own_vf(4, 0x54, 502)]}, more_nics=(second_nic("nic1", "vepa"),)),
    Document("no VFs", 0, {
        "a": Wanted(1, None, "vmq"), "b": Wanted(2, None, "vmq"), "c": Wanted(4, 32, "synthetic"),
        "d": Wanted(3, 32, "vmq"),
    }, switch={"ageing_s": 17, "port": [{"adapter": "a", "dhcp_guard": True}]}),
    Document("two VFs", 2, {
        "a": Wanted(1, 11), "b": Wanted(2, 11, "vmq"), "c": Wanted(0x23, None), "d": Wanted(0x24, None, "vmq"),
    }, switch={"port": [{"adapter": "d", "router_guard": True}]}, more_nics=(second_nic("nic2", "veb"),)),
    Document("two others", 2, {
        "a": Wanted(1, 12, "synthetic"), "b": Wanted(2, 12), "c": Wanted(0x24, 33, "synthetic"),
        "d": Wanted(0x23, 33),
    }, nic={"bridging": "veb"}),
    Document("no VFs again", 0, {
        "a": Wanted(1, 13, "synthetic"), "b": Wanted(2, 13, "synthetic", {"tx_weight": 40}),
    }, more_nics=(second_nic("nic1", "isolated"), second_nic("nic2", "veb"))),
]  # fmt: skip
