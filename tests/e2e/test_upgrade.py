"""Hot restart: new processes take over while guests send, and whatever is wrong with one leaves the old one serving."""

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import pcapfile
from bench import cpus
from daemon import binary
from frontend import Frontend
from hosts import TwoHosts
from labguest import LabGuests
from managed import NOBODY, Managed, as_user
from test_apply import document
from tools import ping, wait_ping

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES, MACS = ("web", "db"), ("02:00:00:00:00:01", "02:00:00:00:00:02")
TIMES = 5
GAP_LIMIT_MS = 1000.0  # nothing that a busy machine could exceed; `shunt lab upgrade` measures
root = unittest.skipUnless(os.geteuid() == 0, "needs root")
STREAM = {"kind": "stream", "mode": "server", "mtu": 1500}
FAULTS = ("lost", "duplicated", "reordered", "corrupted")


def impostor(daemon, mode):
    """Has a program take over that behaves so; returns what `subprocess.run` does."""
    with open(os.path.join(HERE, "impostor.py"), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(daemon.programs, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(f"MODE = {mode!r}\n{text}")
    program = os.path.join(daemon.programs, "python")
    shutil.copy(os.path.realpath(sys.executable), program)
    return daemon.command("upgrade", "--binary", program)


def capturing(daemon):
    """Number of buffers and threads of captures of a daemon."""
    process = f"/proc/{daemon.pids()[0]}"
    files, threads = [], []
    for fd in os.listdir(f"{process}/fd"):
        with contextlib.suppress(FileNotFoundError):  # a connection that ends meanwhile
            files.append(os.readlink(f"{process}/fd/{fd}"))
    for task in os.listdir(f"{process}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"{process}/task/{task}/comm", encoding="ascii") as file:
                threads.append(file.read().strip())
    return sum("memfd:shunt-capture" in file for file in files), threads.count("capture")


def mirrored(path):
    """The number of frames in a capture file; 0 while a block is being written."""
    try:
        return len(pcapfile.read(path))
    except pcapfile.PcapError:
        return 0


class UpgradeCase(unittest.TestCase):
    """A daemon with two adapters, one on a VF and one on the switch, and guests that send to each other."""

    limit_s = 100

    def start(self, *more, **options):
        """The daemon, which may start an impostor, with `more` adapters."""
        self.daemon = daemon = Managed(cpu=cpus()[0], **options)
        self.addCleanup(daemon.close)
        python = {"PYTHONHOME": sys.base_prefix, "PYTHONPATH": daemon.programs, "PYTHONDONTWRITEBYTECODE": "1"}
        daemon.popen = {"env": os.environ | python}
        daemon.start()
        daemon.wait_ready()
        wanted = document(daemon.run_dir)
        del wanted["adapter"][1]["vlan"]
        wanted["adapter"][0]["attachment"] |= {"socket_group": "12345", "socket_mode": "0660"}
        for number, name in enumerate(more, start=3):
            like = dict(wanted["adapter"][1], name=name, mac=f"02:00:00:00:00:{number:02x}")
            kind = STREAM if name == "line" else {}
            wanted["adapter"].append(dict(like, attachment={"socket": daemon.path(f"{name}.sock"), **kind}))
        daemon.apply(wanted)
        return daemon

    def sockets(self):
        """The files of all sockets, the API's and every adapter's, with permissions and group."""
        names = [name for name in os.listdir(self.daemon.run_dir) if name.endswith(".sock")]
        files = {name: os.stat(self.daemon.path(name)) for name in names}
        return {name: (file.st_ino, file.st_mode, file.st_gid) for name, file in files.items()}

    def can_be_reached(self):
        """A new front-end is served."""
        frontend = Frontend(self.daemon.path("spare.sock"))
        self.assertTrue(frontend.lives())
        frontend.close()

    def guests(self):
        """Guests that send from now on."""
        guests = LabGuests([self.daemon.path(f"{name}.sock") for name in NAMES], MACS)
        self.addCleanup(guests.kill)
        guests.go()
        return guests

    def counted(self):
        """All counters, by port and name, that only grow."""
        ports = self.daemon.ask("/v1/stats").body["ports"]
        words = ("tx_frames", "tx_bytes", "rx_frames", "rx_bytes")
        return {(port["name"], word): port[word] for port in ports for word in words}

    def grown(self, before):
        """The counters, which have not gone back since."""
        now = self.counted()
        back = {key: (before[key], now.get(key)) for key in before if now.get(key, -1) < before[key]}
        self.assertEqual(back, {}, "counters that went back")
        return now

    def flows(self):
        """Frames arrive at both guests."""
        before = self.counted()
        deadline = time.monotonic() + 5
        received = [key for key in before if key[1] == "rx_frames" and key[0].endswith(NAMES)]
        self.assertEqual(len(received), 2, received)
        while any(now <= before[key] for key, now in self.counted().items() if key in received):
            self.assertLess(time.monotonic(), deadline, "no frames within 5 s")
            time.sleep(0.01)

    def end(self, guests):
        """Every frame arrived once, in order and whole."""
        for way in guests.stop():
            self.assertGreater(way["received"], 0)
            self.assertEqual({name: way[name] for name in FAULTS}, dict.fromkeys(FAULTS, 0), way)


class Upgrade(UpgradeCase):
    """A new process takes over from the daemon."""

    def test_traffic_goes_on(self):
        """Nothing is lost, duplicated or reordered; counters, state, events and sockets go on."""
        daemon = self.start()
        guests = self.guests()
        state, etag = daemon.export(), daemon.ask("/v1/state").headers["etag"]
        actual = daemon.ask("/v1/actual").body["actual"]
        pids, counted, gaps = set(), self.counted(), []
        for _ in range(TIMES):
            self.flows()
            told = daemon.upgrade()
            pids.add(told["pid"])
            gaps.append(told["silent_us"] / 1e3)
            self.assertEqual(told["binary"], daemon.program)
            self.flows()
            counted = self.grown(counted)
        print(f"    nobody served for {max(gaps):.1f} ms at most")
        self.assertLess(max(gaps), GAP_LIMIT_MS)
        self.assertEqual(len(pids), TIMES)
        self.assertEqual(daemon.export(), state)
        self.assertEqual(daemon.ask("/v1/state").headers["etag"], etag)
        self.assertEqual(daemon.ask("/v1/actual").body["actual"], actual, "paths, VFs, and who is connected")
        events = daemon.ask("/v1/events").body["events"]
        self.assertEqual([event["sequence"] for event in events], list(range(1, len(events) + 1)))
        self.assertEqual(sum(event["kind"] == "upgrade" for event in events), TIMES)
        self.assertEqual([event for event in events if event["text"] == "left"], [], "no guest left")
        self.end(guests)
        self.assertEqual(daemon.complaints(), [])

    def test_the_new_one_is_a_whole_daemon(self):
        """It applies, is restarted on what it stored, and removes its files when it ends."""
        daemon = self.start()
        daemon.upgrade()
        daemon.says("adapter", "set", "web", "--path", "synthetic")
        guests = self.guests()
        self.flows()
        daemon.upgrade()
        daemon.says("adapter", "set", "web", "--path", "vf")
        self.flows()
        self.end(guests)
        state = daemon.export()
        daemon.close_process()
        left = sorted(name for name in os.listdir(daemon.run_dir) if name.endswith(".sock") or name == "counters")
        self.assertEqual(left, [], "files that a daemon leaves")
        daemon.start()
        daemon.wait_ready()
        self.assertEqual(daemon.export(), state)
        self.assertEqual(daemon.complaints(["the stored state is in force"]), [])

    def test_front_ends_have_no_veto(self):
        """A session that cannot be taken over ends alone; one whose ring was rejected continues unchanged."""
        daemon = self.start("shrunk", "stands", "spare")
        guests = self.guests()
        shrunk, stands = (Frontend(daemon.path(f"{name}.sock")) for name in ("shrunk", "stands"))
        self.addCleanup(shrunk.close)
        self.addCleanup(stands.close)
        self.assertNotEqual(stands.start_nowhere(), 0, "a ring at no memory")
        shrunk.shrink()
        files = self.sockets()
        self.flows()
        daemon.upgrade()
        self.flows()
        self.assertEqual(self.sockets(), files)
        self.assertEqual((shrunk.lives(), stands.lives()), (False, True))
        event = [event for event in daemon.ask("/v1/events").body["events"] if event["kind"] == "upgrade"][-1]
        self.assertIn("were ended: 1,", event["text"])
        again = Frontend(daemon.path("shrunk.sock"))
        self.assertTrue(again.lives(), "it attaches anew")
        again.close()
        self.can_be_reached()
        daemon.upgrade()
        self.flows()
        self.assertTrue(stands.lives())
        self.end(guests)
        told = daemon.complaints(["refused"])
        self.assertEqual(len(told), 1, told)
        self.assertIn("shrunk: cannot resume its session, which ends", told[0])

    def test_mirrors_go_on(self):
        """Their files have every frame that was counted, also after an upgrade that failed late."""
        daemon = self.start()
        wanted = daemon.export()
        files = [daemon.path(f"{name}.pcapng") for name in NAMES]
        for adapter, file in zip(wanted["adapter"], files):
            adapter["mirror"] = {"direction": "both", "file": file}
        daemon.apply(wanted)
        guests = self.guests()
        for mode in (None, "fails late", "ends late", None):
            self.flows()
            if mode:
                self.assertIn("continues", impostor(daemon, mode).stderr)
            else:
                daemon.upgrade()
            # A thread has its name a moment after it was started.
            deadline = time.monotonic() + 5
            while capturing(daemon) != (2, 2) and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(capturing(daemon), (2, 2), "a buffer and a thread for each mirror")
        self.flows()
        self.end(guests)
        ports = {port["name"]: port for port in daemon.ask("/v1/stats").body["ports"]}
        for name, file in zip(NAMES, files):
            counted = ports[f"nic0/capture:{name}.pcapng"]["rx_frames"]
            self.assertGreater(counted, 0)
            deadline = time.monotonic() + 5
            while mirrored(file) < counted and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(mirrored(file), counted, file)
        self.assertEqual(daemon.complaints(["not upgraded"]), [])

    def test_killed_in_succession(self):
        """A daemon that took over is killed, and the next one begins on what it left."""
        daemon = self.start()
        daemon.upgrade()
        daemon.kill()
        daemon.start()
        daemon.wait_ready()
        guests = self.guests()
        self.flows()
        self.end(guests)


class Refused(UpgradeCase):
    """The new one does not take over, and the old one serves as if nothing had happened."""

    def refused(self, *args, **options):
        """Error of the command when it must be refused."""
        before = self.daemon.pids()
        done = self.daemon.command("upgrade", *args, **options)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.daemon.pids(), before, "the old one lives")
        return done.stderr

    def impostor(self, mode):
        """Error of the command with a program that behaves so."""
        before = self.daemon.pids()
        done = impostor(self.daemon, mode)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.daemon.pids(), before, "the old one lives")
        return done.stderr

    def test_whatever_is_wrong_with_the_program(self):
        """The error says what it was, and no frame is lost."""
        daemon = self.start()
        guests = self.guests()
        counted = self.counted()
        dull = os.path.join(daemon.programs, "dull")
        with open(dull, "w", encoding="ascii") as file:
            file.write("no program\n")
        os.chmod(dull, 0o644)
        elsewhere = shutil.copy(daemon.program, tempfile.mkdtemp(dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, os.path.dirname(elsewhere))
        open_to_all = os.path.join(daemon.programs, "open")
        os.link(daemon.program, open_to_all)
        cases = {
            "cannot be opened: No such file": lambda: self.refused("--binary", daemon.path("nothing")),
            "can be changed by the daemon": lambda: self.refused("--binary", shutil.copy(daemon.program, daemon.path("own"))),
            "is not an executable file": lambda: self.refused("--binary", dull),
            "is not where programs are installed": lambda: self.refused("--binary", elsewhere),
            "exit status: 1": lambda: self.refused("--binary", os.path.realpath("/bin/false")),
            "exit status: 3": lambda: self.impostor("ends"),
            "did not answer in time": lambda: self.impostor("silent"),
            "invalid handover message": lambda: self.impostor("babbles"),
            "shunt 9 knows better": lambda: self.impostor("refuses"),
            "signal: 11": lambda: self.impostor("ends early"),
            "no memory": lambda: self.impostor("cannot map"),
            "a ring does not start": lambda: self.impostor("fails late"),
            "failed after it was ready": lambda: self.impostor("ends late"),
            "failed after it was ready: the other process did not answer in time": lambda: self.impostor("silent late"),
            "failed after it was ready: invalid handover message": lambda: self.impostor("serves unasked"),
        }
        for text, case in cases.items():
            with self.subTest(text):
                self.flows()
                self.assertIn(text, case())
                self.flows()
                counted = self.grown(counted)
        self.end(guests)
        self.assertEqual(daemon.complaints(["not upgraded"]), [])
        daemon.upgrade()

    def test_sockets_stay_when_the_new_one_fails(self):
        """This very program, which has taken all listeners over, and then fails before or after it is ready."""
        daemon = self.start("spare", "line")
        guests = self.guests()
        files = self.sockets()
        self.assertEqual(len(files), 5, files)
        peer = socket.socket(socket.AF_UNIX)
        self.addCleanup(peer.close)
        peer.connect(daemon.path("line.sock"))
        peer.setblocking(False)
        cases = {
            "but the stored one 0": os.path.join(daemon.state_dir, "state.json"),
            "failed after it was ready": daemon.path("counters"),
        }
        for text, missing in cases.items():
            with self.subTest(text):
                os.rename(missing, missing + ".away")
                self.assertIn(text, self.refused())
                os.rename(missing + ".away", missing)
                self.assertEqual(self.sockets(), files)
                self.can_be_reached()
                self.flows()
        daemon.upgrade()
        self.can_be_reached()
        self.flows()
        with self.assertRaises(BlockingIOError, msg="a stream's peer is still connected"):
            peer.recv(1)
        self.end(guests)
        daemon.close_process()
        self.assertEqual(self.sockets(), {}, "what the new one adopted is removed")
        self.assertEqual(daemon.complaints(["not upgraded", "did not take over", "counters"]), [])

    @root
    def test_who_may_say_what(self):
        """Rejects upgrades over TCP and of a program that others can change; accepts the daemon's own user."""
        self.daemon = daemon = Managed(cpu=cpus()[0], tcp=True)
        self.addCleanup(daemon.close)
        daemon.give_to(NOBODY)
        daemon.start()
        daemon.wait_ready()
        reply = daemon.ask_tcp("/v1/upgrade", "POST", body="{}")
        self.assertEqual(reply.status, 403, reply.body)
        self.assertIn("UNIX socket only", reply.body["errors"][0]["message"])
        other = os.path.join(daemon.programs, "other")
        with open(daemon.program, "rb") as program, open(other, "wb") as file:
            file.write(program.read())
        os.chmod(other, 0o777)
        self.assertIn("changed by others", self.refused("--binary", other))
        os.chmod(other, 0o755)
        os.chown(other, 1, 1)
        self.assertIn("changed by others", self.refused("--binary", other))
        os.chown(other, NOBODY, NOBODY)
        done = daemon.command("upgrade", "--json", "--binary", other, **as_user(NOBODY))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        told = json.loads(done.stdout)
        self.assertEqual(told["binary"], other)
        daemon.follow(told["pid"])


class Counters(UpgradeCase):
    """A counter file that cannot be written does not stay so."""

    def no_stats(self):
        """The counters cannot be read."""
        return self.daemon.ask("/v1/stats").status == 503

    @root
    def test_a_full_file_system(self):
        """A new process is refused while its counters have no room; afterwards they go on."""
        self.daemon = daemon = on_small_disk(self)
        daemon.start()
        daemon.wait_ready()
        wanted = document(daemon.run_dir)
        del wanted["adapter"][1]["vlan"]
        daemon.apply(wanted)
        guests = self.guests()
        self.flows()
        counted = self.counted()
        fill(daemon.path("fill"))
        done = daemon.command("upgrade")
        self.assertNotEqual(done.returncode, 0, "no room for its counters")
        self.assertIn("more bytes of the counter file", done.stderr)
        self.assertIn("free space", done.stderr)
        self.flows()
        counted = self.grown(counted)
        many = [dict(wanted["adapter"][1], name=f"a{n}", mac=f"02:00:00:00:02:{n:02x}") for n in range(200)]
        for adapter in many:
            adapter["attachment"] = {"socket": daemon.path(f"{adapter['name']}.sock")}
        done = daemon.command("apply", "-f", "-", given=json.dumps({**wanted, "adapter": [*wanted["adapter"], *many]}))
        self.assertNotEqual(done.returncode, 0, "no room for so many ports")
        self.assertIn("more bytes of the counter file", done.stderr)
        self.flows()
        os.remove(daemon.path("fill"))
        daemon.upgrade()
        self.flows()
        self.grown(counted)
        self.end(guests)
        self.assertEqual(daemon.complaints(["not upgraded", "open files, and it may have"]), [])

    def test_a_file_that_is_cut_off(self):
        """It is said once, and the next process writes another."""
        daemon = self.start()
        guests = self.guests()
        self.flows()
        os.truncate(daemon.path("counters"), 0)
        deadline = time.monotonic() + 10
        while not daemon.complaints():
            self.assertLess(time.monotonic(), deadline, "no word of it")
            time.sleep(0.05)
        time.sleep(1.2)
        self.assertEqual(len(daemon.complaints()), 1, daemon.complaints())
        self.assertIn("the counter file in run_dir is lost", daemon.complaints()[0])
        self.assertTrue(self.no_stats())
        daemon.upgrade()
        self.flows()
        self.end(guests)


def on_small_disk(test):
    """A daemon whose run directory is a file system of 1 MiB; its program and its state are elsewhere."""
    daemon = Managed(cpu=cpus()[0])
    outer, daemon.run_dir = daemon.run_dir, daemon.path("small")
    os.mkdir(daemon.run_dir)
    test.addCleanup(shutil.rmtree, outer, ignore_errors=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", daemon.run_dir], check=True)
    test.addCleanup(subprocess.run, ["umount", daemon.run_dir], check=True)
    test.addCleanup(shutil.rmtree, daemon.programs, ignore_errors=True)
    test.addCleanup(daemon.close_process)
    config = os.path.join(outer, "shunt.toml")
    with open(config, encoding="utf-8") as file:
        text = file.read()
    with open(config, "w", encoding="utf-8") as file:
        file.write(text.replace(f"run_dir = {json.dumps(outer)}", f"run_dir = {json.dumps(daemon.run_dir)}"))
    return daemon


def fill(path):
    """Takes all room that a file system has left."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


@root
class Devices(unittest.TestCase):
    """Devices behind ports that are not vhost-user sockets."""

    limit_s = 100
    answers = 150

    def over(self, uplink, lossless=True):
        """Echo requests from host to host, every 10 ms, while the first host's daemon is replaced."""
        bed = TwoHosts(uplink=uplink)
        self.addCleanup(bed.close)
        sender, receiver = bed.guests("vf", iov_weight=50)
        bed.start()
        wait_ping(sender.space, receiver.v4)
        command = ["ping", "-n", "-i", "0.01", "-W", "2", "-c", str(self.answers), receiver.v4]
        pinging = sender.space.start(*command, stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            time.sleep(0.2)
            bed.hosts[0].daemon.upgrade()
        text = pinging.communicate(timeout=60)[0]
        lost = self.answers - int(text.split(" received")[0].split()[-1])
        print(f"    {lost} of {self.answers} lost")
        if lossless:
            self.assertEqual(lost, 0, text)
        self.assertLess(lost, self.answers // 2, text)
        self.assertEqual(ping(sender.space, receiver.v4), 3, "afterwards")
        for host in bed.hosts:
            self.assertEqual(host.device(), "up")
            self.assertEqual(host.device("vf"), "up")

    def test_taps_and_a_packet_socket(self):
        """Their frames wait in the kernel."""
        self.over({"kind": "packet", "interface": "u0"})

    def test_an_af_xdp_uplink(self):
        """It is opened again: what comes meanwhile is the host's."""
        self.over({"kind": "xdp", "interface": "u0"}, lossless=False)


class Lab(unittest.TestCase):
    """The lab's own accounts, in small: every frame and every buffer."""

    limit_s = 100
    times = 8

    def account(self, *args):
        """Account of an experiment, which fails if anything was lost."""
        argv = [binary(), "lab", *args, "--count", str(self.times), "--rate", "20000", "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:] + done.stdout)
        told = json.loads(done.stdout)
        self.assertEqual((told["count"], told["lost"], told["used_repeated"]), (self.times, 0, 0))
        gap, again = told["gap_ms"], told["reattach_ms"]
        print(f"    gaps {gap['p50']:.0f} ms, {gap['max']:.0f} at most; attached anew within {again['max']:.0f} ms; "
              f"{told['duplicated']} frames came twice")
        return told

    def test_upgrades(self):
        """All kinds of rings, and mirrors."""
        for more in ([], ["--ring", "packed"], ["--ring", "packed-in-order"], ["--mirrors", "4"]):
            with self.subTest(more):
                told = self.account("upgrade", *more)
                self.assertEqual((told["duplicated"], told["mirrors"]), (0, 4 if "--mirrors" in more else 0))

    def test_kills(self):
        """Without records of what is in flight, which split rings do not need, and with them."""
        for rings in (["--no-inflight"], [], ["--ring", "packed"], ["--ring", "packed-in-order"]):
            with self.subTest(rings):
                self.account("kill", *rings)
