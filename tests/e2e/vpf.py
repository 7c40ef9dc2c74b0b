"""Virtual PFs of guests: made by `shunt vpf`, and their VFs as the guest has them."""

import json
import os
import shlex

from daemon import binary
from devices import Options
from guest import Guest

TOOL = "/bin/shunt-guest"


def tool():
    """The tool for guests, beside the daemon's program."""
    return os.environ.get("SHUNT_GUEST", os.path.join(os.path.dirname(binary()), "shunt-guest"))


class VpfGuest:
    """A guest with a virtual PF of that name, made with these words of `shunt vpf`."""

    def __init__(self, daemon, name, *words, modules=("virtio_net", "8021q", "macvlan"), kind=Guest, **options):
        self.daemon, self.name = daemon, name
        self.made = daemon.command("vpf", name, *words)
        if self.made.returncode != 0:
            raise AssertionError(f"shunt vpf {name}: {self.made.stderr}")
        argv = shlex.split(self.made.stdout)
        self.guest = kind(daemon.run_dir, [Options(tuple(argv), modules)], name=name, **options)
        self.document = next(vpf for vpf in daemon.export()["vpf"] if vpf["name"] == name)
        self.spaces = {}

    def start(self):
        """Starts QEMU."""
        self.guest.start_machine()

    def ready(self):
        """Waits until the guest has started, and puts the tool into it."""
        self.guest.wait_boot()
        self.guest.put(TOOL, tool())
        self.pf = self.guest.interface(self.mac("pf"))
        # The driver of a virtio device is a device of its own, below the PCI device.
        for place in (f"/sys/class/net/{self.pf}/device/..", f"/sys/class/net/{self.pf}/device"):
            if self.guest.ask("test", "-e", f"{place}/sriov_totalvfs").status == 0:
                self.pci = self.guest.run("readlink", "-f", place).strip()
                return
        raise AssertionError(f"{self.name}: the PF {self.pf} has no SR-IOV")

    def adapter(self, function):
        """The name of the adapter behind `pf`, or a VF's number."""
        return f"{self.name}-{function if function == 'pf' else f'vf{function}'}"

    def mac(self, function):
        """The address that the host gave a function."""
        adapters = self.daemon.export()["adapter"]
        return next(one["mac"] for one in adapters if one["name"] == self.adapter(function))

    def set_numvfs(self, count):
        """Enables so many VFs; what the kernel said."""
        return self.guest.write(f"{self.pci}/sriov_numvfs", str(count))

    def device(self, vf):
        """The network device of a VF in the guest's first namespace."""
        place = f"{self.pci}/virtfn{vf}"
        return self.guest.run("sh", "-ec", f"ls {place}/virtio*/net 2>/dev/null || ls {place}/net").split()[0]

    def enable(self, count, addresses):
        """Enables VFs, each in a namespace of its own with the address that `addresses` gives for its number."""
        self.disable()
        done = self.set_numvfs(count)
        assert done.status == 0, done.err
        for vf in range(count):
            space = self.spaces.get(vf) or self.guest.namespace(f"v{vf}")
            self.spaces[vf] = space
            name = self.device(vf)
            self.guest.ip("link", "set", "dev", name, "netns", f"v{vf}", "name", "net1")
            space.up("net1", addresses(vf))
        return [self.spaces[vf] for vf in range(count)]

    def disable(self):
        """No VFs any more; their devices go, wherever they are."""
        done = self.set_numvfs(0)
        assert done.status == 0, done.err

    def tool(self, *words):
        """Runs the tool in the guest: how it ended."""
        return self.guest.ask(TOOL, *words, timeout=40)

    def sets(self, *words):
        """Runs it for something that must succeed: what it printed."""
        done = self.tool(*words)
        assert done.status == 0, f"shunt-guest {' '.join(words)}: {done}"
        return done.out

    def vfs(self):
        """The VFs as the tool shows them."""
        return json.loads(self.sets("-j", "vf", "list"))[0]["vfinfo_list"]

    def seen(self):
        """The virtual PF as the host's API shows it."""
        vpfs = self.daemon.ask("/v1/actual").body["vpfs"]
        return next(vpf for vpf in vpfs if vpf["name"] == self.name)

    def told_by_qemu(self):
        """VFs that the guest has enabled, from QEMU."""
        return json.loads(self.daemon.says("vpf", self.name, "--qmp", self.guest.machine.qmp_path, "--json"))

    def counters(self, function):
        """Counters of a function's port in the daemon."""
        nic = next(one["nic"] for one in self.daemon.export()["adapter"] if one["name"] == self.adapter(function))
        ports = self.daemon.stats()["ports"]
        return next(port for port in ports if port["name"] == f"{nic}/{self.adapter(function)}")

    def close(self):
        """Ends the guest."""
        self.guest.close()
