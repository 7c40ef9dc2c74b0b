"""`shunt nic list` and `shunt nic show` on igb with an IOMMU, field by field as ip, lspci, ethtool, devlink and sysfs have it."""

import functools
import json
import os
import re
import unittest

from pci import PROGRAM, IgbGuest
from test_pci import PciBase

DEVICES = "/sys/bus/pci/devices"


class Discovery(PciBase):
    """A guest with two igb PFs and a virtio-net interface."""

    limit_s = 120
    maxDiff = None
    kind = functools.partial(IgbGuest, pfs=2, iommu=True)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for number in (0, 1):
            cls.guest.up(cls.guest.pf(number))
            cls.guest.wait_link(cls.guest.pf(number), timeout=30, up=True)

    def sysfs(self, address, *path):
        """Text of an attribute of a function, or None."""
        done = self.guest.ask("cat", os.path.join(DEVICES, address, *path))
        return done.out.strip() if done.status == 0 else None

    def lspci(self):
        """Network functions by their address, as `lspci -vmm` has them."""
        records = self.guest.run("lspci", "-D", "-vmm", "-nn", "-k").strip().split("\n\n")
        all_of = [dict(line.split(":\t", 1) for line in record.splitlines()) for record in records]
        return {one["Slot"]: one for one in all_of if "[02" in one["Class"]}

    def links(self):
        """Interfaces by the address of their function, as `ip -d -j link` has them."""
        found = {}
        for link in json.loads(self.guest.ip("-d", "-j", "link")):
            place = self.guest.ask("readlink", "-f", f"/sys/class/net/{link['ifname']}/device").out.strip()
            for part in place.split("/"):
                if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", part):
                    found[part] = link  # the last one is the function's, those before are bridges'
        return {address: link for address, link in found.items() if address in self.lspci()}

    def ethtool(self, interface):
        """What the driver of an interface tells of itself and its link."""
        text = self.guest.run("ethtool", "-i", interface) + self.guest.run("ethtool", interface)
        return dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line.strip())

    def is_isolated(self, address):
        """True if the port above a function has ACS; None without a port."""
        port = os.path.basename(os.path.dirname(self.guest.run("readlink", "-f", f"{DEVICES}/{address}").strip()))
        return None if port.startswith("pci") else "Access Control Services" in self.guest.run("lspci", "-D", "-vv", "-s", port)

    def expected(self, address, function, link):
        """Fields of a function in the list, from the tools of the kernel."""
        id_of = lambda name: re.search(r"\[(\w+)\]$", function[name])[1]  # noqa: E731
        card = self.ethtool(link["ifname"]) if link and function["Driver"] == "igb" else {}
        speed = re.match(r"(\d+)Mb/s", card.get("Speed", ""))
        node, total, enabled = (self.sysfs(address, name) for name in ("numa_node", "sriov_totalvfs", "sriov_numvfs"))
        drivers = {one.get("Driver") for slot, one in self.lspci().items() if self.is_vf_of(slot, address)}
        return {
            "name": link["ifname"] if link else address,
            "kind": "pci",
            "managed": False,
            "total_vfs": total and int(total),
            "num_vfs": enabled and int(enabled),
            "pci_address": address,
            "pci_id": f"{id_of('Vendor')}:{id_of('Device')}",
            "pci_driver": function.get("Driver"),
            "pci_driver_version": card.get("version") or self.sysfs(address, "driver/module/version"),
            "pci_firmware": card.get("firmware-version"),
            "pci_interface": link and link["ifname"],
            "pci_mac": link and link["address"],
            "pci_mtu": link and link["mtu"],
            "pci_link": link and link["operstate"].lower(),
            "pci_speed_mbps": int(speed[1]) if speed else None,
            "pci_numa_node": int(node) if int(node) >= 0 else None,
            "pci_iommu_group": int(function["IOMMUGroup"]),
            "pci_acs": self.is_isolated(address),
            "pci_eswitch_mode": None,
            "pci_total_vfs": total and int(total),
            "pci_num_vfs": enabled and int(enabled),
            "pci_vf_drivers": sorted(drivers),
        }

    def is_vf_of(self, slot, address):
        """True for a VF of a PF."""
        return os.path.basename(self.guest.ask("readlink", f"{DEVICES}/{slot}/physfn").out.strip()) == address

    def assert_listed(self, **others):
        """Each NIC that lspci has is listed, with what the tools tell of it, and `others` of the second PF."""
        self.assertEqual(json.loads(self.guest.run("devlink", "-j", "dev", "info")), {"info": {}})
        links = self.links()
        functions = {address: one for address, one in self.lspci().items() if self.sysfs(address, "physfn/class") is None}
        listed = {nic["pci_address"]: nic for nic in json.loads(self.guest.run(PROGRAM, "nic", "list", "--json"))}
        self.assertEqual(sorted(listed), sorted(functions))
        second = os.path.basename(self.second)
        for address, function in functions.items():
            expected = self.expected(address, function, links.get(address)) | (others if address == second else {})
            self.assertEqual({field: listed[address][field] for field in expected}, expected)
        return listed, links

    def test_as_the_tools_of_the_kernel(self):
        """Without VFs, with them, and with a PF whose driver is unbound."""
        first, self.second = self.guest.pci(0), self.guest.pci(1)
        listed, _ = self.assert_listed(pci_support="Supported", pci_passthrough="Supported", pci_remedies=[])
        self.assertEqual([nic["pci_num_vfs"] for nic in listed.values() if nic["pci_driver"] == "igb"], [0, 0])
        self.assertEqual(self.guest.set_numvfs(3).status, 0)
        self.guest.wait_link(self.guest.pf(0), timeout=30, up=True)
        _, links = self.assert_listed()
        self.assert_shown(os.path.basename(first), links)
        address = os.path.basename(self.second)
        self.assertEqual(self.guest.write("/sys/bus/pci/drivers/igb/unbind", address).status, 0)
        self.addCleanup(self.guest.write, "/sys/bus/pci/drivers/igb/bind", address)
        self.assert_listed(pci_support="MissingPfDriver")

    def assert_shown(self, address, links):
        """VFs, registers and link of a PF."""
        facts = json.loads(self.guest.run(PROGRAM, "nic", "show", address, "--json"))["facts"]
        functions = self.lspci()
        self.assertEqual(len(facts["sriov"]["vfs"]), 3)
        for vf in facts["sriov"]["vfs"]:
            slot = os.path.basename(self.guest.run("readlink", f"{DEVICES}/{address}/virtfn{vf['index']}").strip())
            function, link = functions[slot], links[slot]
            self.assertEqual((vf["address"], vf["driver"]), (slot, function["Driver"]))
            self.assertEqual(vf["iommu_group"], {"number": int(function["IOMMUGroup"]), "others": []})
            interface = vf["interfaces"][0]
            self.assertEqual([interface[key] for key in ("name", "mac", "mtu", "operstate")],
                             [link["ifname"], link["address"], link["mtu"], link["operstate"].lower()])  # fmt: skip
        text = self.guest.run("lspci", "-D", "-vv", "-s", address)
        numbers = re.search(r"Initial VFs: (\d+), Total VFs: (\d+), Number of VFs: (\d+).*\n"
                            r"\s*VF offset: (\d+), stride: (\d+), Device ID: (\w+)", text)  # fmt: skip
        registers = facts["config"]["sriov"]
        fields = [registers[key] for key in ("initial_vfs", "total_vfs", "num_vfs", "offset", "stride")]
        self.assertEqual(fields, [int(number) for number in numbers.groups()[:5]])
        self.assertEqual(f"{registers['vf_device']:04x}", numbers[6])
        self.assertEqual([facts["sriov"][key] for key in ("offset", "stride", "vf_device")],
                         [registers["offset"], registers["stride"], numbers[6]])  # fmt: skip
        for status, speed, width in (("LnkCap", "max_speed", "max_width"), ("LnkSta", "speed", "width")):
            found = re.search(rf"{status}:.*?Speed ([\d.]+GT/s).*?Width x(\d+)", text)
            link = facts["link"]
            self.assertEqual((link[speed].split(" PCIe")[0].replace(" ", ""), link[width]), (found[1], int(found[2])))


if __name__ == "__main__":
    unittest.main()
