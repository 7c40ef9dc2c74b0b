"""A real Linux guest in QEMU: booted in about 3 s, and asked to run commands by an agent within it.

    guest = Guest(run_dir, [VirtioNet("02:00:00:00:00:01", VhostUser(socket))])
    guest.boot()
    guest.up(guest.interface("02:00:00:00:00:01"), "10.0.0.1/24")
    print(guest.run("ethtool", "-k", "eth0"))

A guest can be asked whatever a namespace can (`netns.Interfaces`, and `start`), so `tools.ping` and `tools.Iperf` take one.
Every wait is bounded, and ends at once when QEMU has ended.
"""

import atexit
import base64
import itertools
import json
import os
import signal
import tempfile
import threading
import time
import unittest
from dataclasses import dataclass

from cpio import Archive
from netns import Interfaces, NetworkError
from qemu import HERE, Machine, QemuError, Tree

BOOT_S = 90  # an emulated processor beside other load
CHUNK = 1 << 18
COMMAND_S = 30  # an emulated processor beside other load, too


class GuestError(NetworkError):
    """A guest did not do what it was told."""


@dataclass(frozen=True)
class Done:
    """End of a command. `status` as in subprocess; `late`: it was killed by the timeout."""

    status: int
    out: str
    err: str
    late: bool


class Agent:
    """The connection to a guest's agent: numbered requests, answered in any order."""

    def __init__(self, name):
        self.name = name
        self.boots = []  # the boot id of each start of the guest
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._answers = {}
        self._sent = {}  # starts of the guest before each request
        self._socket = None
        self._held = b""

    def attach(self, connection):
        """Speaks over this connection from now on; answers may still come over the one before."""
        with self._changed:
            self._socket = connection
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection):
        while True:
            try:
                data = connection.recv(1 << 16)
            except OSError:
                data = b""
            with self._changed:
                if not data:
                    if connection is self._socket:
                        self._socket = None
                    self._changed.notify_all()
                    return
                # A line may begin on one machine and end on the next, when the guest has moved in between.
                *lines, self._held = (self._held + data).split(b"\n")
                for line in lines:
                    self._heard(line)
                self._changed.notify_all()

    def _heard(self, line):
        try:
            message = json.loads(line)
        except ValueError:  # half of an answer from before a reset
            message = json.loads(line[line.rindex(b'{"hello"'):]) if b'{"hello"' in line else {}
        if "hello" in message:
            self.boots.append(message["hello"])
        elif "id" in message:
            self._answers[message["id"]] = message

    def send(self, do, **request):
        """Sends a request; its number."""
        number = next(self._numbers)
        data = json.dumps({"id": number, "do": do, **request}).encode() + b"\n"
        with self._changed:
            connection = self._socket
            self._sent[number] = len(self.boots)
        try:
            if connection is None:
                raise OSError("QEMU has ended")
            connection.sendall(data)
        except OSError as error:
            raise GuestError(f"{self.name}: {do}: {error}") from error
        return number

    def answer(self, number, timeout):
        """The answer to a request, or None when there is none in time."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while number not in self._answers:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                if self._socket is None or len(self.boots) != self._sent[number]:
                    raise GuestError(f"{self.name}: the guest ended, or started anew, before it had answered")
                self._changed.wait(left)
            answer = self._answers.pop(number)
        if "error" in answer:
            raise GuestError(f"{self.name}: the agent says: {answer['error']}")
        return answer

    def ask(self, do, timeout=COMMAND_S, **request):
        """The answer to a request."""
        answer = self.answer(self.send(do, **request), timeout)
        if answer is None:
            raise GuestError(f"{self.name}: no answer to {do} {request.get('argv', '')} for {timeout} s")
        return answer

    def wait_boot(self, count, timeout, alive):
        """Waits until the guest has started for the `count`th time."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while len(self.boots) < count:
                left = deadline - time.monotonic()
                if left <= 0 or not alive():
                    raise GuestError(f"{self.name}: the guest has not started {'for' if left <= 0 else 'within'} {timeout} s")
                self._changed.wait(min(left, 0.5))


class Running:
    """A command that runs in a guest; has what a test needs of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, agent, argv, given=""):
        self.agent, self.argv = agent, argv
        self._number = agent.send("run", argv=list(argv), given=given, limit=None)
        self.done = None

    def poll(self):
        """Its status when it has ended, or None."""
        if self.done is None:
            self._take(0.001)
        return self.done.status if self.done else None

    def _take(self, timeout):
        answer = self.agent.answer(self._number, timeout)
        if answer:
            self.done = Done(answer["status"], answer["out"], answer["err"], answer["late"])

    def wait(self, timeout=COMMAND_S):
        """Waits for its end; how it ended."""
        if self.done is None:
            self._take(timeout)
        if self.done is None:
            raise GuestError(f"{self.agent.name}: {' '.join(self.argv)}: has not ended after {timeout} s")
        return self.done

    def said(self):
        """Output so far (standard output)."""
        return self.done.out if self.done else self.agent.ask("peek", of=self._number).get("out", "")

    def wait_said(self, text, timeout=COMMAND_S):
        """Waits until it has printed this text."""
        deadline = time.monotonic() + timeout
        while text not in self.said():
            if self.poll() is not None or time.monotonic() > deadline:
                raise GuestError(f"{self.agent.name}: {' '.join(self.argv)}: no {text!r} in {self.said()!r} {self.done}")
            time.sleep(0.05)

    def kill(self, number=signal.SIGKILL):
        """A signal to it and its children."""
        self.agent.ask("kill", of=self._number, signal=int(number))

    def terminate(self):
        """SIGTERM to it and its children."""
        self.kill(signal.SIGTERM)


class Place(Interfaces):
    """Context of commands in a guest: its first namespace, or another one."""

    def __init__(self, agent, name, within=()):
        self.agent, self.name, self.within = agent, name, tuple(within)

    def ask(self, *argv, timeout=COMMAND_S, given=""):
        """Runs a command, and returns its end."""
        argv = [*self.within, *argv]
        answer = self.agent.ask("run", timeout + 10, argv=argv, limit=timeout, given=given)
        return Done(answer["status"], answer["out"], answer["err"], answer["late"])

    def run(self, *argv, timeout=COMMAND_S, check=True, given=""):
        """Runs a command; its standard output. It is killed when it takes too long."""
        done = self.ask(*argv, timeout=timeout, given=given)
        if done.late:
            raise GuestError(f"{self.name}: {' '.join(argv)}: took longer than {timeout} s: {done.out[-500:]}{done.err[-500:]}")
        if check and done.status != 0:
            said = (done.err or done.out).strip()[-2000:]
            raise GuestError(f"{self.name}: {' '.join(argv)}: exit code {done.status}: {said}")
        return done.out

    def start(self, *argv, given="", **_options):
        """Starts a command, which runs until it ends, is killed, or the guest ends."""
        return Running(self.agent, [*self.within, *argv], given)


class Guest(Place):
    """A guest with these devices (see `devices`). `boot`, then ask; `close` in the end.

    `machine` is the QEMU it is in at present, with its `qmp`; the keywords are those of `qemu.Machine`.
    """

    def __init__(self, run_dir, devices, *, name="guest", **options):
        super().__init__(Agent(name), name)
        self.run_dir = run_dir
        self.devices = list(devices)
        self.options = options
        self.machine = Machine(run_dir, name, self.devices, **options)
        self._machines = [self.machine]

    @property
    def qmp(self):
        """The monitor of the machine it is in."""
        return self.machine.qmp

    def start_machine(self):
        """Starts QEMU; does not wait for the guest."""
        self.machine.start(initrd())
        self.agent.attach(self.machine.agent)
        self.machine.negotiate()

    def wait_boot(self, count=1, timeout=BOOT_S):
        """Waits until the guest has started for the `count`th time in all."""
        try:
            self.agent.wait_boot(count, timeout, self.machine.alive)
        except GuestError as error:
            raise GuestError(f"{error}: {self.machine.said()}") from None

    def boot(self):
        """Starts it, also after it was killed or has powered off."""
        count = len(self.agent.boots) + 1
        self.start_machine()
        self.wait_boot(count)
        return self

    def reboot(self):
        """Reboots Linux immediately, without an orderly shutdown; QEMU continues."""
        count = len(self.agent.boots) + 1
        self.agent.send("run", argv=["reboot", "-f"], limit=None)
        self.wait_boot(count)

    def power_off(self, timeout=20.0):
        """The guest switches itself off; QEMU ends."""
        self.agent.send("run", argv=["poweroff", "-f"], limit=None)
        self.machine.wait_end(timeout)
        self.machine.kill()

    def kill(self):
        """QEMU is killed."""
        self.machine.kill()

    def incoming(self, devices=None, **options):
        """A second machine, started, that waits for this guest to move in (`-incoming defer`)."""
        words = [*self.options.get("options", ()), "-incoming", "defer"]
        settings = {**self.options, **options, "options": words}
        made = Machine(self.run_dir, f"{self.name}-{len(self._machines)}", devices or self.devices, **settings)
        self._machines.append(made)
        made.start(initrd())
        made.negotiate()
        return made

    def moved(self, machine):
        """The guest is in this machine from now on. The one it was in is not ended: it may still have answers to tell."""
        self.machine = machine
        self.agent.attach(machine.agent)

    def close(self):
        """Ends all its machines."""
        for machine in self._machines:
            machine.kill()

    def namespace(self, name):
        """A new namespace within the guest, in which commands can be run."""
        self.ip("netns", "add", name)
        made = Place(self.agent, f"{self.name}/{name}", ["ip", "netns", "exec", name])
        made.ip("link", "set", "lo", "up")
        return made

    def interface(self, mac):
        """The name of the interface with this address (of several, the one that is not another's standby)."""
        found = [link["ifname"] for link in json.loads(self.ip("-json", "link")) if link.get("address") == mac]
        if not found:
            raise GuestError(f"{self.name}: no interface has the address {mac}")
        return found[0]

    def put(self, path, source=None, data=None, mode=0o755):
        """Copies a file in, or bytes."""
        if data is None:
            with open(source, "rb") as file:
                data = file.read()
        for start in range(0, len(data) or 1, CHUNK):
            piece = base64.b64encode(data[start : start + CHUNK]).decode()
            self.agent.ask("put", 30, path=path, data=piece, more=start > 0, mode=mode)

    def get(self, path):
        """The bytes of a file."""
        data = b""
        while True:
            piece = self.agent.ask("get", 30, path=path, offset=len(data), bytes=CHUNK)["data"]
            data += base64.b64decode(piece)
            if len(piece) < CHUNK:
                return data

    def read(self, path):
        """Content of a file, such as one of /sys, without the final newline."""
        return self.run("cat", path).strip()

    def write(self, path, text):
        """Writes into a file that is there, such as one of /sys; what came of it."""
        return self.ask("sh", "-c", 'printf %s "$1" >"$2"', "sh", text, path)


_initrd = []


def initrd():
    """The root file system, with this checkout's own programs in /inguest; made once a run, and removed with its end."""
    if not _initrd:
        archive = Archive()
        archive.tree("inguest", os.path.join(HERE, "inguest"))
        handle, path = tempfile.mkstemp(prefix="shunt-e2e-", suffix=".cpio")
        atexit.register(os.unlink, path)
        with open(handle, "wb") as file, open(Tree().base, "rb") as base:
            file.write(base.read())
            file.write(archive.end())
        _initrd.append(path)
    return _initrd[0]


def skip_without_guests():
    """For the start of `setUpClass`: skips its tests where no guest can be started."""
    if why := Tree().missing():
        raise unittest.SkipTest(why)


__all__ = ["Done", "Guest", "GuestError", "Place", "QemuError", "Running", "initrd", "skip_without_guests"]
