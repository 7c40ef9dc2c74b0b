"""A host with systemd, in namespaces of the test: units are installed and run as on a host of their own.

systemd is process 1 of a process namespace. In its mount namespace /run, /tmp, /etc/systemd, /usr/local/bin and so on are
empty, so no unit of the real host is known there, and nothing that is installed there remains. Needs root.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time

OVER = ("/etc", "/var")  # as on the real host, but what is written there is the test's
EMPTY = ("/etc/init.d", "/etc/systemd", "/run", "/tmp", "/usr/local/bin", "/var/lib/systemd", "/var/log", "/var/tmp")
UNITS = ("basic.target", "sysinit.target", "shutdown.target", "multi-user.target", "network.target", "systemd-journald.service", "systemd-journald.socket")
# A tree's own root; what is written is the test's.
ROOT = """
mkdir {site}/upper {site}/work {site}/root
mount -t overlay -o lowerdir={root},upperdir={site}/upper,workdir={site}/work overlay {site}/root
cd {site}/root
for path in dev sys; do mount --rbind /$path $path; done
mount -t proc proc proc
mkdir -p old
pivot_root . old
umount -l /old
"""
# The real host's root.
OVERLAYS = """
mount -t proc proc /proc
for path in {over}; do
    mkdir -p {site}/upper$path {site}/work$path
    mount -t overlay -o lowerdir=$path,upperdir={site}/upper$path,workdir={site}/work$path overlay $path
done
rm -rf /etc/shunt /var/lib/shunt
"""
BOOT = """
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir {site}/units
for unit in {units}; do cp /lib/systemd/system/$unit {site}/units; done
for path in {empty}; do mkdir -p $path; mount -t tmpfs -o mode=755 tmpfs $path; done
mkdir -p /etc/systemd/system/sysinit.target.wants
ln -s /lib/systemd/system/systemd-journald.service /etc/systemd/system/sysinit.target.wants/
mount --bind {site}/units /lib/systemd/system
mount --make-rshared /
ip link set lo up
exec env -i PATH=$PATH container=shunt-e2e /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=0
"""

# Ends with the test runner, even if that is killed: unshare then ends the namespaces.
WITH_RUNNER = ["setpriv", "--pdeathsig", "KILL"]


class SystemdError(Exception):
    """A command within the host failed, or took too long."""


class Host:
    """A running systemd; commands run in its namespaces, in a directory of the test. `root`: a tree of Debian to run, in
    place of the real host's."""

    def __init__(self, root=None):
        self.dir = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        self.cgroup = os.path.join(cgroup2(), os.path.basename(self.dir))
        os.mkdir(self.cgroup)
        boot = (ROOT if root else OVERLAYS) + BOOT
        boot = boot.format(site=self.dir, root=root, units=" ".join(UNITS), over=" ".join(OVER), empty=" ".join(EMPTY))
        enter = f"echo $$ >{self.cgroup}/cgroup.procs; exec unshare -m -p -C -i -u -n --fork --kill-child sh -ec '{boot}'"
        self._log = os.path.join(self.dir, "systemd.log")
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen([*WITH_RUNNER, "sh", "-ec", enter], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_until(lambda: self.init() and self.ask("systemctl is-active multi-user.target").stdout == "active\n", "systemd")
        except BaseException:
            self.close()
            raise

    def init(self):
        """Process 1 of the namespace, or None before it runs."""
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="ascii") as file:
            children = file.read().split()
        return children[0] if children else None

    def path(self, inside):
        """A path of the host's file system, as seen from without."""
        return os.path.join("/proc", self.init(), "root", inside)

    def log(self):
        """Last lines of systemd's log, and of its journal."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            text = file.read()[-3000:]
        return text + (self.ask("journalctl --no-pager -n 30").stdout if self.init() else "")

    def ask(self, script, timeout=60):
        """Runs a script of the shell in the namespaces."""
        argv = ["nsenter", "-t", self.init(), "-m", "-p", "-C", "-i", "-u", "-n", "env", f"--chdir={self.dir}", "sh", "-ec", script]
        path = f"/usr/local/bin:{os.environ['PATH']}"
        env = {"PATH": path, "LANG": "C", "HOME": "/nonexistent"}
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, env=env)

    def run(self, script, timeout=60):
        """Output of a script that must succeed."""
        done = self.ask(script, timeout)
        if done.returncode != 0:
            raise SystemdError(f"{script}: exit code {done.returncode}: {done.stdout}{done.stderr}\n{self.log()}")
        return done.stdout

    def wait_until(self, true, what, timeout=20):
        """Waits until this is true."""
        deadline = time.monotonic() + timeout
        while not true():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemdError(f"waited too long for {what}: {self.log()}")
            time.sleep(0.05)

    def close(self):
        """Kills everything in the namespaces."""
        if (init := self.init()) is not None:
            os.kill(int(init), signal.SIGKILL)
        self._process.wait(timeout=10)
        remove(self.dir, self.cgroup)


def remove(directory, cgroup):
    """Removes what an ended host leaves: its directory, and its empty control group."""
    for path, _, _ in os.walk(cgroup, topdown=False):
        os.rmdir(path)
    shutil.rmtree(directory, ignore_errors=True)


def cgroup2():
    """Mount point of the version 2 control groups."""
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            _, path, kind = line.split()[:3]
            if kind == "cgroup2":
                return path
    raise SystemdError("no cgroup2 is mounted")
