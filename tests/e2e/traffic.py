"""Real traffic, made by real programs in namespaces and captured as on a wire: what a switch must carry unharmed.

Two hosts at a veth pair: ARP, DHCP (dnsmasq, udhcpc), IPv6 neighbour discovery, ping, TCP and datagrams like QUIC's over
IPv4 and IPv6, fragments of both, a VLAN, and frames of 9014 bytes.
"""

import os

from netns import Network, end
from pcapfile import PcapError, read, write
from tagging import tag
from tools import Capture, Iperf, dissect, ping, wait_ping

V4, V6 = ("10.80.0.1", "10.80.0.2"), ("fd80::1", "fd80::2")
MACS = ("02:80:00:00:00:01", "02:80:00:00:00:02")
KINDS = {  # what must be in it, as tshark selects it
    "ARP": "arp", "DHCP": "dhcp", "neighbour discovery": "icmpv6.type == 135 or icmpv6.type == 136",
    "TCP over IPv4": "ip && tcp && !vlan", "TCP over IPv6": "ipv6 && tcp && !vlan",
    "datagrams of 1200 bytes": "udp.port == 443 && udp.length > 1200", "a VLAN": "vlan.id == 42 && tcp",
    "fragments of IPv4": "ip.flags.mf == 1", "fragments of IPv6": "ipv6.fraghdr", "jumbo frames": "frame.len > 9000",
}  # fmt: skip
DATAGRAMS = ["--length", "1200", "--cport", "443"]


def _pair(network, mtu):
    """Two hosts and the wire between them; the interfaces are `e0`."""
    hosts = [network.namespace(f"{end}{mtu}") for end in "ab"]
    network.veth(*((host, "e0") for host in hosts), mtu=mtu, offload=False)
    for host, mac in zip(hosts, MACS):
        host.ip("link", "set", "dev", "e0", "address", mac)
    return hosts


def _address(hosts):
    for host, v4, v6 in zip(hosts, V4, V6):
        host.up("e0", f"{v4}/24", f"{v6}/64")


def _dhcp(network, server, client):
    """The client gets an address from dnsmasq, and gives it back."""
    server.up("e0", f"{V4[0]}/24")
    leases = network.path("leases")
    dnsmasq = server.start(
        "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=e0", "--user=root",
        f"--dhcp-range={V4[1]},{V4[1]},60", f"--dhcp-leasefile={leases}", "--no-ping", "--pid-file=",
        stdout=open(network.path("dnsmasq.log"), "wb"), stderr=-2,
    )  # fmt: skip
    try:
        # -R: gives it back at its end. The script would set the address, which is none of its business.
        client.run("udhcpc", "-i", "e0", "-f", "-q", "-n", "-R", "-t", "8", "-T", "1", "-s", "/bin/true", timeout=15)
    finally:
        end(dnsmasq)
    server.ip("address", "flush", "dev", "e0")


def _ordinary(network):
    """An MTU of 1500."""
    hosts = server, client = _pair(network, 1500)
    with Capture(server, "e0") as capture:
        _dhcp(network, server, client)
        _address(hosts)
        wait_ping(client, V4[0])
        for address in (V4[0], V6[0]):
            wait_ping(client, address)
            ping(client, address, count=2, size=5000)
            Iperf(server, client, address).run(amount="300K")
            Iperf(server, client, address).run(udp=True, rate="50M", amount="60K", args=DATAGRAMS)
        for host in hosts:
            tag(host, "e0", 42)
        Iperf(server, client, V4[0]).run(amount="100K")
        ping(client, V6[0], count=2)
    return read(capture.file)


def _jumbo(network):
    """An MTU of 9000."""
    hosts = server, client = _pair(network, 9000)
    _address(hosts)
    with Capture(server, "e0") as capture:
        wait_ping(client, V4[0], size=9000, whole=True)
        Iperf(server, client, V4[0]).run(amount="500K")
        ping(client, V6[0], count=2, size=9000, whole=True)
    return read(capture.file)


def make(directory):
    """Writes two captures, as paths: `ordinary.pcap` with frames up to 1518 bytes, and `all.pcap` with jumbo frames too.

    Raises `PcapError` when a kind of traffic is not in it: then a program did not do what it was started for.
    """
    network = Network()
    try:
        ordinary, jumbo = _ordinary(network), _jumbo(network)
    finally:
        network.close()
    paths = os.path.join(directory, "ordinary.pcap"), os.path.join(directory, "all.pcap")
    write(paths[0], ordinary)
    write(paths[1], ordinary + jumbo)
    missing = [kind for kind, expression in KINDS.items() if not dissect(paths[1], expression)]
    if missing:
        raise PcapError(f"no {', no '.join(missing)} among {len(ordinary + jumbo)} frames captured")
    return paths
