"""The sandbox: no rights, a closed list of system calls and files; taps in new namespaces all the same."""

import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest

from bench import cpus
from managed import NOBODY, Managed, with_objects
from netns import Network
from tools import wait_ping

SWITCH = {"version": 1, "nic": [{"name": "nic0", "total_vfs": 4, "num_vfs": 4}], "switch": [{"name": "sw0", "nic": "nic0", "iov": True}]}
PARTS = ["capabilities", "system-calls", "files"]
CAP_IPC_LOCK = 1 << 14  # stays if the limit of locked memory cannot be raised
ATTACH, DETACH, GETREGS, SETREGS = 16, 17, 12, 13  # requests of ptrace(2)
RAX, ORIG_RAX, RIP, REGISTERS = 10, 15, 16, 27  # in `struct user_regs_struct` of x86-64
OPENAT = 257
PIDFD_GETFD = 438
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def ptrace(request, thread, data=0):
    """A request of ptrace(2)."""
    if LIBC.ptrace(request, thread, None, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request}")


def make_call(thread, number):
    """Has a thread that waits in a system call make another one instead."""
    ptrace(ATTACH, thread)
    os.waitpid(thread, 0x40000000)  # __WALL
    registers = (ctypes.c_uint64 * REGISTERS)()
    ptrace(GETREGS, thread, ctypes.addressof(registers))
    registers[RAX], registers[ORIG_RAX] = number, 2**64 - 1  # no restart of the call that was interrupted
    registers[RIP] -= 2  # the instruction `syscall`
    ptrace(SETREGS, thread, ctypes.addressof(registers))
    ptrace(DETACH, thread)


def children(pid):
    """Processes that a process has started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def sockets(pid, kind):
    """Copies of the sockets of a process that are of this kind."""
    found, process = [], os.pidfd_open(pid)
    for number in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
            copy = socket.socket(fileno=LIBC.syscall(PIDFD_GETFD, process, int(number), 0))
            found.append(copy) if copy.type == kind else copy.close()
    os.close(process)
    return found


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no sandbox")
@unittest.skipUnless(os.geteuid() == 0, "needs root: makes network namespaces")
class Sandbox(unittest.TestCase):
    """A daemon in its sandbox."""

    def start(self, user=None, options=()):
        """Starts a daemon with a NIC and a switch."""
        self.daemon = Managed(cpu=cpus()[0])
        self.addCleanup(self.daemon.close)
        if user is not None:
            self.daemon.give_to(user)
        self.daemon.options = options
        self.daemon.start()
        self.daemon.wait_ready()
        self.daemon.apply(SWITCH)
        return self.daemon

    def create(self, name, number, attachment):
        """Creates an adapter by the command; its error."""
        mac = f"02:00:00:00:00:{number:02x}"
        return self.daemon.command("adapter", "create", name, "--switch", "sw0", "--mac", mac, *attachment).stderr

    def tap(self, space, number):
        """A tap with an address in a namespace."""
        space.silent()
        given = ["--attachment", "tap:net0", "--netns", space.path, "--ip", f"10.0.0.{number}/24"]
        self.assertEqual(self.create(f"a{number}", number, given), "")

    def status(self):
        """Lines of /proc/PID/task/TID/status, by the name of the thread."""
        [pid] = self.daemon.pids()
        found = {}
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/status", encoding="ascii") as file:
                lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            found[lines["Name"]] = lines
        return found

    def confined(self):
        """No thread has rights, each has filters, and a lane has more of them."""
        status = self.status()
        for name, lines in status.items():
            with self.subTest(name):
                self.assertEqual(int(lines["CapPrm"], 16) & ~CAP_IPC_LOCK, 0)
                self.assertEqual((lines["NoNewPrivs"], lines["Seccomp"]), ("1", "2"))
        deadline = time.monotonic() + 5
        while int(status["lane0"]["Seccomp_filters"]) <= int(status["shunt"]["Seccomp_filters"]):
            self.assertLess(time.monotonic(), deadline, "the filter of a lane")
            time.sleep(0.05)
            status = self.status()
        self.assertEqual(self.daemon.stats()["sandbox"], PARTS)

    def clean(self, expected=()):
        """No call was refused, and nothing complained of."""
        self.assertEqual(self.daemon.stats()["forbidden_calls"], 0)
        self.assertEqual(self.daemon.complaints(expected), [])

    def test_taps_in_new_namespaces(self):
        """By a command, and after an upgrade, and after that process was killed."""
        network = Network()
        self.addCleanup(network.close)
        self.start()
        self.confined()
        spaces = []
        steps = [lambda: None, self.daemon.upgrade, self.restart]
        for number, step in enumerate(steps, start=1):
            step()
            spaces.append(network.namespace(f"n{number}"))
            self.tap(spaces[-1], number)
            self.confined()
            if number > 1:
                wait_ping(spaces[0], f"10.0.0.{number}")
        for number in range(1, len(steps) + 1):
            self.daemon.says("adapter", "delete", f"a{number}")
            self.assertFalse(spaces[number - 1].link("net0"), "the tap of a deleted adapter")
        self.clean()

    def kill(self):
        """Kills the daemon; its launcher ends with it."""
        [pid] = self.daemon.pids()
        [launcher] = children(pid)
        self.daemon.kill()
        deadline = time.monotonic() + 5
        while os.path.exists(f"/proc/{launcher}"):
            self.assertLess(time.monotonic(), deadline, "the launcher of a killed daemon")
            time.sleep(0.01)

    def restart(self):
        """Kills the daemon and starts it again."""
        self.kill()
        self.daemon.start()
        self.daemon.wait_ready()

    def test_a_launcher_whose_socket_others_have(self):
        """It ends with its daemon all the same, and its user cannot trace it."""
        self.start(user=NOBODY)
        [pid] = self.daemon.pids()
        [launcher] = children(pid)
        held = sockets(pid, socket.SOCK_SEQPACKET)
        self.assertTrue(held, "its socket")
        for file in held:
            self.addCleanup(file.close)
        self.assertEqual((os.stat(f"/proc/{pid}/maps").st_uid, os.stat(f"/proc/{launcher}/maps").st_uid), (NOBODY, 0))
        self.kill()

    def test_a_forbidden_call(self):
        """It fails, is counted and an event, and the daemon continues."""
        self.start()
        self.daemon.forbids = True
        [pid] = self.daemon.pids()
        threads = {}
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/comm", encoding="ascii") as file:
                threads[file.read().strip()] = int(thread)
        make_call(threads["log"], OPENAT)
        deadline = time.monotonic() + 5
        while self.daemon.stats()["forbidden_calls"] != 1:
            self.assertLess(time.monotonic(), deadline, self.daemon.stats()["forbidden_calls"])
            time.sleep(0.05)
        events = [event for event in self.daemon.ask("/v1/events").body["events"] if event["kind"] == "forbidden"]
        self.assertEqual([event["subject"] for event in events], ["sandbox"])
        self.assertIn("openat of thread log, 1 so far", events[0]["text"])
        self.assertEqual(len(self.daemon.complaints()), 1, "and it can still log")
        self.assertIn("1 forbidden system calls", self.daemon.says("stats"))
        self.daemon.upgrade()
        self.assertEqual(self.daemon.stats()["forbidden_calls"], 1, "counters continue")

    def test_files_outside(self):
        """Sockets and captures elsewhere are served; no other file is written to."""
        self.start()
        outside = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, outside, ignore_errors=True)
        os.chown(outside, NOBODY, NOBODY)
        os.chmod(outside, 0o700)  # root without rights may not even enter it
        names = ("web.sock", "web.pcapng", "web.conf", "text")
        sock, mirror, other, text = (os.path.join(outside, name) for name in names)
        with open(text, "w", encoding="ascii") as file:
            file.write("precious")
        self.assertEqual(self.create("web", 1, ["--socket", sock]), "")
        document = self.daemon.export()
        for path in (text, other, mirror):
            document["adapter"][0]["mirror"] = {"direction": "both", "file": path}
            done = self.daemon.command("apply", "-f", "-", given=json.dumps(document))
            self.assertEqual(done.returncode == 0, path == mirror, done.stderr)
        self.daemon.upgrade()
        self.assertEqual(sorted(os.listdir(outside)), ["text", "web.pcapng", "web.sock"])
        self.assertEqual(stat.S_IMODE(os.stat(sock).st_mode), 0o600)
        document["adapter"][0]["attachment"] |= {"socket_group": str(NOBODY), "socket_mode": "0660"}
        done = self.daemon.command("apply", "-f", "-", given=json.dumps(document))
        self.assertEqual(done.returncode, 0, done.stderr)
        given = os.stat(sock)
        self.assertEqual((stat.S_IMODE(given.st_mode), given.st_gid), (0o660, NOBODY))
        self.daemon.says("adapter", "delete", "web")
        self.assertEqual(sorted(os.listdir(outside)), ["text", "web.pcapng"])
        with open(text, encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")
        self.clean()

    def test_only_what_the_file_names(self):
        """With `--sandbox=file` nothing else is served, whatever the API says; the file is read again at an upgrade."""
        network = Network()
        self.addCleanup(network.close)
        first, second = (network.namespace(name) for name in ("n1", "n2"))
        network.veth((first, "u0"), (second, "u1"), offload=False)
        second.up("u1", "10.0.0.9/24")
        second.silent()
        outside = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, outside, ignore_errors=True)
        self.daemon = Managed(cpu=cpus()[0])
        self.addCleanup(self.daemon.close)
        inside = self.daemon.config_file
        with open(inside, encoding="utf-8") as file:
            config = file.read()

        def write(path, *attachments):
            """The file with an adapter for each attachment."""
            adapters = (
                f"{{ name = 'a{n}', switch = 'sw0', mac = '02:00:00:00:00:0{n}', attachment = {attachment} }}"
                for n, attachment in enumerate(attachments, start=1)
            )
            uplink = f"{{ kind = 'xdp', interface = 'u0', netns = '{first.path}' }}"
            objects = f"nic = [{{ name = 'nic0', uplink = {uplink} }}]\nswitch = [{{ name = 'sw0', nic = 'nic0' }}]\nadapter = [{', '.join(adapters)}]"
            with open(path, "w", encoding="utf-8") as file:
                file.write(with_objects(config, objects))

        taps = [f"{{ kind = 'tap', interface = 'net0', netns = '{space.path}', ip = ['10.0.0.{n}/24'] }}" for n, space in ((1, first), (2, second))]
        named, other = (os.path.join(outside, name) for name in ("web.sock", "other.sock"))
        write(inside, taps[0], f"{{ socket = '{named}' }}")
        argv = [self.daemon.program, "up", "--sandbox=file", "--config", inside]
        refused = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("move it out of run_dir and state_dir", refused.stderr)

        self.daemon.config_file = os.path.join(self.daemon.programs, "shunt.toml")
        os.rename(inside, self.daemon.config_file)
        self.daemon.options = ["--sandbox=file"]
        self.daemon.forbids = True
        self.daemon.start()
        self.daemon.wait_ready()
        self.assertTrue(first.link("net0"))
        self.assertEqual(os.listdir(outside), ["web.sock"])
        wait_ping(second, "10.0.0.1")
        for _ in range(2):
            for number, attachment in enumerate(
                (["--attachment", "tap:net1", "--netns", first.path], ["--attachment", "tap:net0", "--netns", second.path], ["--socket", other]),
                start=3,
            ):
                self.assertIn("not permitted", self.create(f"a{number}", number, attachment))
                self.daemon.command("adapter", "delete", f"a{number}")  # a tap's is there, and down
            self.assertEqual(self.create("a6", 6, ["--socket", self.daemon.path("any.sock")]), "", "its own directory")
            self.daemon.says("adapter", "delete", "a6")
            time.sleep(0.5)  # a guest of its socket might still return
            self.daemon.upgrade()
            self.assertTrue(first.link("net0"))
            wait_ping(second, "10.0.0.1")
        self.assertFalse(first.link("net1"))
        self.assertFalse(second.link("net0"))
        self.assertEqual(os.listdir(outside), ["web.sock"])
        events = [event["text"] for event in self.daemon.ask("/v1/events").body["events"] if event["kind"] == "forbidden"]
        for request in ("open-tap", "open-namespace", "socket-file"):
            self.assertTrue(any(text.startswith(f"refused {request}, ") and "does not name" in text for text in events), (request, events))

        write(self.daemon.config_file, *taps)
        time.sleep(0.5)
        self.daemon.upgrade()
        self.tap(second, 3)
        self.assertTrue(second.link("net0"))

    def test_without_its_launcher(self):
        """What it has goes on; what needs rights is an error."""
        network = Network()
        self.addCleanup(network.close)
        self.start()
        first, second = (network.namespace(name) for name in ("n1", "n2"))
        self.tap(first, 1)
        [pid] = self.daemon.pids()
        [launcher] = children(pid)
        os.kill(launcher, signal.SIGKILL)
        given = ["--attachment", "tap:net0", "--netns", second.path]
        self.assertIn("cannot be opened", self.create("a2", 2, given))
        self.assertTrue(first.link("net0"))
        deadline = time.monotonic() + 5
        while "shunt-launcher has ended" not in self.daemon.log():
            self.assertLess(time.monotonic(), deadline, "the launcher's end in the log")
            time.sleep(0.05)

    def test_an_ordinary_user(self):
        """There is nothing to give up but calls and files, and nothing to complain of."""
        self.start(user=NOBODY)
        self.confined()
        self.assertEqual(self.create("web", 1, ["--socket", self.daemon.path("web.sock")]), "")
        self.daemon.upgrade()
        self.confined()
        self.clean()

    def test_off(self):
        """To compare: no launcher and no filters, also after an upgrade."""
        self.start(options=["--sandbox=off"])
        for _ in range(2):
            [pid] = self.daemon.pids()
            self.assertEqual(children(pid), [])
            self.assertEqual({lines["Seccomp"] for lines in self.status().values()}, {"0"})
            self.assertEqual(self.daemon.stats()["sandbox"], [])
            self.assertIn("sandbox: off", self.daemon.says("stats"))
            self.daemon.upgrade()
        self.clean()
