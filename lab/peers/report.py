"""Text of `tcp` and `wire` on figures and on this machine."""

import os
import platform
import statistics
import subprocess


def spread(values, digits=1):
    """`median (min-max)`."""
    middle, least, most = (f"{v:.{digits}f}" for v in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}-{most})"


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
