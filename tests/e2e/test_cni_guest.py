"""virtual-pf-2023's demonstration: shunt-cni in a guest gives a container a VF of the guest's virtual PF, by a network as the
SR-IOV CNI plugin has it. VLAN, rate and spoof check are enforced outside, as for `shunt`'s own containers."""

import json
import os

import test_vpf_containers as containers
from test_cni import PLUGIN, PLUGINS

ADDED, NETNS = "/bin/shunt-cni", "/run/netns/web"  # in the guest
# Settings of `shunt adapter create`, and the keys of a network that mean the same.
KEYS = {"--vlan": "vlan", "--max-tx-mbps": "max_tx_rate"}


class Cni:
    """The container's adapter is made by the plugin instead of by `shunt`."""

    long_tests = True  # four guests

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(PLUGIN):
            raise AssertionError("run: cargo build --release --manifest-path kubernetes/Cargo.toml")
        super().setUpClass()
        cls.guest.put(ADDED, source=PLUGIN)
        cls.guest.put("/bin/static", source=os.path.join(PLUGINS, "static"))

    def cni(self, command, network):
        """Runs the plugin as a runtime does; its result."""
        variables = {"CNI_COMMAND": command, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "net1", "CNI_NETNS": NETNS, "CNI_PATH": "/bin"}
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), ADDED]
        said = self.guest.run(*words, given=json.dumps(network))
        return json.loads(said) if said.strip() else None

    def name(self):
        [adapter] = json.loads(self.guest.says("adapter", "list", "--json"))
        return adapter["name"]

    def create(self, *words):
        space = self.guest.namespace("web")
        self.addCleanup(self.guest.ip, "netns", "del", "web")
        settings = {KEYS[name]: int(value) for name, value in zip(words[::2], words[1::2])}
        device = self.guest.run("readlink", "-f", f"{self.vpf.pci}/virtfn0").strip().rsplit("/", 1)[-1]
        network = {
            "cniVersion": "1.0.0", "name": "sriov-network", "type": "shunt-cni", "deviceID": device,
            "ipam": {"type": "static", "addresses": [{"address": containers.OWN}]},
            "runtimeConfig": {"mac": self.mac()}, **settings,
        }  # fmt: skip
        result = self.cni("ADD", network)
        self.addCleanup(self.cni, "DEL", network)
        self.assertEqual(result["interfaces"][0]["mac"], self.mac())
        self.assertEqual(result["ips"][0]["address"], containers.OWN)
        self.assertEqual(space.link("net1")["address"], self.mac())
        self.cni("CHECK", network | {"prevResult": result})
        return space


class Igb(Cni, containers.Igb):
    """igb: the PF's driver in the guest sets the VLAN, and Shunt outside permits it."""


class Virtio(Cni, containers.Virtio):
    """virtio: the settings are those of the VF's port outside."""

    test_settings_inside_are_refused = None  # of `shunt`'s own command
