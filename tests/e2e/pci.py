"""Guests with SR-IOV NICs of their own, and the daemon as on a server: igb with its VFs, and netdevsim.

igb (QEMU's 82576): PCI, sysfs, netlink and drivers are real; see `IgbGuest`. netdevsim is the kernel's own simulated device:
netlink and devlink only, without PCI and traffic; see `NetdevsimGuest`.
"""

import json
import os
import re
import time

from daemon import DaemonError, binary
from devices import Intel, Module, Netdev, Options, VirtioNet
from guest import Guest

PROGRAM, RUN_DIR, STATE_DIR, LOG, PID = "/bin/shunt", "/run/shunt", "/var/lib/shunt", "/run/shunt.log", "/run/shunt.pid"
WIRE_MAC = "02:0e:20:00:00:ff"
IOMMU = Options(("-machine", "kernel-irqchip=split", "-device", "intel-iommu,intremap=on"), ())


class PciGuest(Guest):
    """A guest in which `shunt` runs, alone or as a daemon."""

    def boot(self):
        """Starts it, and puts the program into it."""
        super().boot()
        self.put(PROGRAM, source=binary())
        return self

    def shunt(self, *words, given="", timeout=60):
        """Runs a command against the daemon here; its end."""
        return self.ask(PROGRAM, *words, "--run-dir", RUN_DIR, given=given, timeout=timeout)

    def says(self, *words, given=""):
        """Output of a command that must succeed."""
        done = self.shunt(*words, given=given)
        if done.status != 0:
            raise DaemonError(f"shunt {' '.join(words)}: exit code {done.status}: {done.err}; the daemon's log:\n{self.log()[-3000:]}")
        return done.out

    def start_daemon(self, config="", state=True):
        """Starts the daemon with these lines of its configuration, and waits until it is ready."""
        head = f'run_dir = "{RUN_DIR}"\n' + (f'state_dir = "{STATE_DIR}"\n' if state else "")
        self.put("/shunt.toml", data=(head + config).encode(), mode=0o644)
        self.run("rm", "-f", LOG)  # that of another daemon is ready already
        script = f"echo $$ >{PID}; exec {PROGRAM} up --config /shunt.toml >{LOG} 2>&1"
        self.daemon = self.start("sh", "-c", script)
        deadline = time.monotonic() + 60
        while not re.search(r"\bready\b", self.log()):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise DaemonError(f"{self.name}: the daemon is not ready; its log:\n{self.log()}")
            time.sleep(0.05)

    def kill_daemon(self):
        """SIGKILL for the daemon's process only, and waits for its end."""
        self.run("sh", "-c", f"kill -9 $(cat {PID})")
        self.daemon.wait()

    def stop_daemon(self):
        """SIGTERM, and waits for the end."""
        self.run("sh", "-c", f"kill $(cat {PID})")
        self.daemon.wait()

    def log(self):
        """Log of the daemon."""
        return self.ask("cat", LOG).out

    def snapshot(self):
        """What a release must restore (see inguest/snapshot.py)."""
        return json.loads(self.run("python3", "-BIS", "/inguest/snapshot.py"))

    def difference(self, before, timeout=30):
        """Lines in which the state differs from an earlier snapshot; waits for a link that comes back, as after a reset."""
        deadline = time.monotonic() + timeout
        while (found := difference(before, self.snapshot())) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found


class IgbGuest(PciGuest):
    """A guest with igb PFs on one wire, on which a virtio-net interface is the rest of the network.

    `pf(0)`: interface of a PF; `pci(0)`: its directory in sysfs. With `iommu` each function has an IOMMU group of its own.
    `wire`: netdev of the PFs in place of that wire. `number`: of the guest, if several have PFs on one wire.
    """

    modules = ("vfio-pci", "8021q", "macvlan")

    def __init__(self, run_dir, *, pfs=1, iommu=False, wire=None, number=0, further=(), name="igb", **options):
        self.macs = [f"02:0e:20:{number:02x}:00:{pf:02x}" for pf in range(pfs)]
        hub = Netdev("hubport", {"hubid": 0})
        devices = [Intel("igb", mac, wire or hub) for mac in self.macs]
        devices += [*further, Module(self.modules)]
        if not wire:
            devices.append(VirtioNet(WIRE_MAC, hub, id="wire"))
        if iommu:
            options["append"] = "intel_iommu=on iommu=pt"
            devices.append(IOMMU)
        super().__init__(run_dir, devices, name=name, **options)

    def pf(self, number=0):
        """Interface of a PF."""
        return self.interface(self.macs[number])

    def pci(self, number=0):
        """Directory of a PF in sysfs."""
        return self.run("readlink", "-f", f"/sys/class/net/{self.pf(number)}/device").strip()

    def set_numvfs(self, count, number=0):
        """Makes so many VFs of a PF; what the kernel said."""
        return self.write(f"{self.pci(number)}/sriov_numvfs", str(count))

    def vfs(self, number=0):
        """VFs of a PF, as `ip -d -j link` has them."""
        return self.link(self.pf(number)).get("vfinfo_list", [])


class NetdevsimGuest(PciGuest):
    """A guest with one netdevsim device (`netdevsim/netdevsim0`) with VFs."""

    device = "netdevsim/netdevsim0"

    def __init__(self, run_dir, *, name="netdevsim", **options):
        super().__init__(run_dir, [Module(("netdevsim",))], name=name, **options)

    def boot(self, vfs=4):
        """Starts it, and makes the device."""
        super().boot()
        self.run("sh", "-ec", "echo '0 1' >/sys/bus/netdevsim/new_device")
        self.run("sh", "-ec", f"echo {vfs} >/sys/bus/netdevsim/devices/netdevsim0/sriov_numvfs")
        return self

    def pf(self):
        """Interface of the PF."""
        return os.path.basename(self.run("sh", "-c", "ls -d /sys/bus/netdevsim/devices/netdevsim0/net/*").split()[0])


def difference(before, after):
    """A line for each value that differs between two snapshots; empty if they are the same."""
    one, other = flat(before), flat(after)
    changed = sorted(place for place in one | other if one.get(place, "none") != other.get(place, "none"))
    return "\n".join(f"{place}: {one.get(place, 'none')} -> {other.get(place, 'none')}" for place in changed)


def flat(value, place=""):
    """Values within a snapshot by their place: `links//eth0/mtu`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if not inner:
        return {place: json.dumps(value)}
    return {key: one for name, below in inner for key, one in flat(below, f"{place}/{name}" if place else name).items()}
