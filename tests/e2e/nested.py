"""A server that is a guest itself: igb behind an emulated IOMMU, shunt as its daemon, and QEMU with a VM that takes VFs of igb.

QEMU emulates a processor that emulates a processor, so all of it is slow. That would be minutes for the start of the VM: it
starts on the host, with the same options, and is saved; in a server it goes on. It has no agent, so its frames are seen from
the wire. It has the adapter `web` of docs/cards.md, and returns what it gets at TCP port 7.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time

from bench import cpus
from cpio import Archive
from guest import initrd
from literal import section
from managed import Managed
from netns import end
from pages import fenced, page
from pci import IgbGuest
from qemu import KERNEL, Qmp, Tree

ADDRESS, PEER = "10.1.0.99", "10.1.0.1"
ECHO_PORT = 7
MAC = "02:00:00:00:00:01"
SHUNT = 'shunt() { /bin/shunt "$@" --run-dir /run/shunt; }\n'
CARDS = section(page("cards.md"), "Virtual machines")
PAIR = section(page("qemu.md"), "A VF beside the adapter")
FIRMWARE = ("kvmvapic.bin", "linuxboot_dma.bin", "multiboot_dma.bin", "pvh.bin")
READY = "the VM is ready"
START_S = 300  # of the VM on the host
INIT = f"""#!/bin/sh
export PATH=/bin:/sbin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
modprobe -a af_packet igbvf virtio_net
rm -r /usr /lib/modules /bin/iperf3 /bin/tcpdump
until [ "$master" ]; do
    for net in /sys/class/net/*; do
        case $(ethtool -i ${{net##*/}} 2>/dev/null) in *net_failover*) master=${{net##*/}};; esac
    done
done
ip address add {ADDRESS}/24 dev $master
ip link set $master up
echo {READY}
while :; do nc -l -p {ECHO_PORT} -e cat; done
"""


def vm_words(files, run, shunt):
    """Words of QEMU's command line for the VM: those of docs/qemu.md, with these directories."""
    words = ["-nodefaults", "-no-user-config", "-M", "q35,accel=tcg,memory-backend=mem,sata=off,usb=off", "-display", "none"]
    words += ["-object", "memory-backend-memfd,id=mem,size=256M,share=on", "-m", "256", "-cpu", "qemu64,+rdrand"]
    # Memory that is free is zero, and so is not copied when the VM moves.
    kernel = KERNEL.replace("rdinit=/inguest/init", "rdinit=/vm/init") + " init_on_free=1"
    words += ["-kernel", f"{files}/vmlinux", "-initrd", f"{files}/vm.cpio", "-append", kernel, "-serial", f"file:{run}/vm.log"]
    text = fenced(PAIR, "text")[0].replace("/run/shunt", shunt).replace("/run/web", f"{run}/web")
    return words + [f"{word},romfile=" if word.startswith("virtio-net-pci") else word for word in text.split()]


class Image:
    """Root file system of a server, in a directory: that of a guest, with QEMU and what it needs for the VM in `/q`; `saved`: with
    the VM as it is after its start."""

    def __init__(self, directory, saved=True):
        self.path = os.path.join(directory, "server.cpio")
        tree, self.parts = Tree(), os.path.join(directory, "q")
        for name in ("lib", "share", "vm"):
            os.makedirs(self.part(name))
        program = tree.path("usr/bin/qemu-system-x86_64")
        listed = subprocess.run([*tree.loader, "--list", program], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            if "=> /" in line:
                shutil.copy(line.split("=> ")[1].split()[0], self.part("lib"))
        shutil.copy(tree.loader[0], self.part("ld.so"))
        shutil.copy(program, self.part("qemu"))
        shutil.copy(tree.kernel, self.part("vmlinux"))
        bios = tree.path("usr/share/seabios")
        firmware = [tree.path("usr/share/qemu", name) for name in FIRMWARE]
        for path in firmware + [os.path.join(bios, name) for name in os.listdir(bios) if name.startswith("bios")]:
            shutil.copy(path, self.part("share"))
        init = self.part("vm", "init")
        with open(init, "w", encoding="utf-8") as file:
            file.write(INIT)
        os.chmod(init, 0o755)
        self.join(self.part("vm.cpio"), tree.base, vm=self.part("vm"))
        if saved:
            self.save_vm(tree)
        self.join(self.path, initrd(), q=self.parts)
        shutil.rmtree(self.parts)

    def part(self, *names):
        """Path of a file for `/q`."""
        return os.path.join(self.parts, *names)

    @staticmethod
    def join(path, base, **trees):
        """An archive with these trees after that of another archive."""
        archive = Archive()
        for name, directory in trees.items():
            archive.tree(name, directory)
        with open(path, "wb") as file, open(base, "rb") as before:
            shutil.copyfileobj(before, file)
            file.write(archive.end())

    def save_vm(self, tree):
        """Starts the VM on this host, and saves it when it is ready."""
        with tempfile.TemporaryDirectory(prefix="shunt-e2e-") as run:
            daemon = Managed(cpu=cpus()[0])
            words = [*tree.command_line(), "-run-with", "exit-with-parent=on", *vm_words(self.parts, run, daemon.run_dir)]
            qemu = None
            try:
                daemon.start()
                daemon.wait_ready()
                adapter = {"name": "web", "switch": "sw0", "mac": MAC, "attachment": {"socket": daemon.path("web.sock")}}
                daemon.apply({"version": 1, "nic": [{"name": "nic0"}], "switch": [{"name": "sw0", "nic": "nic0"}], "adapter": [adapter]})
                with open(f"{run}/qemu.log", "wb") as log:
                    qemu = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                self.wait_for(qemu, run, lambda: READY in read(f"{run}/vm.log"))
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(f"{run}/web.qmp")
                qmp = Qmp(connection)
                qmp.run("qmp_capabilities")
                qmp.run("migrate", uri=f"file:{self.part('vm.state')}")
                self.wait_for(qemu, run, lambda: qmp.run("query-migrate")["status"] == "completed")
                qmp.close()
            finally:
                if qemu:
                    end(qemu)
                daemon.close()

    @staticmethod
    def wait_for(qemu, run, true):
        """Waits until this is true of the VM on this host."""
        deadline = time.monotonic() + START_S
        while not true():
            if qemu.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the VM cannot be saved: {read(f'{run}/qemu.log')}{read(f'{run}/vm.log')}")
            time.sleep(0.2)


def read(path):
    """Text of a file, if it is there."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Server(IgbGuest):
    """A guest with that root file system."""

    def __init__(self, run_dir, image, **options):
        super().__init__(run_dir, iommu=True, memory_mib=1600, **options)
        self.image = image

    def start_machine(self):
        """Starts QEMU with that root file system."""
        self.machine.start(self.image.path)
        self.agent.attach(self.machine.agent)
        self.machine.negotiate()

    def does(self, commands, timeout=400):
        """Output of commands of a page."""
        return self.run("sh", "-ec", SHUNT + commands, timeout=timeout)

    def set_up_card(self, adapter=True):
        """Runs the commands of docs/cards.md for a VM; the card's PF is up. Without `adapter` all but that which makes it."""
        pf = self.pf()
        self.up(pf)
        [commands] = fenced(CARDS, "sh")
        one_a_line = commands.replace("\\\n", "").replace("eth0", pf).splitlines()
        self.does("\n".join(line for line in one_a_line if adapter or "adapter create" not in line))

    def start_vm(self, *more):
        """Starts QEMU with the options of docs/qemu.md, and more, such as `-incoming`."""
        qemu = ["/q/ld.so", "--library-path", "/q/lib", "--argv0", "qemu-system-x86_64", "/q/qemu", "-L", "/q/share"]
        self.vm = self.start(*qemu, *vm_words("/q", "/run", "/run/shunt"), *more)

    def told(self):
        """What the end of the daemon's log, QEMU and the VM's console say."""
        ended = self.vm.poll() is not None and self.vm.done
        return f"{self.name}: {self.log()[-3000:]}\nQEMU: {ended}\n{self.ask('cat', '/run/vm.log').out[-2000:]}"


def assert_reached(place, timeout=300):
    """The VM answers there."""
    deadline = time.monotonic() + timeout
    while " 0% packet loss" not in (said := place.run("ping", "-c", "3", "-W", "5", ADDRESS, timeout=60, check=False)):
        if time.monotonic() > deadline:
            raise AssertionError(f"the VM is not reached: {said}")
