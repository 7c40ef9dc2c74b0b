"""Documents that are run literally: their code, and a mount namespace in which it runs.

The commands of a document name the directories of a host, such as /run/shunt. In the namespace those are empty ones of
the test, so that nothing of the host is touched.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from daemon import binary


def section(text, heading):
    """Text of a section of a page, by its heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if not found:
        raise AssertionError(f"there is no section {heading!r}")
    return found[1]


def indented(text):
    """The indented blocks, without their indent."""
    without_fences = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", without_fences, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE).strip("\n") for block in found if block.strip()]


class MountNamespace:
    """A mount namespace with a directory of the test. `private`: paths that are empty in it; `script`: further commands
    to set it up, the last of which may be the command that keeps it. Daemons of the host are not found in it.
    """

    def __init__(self, private, script="exec sleep infinity"):
        self.dir = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        os.chmod(self.dir, 0o755)
        self.environment = {**os.environ, "PATH": f"{os.path.dirname(binary())}:{os.environ['PATH']}"}
        mounts = "".join(f"mkdir -p {path} && mount -t tmpfs -o mode=755 tmpfs {path} && " for path in ("/run/shunt.d", *private))
        self._log = os.path.join(self.dir, "namespace.log")
        with open(self._log, "wb") as log:
            command = f"{mounts} {script.format(dir=self.dir)}"
            self.process = subprocess.Popen(["unshare", "-m", "sh", "-ec", command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.within = ["nsenter", "-t", str(self.process.pid), "-m", f"--wdns={self.dir}"]

    def log(self):
        """End of the log of the process that keeps it."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:]

    def wait_until(self, true, what, timeout=30):
        """Waits until this is true."""
        deadline = time.monotonic() + timeout
        while not true():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"waited too long for {what}: {self.log()}")
            time.sleep(0.1)

    def ask(self, *argv, timeout=60, **options):
        """Runs a command in the namespace."""
        options = {"env": self.environment, "stdin": subprocess.DEVNULL} | options
        return subprocess.run([*self.within, *argv], capture_output=True, text=True, timeout=timeout, check=False, **options)

    def run(self, *argv, **options):
        """Output of a command that must succeed."""
        done = self.ask(*argv, **options)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr}{self.log()}")
        return done.stdout

    def shell(self, script):
        """Output of commands that must succeed, as a user types them."""
        return self.run("bash", "-ec", script)

    def path(self, path):
        """A path of the namespace, as seen from outside."""
        return f"/proc/{self.process.pid}/root{path}"

    def close(self):
        """Ends the process that keeps it; the namespace ends with its last process."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
