"""README's quick starts, run literally: their files and commands, as a user types them.

They run in a mount namespace of the test, whose /tmp is empty. Not run are what builds the program and the example of
QEMU, which has `...` in it.
"""

import json
import os
import pty
import re
import select
import subprocess
import time
import unittest

from literal import MountNamespace, indented, section
from pages import fenced, page

UP = "shunt up --config shunt.toml"
PRIVATE = ("/tmp", "/run/dpdk")
FRAMES = 10_000  # of each VF
BUILDS = ("cargo build --release", "alias shunt=")


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no commands")
class QuickStart(unittest.TestCase):
    """One quick start at a time."""

    def start(self, heading):
        """Writes the file of a section; returns its blocks of commands."""
        text = section(page("../README.md"), heading)
        self.site = MountNamespace(PRIVATE)
        self.addCleanup(self.site.close)
        self.site.wait_until(lambda: self.site.ask("test", "-d", "/tmp/.").returncode == 0, "the namespace")
        (config,) = fenced(text, "toml")
        with open(os.path.join(self.site.dir, "shunt.toml"), "w", encoding="utf-8") as file:
            file.write(config)
        return indented(text)

    def popen(self, command, **options):
        """Starts a command; the test ends it."""
        process = subprocess.Popen(
            [*self.site.within, "bash", "-ec", f"exec {command}"], env=self.site.environment, text=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | options,
        )  # fmt: skip
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Ends a process."""
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def up(self, command):
        """Starts the daemon, as the file says; returns once it is ready."""
        self.assertEqual(command, UP)
        daemon = self.popen(command)
        for line in daemon.stdout:
            if line == "ready\n":
                return
        self.fail(f"the daemon ended with {daemon.wait()}")

    def test_two_vfs(self):
        """Frames circle between testpmd's two ports, and `shunt stats` counts them."""
        commands, testpmd, qemu, counters = self.start("Quick start: two VFs")
        self.assertIn("qemu-system-x86_64", qemu)
        stats, top = uncommented(counters)
        self.assertEqual(top, "shunt top")  # needs a terminal
        *build, check, up = uncommented(commands)
        for line, begin in zip(build, BUILDS, strict=True):
            self.assertTrue(line.startswith(begin), line)
        self.site.shell(check)
        self.up(up)
        command, first, show = re.split(r"\s*^testpmd> ", testpmd, flags=re.MULTILINE)
        terminal = Terminal(self.popen, command)
        self.addCleanup(terminal.close)
        terminal.type(first)
        deadline = time.monotonic() + 30
        while min(frames := self.frames(stats)) < FRAMES:
            self.assertLess(time.monotonic(), deadline, f"frames of the VFs after 30 s: {frames}")
            time.sleep(0.1)
        self.assertIn("nic0/vf1", self.site.shell(stats))
        shown = terminal.type(show)
        received = [int(number) for number in re.findall(r"RX-packets: *(\d+)", shown)]
        self.assertEqual(len(received), 2, shown)
        self.assertGreater(min(received), FRAMES // 2)
        terminal.type("quit", until="Bye...")

    def frames(self, stats):
        """Frames that each VF has sent, from the command for counters."""
        ports = json.loads(self.site.shell(f"{stats} --json"))["ports"]
        return [port["tx_frames"] for port in ports if port["name"].startswith("nic0/vf")]

    def test_a_switch(self):
        """The adapters are listed, one changes its path, and an event tells it."""
        (commands,) = self.start("Quick start: a switch, and adapters that change path")
        up, *steps, events = uncommented(commands)
        self.up(up.removesuffix(" &"))
        listed, _changed = (self.site.shell(step) for step in steps)
        self.assertRegex(listed, r"(?m)^web +sw0 .* vf 0 ")
        self.assertRegex(listed, r"(?m)^db +sw0 .* synthetic ")
        self.assertRegex(self.site.shell(steps[0]), r"(?m)^web +sw0 .* vmq 0 ")
        told = []
        for line in self.popen(events).stdout:
            told.append(line)
            if "adapter web: vf 0 -> vmq 0" in line:
                return
        self.fail("".join(told))


class Terminal:
    """testpmd in a terminal, as a user has it: its prompt is there once its ports are."""

    PROMPT = "testpmd> "

    def __init__(self, popen, command):
        self._file, slave = pty.openpty()
        popen(command, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self._output = ""  # not read yet
        self._read(self.PROMPT)

    def _read(self, until, timeout=60):
        """Output up to this text."""
        deadline = time.monotonic() + timeout
        while until not in self._output:
            ready, _, _ = select.select([self._file], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"testpmd: no {until!r} after {timeout} s: {self._output[-3000:]}")
            self._output += os.read(self._file, 1 << 16).decode(errors="replace")
        found, self._output = self._output.split(until, 1)
        return found

    def type(self, line, until=PROMPT):
        """Types a line; returns the output up to the next prompt."""
        os.write(self._file, f"{line}\n".encode())
        self._read(line)  # what was typed is shown
        return self._read(until)

    def close(self):
        """Closes the terminal."""
        os.close(self._file)


def uncommented(commands):
    """The lines of commands, without the comments behind them."""
    return [re.sub(r" +#.*", "", line) for line in commands.splitlines()]


if __name__ == "__main__":
    unittest.main()
