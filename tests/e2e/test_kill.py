"""The daemon is killed while it applies, again and again: what is found is the old state or the new one."""

import json
import os
import random
import re
import subprocess
import time
import unittest

from bench import BURST, MACS, BenchCase, cpus
from documents import LAB, PAIR, RING, mac_text
from labguest import LabGuests
from managed import Managed
from testpmd import Guest, VirtioUser

APPLIES, APPLIES_OFTEN = 12, 50
KILLS = 4  # of each apply
SEED = int(os.environ.get("SHUNT_E2E_SEED", "20260811"))
# Kills come within a span that follows the apply's duration: some come when the command has said that it is done.
SHORTER, LONGER = 0.9, 1.015
FRAME_BYTES = 60
BURSTS = 4
FRAMES_LIMIT_S = 5.0  # from the daemon's being ready to frames on every port of a guest
LATE_S = 0.5  # frames that take longer are looked into
WINDOW = 256  # frames that a guest of the lab has on their way
# The configuration file has nothing, and the state has something.
EXPECTED_WARNING = "the stored state is in force"


def within(part, whole):
    """Returns true if `whole` contains `part`; lists must be as long, and named items may be in any order."""
    if isinstance(part, dict):
        return all(name in whole and within(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        keys = ("name", "adapter", "index")
        key = next((key for key in keys if part and isinstance(part[0], dict) and key in part[0]), None)
        pairs = zip(sorted(part, key=lambda one: one[key]), sorted(whole, key=lambda one: one[key])) if key else zip(part, whole)  # fmt: skip
        return len(part) == len(whole) and all(within(a, b) for a, b in pairs)
    return part == whole


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in keeps no state")
class Kill(BenchCase):
    """One daemon's state, through 48 deaths; with `run --all` through 200 more."""

    limit_s = 420
    long_tests = {"test_apply_killed_often"}

    def setUp(self):
        self.daemon = Managed(cpu=cpus()[0])
        self.addCleanup(self.daemon.close)
        self.random = random.Random(SEED)
        self.found = {"old": 0, "new": 0, "journal": 0, "told": 0}
        self.lab = None
        self.exports = {}
        self.span_s = 0.05

    def test_apply_killed(self):
        """48 kills of 12 applies, half of them at random moments; guests are there all the time, and their frames pass again."""
        self.kill_applies(APPLIES)

    def test_apply_killed_often(self):
        """200 kills of 50 applies."""
        self.kill_applies(APPLIES_OFTEN)

    def kill_applies(self, applies):
        """Kills the daemon during so many applies, each of them several times."""
        self.prepare()
        before_all = self.guest.stats()
        self.guest.inject(FRAME_BYTES, BURSTS)
        self.wait_for_frames(self.guest, before_all, FRAMES_LIMIT_S)
        here = 0
        for number in range(1, applies + 1):
            there = (here + self.random.choice((1, -1))) % len(RING)
            for kill in range(1, KILLS + 1):
                moment = self.random.random()
                try:
                    self.reach(RING[here])
                    self.kill_while(RING[here], RING[there], moment, aimed=kill % 2 == 0)
                except Exception as error:
                    name = f"apply {number} ({RING[here].name} -> {RING[there].name}), kill {kill}"
                    log = self.daemon.log()[-3000:]
                    text = f"seed {SEED}, {name} at {moment:.4f} of {self.span_s:.4f} s, so far {self.found}; its log:\n{log}"
                    raise AssertionError(text) from error
            self.reach(RING[there])
            here = there
        self.check_guests(RING[here])
        print(f"    {self.found}, within {self.span_s * 1e3:.1f} ms, seed {SEED}")
        # Otherwise the kills did not come while something happened.
        self.assertGreater(min(self.found.values()), 0, "every kind of moment")
        self.assert_drained(self.guest, before_all, FRAME_BYTES, BURSTS * BURST, at_least=True)

    def prepare(self):
        """Starts daemon and testpmd, and notes how each document is exported."""
        daemon = self.daemon
        daemon.start()
        daemon.wait_ready()
        for document in [*RING, RING[0]]:
            self.apply(document)
            exported = daemon.export()
            self.assertTrue(within(document.state(daemon.run_dir), exported), document.name)
            self.exports[document.name] = exported
        ports = [VirtioUser(daemon.path(f"{name}.sock"), mac) for name, mac in zip(PAIR, MACS)]
        self.guest = Guest(ports, cpu=cpus()[1], run_dir=daemon.run_dir)
        self.addCleanup(self.guest.close)
        self.guest.wait_ready()
        self.addCleanup(lambda: self.lab and self.lab.kill())

    def file(self, document):
        """A file with a document."""
        path = self.daemon.path("wanted.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document.state(self.daemon.run_dir), file)
        return path

    def apply(self, document):
        """Applies in peace."""
        self.daemon.says("apply", "-f", self.file(document), "--prune", "--yes")

    def reach(self, document):
        """Applies in peace if another document is in force."""
        if self.daemon.export() != self.exports[document.name]:
            self.apply(document)
        self.check_state(document)

    def kill_while(self, old, new, moment, aimed):
        """Kills the daemon while it goes from one document to another, starts it, and looks at everything. An aimed kill comes
        as soon as there is a journal, which may be for a moment only."""
        daemon = self.daemon
        journal = os.path.join(daemon.state_dir, "journal.json")
        self.lab = self.lab_guests(old)
        generation = self.generation()
        argv = [daemon.program, "apply", "-f", self.file(new), "--prune", "--yes", "--run-dir", daemon.run_dir]
        end = time.monotonic() + moment * self.span_s
        apply = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if aimed:
            while apply.poll() is None and not os.path.exists(journal):
                pass
        else:
            time.sleep(max(0, end - time.monotonic()))
        daemon.kill()
        said, complaint = apply.communicate(timeout=20)
        self.assertIn(apply.returncode, (0, 1), complaint)
        self.found["journal"] += os.path.exists(journal)
        if self.lab:
            self.lab.kill()

        before = self.guest.stats()
        daemon.start()
        daemon.wait_ready()
        exported = daemon.export()
        told = apply.returncode == 0
        self.found["told"] += told
        if not aimed:
            self.span_s *= SHORTER if told else LONGER
        if exported == self.exports[new.name]:
            self.found["new"] += 1
            self.assertEqual(self.generation(), generation + 1)
            self.check_state(new)
        else:
            self.assertFalse(told, f"the command said {said!r}, and the state is not the new one")
            self.assertEqual(exported, self.exports[old.name], "neither the old nor the new state")
            self.found["old"] += 1
            self.assertEqual(self.generation(), generation)
            self.check_state(old)
        self.assertEqual(daemon.complaints([EXPECTED_WARNING]), [])
        # The guest may still find frames of the killed daemon in its rings, as many as were put in flight.
        self.wait_for_frames(self.guest, before, FRAMES_LIMIT_S, more=BURSTS * BURST)
        self.check_guests(new if exported == self.exports[new.name] else old)

    def generation(self):
        """The number of the state in force."""
        return int(self.daemon.ask("/v1/state").headers["etag"].strip('"'))

    def check_state(self, document):
        """The state in force is this document, in every part."""
        self.assertEqual(document.disagreements(self.daemon.ask("/v1/actual").body), [])
        journal = os.path.join(self.daemon.state_dir, "journal.json")
        self.assertFalse(os.path.exists(journal), "a journal that nobody has finished")
        run_dir = self.daemon.run_dir
        there = {name for name in os.listdir(run_dir) if name.endswith(".sock")}
        named = re.findall(r"[^/\"]+\.sock", json.dumps(document.state(run_dir)))
        self.assertEqual(there, {"api.sock", *named}, "sockets of this document, and none of another")

    def lab_guests(self, document):
        """The lab's guests, sending, if the document has adapters for them."""
        if not all(name in document.adapters for name in LAB):
            return None
        sockets = [self.daemon.path(f"{name}.sock") for name in LAB]
        macs = [mac_text(document.adapters[name].mac) for name in LAB]
        guests = LabGuests(sockets, macs)
        try:
            guests.go()
        except BaseException:
            guests.kill()
            raise
        return guests

    def received(self):
        """The frames that each of the lab's guests has received, by the daemon's counters."""
        ports = self.daemon.ask("/v1/stats").body["ports"]
        frames = {port["name"].rsplit("/", 1)[1]: port["rx_frames"] for port in ports}
        return [frames.get(name, 0) for name in LAB]

    def check_guests(self, document):
        """Guests that reconnect get every frame that they send each other."""
        before = self.received()
        guests = self.lab_guests(document)
        if not guests:
            return
        begin, late = time.monotonic(), None
        while any(now <= then for now, then in zip(self.received(), before)):
            waited = time.monotonic() - begin
            if waited > LATE_S and not late:
                late = self.standstill()
            if waited > FRAMES_LIMIT_S:
                guests.kill()
                self.fail(f"no frames between {LAB} within {FRAMES_LIMIT_S} s: {late}")
            time.sleep(0.002)
        for way in guests.stop():
            self.assertGreater(way["received"], 0)
            # Frames more than a second late were given up, a window at a time, and count as reordered.
            overtaken = max(0, way["reordered"] - way["stalls"] * WINDOW)
            faults = {name: way[name] for name in ("lost", "duplicated", "corrupted")} | {"overtaken": overtaken}
            self.assertEqual(faults, dict.fromkeys(faults, 0), way)
            if way["stalls"]:
                print(f"    frames between {LAB} came {way['stalls']} s late or more: {way}; meanwhile: {late}; its log:\n{self.daemon.log()[-2000:]}")

    def standstill(self):
        """Activity of the lanes and the lab's ports without frames, twice, 0.1 s apart."""
        seen = []
        for _ in range(2):
            stats = self.daemon.ask("/v1/stats").body
            lanes = [{name: lane[name] for name in ("lane", "rounds", "sleeps", "frames")} for lane in stats["lanes"]]
            ports = [port for port in stats["ports"] if port["name"].rsplit("/", 1)[1] in (*LAB, *PAIR)]
            seen.append((lanes, ports))
            time.sleep(0.1)
        return seen
