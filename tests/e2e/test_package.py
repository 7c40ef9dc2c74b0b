"""The Debian package on a clean Debian 12 with systemd, in namespaces: installed, updated under traffic, removed."""

import os
import re
import shutil
import subprocess
import time
import unittest

import debian
from daemon import HERE
from labguest import LabGuests
from qemu import TARGET
from systemd import Host

ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
IPC_LOCK = 1 << 14  # stays where the limit of locked memory cannot be raised
# The clean system, and what the test itself asks.
CLEAN = os.path.join(os.path.abspath(TARGET), "e2e-debian")
PACKAGES = ["adduser", "systemd", "iproute2", "procps", "man-db", "python3", "tshark"]
MACS = ["02:00:00:00:01:01", "02:00:00:00:01:02"]
LEFT = "/usr/bin/shunt /lib/systemd/system/shunt.service /etc/shunt /run/shunt /var/lib/shunt /usr/share/doc/shunt"
# Asks over TCP, with the token.
ASK = """
import urllib.request
request = urllib.request.Request("http://127.0.0.1:8080/v1/adapters")
request.add_header("Authorization", "Bearer " + open("/etc/shunt/token").read().strip())
print(urllib.request.urlopen(request, timeout=10).read())
"""


class Package(unittest.TestCase):
    """One package, and the same with a later version."""

    limit_s = 900
    long_tests = ("test_from_installation_to_removal",)

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("namespaces need root")
        if not os.path.isdir(CLEAN):
            debian.make(CLEAN, ("bookworm",), PACKAGES)
        cls.host = Host(CLEAN)
        cls.addClassCleanup(cls.host.close)
        env = {name: value for name, value in os.environ.items() if name != "SHUNT"}
        built = subprocess.run([os.path.join(ROOT, "deploy", "debian", "build")], env=env, capture_output=True, text=True, timeout=800, check=False)
        if built.returncode != 0:
            raise AssertionError(f"deploy/debian/build: {built.stderr[-3000:]}")
        shutil.copy(built.stdout.splitlines()[-1], os.path.join(cls.host.dir, "shunt.deb"))
        cls.host.run("dpkg-deb -R shunt.deb later; sed -i 's/^Version: .*/&.1/' later/DEBIAN/control; dpkg-deb -b later later.deb", timeout=120)

    def main(self):
        """Main process of the service, as systemd knows it."""
        return int(self.host.run("systemctl show -P MainPID shunt"))

    def socket(self, name):
        """A socket of the service, as seen from without."""
        return self.host.path(f"run/shunt/{name}.sock")

    def test_from_installation_to_removal(self):
        """The service runs as a user of its own, and an update loses no frame."""
        run = self.host.run
        run("dpkg -i shunt.deb", timeout=120)
        self.assertEqual(run("systemctl is-active shunt; systemctl is-enabled shunt"), "active\nenabled\n")
        self.assertEqual(run(f"ps -o user= -p {self.main()}").strip(), "shunt")
        status = run(f"cat /proc/{self.main()}/status")
        capabilities = int(re.search(r"CapEff:\s+(\w+)", status)[1], 16)
        self.assertEqual(capabilities & ~IPC_LOCK, 0, "the daemon itself has no other capability")
        run("man -w shunt-adapter-set; shunt doctor >doctor || true; test -s /usr/share/bash-completion/completions/shunt")
        # docs/dashboard.md: the token is the daemon's, also after a hot restart.
        run("head -c 32 /dev/urandom | base64 | install -m 600 /dev/stdin /etc/shunt/token; chown shunt /etc/shunt/token")
        run("printf '[api]\\ntcp = \"127.0.0.1:8080\"\\ntoken_file = \"/etc/shunt/token\"\\n' >>/etc/shunt/shunt.toml; systemctl restart shunt")
        run("shunt nic create nic0 --total-vfs 4; shunt switch create sw0 --nic nic0 --iov")
        for name, mac in zip("ab", MACS):
            run(f"shunt adapter create {name} --switch sw0 --mac {mac} --socket /run/shunt/{name}.sock --mode server --iov-weight 50")
        run("shunt adapter create probe --switch sw0 --mac 02:00:00:00:01:03 --attachment tap:probe0; ip link show probe0")

        self.assertIn("(Shunt nic0/a)", run("tshark -D"))
        guests = LabGuests([self.socket(name) for name in "ab"], MACS)
        self.addCleanup(guests.kill)
        guests.go()
        time.sleep(1)
        first = self.main()
        run("systemctl reload shunt")
        self.assertEqual(self.main(), first)
        run("shunt upgrade")
        self.host.wait_until(lambda: self.main() != first, "systemd to see the new process")
        second = self.main()
        run("dpkg -i later.deb", timeout=120)
        self.host.wait_until(lambda: self.main() != second, "the updated program")
        self.assertEqual(run("systemctl is-active shunt"), "active\n")
        self.assertEqual(run(f"ps -o user= -p {self.main()}").strip(), "shunt")
        self.assertIn("probe", run(f"python3 -c '{ASK}'"))
        time.sleep(1)
        for way in guests.stop():
            print(f"     {way['received']} frames, {way['lost']} lost, longest gap {way['gap_us_max'] / 1e3:.1f} ms", flush=True)
            self.assertEqual((way["lost"], way["duplicated"]), (0, 0), way)
            self.assertGreater(way["received"], 1000)
        self.assertIn("probe0", run("ip link show probe0"))

        run("dpkg -r shunt", timeout=120)
        self.assertEqual(self.host.ask("systemctl is-active shunt").stdout, "inactive\n")
        run("test -s /var/lib/shunt/state.json; test -e /etc/shunt/shunt.toml")  # what is the user's
        run("rm /etc/shunt/token; dpkg -P shunt", timeout=120)
        self.assertEqual(self.host.ask(f"ls -d {LEFT}").stdout, "")


if __name__ == "__main__":
    unittest.main()
