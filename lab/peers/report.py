"""What the comparison says: a line per size and round, the tables, the JSON."""

import os
import platform
import statistics
import subprocess
from dataclasses import asdict

from contender import NAMES
from pairs import DISTURBED, STATES
from testpmd import BURST


def spread(values, digits=1):
    """`median (min-max)`."""
    middle, least, most = (f"{v:.{digits}f}" for v in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}-{most})"


def counts(run, frame_bytes, number=None):
    """How many pairs there are in each state."""
    return {state: len(run.of(frame_bytes, state, number)) for state in STATES}


def progress(run, frame_bytes, number):
    """A line about one size in one round."""
    found = ", ".join(f"{n} {state}" for state, n in counts(run, frame_bytes, number).items() if n)
    line = f"  {frame_bytes:4} B: {found or 'no more pairs needed'}"
    if near := run.of(frame_bytes, "near", number):
        medians = [statistics.median(p.slots[name]["cycles_per_frame"] for p in near) for name in NAMES]
        line += f"; near: ovs {medians[0]:.1f}, shunt {medians[1]:.1f} cycles/frame"
    return line


def summarise(run, args):
    """A row for each size and each of near and far, as dictionaries."""
    rows = []
    for state in ("near", "far"):
        for size in args.sizes:
            pairs = run.of(size, state)
            row = {"frame_bytes": size, "state": state, "pairs": len(pairs), "tries": len(run.of(size))}
            row["distance"] = [d for pair in pairs for d in pair.distances]
            row["ratio"] = [pair.ratio() for pair in pairs]
            for name in NAMES:
                slots = [pair.slots[name] for pair in pairs]
                row[name] = {key: [slot[key] for slot in slots] for key in ("cycles_per_frame", "mpps")}
            rows.append(row)
    return rows


def table(rows):
    """Medians over the pairs, and from where to where they went; as lines."""
    lines = [["frame", "pairs", "distance", *(f"{name} cycles/frame" for name in NAMES), "ratio"]]
    lines[0] += [f"{name} Mpps" for name in NAMES]
    for row in rows:
        line = [f"{row['frame_bytes']} B", str(row["pairs"])]
        if row["pairs"]:
            line += [spread(row["distance"], 0)]
            line += [spread(row[name]["cycles_per_frame"]) for name in NAMES]
            line += [spread(row["ratio"], 2)]
            line += [spread(row[name]["mpps"]) for name in NAMES]
        else:
            line += ["-"] * (len(lines[0]) - len(line))
        lines.append(line)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines]


def tables(run, rows, args):
    """Everything that is printed in the end, as lines."""
    near = [row for row in rows if row["state"] == "near"]
    far = [row for row in rows if row["state"] == "far" and row["pairs"]]
    lines = ["near pairs:", *table(near)]
    if far:
        lines += ["", "far pairs, for information:", *table(far)]
    lines.append("")
    for size in args.sizes:
        found = counts(run, size)
        few = f": fewer than the {args.pairs} near ones wanted" if found["near"] < args.pairs else ""
        lines.append(
            f"{size} B: {sum(found.values())} pairs tried: " + ", ".join(f"{n} {s}" for s, n in found.items()) + few
        )
    if any(counts(run, size)["disturbed"] for size in args.sizes):
        lines.append(
            f"disturbed: other processes took more than {DISTURBED:.0%} of a CPU. "
            "Repeat on a quiet machine" + (", or with --first." if not args.first else ".")
        )
    in_flight = 2 * args.bursts * BURST
    for drain in run.drains:
        if drain["frames_back"] != in_flight:
            lines.append(
                f"{drain['switch']}, round {drain['round']}, {drain['frame_bytes']} B: "
                f"of {in_flight} frames in flight {drain['frames_back']} came back"
            )
    return lines


def as_json(run, rows, args, command):
    """The whole run: settings, machine, rows and every slot."""
    pairs = [{**asdict(pair), "state": pair.state(run.least)} for pair in run.pairs]
    return {
        "command": command,
        "machine": machine(),
        "settings": vars(args),
        "least_distance": run.least,
        "rows": rows,
        "pairs": pairs,
        "drains": run.drains,
        "lookups": run.lookups,
    }


def machine():
    """The facts about this machine that a reader of the figures wants."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        info = dict(line.split(":", 1) for line in file.read().replace("\t", "").splitlines() if ":" in line)
    version = subprocess.run(["ovs-vswitchd", "--version"], capture_output=True, text=True, check=False)
    return {
        "cpu": info.get("model name", "?").strip(),
        "mhz": info.get("cpu MHz", "?").strip(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "ovs": (version.stdout.splitlines() or ["?"])[0],
    }
