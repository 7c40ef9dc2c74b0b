"""Memory that is never there: a kernel call that reads from it waits, with the locks that it holds.

A VMM does so by userfaultfd or a FUSE mount; here by the first, which needs root for waits within
the kernel.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import threading

USERFAULTFD = 323  # x86_64
API, UFFDIO_API, UFFDIO_REGISTER, MISSING = 0xAA, 0xC018AA3F, 0xC020AA00, 1
SIZE = 1 << 16


class Stall:
    """Calls that wait until `close`."""

    def __init__(self):
        self._faults = ctypes.CDLL(None, use_errno=True).syscall(USERFAULTFD, os.O_CLOEXEC)
        if self._faults < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        fcntl.ioctl(self._faults, UFFDIO_API, struct.pack("<QQQ", API, 0, 0))
        self._memory = mmap.mmap(-1, SIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        fcntl.ioctl(self._faults, UFFDIO_REGISTER, struct.pack("<QQQQ", start, SIZE, MISSING, 0))
        self._threads = []

    def write(self, file):
        """Begins a write to `file` that does not return, and waits until it has begun."""
        begun = threading.Event()

        def wait():
            begun.set()
            with contextlib.suppress(OSError):  # the other end may be gone by then
                os.write(file, memoryview(self._memory)[:4096])

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        begun.wait()
        while not self._waits(thread.native_id):
            pass
        self._threads.append(thread)

    @staticmethod
    def _waits(thread):
        with open(f"/proc/self/task/{thread}/wchan", encoding="utf-8") as file:
            return "userfault" in file.read()

    def close(self):
        """Lets all calls go on."""
        if self._faults >= 0:
            os.close(self._faults)
            self._faults = -1
        for thread in self._threads:
            thread.join(timeout=10)
