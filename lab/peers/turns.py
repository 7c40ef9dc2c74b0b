"""Turns of slots, one of each side, and the distance between the two CPUs around them.

A host moves the CPUs of a virtual machine: now two of them share a cache, now they do not, and what a frame
costs follows it by a factor of two to three. So the distance is measured before, between and after the slots.
"""

import json
import math
import subprocess
from dataclasses import dataclass, field

from daemon import DaemonError, binary

BANDS = {120: "under 120", 300: "120-300", 600: "300-600", math.inf: "600 and more"}  # cycles, as in the lab
DISTURBED = 0.02  # a slot in which others took more than this share of a CPU does not count
STATES = [*BANDS.values(), "moved", "disturbed"]
UNDISTURBED = STATES[:-1]


def distance(args, samples=1):
    """The round trip of a cache line between switch's and guest's CPU, in time-stamp cycles: the least sample."""
    cpus = f"{args.switch_cpu},{args.guest_cpu}"
    argv = [binary(), "lab", "distance", "--cpus", cpus, "--samples", str(samples), "--json"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if result.returncode != 0:
        raise DaemonError(f"shunt lab distance: exit code {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)["round_trip_cycles"][0]


@dataclass(frozen=True)
class Turn:
    """One slot of each side at the same task, `slots` by name in the order in which they ran.

    A slot is a dictionary of figures; `others` is the share of a CPU that other processes took meanwhile.
    """

    task: str
    distances: list
    slots: dict

    def state(self):
        """One of STATES: the band of all its distances, or why it has none."""
        if any(slot["others"] > DISTURBED for slot in self.slots.values()):
            return "disturbed"
        bands = {next(name for limit, name in BANDS.items() if cycles < limit) for cycles in self.distances}
        return bands.pop() if len(bands) == 1 else "moved"

    def ratio(self, over, under, figure):
        """One side's figure over another's."""
        return self.slots[over][figure] / self.slots[under][figure]


@dataclass
class Turns:
    """All turns of a run. `args` has `switch_cpu` and `guest_cpu`."""

    args: object
    turns: list = field(default_factory=list)

    def measure(self, task, sides, slot):
        """One more turn: `slot(side)` for each of `sides`; the order moves on by one from turn to turn."""
        at = len(self.of(task)) % len(sides)
        distances, slots = [distance(self.args)], {}
        for side in sides[at:] + sides[:at]:
            slots[side.name] = slot(side)
            distances.append(distance(self.args))
        self.turns.append(Turn(task, distances, slots))

    def of(self, task, *states):
        """The turns of a task; only those in these states."""
        return [turn for turn in self.turns if turn.task == task and (not states or turn.state() in states)]

    def counts(self, task):
        """A sentence about the states of a task's turns."""
        found = {state: len(self.of(task, state)) for state in STATES}
        return f"{sum(found.values())} turns: " + ", ".join(f"{n} {state}" for state, n in found.items() if n)


def columns(lines, left=1):
    """A table as lines, the first `left` columns to the left."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))
        for line in lines
    ]
