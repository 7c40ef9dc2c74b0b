"""A stand-in for the daemon: testpmd with two vhost ports that sends every frame out of the other one.

`tests/e2e/run --standin` runs the suites against it, to tell a fault of shunt from one of the machine or
of the suites. It retries a lost connection only once a second, and drops what it takes from one guest
port while the other is not connected yet, so the promises about restarts are not asked of it.
"""

from testpmd import Process, command_line


class Standin:
    """Has the face of `daemon.Daemon`, without counters."""

    name = "stand-in"
    resume_limit_s = 6.0
    keeps_frames = False

    def __init__(self, run_dir, vfs, *, cpu):
        self.run_dir = run_dir
        self.cpu = cpu
        self.vfs = list(vfs)
        self._process = None

    def socket(self, index):
        """The path of a VF's socket."""
        return f"{self.run_dir}/{self.vfs[index].socket}"

    def start(self):
        """Starts the process; does not wait."""
        vdevs = [
            f"net_vhost{i},iface={self.socket(i)},client={int(vf.mode == 'client')}"
            for i, vf in enumerate(self.vfs)
        ]
        argv = command_line(vdevs, cpu=self.cpu, prefix="standin", args=["--auto-start"])
        self._process = Process(argv, self.run_dir)

    def wait_ready(self, timeout=20.0):
        """Waits until it forwards."""
        self._process.wait_ready(timeout)

    def log(self):
        """Its output so far."""
        return self._process.output if self._process else ""

    def check_alive(self):
        """Raises if the process has ended unexpectedly."""
        if (code := self._process.process.poll()) is not None:
            raise RuntimeError(f"the stand-in ended with {code}:\n{self.log()[-2000:]}")

    def stats(self):
        """It has no counters."""
        return None

    def kill(self):
        """SIGKILL, and waits for the end."""
        if self._process:
            self._process.kill()

    def close(self):
        """Ends it."""
        if self._process:
            self._process.close()
