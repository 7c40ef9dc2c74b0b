"""`shunt capture`: what tshark reads of it, drops with their reasons, filters against tcpdump, Wireshark's extcap."""

import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import unittest

import pcapfile
from bench import cpus
from daemon import HERE
from managed import Managed
from netns import Network, call
from tools import ping

DEPLOY = os.path.join(HERE, "..", "..", "deploy")
MACS = {"web": "02:00:00:00:00:01", "db": "02:00:00:00:00:02"}
ADDRESSES = {"web": "10.9.0.1", "db": "10.9.0.2"}
# Sends COUNT frames with another's source address.
SPOOF = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("e0", 0))
frame = bytes.fromhex("020000000002" + "020000000077" + "88b5") + bytes(46)
for _ in range(int(sys.argv[1])):
    link.send(frame)
"""
# Exchanges datagrams and a stream with a peer that echoes both.
ECHO = """
import socket, threading
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", 5300))
tcp = socket.create_server(("::", 8000), family=socket.AF_INET6, dualstack_ipv6=True)
def datagrams():
    while True:
        data, peer = udp.recvfrom(2000)
        udp.sendto(data, peer)
threading.Thread(target=datagrams, daemon=True).start()
print("ready", flush=True)
while True:
    with tcp.accept()[0] as one:
        one.sendall(one.recv(1000))
"""
TALK = """
import socket, sys
for peer in sys.argv[1:]:
    for size in (10, 400, 1200):
        with socket.create_connection((peer, 8000), timeout=5) as tcp:
            tcp.sendall(b"x" * size)
            tcp.recv(2000)
        kind = socket.AF_INET6 if ":" in peer else socket.AF_INET
        with socket.socket(kind, socket.SOCK_DGRAM) as udp:
            udp.settimeout(5)
            udp.sendto(b"x" * size, (peer, 5300))
            udp.recvfrom(2000)
"""
FILTERS = [
    "tcp port 8000", "udp and src port 5300", "host 10.9.0.2 and not tcp", "ip6", "icmp or icmp6 or arp",
    "net 10.9.0.0/24 and greater 500", "ether src 02:00:00:00:00:02 and less 200",
]  # fmt: skip


def fields(file, *names, display=""):
    """Rows of the fields that tshark finds in a file; it must find nothing wrong."""
    argv = ["tshark", "-n", "-r", file, "-T", "fields", "-E", "separator=|", "-E", "aggregator=;"]
    argv += [word for name in names for word in ("-e", name)] + (["-Y", display] if display else [])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    if "cut short" in done.stderr or "damaged" in done.stderr:
        raise AssertionError(done.stderr)
    return [tuple(line.split("|")) for line in done.stdout.splitlines()]


class Capturing:
    """A `shunt capture` to a file, within a `with`: it has begun inside, and has ended behind."""

    def __init__(self, daemon, *args):
        self.file = daemon.path(f"capture-{time.monotonic_ns()}.pcapng")
        argv = [daemon.program, "capture", *args, "-w", self.file, "--run-dir", daemon.run_dir]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        self.told = None

    def __enter__(self):
        deadline = time.monotonic() + 10
        while not (os.path.exists(self.file) and os.path.getsize(self.file)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no capture: {self.process.communicate()[1]}")
            time.sleep(0.01)
        return self

    def wait(self, timeout=10):
        """Waits for its end; returns frames and lost frames, as it tells."""
        self.told = self.process.communicate(timeout=timeout)[1]
        if self.process.returncode != 0:
            raise AssertionError(f"exit code {self.process.returncode}: {self.told}")
        words = self.told.split()
        return int(words[words.index("frames") - 1]), int(words[words.index("lost") - 1])

    def end(self):
        """Ends it as Ctrl-C does, once all that came is in the file."""
        time.sleep(0.2)
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def __exit__(self, *_exception):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no commands")
@unittest.skipUnless(os.geteuid() == 0, "needs root: makes network namespaces")
class Captures(unittest.TestCase):
    """An adapter with a VF and one on the switch, each a tap in a namespace."""

    @classmethod
    def setUpClass(cls):
        cls.network = Network()
        cls.addClassCleanup(cls.network.close)
        cls.daemon = Managed(cpu=cpus()[0])
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        cls.daemon.wait_ready()
        cls.spaces = {name: cls.network.namespace(name) for name in MACS}
        adapters = []
        for name, path in (("web", "vf"), ("db", "synthetic")):
            attachment = {"kind": "tap", "interface": "e0", "netns": cls.spaces[name].path}
            adapters.append({"name": name, "switch": "sw0", "mac": MACS[name], "path": path, "iov_weight": 50, "attachment": attachment})
        nic = {"name": "nic0", "total_vfs": 2, "num_vfs": 2}
        switch = {"name": "sw0", "nic": "nic0", "iov": True}
        cls.daemon.apply({"version": 1, "nic": [nic], "switch": [switch], "adapter": adapters})
        for name, space in cls.spaces.items():
            space.wait_link("e0")
            space.up("e0", f"{ADDRESSES[name]}/24", f"fd09::{1 if name == 'web' else 2}/64")
        # Addresses are known, and captures are of what the tests send.
        for address in (ADDRESSES["db"], "fd09::2"):
            ping(cls.spaces["web"], address, count=3)

    def stats(self):
        """Counters by port."""
        return {port["name"]: port for port in self.daemon.ask("/v1/stats").body["ports"]}

    def test_tshark_reads_both_ends_of_a_ping(self):
        """Ports, directions, contents and paths are those of what was sent."""
        with Capturing(self.daemon, "web", "db", "--filter", "icmp") as capture:
            self.assertEqual(ping(self.spaces["web"], ADDRESSES["db"], count=20, size=300), 20)
            self.assertEqual(capture.end(), (80, 0))
        rows = fields(capture.file, "frame.interface_name", "frame.packet_flags_direction", "icmp.type", "ip.len", "frame.comment")
        expected = {
            ("nic0/web", "0x00000001", "8", "300", "path vf, VF 0"): 20,
            ("nic0/db", "0x00000002", "8", "300", "path synthetic"): 20,
            ("nic0/db", "0x00000001", "0", "300", "path synthetic"): 20,
            ("nic0/web", "0x00000002", "0", "300", "path vf, VF 0"): 20,
        }
        self.assertEqual(collections.Counter(rows), expected)
        # A request and its reply, in the order of the guest.
        kinds = [row[0] for row in fields(capture.file, "icmp.type", display='frame.interface_name == "nic0/web"')]
        self.assertEqual(kinds, ["8", "0"] * 20)

    def test_a_pipe_ends_with_its_reader(self):
        """`shunt capture -w - | tshark -c 6`; and lines of text and JSON."""
        argv = [self.daemon.program, "capture", "web", "--filter", "icmp", "-w", "-", "--run-dir", self.daemon.run_dir]
        capture = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        tshark = subprocess.Popen(
            ["tshark", "-l", "-n", "-r", "-", "-c", "6", "-T", "fields", "-e", "icmp.seq"],
            stdin=capture.stdout, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        capture.stdout.close()
        deadline = time.monotonic() + 20
        while tshark.poll() is None:
            self.assertLess(time.monotonic(), deadline, "tshark got nothing")
            ping(self.spaces["web"], ADDRESSES["db"], count=2)
        self.assertEqual(len(tshark.communicate()[0].split()), 6)
        ping(self.spaces["web"], ADDRESSES["db"], count=2)  # it sees the end when it writes
        told = capture.communicate(timeout=10)[1]
        self.assertEqual(capture.returncode, 0, told)

        words = ["capture", "web", "--filter", "icmp", "--frames", "4"]
        for more in ([], ["--json"]):
            argv = [self.daemon.program, *words, *more, "--run-dir", self.daemon.run_dir]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as capture:
                while capture.poll() is None:
                    ping(self.spaces["web"], ADDRESSES["db"], count=2)
                lines = capture.stdout.read().splitlines()
            self.assertEqual(len(lines), 4)
            if more:
                row = json.loads(lines[0])
                self.assertEqual((row["port"], row["direction"], row["path"], row["vf"]), ("nic0/web", "in", "vf", 0))
                self.assertEqual((row["src"], row["dropped"], row["lost"]), (MACS["web"], None, 0))
                self.assertEqual(len(row["frame"]), 2 * row["bytes"])
            else:
                self.assertIn(f" nic0/web in  {MACS['web']} > {MACS['db']}, 10.9.0.1 > 10.9.0.2 icmp, 98 bytes", lines[0])

    def test_dropped_frames_have_their_reason(self):
        """As many as the counters tell, and no other frame."""
        counter = "tx_spoofed_mac"
        before = self.stats()["nic0/web"]["drops"].get(counter, 0)
        with Capturing(self.daemon, "--dropped", "--filter", "ether proto 0x88b5") as capture:
            self.spaces["web"].run("python3", "-c", SPOOF, "30")
            self.assertEqual(ping(self.spaces["web"], ADDRESSES["db"], count=3), 3)
            self.assertEqual(capture.end(), (30, 0))
        self.assertEqual(self.stats()["nic0/web"]["drops"][counter] - before, 30)
        explained = call([self.daemon.program, "explain", counter, "--json"])
        meaning = json.loads(explained)["meaning"]
        rows = fields(capture.file, "frame.interface_name", "eth.src", "frame.comment")
        comments = f"path vf, VF 0;dropped: {counter}: {meaning}"
        self.assertEqual(collections.Counter(rows), {("nic0/web", "02:00:00:00:00:77", comments): 30})

    def test_filters_pass_what_tcpdump_passes(self):
        """Of the same traffic, seven captures with filters have the frames that tcpdump selects of one without."""
        echo = self.spaces["db"].start("python3", "-c", ECHO, stdout=subprocess.PIPE)
        self.assertEqual(echo.stdout.readline(), b"ready\n")
        with contextlib.ExitStack() as all_of_them:
            whole = all_of_them.enter_context(Capturing(self.daemon, "web", "db"))
            filtered = [all_of_them.enter_context(Capturing(self.daemon, "web", "db", "--filter", one)) for one in FILTERS]
            refused = self.daemon.command("capture", "web")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("8 captures run already", refused.stderr)
            begun = time.time()
            self.spaces["web"].run("python3", "-c", TALK, ADDRESSES["db"], "fd09::2")
            ping(self.spaces["web"], "fd09::2", count=2)
            self.spaces["web"].run("ping", "-c", "1", "-W", "1", "10.9.0.77", check=False)
            ended = time.time()
            for capture in [*filtered, whole]:
                self.assertEqual(capture.end()[1], 0)
        echo.stdout.close()
        # Between these times all of them ran: kernels ask for neighbours at any time.
        together, selected = self.daemon.path("together.pcap"), self.daemon.path("selected.pcap")
        for expression, capture in zip(FILTERS, filtered):
            frames = []
            for file, program in ((whole.file, [expression]), (capture.file, [])):
                call(["editcap", "-A", f"{begun:.9f}", "-B", f"{ended:.9f}", file, together])
                call(["tcpdump", "-r", together, "-w", selected, *program])
                frames.append(pcapfile.read(selected))
            self.assertGreater(len(frames[0]), 3, expression)
            self.assertEqual(frames[1], frames[0], expression)
        wrong = self.daemon.command("capture", "web", "--filter", "tcp port http")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("column 10", wrong.stderr)

    def test_a_capture_that_is_not_read_costs_no_frame(self):
        """Its reader stops: guests go on and lose nothing, and it counts what it loses."""
        argv = [self.daemon.program, "capture", "web", "db", "-w", "-", "--run-dir", self.daemon.run_dir]
        capture = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(capture.stdout.close)
        self.assertGreater(len(capture.stdout.read(28)), 0)  # it has begun
        before = self.stats()
        for _ in range(2):
            # Frames of a stream are up to 64 KiB long, so that the buffer is full at once.
            self.assertEqual(ping(self.spaces["web"], ADDRESSES["db"], count=50, size=1500, timeout=20), 50)
            server = self.spaces["db"].start("iperf3", "-s", "-1", stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + 5
            while not self.spaces["db"].listens(5201):
                self.assertLess(time.monotonic(), deadline)
            self.spaces["web"].run("iperf3", "-c", ADDRESSES["db"], "-n", "40M")
            server.wait(10)
        after = self.stats()
        moved = {name: {key: after[name][key] - before[name][key] for key in ("tx_frames", "rx_frames")} for name in after}
        self.assertEqual(moved["nic0/web"]["tx_frames"], moved["nic0/db"]["rx_frames"])
        self.assertEqual(moved["nic0/db"]["tx_frames"], moved["nic0/web"]["rx_frames"])
        # Once it is read again, the daemon tells what it lost.
        stopping = threading.Timer(3, capture.send_signal, [signal.SIGINT])
        stopping.start()
        rest, told = capture.communicate(timeout=20)
        self.assertEqual(capture.returncode, 0, told)
        words = told.decode().split()
        frames, lost = (int(words[words.index(word) - 1]) for word in ("frames", "lost"))
        print(f"     {frames} frames captured, {lost} lost, {len(rest) >> 20} MiB")
        self.assertGreater(min(frames, lost), 0)

    def test_a_hot_restart_ends_a_capture(self):
        """With a complete file; the next capture is the new process's."""
        with Capturing(self.daemon, "web", "--filter", "icmp") as capture:
            self.assertEqual(ping(self.spaces["web"], ADDRESSES["db"], count=10), 10)
            self.daemon.upgrade()
            frames, lost = capture.wait()
            self.assertIn("hot-restarted", capture.told)
        self.assertGreaterEqual(frames, 20)  # more where answers are late
        self.assertEqual((len(fields(capture.file, "icmp.type")), lost), (frames, 0))
        with Capturing(self.daemon, "web", "--filter", "icmp", "--frames", "2") as capture:
            ping(self.spaces["web"], ADDRESSES["db"], count=3)
            self.assertEqual(capture.wait(), (2, 0))

    def test_tshark_lists_the_ports(self):
        """By extcap: `tshark -D`, and captures of a port and of dropped frames with a filter."""
        environment = os.environ | {"PATH": f"{self.daemon.programs}:{os.environ['PATH']}", "SHUNT_RUN_DIR": self.daemon.run_dir}
        folders = call(["tshark", "-G", "folders"])
        extcap = re.search(r"^Extcap path:\s+(\S+)", folders, re.MULTILINE)[1]
        # Ours in place of the directory, in a mount namespace: for root it cannot be changed by a variable.
        mount = f"mount --bind {os.path.abspath(os.path.join(DEPLOY, 'wireshark'))} {extcap} && exec tshark \"$@\""
        within = ["unshare", "-m", "sh", "-c", mount, "tshark"]
        listed = subprocess.run([*within, "-D"], capture_output=True, text=True, env=environment, timeout=30, check=True).stdout
        for interface, title in (("nic0/web", "Shunt nic0/web"), ("shunt-dropped", "Shunt: dropped frames")):
            self.assertRegex(listed, rf"\. {interface} \({title}\)")
        argv = [*within, "-n", "-i", "nic0/web", "-f", "icmp", "-c", "4", "-T", "fields", "-e", "icmp.type", "-e", "frame.comment"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as tshark:
            deadline = time.monotonic() + 20
            while tshark.poll() is None and time.monotonic() < deadline:
                ping(self.spaces["web"], ADDRESSES["db"], count=2)
            if tshark.poll() is None:
                tshark.kill()
            out, told = tshark.communicate()
        # On a busy machine the second request is there before the first answer.
        types = [line.split("\t")[0] for line in out.splitlines()]
        self.assertEqual((types[:1], sorted(types)), (["8"], ["0", "0", "8", "8"]), told)
        self.assertIn("path vf, VF 0", out)


if __name__ == "__main__":
    unittest.main()
