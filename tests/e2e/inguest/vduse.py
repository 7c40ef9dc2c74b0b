"""The two far ends of a vDPA device, as programs of a host: who makes one, and a driver behind vhost-vdpa.

usage: vduse.py hold NAME         makes a device and serves it badly, until it is ended
       vduse.py try NAME          says what Linux says to devices that are made in several ways
       vduse.py drive FILE WHAT   a driver (linux/vhost.h), which says in the end what it has seen
"""

import fcntl
import json
import mmap
import os
import select
import struct
import sys
import time

VERSION_1, ACCESS_PLATFORM, CTRL_VQ, MAC = 1 << 32, 1 << 33, 1 << 17, 1 << 5


def number(direction, kind, nr, size):
    """An ioctl's number."""
    return direction << 30 | size << 16 | kind << 8 | nr


def create(name, features):
    """VDUSE_CREATE_DEV of a network device with two rings; the error's number, or 0."""
    config = struct.pack("=256sIIQII52xI", name.encode(), 0, 1, features, 2, 4096, 12) + bytes(12)
    return control(number(1, 0x81, 2, 336), config)


def destroy(name):
    """VDUSE_DESTROY_DEV."""
    return control(number(1, 0x81, 3, 256), name.encode().ljust(256, b"\0"))


def control(request, data):
    """An ioctl of the control file; the error's number, or 0."""
    file = os.open("/dev/vduse/control", os.O_RDWR)
    try:
        fcntl.ioctl(file, request, data)
        return 0
    except OSError as error:
        return error.errno
    finally:
        os.close(file)


def do_hold(name):
    assert create(name, VERSION_1 | ACCESS_PLATFORM) == 0
    _file = os.open(f"/dev/vduse/{name}", os.O_RDWR)
    print("held", flush=True)
    try:
        time.sleep(600)
    finally:
        os.close(_file)


def do_try(name):
    plain = VERSION_1 | ACCESS_PLATFORM
    said = {}
    for kind, features in (("plain", plain), ("ctrl_vq", plain | CTRL_VQ), ("no_access_platform", VERSION_1)):
        said[kind] = create(name, features)
        if said[kind] == 0:
            assert destroy(name) == 0
    print(json.dumps(said))


class Memory:
    """Shared memory of the driver's, at addresses of its own choice."""

    def __init__(self, iova, size):
        self.iova, self.size = iova, size
        self.file = os.memfd_create(f"driver-{iova:x}")
        os.ftruncate(self.file, size)
        self.map = mmap.mmap(self.file, size)
        with open("/proc/self/maps", encoding="ascii") as maps:
            (line,) = (line for line in maps if f"/memfd:driver-{iova:x} " in line)
        self.address = int(line.split("-")[0], 16)
        self.next = 0

    def take(self, size, align=4096):
        """Room for something: its offset."""
        start = -(-self.next // align) * align
        self.next = start + size
        assert self.next <= self.size
        return start


class Ring:
    """A split ring in a memory (virtio 1.2, section 2.7), used in order."""

    SIZE = 64

    def __init__(self, memory):
        self.memory = memory
        # Indices are written at once: struct's functions make them 0 for a moment, which a device that looks just then sees.
        self.words = memoryview(memory.map).cast("H")
        self.desc, self.avail, self.used = (memory.take(size) for size in (16 * self.SIZE, 6 + 2 * self.SIZE, 6 + 8 * self.SIZE))
        self.kick, self.call = os.eventfd(0), os.eventfd(0, os.EFD_NONBLOCK)
        self.made, self.seen = 0, 0

    def put(self, addr, length, flags=0):
        """Makes a buffer available, without a kick."""
        slot = self.made % self.SIZE
        struct.pack_into("<QIHH", self.memory.map, self.desc + 16 * slot, addr, length, flags, 0)
        struct.pack_into("<H", self.memory.map, self.avail + 4 + 2 * slot, slot)
        self.made += 1
        self.words[(self.avail + 2) // 2] = self.made & 0xFFFF

    def notify(self):
        """Kicks."""
        os.eventfd_write(self.kick, 1)

    def take(self, timeout=5.0):
        """The slot and length of the next used buffer, or None when there is none in time. Waits for interrupts only."""
        deadline = time.monotonic() + timeout
        while self.words[(self.used + 2) // 2] == self.seen & 0xFFFF:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.call], [], [], left)[0]:
                return None
            os.eventfd_read(self.call)
        slot, length = struct.unpack_from("<II", self.memory.map, self.used + 4 + 8 * (self.seen % self.SIZE))
        self.seen += 1
        return slot, length


class Driver:
    """A driver of `/dev/vhost-vdpa-N`, with a receive ring (0) and a transmit ring (1)."""

    BUFFER = 2048

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR)
        self.ioctl(0, 1)  # SET_OWNER
        self.ioctl(1, 0x25, "Q", 1 << 1)  # SET_BACKEND_FEATURES: IOTLB_MSG_V2
        self.memory = Memory(1 << 32, 4 << 20)
        self.rings = [Ring(self.memory), Ring(self.memory)]
        self.share(self.memory)
        self.room = [self.memory.take(self.BUFFER * Ring.SIZE) for _ in self.rings]

    def ioctl(self, direction, nr, form="", *values):
        """One of vhost's; what it wrote."""
        data = bytearray(struct.pack("=" + form, *values))
        fcntl.ioctl(self.file, number(direction, 0xAF, nr, len(data)), data if data else 0)
        return struct.unpack("=" + form, data)

    def share(self, memory, kind=2):
        """Maps a memory for the device; kind 3: takes it away."""
        msg = struct.pack("=IIQQQBB", 2, 0, memory.iova, memory.size, memory.address, 3, kind)
        os.write(self.file, msg.ljust(72, b"\0"))

    def status(self, value):
        """Sets the device's status."""
        self.ioctl(1, 0x72, "B", value)

    def start(self, bases=(0, 0)):
        """From a reset to DRIVER_OK, with the rings where they are."""
        self.status(0)
        self.status(3)
        self.ioctl(1, 0, "Q", VERSION_1 | ACCESS_PLATFORM | MAC)
        self.status(11)
        for index, ring in enumerate(self.rings):
            at = self.memory.iova
            self.ioctl(1, 0x10, "II", index, Ring.SIZE)
            self.ioctl(1, 0x11, "IIQQQQ", index, 0, at + ring.desc, at + ring.used, at + ring.avail, 0)
            self.ioctl(1, 0x12, "II", index, bases[index])
            self.ioctl(1, 0x20, "Ii", index, ring.kick)
            self.ioctl(1, 0x21, "Ii", index, ring.call)
            self.ioctl(1, 0x75, "II", index, 1)
        self.status(15)

    def bases(self):
        """Device's position in each ring."""
        return [self.ioctl(3, 0x12, "II", index, 0)[1] for index in (0, 1)]

    def post(self, count):
        """Buffers for frames."""
        ring = self.rings[0]
        for _ in range(count):
            self.post_at(self.memory.iova + self.room[0] + self.BUFFER * (ring.made % Ring.SIZE))
        ring.notify()

    def post_at(self, addr):
        """One of them, wherever."""
        self.rings[0].put(addr, self.BUFFER, 2)

    def send(self, frame):
        """Sends a frame, and waits until the device has it; whether it took it."""
        ring = self.rings[1]
        at = self.room[1] + self.BUFFER * (ring.made % Ring.SIZE)
        self.memory.map[at : at + 12 + len(frame)] = bytes(12) + frame
        ring.put(self.memory.iova + at, 12 + len(frame))
        ring.notify()
        return ring.take() is not None

    def receive(self, where=None):
        """The next frame, from the buffers of `post` or a place of `where` (a memory and an offset)."""
        ring = self.rings[0]
        slot = ring.seen % Ring.SIZE
        taken = ring.take()
        if taken is None:
            return None
        memory, at = where or (self.memory, self.room[0] + self.BUFFER * slot)
        return bytes(memory.map[at + 12 : at + taken[1]])

    def ask(self, mine, wanted, where=None):
        """Returns true if the next frame answers an ARP request."""
        address, sender, target = mine.split(",")[0], mine.split(",")[1], wanted
        source = bytes.fromhex(address.replace(":", ""))
        body = struct.pack(">HHBBH", 1, 0x800, 6, 4, 1) + source + packed(sender) + bytes(6) + packed(target)
        if not self.send(b"\xff" * 6 + source + b"\x08\x06" + body.ljust(46, b"\0")):
            return False
        frame = self.receive(where)
        return frame is not None and frame[:6] == source and frame[20:22] == b"\0\x02" and frame[28:32] == packed(target)


def packed(address):
    """An IPv4 address's bytes."""
    return bytes(int(part) for part in address.split("."))


def do_drive(path, mine, wanted):
    """Everything that a driver does, in the order of a life."""
    driver, said = Driver(path), {}
    driver.start()
    driver.post(40)
    said["answered"] = sum(driver.ask(mine, wanted) for _ in range(30))
    said["bases"] = driver.bases()
    # More memory while the rings run: the next buffers are there.
    more = Memory(1 << 33, 2 << 20)
    driver.share(more)
    said["after_more_memory"] = driver.ask(mine, wanted)
    while driver.rings[0].seen < driver.rings[0].made:
        if not driver.ask(mine, wanted):
            break
    driver.post_at(more.iova + 4096)
    driver.rings[0].notify()
    said["in_more_memory"] = driver.ask(mine, wanted, (more, 4096))
    # A new life of the device; rings go on where they were.
    bases = driver.bases()
    driver.start(bases)
    driver.post(10)
    said["after_reset"] = sum(driver.ask(mine, wanted) for _ in range(5))
    # An address that is nowhere, in either ring.
    driver.rings[1].put(0x7777 << 32, 64)
    driver.rings[1].notify()
    said["nowhere"] = driver.rings[1].take(1.0)
    said["broken"] = driver.ask(mine, wanted) if driver.rings[1].take(0.5) else False
    print(json.dumps(said))


if __name__ == "__main__":
    {"hold": do_hold, "try": do_try, "drive": do_drive}[sys.argv[1]](*sys.argv[2:])
