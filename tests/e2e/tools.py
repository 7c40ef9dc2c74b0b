"""Programs that use a network, with their answers as numbers: ping, iperf3, tcpdump with tshark.

Whatever is started ends in bounded time, whether or not a packet passes.
"""

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass

from netns import NetworkError, call, end


class Answers(int):
    """Number of answered echo requests; `text` is the output of ping."""

    text = ""


def ping(space, address, count=3, size=None, whole=False, timeout=2):
    """The `Answers` to `count` echo requests. `size`: of the IP packet; `whole`: it may not be cut.

    Answers may be as late as the timeout, in seconds; until then more requests are sent.
    """
    argv = ["ping", "-n", "-c", str(count), "-i", "0.02", "-w", str(timeout)]
    if size:
        argv += ["-s", str(size - (48 if ":" in address else 28))]
    if whole:
        argv += ["-M", "do"]
    text = space.run(*argv, address, timeout=timeout + 5, check=False)
    found = re.search(r"(\d+) received", text)
    answers = Answers(min(count, int(found[1])) if found else 0)
    answers.text = text
    return answers


def wait_ping(space, address, timeout=20.0, **options):
    """Waits until an echo request is answered; the seconds that took."""
    start = time.monotonic()
    while ping(space, address, count=1, timeout=1, **options) == 0:
        if time.monotonic() - start > timeout:
            raise NetworkError(f"{space.name}: {address} does not answer after {timeout} s")
    return time.monotonic() - start


@dataclass(frozen=True)
class Flow:
    """Result of iperf3: for TCP the receiver's bytes, for UDP the arrived and the sent datagrams."""

    bits_per_s: float
    bytes: int
    seconds: float
    retransmits: int
    lost: int
    packets: int


class Iperf:
    """An iperf3 server in one namespace, which serves one client of another.

    `cpus`: (client's, server's), None for any. UDP is sent at `rate` (such as `200M`), by datagrams that fit a frame.
    """

    PORT = 5201

    def __init__(self, server, client, address, *, cpus=(None, None)):
        self.server, self.client, self.address, self.cpus = server, client, address, cpus

    def _pinned(self, which, *args):
        cpu = self.cpus[which]
        return [*([] if cpu is None else ["taskset", "-c", str(cpu)]), "iperf3", *args]

    def _listen(self):
        """Starts the server, and waits until it listens."""
        process = self.server.start(
            *self._pinned(1, "--server", "--one-off", "--port", str(self.PORT)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=False,
        )  # fmt: skip
        deadline = time.monotonic() + 5
        while not self.server.listens(self.PORT):
            if process.poll() is not None or time.monotonic() > deadline:
                end(process)
                raise NetworkError(f"{self.server.name}: iperf3 does not listen")
            time.sleep(0.01)
        return process

    def run(self, seconds=1, streams=1, udp=False, rate="200M", amount=None, args=()):
        """One run of whole seconds, or of an `amount` of bytes such as `300K`; a `Flow`."""
        argv = ["--client", self.address, "--port", str(self.PORT), "--json"]
        argv += ["--bytes", amount] if amount else ["--time", str(seconds)]
        argv += ["--parallel", str(streams), "--connect-timeout", "3000", "--interval", "0"]
        argv += ["--udp", "--bandwidth", rate] if udp else []
        server = self._listen()
        try:
            text = self.client.run(*self._pinned(0, *argv, *args), timeout=seconds + 25, check=False)
        finally:
            end(server)
        return flow_of(text, udp)


def flow_of(text, udp):
    """A `Flow` from what `iperf3 --json` prints."""
    try:
        said = json.loads(text)
    except json.JSONDecodeError as error:
        raise NetworkError(f"iperf3 says no JSON: {text[-500:]!r}") from error
    if "error" in said or "end" not in said:
        raise NetworkError(f"iperf3: {said.get('error', text[-500:])}")
    total = said["end"]
    if udp:
        of = total["sum"]
        arrived = (of["packets"] - of["lost_packets"]) / max(1, of["packets"])
        return Flow(of["bits_per_second"] * arrived, int(of["bytes"] * arrived), of["seconds"], 0,
                    of["lost_packets"], of["packets"])  # fmt: skip
    got, sent = total["sum_received"], total["sum_sent"]
    return Flow(got["bits_per_second"], got["bytes"], got["seconds"], sent.get("retransmits", 0), 0, 0)


CHECKED = {  # tshark's verdict on a checksum, and the name of its fault field
    "ip.checksum.status": "IPv4", "tcp.checksum.status": "TCP", "udp.checksum.status": "UDP",
    "icmp.checksum.status": "ICMP", "icmpv6.checksum.status": "ICMPv6",
}  # fmt: skip
BAD = "0"
SAME = ["tcp.checksum", "tcp.checksum_calculated"]
# Others are guessed from what is but iperf3's random bytes.
KNOWN = {"eth", "ethertype", "vlan", "arp", "ip", "ipv6", "icmp", "icmpv6", "tcp", "udp", "dhcp", "vxlan", "data"}


@dataclass(frozen=True)
class Captured:
    """A frame as tshark dissects it. `wrong`: the protocols whose checksum does not hold."""

    number: int
    length: int
    protocols: str
    vlans: tuple
    wrong: tuple
    checked: tuple
    malformed: bool


class Capture:
    """tcpdump on an interface, within a `with`; afterwards `frames()`. At most `count` frames are kept.

    `longest`: bytes of a frame; the more, the fewer may wait for tcpdump: 64 MiB of them.
    """

    def __init__(self, space, interface, count=4000, expression="", *, inbound=False, longest=9100):
        self.space, self.interface = space, interface
        self.file = os.path.join(space.network.run_dir, f"{space.name}-{interface}-{time.monotonic_ns()}.pcap")
        self._argv = ["tcpdump", "-i", interface, "-n", "-s", str(longest), "-c", str(count), "-Z", "root"]
        self._argv += ["-B", "65536", "--immediate-mode", "-U", *(["-Q", "in"] if inbound else []), "-w", self.file]
        self._argv += [expression] if expression else []
        self._process = None

    def __enter__(self):
        log = self.file + ".log"
        with open(log, "wb") as out:
            self._process = self.space.start(*self._argv, stdout=out, stderr=out)
        deadline = time.monotonic() + 5
        while True:  # tcpdump says that it listens once its socket is bound
            with open(log, encoding="utf-8", errors="replace") as said:
                text = said.read()
            if "listening on" in text:
                return self
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NetworkError(f"{self.space.name}: tcpdump on {self.interface}: {text.strip()}")
            time.sleep(0.01)

    def __exit__(self, *_exception):
        before, size, deadline = -1, 0, time.monotonic() + 3
        while size != before and time.monotonic() < deadline:  # what has just passed may wait for tcpdump
            time.sleep(0.1)
            before, size = size, os.path.getsize(self.file)
        end(self._process)

    def frames(self, expression=None):
        """Every frame captured (that tshark's expression selects), dissected, with all checksums verified."""
        return dissect(self.file, expression)


def dissect(file, expression=None):
    """The frames of a capture file, as `Captured`."""
    fields = ["frame.number", "frame.len", "frame.protocols", "vlan.id", "_ws.malformed", *CHECKED]
    argv = ["tshark", "-n", "-r", file, "-T", "fields", "-E", "separator=|", "-E", "aggregator=,"]
    argv += [word for name in [*fields, *SAME] for word in ("-e", name)]
    for protocol in ("ip", "tcp", "udp"):
        argv += ["-o", f"{protocol}.check_checksum:TRUE"]
    # Fragments are looked at one by one, as they passed.
    argv += ["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE"]
    argv += ["-Y", expression] if expression else []
    return [_captured(line) for line in call(argv, timeout=60).splitlines()]


def _captured(line):
    number, length, protocols, vlans, malformed, *verdicts, found, calculated = line.split("|")
    status = dict(zip(CHECKED.values(), verdicts))
    if (found, calculated) == ("0xffff", "0x0000"):
        status["TCP"] = ""  # the same number in ones' complement, and what Linux itself writes (CSUM_MANGLED_0)
    return Captured(
        number=int(number), length=int(length), protocols=protocols,
        vlans=tuple(int(vid) for vid in vlans.split(",") if vid),
        wrong=tuple(name for name, of in status.items() if BAD in of.split(",")),
        checked=tuple(name for name, of in status.items() if of),
        malformed=bool(malformed) and protocols.split(":")[-1] in KNOWN,
    )  # fmt: skip


def faults(frames):
    """Sentences about frames with a wrong checksum, or that are no frames."""
    found = [f"frame {one.number} ({one.length} B, {one.protocols}): wrong checksum of {', '.join(one.wrong)}"
             for one in frames if one.wrong]  # fmt: skip
    return found + [f"frame {one.number} ({one.protocols}) is malformed" for one in frames if one.malformed]
