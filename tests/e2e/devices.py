"""Devices of a QEMU guest, as words of its command line.

Each has `modules`, which the guest loads when it starts. vhost-user sockets: QEMU connects where the daemon listens
(`mode = "server"` in the daemon's words), or with `listens` the daemon connects (`mode = "client"`, its default).
"""

from dataclasses import dataclass, field


def properties(values):
    """`,name=value` for each; `_` in a name stays, since QEMU's own names have it; True and False are on and off."""
    said = {True: "on", False: "off"}
    return "".join(f",{name}={said.get(value, value) if isinstance(value, bool) else value}" for name, value in values.items())


@dataclass(frozen=True)
class RootPort:
    """A PCIe port, below which a device can be plugged and unplugged, or have VFs."""

    id: str
    modules = ()

    def words(self, index):
        """Its part of the command line."""
        return ["-device", f"pcie-root-port,id={self.id},chassis={index + 1},slot={index + 1}"]


@dataclass(frozen=True)
class VhostUser:
    """A netdev on a socket of the daemon."""

    path: str
    listens: bool = False
    queues: int = 1
    reconnect_ms: int = 50

    def words(self, name):
        """Its part of the command line, as the netdev `name`."""
        side = "server=on" if self.listens else f"reconnect-ms={self.reconnect_ms}"
        return [
            "-chardev", f"socket,id=c-{name},path={self.path},{side}",
            "-netdev", f"vhost-user,id={name},chardev=c-{name},queues={self.queues}",
        ]  # fmt: skip

    @property
    def pairs(self):
        """Queue pairs that a device on it has."""
        return self.queues


@dataclass(frozen=True)
class Netdev:
    """Any other netdev of QEMU's: `Netdev("stream", {"addr.type": "unix", ...})`."""

    kind: str
    values: dict = field(default_factory=dict)
    pairs = 1

    def words(self, name):
        """Its part of the command line, as the netdev `name`."""
        return ["-netdev", f"{self.kind},id={name}{properties(self.values)}"]


@dataclass(frozen=True)
class VirtioNet:
    """A virtio-net device. `features`: QEMU's own properties, such as `{"mrg_rxbuf": False, "packed": True}`."""

    mac: str
    net: object
    features: dict = field(default_factory=dict)
    bus: str = "pcie.0"
    id: str = ""
    modules = ("virtio_net",)

    def words(self, index, **place):
        """Its part of the command line."""
        name = self.id or f"net{index}"
        queues = {"mq": True, "vectors": 2 * self.net.pairs + 2} if self.net.pairs > 1 else {}
        # Without `romfile` the firmware would try to boot from it.
        values = {"id": name, "netdev": f"n-{name}", "mac": self.mac, "bus": self.bus, "romfile": "", **queues, **place}
        return [*self.net.words(f"n-{name}"), "-device", "virtio-net-pci" + properties(values | self.features)]


@dataclass(frozen=True)
class VirtioPf:
    """A virtio-net PF and its VFs (each a `VirtioNet`), functions of one device below a port of its own."""

    pf: VirtioNet
    vfs: tuple
    modules = ("virtio_net",)

    def words(self, index):
        """Its part of the command line."""
        port, name = f"pf{index}", self.pf.id or f"net{index}"
        words = RootPort(port).words(index)
        # QEMU must hear of the VFs before it hears of their PF.
        for number, vf in reversed(list(enumerate(self.vfs, 1))):
            words += vf.words(f"{index}vf{number - 1}", bus=port, addr=f"0x0.{number:#x}", **{"sriov-pf": name})
        return words + self.pf.words(index, bus=port, addr="0x0.0x0")


@dataclass(frozen=True)
class Intel:
    """An emulated Intel card: `igb`, which has VFs of its own, or `e1000e`."""

    kind: str
    mac: str
    net: object
    features: dict = field(default_factory=dict)
    id: str = ""

    @property
    def modules(self):
        """Its driver, and its VFs'."""
        return ("igb", "igbvf") if self.kind == "igb" else (self.kind,)

    def words(self, index):
        """Its part of the command line."""
        port, name = f"intel{index}", self.id or f"net{index}"
        values = {"id": name, "netdev": f"n-{name}", "mac": self.mac, "bus": port, "romfile": ""}
        words = RootPort(port).words(index) + self.net.words(f"n-{name}")
        return [*words, "-device", self.kind + properties(values | self.features)]


@dataclass(frozen=True)
class SerialPort:
    """A virtio-serial port: `/dev/virtio-ports` has it by its number only, /sys/class/virtio-ports/*/name by its name.

    QEMU connects to the socket, or listens on it with `listens`.
    """

    name: str
    path: str
    listens: bool = False
    modules = ()

    def words(self, index):
        """Its part of the command line."""
        side = "server=on,wait=off" if self.listens else "reconnect-ms=100"
        return [
            "-chardev", f"socket,id=serial{index},path={self.path},{side}",
            "-device", f"virtserialport,bus=serial.0,chardev=serial{index},name={self.name}",
        ]  # fmt: skip


@dataclass(frozen=True)
class Module:
    """No device, but a module for the guest to load."""

    modules: tuple

    def words(self, _index):
        """Its part of the command line."""
        return []


@dataclass(frozen=True)
class Options:
    """Devices on a command line made elsewhere."""

    argv: tuple
    modules: tuple

    def words(self, _index):
        """Its part of QEMU's command line."""
        return list(self.argv)
