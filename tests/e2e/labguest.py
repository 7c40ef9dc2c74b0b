"""Two guests of `shunt lab` in one process, which connect to the daemon and send each other numbered frames."""

import json
import os
import subprocess

from bench import cpus
from daemon import binary


class LabGuestError(Exception):
    """The guests did not do what they were told."""


class LabGuests:
    """They attach to two sockets; `go` makes them send until `stop`, which returns the account of the frames."""

    def __init__(self, sockets, macs):
        self._process = subprocess.Popen(
            [binary(), "lab", "guest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Polling on the lane's CPU it would take that CPU from the lane, which yields it, for half a second and more.
        os.sched_setaffinity(self._process.pid, {cpus()[1]})
        task = {"numbered": {"guests": list(zip(sockets, macs))}}
        self._say(json.dumps(task))

    def _say(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self, event):
        line = self._process.stdout.readline()
        said = json.loads(line) if line else {}
        if said.get("event") != event:
            self.kill()
            raise LabGuestError(f"no {event!r} but {line!r}: {self._process.stderr.read()}")
        return said

    def go(self):
        """Waits until both are attached, and makes them send."""
        self._hear("ready")
        self._say("go")

    def stop(self):
        """Ends them, and returns the account of each direction. Each has the longest time that the guests had no CPU
        (absence_us_max), as no frame can arrive in it."""
        self._say("stop")
        result = self._hear("numbered")
        self.kill()
        return [way | {"absence_us_max": result["absence_us_max"]} for way in result["directions"]]

    def kill(self):
        """Kills the process, if it has not ended."""
        self._process.kill()
        self._process.wait(timeout=10)
