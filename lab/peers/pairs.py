"""Pairs of slots, one of each side, and the distance between the two CPUs around them.

A host moves the CPUs of a virtual machine: now two of them share a cache, now they do not, and what a frame
costs follows it by a factor of two to three. So a pair counts only when the distance, measured before,
between and after its slots, was about the same; and near pairs are told from far ones.
"""

import json
import math
import statistics
import subprocess
import time
from dataclasses import dataclass, field

from daemon import DaemonError, binary

SAME = 1.5  # distances within this factor are the same; near is what is the same as the least one of the run
DISTURBED = 0.02  # a slot in which others took more than this share of either CPU does not count
LOOKS = 20  # at most so many, for each size in each round, while waiting for the CPUs to come near
LOOK_S = 0.25
STATES = ["near", "far", "moved", "disturbed"]


def distance(args, samples=1):
    """The round trip of a cache line between switch's and guest's CPU, in time-stamp cycles: the least sample."""
    cpus = f"{args.switch_cpu},{args.guest_cpu}"
    argv = [binary(), "lab", "distance", "--cpus", cpus, "--samples", str(samples), "--json"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if result.returncode != 0:
        raise DaemonError(f"shunt lab distance: exit code {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)["round_trip_cycles"][0]


@dataclass(frozen=True)
class Pair:
    """One slot of each side, `slots` by name in the order in which they ran, and the distances around them."""

    round: int
    frame_bytes: int
    distances: list
    slots: dict

    def ratio(self):
        """Open vSwitch's cycles per frame over shunt's."""
        return self.slots["ovs"]["cycles_per_frame"] / self.slots["shunt"]["cycles_per_frame"]

    def state(self, least):
        """One of STATES; `least` is the least distance of the run."""
        if any(slot["cpu_taken"] > DISTURBED for slot in self.slots.values()):
            return "disturbed"
        if max(self.distances) > SAME * min(self.distances):
            return "moved"
        return "near" if statistics.median(self.distances) <= SAME * least else "far"


@dataclass
class Run:
    """All pairs of a run, of all rounds and sizes, and what was found when the frames were taken out."""

    pairs: list = field(default_factory=list)
    drains: list = field(default_factory=list)
    lookups: list = field(default_factory=list)
    least: float = math.inf

    def look(self, args):
        """Looks at the CPUs for two seconds, so that the first pairs can be told near or far."""
        self.least = distance(args, samples=100)

    def of(self, frame_bytes, state=None, number=None):
        """The pairs of a size; only those in this state, only those of this round."""
        return [
            pair
            for pair in self.pairs
            if pair.frame_bytes == frame_bytes
            and state in (None, pair.state(self.least))
            and number in (None, pair.round)
        ]

    def measure(self, number, frame_bytes, sides, args):
        """One more pair, its slots in the order of `sides`."""
        distances, slots = [distance(args)], {}
        for side in sides:
            slots[side.name] = side.slot()
            distances.append(distance(args))
        self.least = min(self.least, *distances)
        self.pairs.append(Pair(number, frame_bytes, distances, slots))

    def check(self, number, frame_bytes, in_flight):
        """Takes the pairs of a size of a round back if a switch had lost frames: its load was not the same."""
        mine = (number, frame_bytes)
        drains = [drain for drain in self.drains if (drain["round"], drain["frame_bytes"]) == mine]
        if any(drain["frames_back"] != in_flight for drain in drains):
            self.pairs = [pair for pair in self.pairs if (pair.round, pair.frame_bytes) != mine]

    def _wait_for_near(self, args, looks):
        """Waits until the CPUs are near, for so many looks at most; says how many are left."""
        while looks > 0 and distance(args) > SAME * self.least:
            time.sleep(LOOK_S)  # both CPUs idle: which is when a host is most likely to move them
            looks -= 1
        return looks

    def fill(self, number, frame_bytes, sides, args):
        """Measures until this round has its share of near pairs, or its share of tries is used up."""
        rounds_left = args.rounds - number + 1
        wanted = math.ceil((args.pairs - len(self.of(frame_bytes, "near"))) / rounds_left)
        looks = LOOKS
        for i in range(math.ceil(args.tries / args.rounds)):
            if len(self.of(frame_bytes, "near", number)) >= wanted:
                break
            # Enough is known about far CPUs: rather wait, for a while, until they are near again.
            if len(self.of(frame_bytes, "far", number)) >= wanted:
                looks = self._wait_for_near(args, looks)
            self.measure(number, frame_bytes, sides if i % 2 == 0 else sides[::-1], args)
