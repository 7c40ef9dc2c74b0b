"""A VF by vfio-pci, in a VM within a guest: igb of QEMU behind an emulated IOMMU, plugged and unplugged as docs/cards.md says.

QEMU emulates a processor that emulates a processor: some ten minutes, so this is a long test. The inner VM has no agent; its
start is seen in its console, and its frames from the wire.
"""

import functools
import os
import shutil
import subprocess
import tempfile
import time
import unittest

from cpio import Archive
from guest import initrd, skip_without_guests
from literal import section
from pages import fenced, page
from pci import WIRE_MAC, IgbGuest
from qemu import KERNEL, Tree

ADDRESS, PEER = "10.1.0.99", "10.1.0.1"
CONSOLE = "/run/inner.log"
SHUNT = 'shunt() { /bin/shunt "$@" --run-dir /run/shunt; }\n'
FIRMWARE = ("kvmvapic.bin", "linuxboot_dma.bin", "multiboot_dma.bin", "pvh.bin")
INIT = f"""#!/bin/sh
export PATH=/bin:/sbin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
modprobe -a af_packet igbvf virtio_net
until [ "$master" ]; do
    for net in /sys/class/net/*; do
        case $(ethtool -i ${{net##*/}} 2>/dev/null) in *net_failover*) master=${{net##*/}};; esac
    done
done
ip address add {ADDRESS}/24 dev $master
ip link set $master up
echo inner VM is ready
exec sleep infinity
"""


class Outer(IgbGuest):
    """A guest with QEMU, and what a VM within needs, in `/q`."""

    def __init__(self, run_dir):
        super().__init__(run_dir, iommu=True, memory_mib=1600)
        self.image = os.path.join(run_dir, "outer.cpio")
        self.make_image(os.path.join(run_dir, "q"), Tree())

    def make_image(self, directory, tree):
        """Its root file system, with those of QEMU and of the VM within."""
        for name in ("lib", "share", "inner"):
            os.makedirs(os.path.join(directory, name))
        program = tree.path("usr/bin/qemu-system-x86_64")
        listed = subprocess.run([*tree.loader, "--list", program], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            if "=> /" in line:
                shutil.copy(line.split("=> ")[1].split()[0], os.path.join(directory, "lib"))
        shutil.copy(tree.loader[0], os.path.join(directory, "ld.so"))
        shutil.copy(program, os.path.join(directory, "qemu"))
        shutil.copy(tree.kernel, os.path.join(directory, "vmlinux"))
        bios = tree.path("usr/share/seabios")
        firmware = [tree.path("usr/share/qemu", name) for name in FIRMWARE]
        for path in firmware + [os.path.join(bios, name) for name in os.listdir(bios) if name.startswith("bios")]:
            shutil.copy(path, os.path.join(directory, "share"))
        init = os.path.join(directory, "inner", "init")
        with open(init, "w", encoding="utf-8") as file:
            file.write(INIT)
        os.chmod(init, 0o755)
        self.join(os.path.join(directory, "init.cpio"), tree.base, inner=os.path.join(directory, "inner"))
        self.join(self.image, initrd(), q=directory)

    @staticmethod
    def join(path, base, **trees):
        """An archive with these trees after that of another archive."""
        archive = Archive()
        for name, directory in trees.items():
            archive.tree(name, directory)
        with open(path, "wb") as file, open(base, "rb") as before:
            shutil.copyfileobj(before, file)
            file.write(archive.end())

    def start_machine(self):
        """Starts QEMU with that root file system."""
        self.machine.start(self.image)
        self.agent.attach(self.machine.agent)
        self.machine.negotiate()


class Nested(unittest.TestCase):
    """The VM of docs/qemu.md, with VF 0 of docs/cards.md."""

    limit_s = 3600
    long_tests = ("test_a_vf_by_vfio_pci",)

    def test_a_vf_by_vfio_pci(self):
        """It is plugged and unplugged twice, and the VM is reached each time."""
        skip_without_guests()
        run_dir = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        self.addCleanup(run_dir.cleanup)
        guest = Outer(run_dir.name)
        self.addCleanup(guest.close)
        guest.boot()
        pf, wire, name = guest.pf(), guest.namespace("wire"), guest.interface(WIRE_MAC)
        guest.up(pf)
        guest.ip("link", "set", name, "netns", "wire")
        wire.up(name, f"{PEER}/24")
        guest.start_daemon()
        commands, bind = fenced(section(page("cards.md"), "Virtual machines"), "sh")
        guest.run("sh", "-ec", SHUNT + commands.replace("eth0", pf), timeout=120)
        vf = guest.run("sh", "-c", f"basename $(readlink -f {guest.pci()}/virtfn0)").strip()
        guest.run("sh", "-ec", bind.replace("0000:01:10.0", vf))
        self.start_inner(guest)
        reached = functools.partial(self.assert_reached, wire)
        reached()
        text = fenced(section(page("qemu.md"), "A VF beside the adapter"), "sh")[0]
        attach, status, detach = (f"{line} --timeout 300" if "status" not in line else line for line in text.splitlines())
        for _ in range(2):
            guest.run("sh", "-ec", SHUNT + attach, timeout=400)
            reached()
            self.assertRegex(guest.run("sh", "-ec", SHUNT + status), r"web +standby +yes +primary-web +yes +primary")
            guest.run("sh", "-ec", SHUNT + detach, timeout=400)
            reached()

    def start_inner(self, guest):
        """Starts the VM within, with the options of the page, and waits for it."""
        words = fenced(section(page("qemu.md"), "A VF beside the adapter"), "text")[0].split()
        words = [f"{word},romfile=" if word.startswith("virtio-net-pci") else word for word in words]
        machine = ["-nodefaults", "-no-user-config", "-M", "q35,accel=tcg,memory-backend=mem,sata=off,usb=off", "-display", "none"]
        machine += ["-object", "memory-backend-memfd,id=mem,size=256M,share=on", "-m", "256", "-cpu", "qemu64,+rdrand"]
        kernel = KERNEL.replace("rdinit=/inguest/init", "rdinit=/inner/init")
        machine += ["-kernel", "/q/vmlinux", "-initrd", "/q/init.cpio", "-append", kernel, "-serial", f"file:{CONSOLE}"]
        qemu = ["/q/ld.so", "--library-path", "/q/lib", "--argv0", "qemu-system-x86_64", "/q/qemu", "-L", "/q/share"]
        running = guest.start(*qemu, *machine, *words)
        deadline = time.monotonic() + 1800
        while "inner VM is ready" not in (said := guest.ask("cat", CONSOLE).out):
            self.assertIsNone(running.poll(), running.done)
            self.assertLess(time.monotonic(), deadline, said[-2000:])
            time.sleep(2)

    def assert_reached(self, wire):
        """The VM answers from the wire."""
        deadline = time.monotonic() + 120
        while " 0% packet loss" not in (said := wire.ask("ping", "-c", "3", "-W", "5", ADDRESS, timeout=60).out):
            self.assertLess(time.monotonic(), deadline, said)


if __name__ == "__main__":
    unittest.main()
