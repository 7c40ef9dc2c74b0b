"""A VF by vfio-pci, in a VM within a guest: igb of QEMU behind an emulated IOMMU, plugged and unplugged as docs/cards.md says.

QEMU emulates a processor that emulates a processor: some ten minutes, so this is a long test. The inner VM has no agent; its
start is seen in its console, and its frames from the wire.
"""

import functools
import tempfile
import time
import unittest

from guest import skip_without_guests
from nested import PAIR, PEER, READY, Image, Server, assert_reached
from pages import fenced
from pci import WIRE_MAC


class Nested(unittest.TestCase):
    """The VM of docs/qemu.md, with VF 0 of docs/cards.md."""

    limit_s = 3600
    long_tests = ("test_a_vf_by_vfio_pci",)

    def test_a_vf_by_vfio_pci(self):
        """It is plugged and unplugged twice, and the VM is reached each time."""
        skip_without_guests()
        run_dir = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        self.addCleanup(run_dir.cleanup)
        guest = Server(run_dir.name, Image(run_dir.name, saved=False))
        self.addCleanup(guest.close)
        guest.boot()
        wire, name = guest.namespace("wire"), guest.interface(WIRE_MAC)
        guest.ip("link", "set", name, "netns", "wire")
        wire.up(name, f"{PEER}/24")
        guest.start_daemon()
        guest.set_up_card()
        guest.start_vm()
        deadline = time.monotonic() + 1800
        while READY not in guest.ask("cat", "/run/vm.log").out:
            self.assertIsNone(guest.vm.poll(), guest.told())
            self.assertLess(time.monotonic(), deadline, guest.told())
            time.sleep(2)
        reached = functools.partial(assert_reached, wire)
        reached()
        text = fenced(PAIR, "sh")[0]
        attach, status, detach = (f"{line} --timeout 300" if "status" not in line else line for line in text.splitlines())
        for _ in range(2):
            guest.does(attach)
            reached()
            self.assertRegex(guest.does(status), r"web +standby +yes +primary-web +yes +primary")
            guest.does(detach)
            reached()


if __name__ == "__main__":
    unittest.main()
