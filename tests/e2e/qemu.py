"""QEMU from the tree that `setup-guests` makes: its location, command line and control protocol (QMP).

A `Machine` is one QEMU process. It connects to sockets on which we listen before it starts, so no test waits for files
to appear, and its end is the end of the connection. It dies with the process that started it.
"""

import json
import os
import socket
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "..", "..", "target"))
HOME = os.path.abspath(os.environ.get("SHUNT_E2E_QEMU", os.path.join(TARGET, "e2e-qemu")))

# Quiet, and without what costs an emulated processor time.
KERNEL = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check selinux=0 apparmor=0 audit=0"
KERNEL += " random.trust_cpu=1 rcupdate.rcu_expedited=1 rdinit=/inguest/init"


class QemuError(Exception):
    """QEMU, or a guest in it, did not do what it was told."""


class Tree:
    """The paths within what `setup-guests` makes."""

    def __init__(self, home=HOME):
        self.home = home
        self.root = os.path.join(home, "tree")
        self.kernel = os.path.join(home, "vmlinux")
        self.base = os.path.join(home, "base.cpio")

    def path(self, *parts):
        """A path in the Debian tree."""
        return os.path.join(self.root, *parts)

    @property
    def loader(self):
        """Start of a command line that runs a program of the tree with the tree's libraries."""
        return [self.path("usr/lib64/ld-linux-x86-64.so.2"), "--library-path", self.path("usr/lib/x86_64-linux-gnu")]

    def missing(self):
        """Why no guest can be started, or None."""
        if os.path.exists(os.path.join(self.home, "stamp")):
            return None
        return f"no QEMU in {self.home}: run tests/e2e/setup as root (it says what it cannot do)"

    def command_line(self):
        """Start of QEMU's command line."""
        argv = [*self.loader, "--argv0", "qemu-system-x86_64", self.path("usr/bin/qemu-system-x86_64")]
        for data in ("usr/share/qemu", "usr/share/seabios"):
            argv += ["-L", self.path(data)]
        return argv


def listen(path):
    """A UNIX socket on which QEMU is waited for."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    return listener


class Qmp:
    """QEMU's monitor: commands with their answers, and events, which are kept."""

    def __init__(self, connection):
        self._socket = connection
        self._changed = threading.Condition()
        self._answers = {}
        self._next = 0
        self._ended = False
        self.events = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for line in self._socket.makefile("rb"):
                message = json.loads(line)
                with self._changed:
                    if "event" in message:
                        self.events.append(message)
                    elif "id" in message:
                        self._answers[message["id"]] = message
                    self._changed.notify_all()
        except (OSError, ValueError):
            pass  # the process was killed, perhaps in the middle of a line
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _wait(self, found, timeout, what):
        deadline = time.monotonic() + timeout
        with self._changed:
            while (answer := found()) is None:
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise QemuError(f"QMP: {'QEMU ended' if self._ended else f'nothing for {timeout} s'}: {what}")
                self._changed.wait(left)
            return answer

    def ask(self, command, timeout=20.0, **arguments):
        """The whole answer to a command, an error too. `_` in a name is `-`."""
        with self._changed:
            self._next += 1
            number = self._next
        message = {"execute": command, "id": number}
        if arguments:
            message["arguments"] = {name.replace("_", "-"): value for name, value in arguments.items()}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise QemuError(f"QMP: {command}: {error}") from error
        return self._wait(lambda: self._answers.pop(number, None), timeout, command)

    def run(self, command, timeout=20.0, **arguments):
        """Result of a command that must succeed."""
        answer = self.ask(command, timeout, **arguments)
        if "error" in answer:
            raise QemuError(f"QMP: {command} {arguments}: {answer['error']['desc']}")
        return answer["return"]

    def event(self, name, timeout=20.0, since=0):
        """Waits for an event, among those from the `since`th on."""
        return self._wait(
            lambda: next((event for event in self.events[since:] if event["event"] == name), None), timeout, name
        )

    def close(self):
        """Ends the connection."""
        self._socket.close()


class Machine:
    """One QEMU process with these devices, and the sockets to it: QMP, and the agent's.

    `slots`: pieces of memory that can be plugged, of 256 MiB at most. `options`: further words of the command line, such as
    `-incoming defer`. `within`: words before it, such as those that enter a namespace.
    """

    def __init__(self, run_dir, name, devices, *, memory_mib=384, slots=0, cpus=1, append="", options=(), within=()):
        self.tree = Tree()
        self.name = name
        self.devices = list(devices)
        self.memory_mib, self.slots, self.cpus = memory_mib, slots, cpus
        self.append, self.options, self.within = append, list(options), list(within)
        self._paths = {key: os.path.join(run_dir, f"{name}.{key}") for key in ("qmp", "monitor", "agent", "console")}
        self.process = None
        self.qmp = None
        self.agent = None

    @property
    def qmp_path(self):
        """A QMP socket for others: QEMU listens there, for one client at a time."""
        return self._paths["qmp"]

    def command_line(self, initrd):
        """The whole command line."""
        paths = self._paths
        argv = [*self.within, "nice", "-n", "5", *self.tree.command_line()]
        argv += ["-name", self.name, "-run-with", "exit-with-parent=on", "-nodefaults", "-no-user-config"]
        argv += ["-M", "q35,accel=tcg,memory-backend=mem,sata=off,usb=off", "-display", "none"]
        argv += ["-object", f"memory-backend-memfd,id=mem,size={self.memory_mib}M,share=on"]
        plugs = f",slots={self.slots},maxmem={self.memory_mib + 256 * self.slots}M" if self.slots else ""
        argv += ["-m", f"{self.memory_mib}{plugs}", "-smp", str(self.cpus), "-cpu", "qemu64,+rdrand", "-serial", f"file:{paths['console']}"]
        argv += ["-qmp", f"unix:{paths['qmp']},server=on,wait=off"]
        argv += ["-qmp", f"unix:{paths['monitor']}"]
        argv += ["-chardev", f"socket,id=agent,path={paths['agent']}", "-device", "virtio-serial-pci,id=serial,addr=0x1e"]
        argv += ["-device", "virtserialport,bus=serial.0,chardev=agent,name=shunt.agent"]
        modules = {module: None for device in self.devices for module in device.modules}
        kernel = f"{KERNEL} shunt.modules={','.join(modules)} {self.append}"
        argv += ["-kernel", self.tree.kernel, "-initrd", initrd, "-append", kernel]
        for index, device in enumerate(self.devices):
            argv += device.words(index)
        return argv + self.options

    def start(self, initrd):
        """Starts the process and waits until it speaks; a vhost-user device's back-end must be there for that."""
        for path in self._paths.values():
            if os.path.exists(path):
                os.unlink(path)
        listeners = [listen(self._paths[key]) for key in ("monitor", "agent")]
        with open(self._paths["console"] + ".qemu", "wb") as log:
            self.process = subprocess.Popen(
                self.command_line(initrd), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        monitor, self.agent = (self._accept(listener) for listener in listeners)
        self.qmp = Qmp(monitor)

    def negotiate(self, timeout=20.0):
        """Waits until QEMU has made all its devices."""
        self.qmp.run("qmp_capabilities", timeout)

    def _accept(self, listener):
        listener.settimeout(0.2)
        deadline = time.monotonic() + 20
        with listener:
            while True:
                try:
                    return listener.accept()[0]
                except TimeoutError:
                    if not self.alive() or time.monotonic() > deadline:
                        raise QemuError(f"{self.name}: QEMU does not start: {self.said()}") from None

    def alive(self):
        """Returns true if the process runs."""
        return self.process is not None and self.process.poll() is None

    def said(self):
        """The end of what QEMU and the guest's console have said."""
        text = ""
        for path in (self._paths["console"] + ".qemu", self._paths["console"]):
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    text += "\n".join(file.read().splitlines()[-25:]) + "\n"
        return text.strip()

    def wait_end(self, timeout=20.0):
        """Waits until the process ends."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise QemuError(f"{self.name}: QEMU has not ended after {timeout} s: {self.said()}") from None

    def kill(self):
        """SIGKILL, and waits for the end."""
        if self.alive():
            self.process.kill()
        if self.process:
            self.process.wait(timeout=10)
        for connection in (self.qmp, self.agent):
            if connection:
                connection.close()
