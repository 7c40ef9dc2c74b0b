"""Trees of Debian in the target directory, made by mmdebstrap from the host's own mirror."""

import os
import re
import shutil
import subprocess

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = "/etc/apt/sources.list.d"


class TreeError(Exception):
    """A tree cannot be made here; the text says why."""


def mirror():
    """The Debian mirror of this host's own apt sources, in either of their forms."""
    names = ["/etc/apt/sources.list", *sorted(os.path.join(SOURCES, name) for name in os.listdir(SOURCES))]
    for name in names:
        if not os.path.exists(name) or not name.endswith((".list", ".sources")):
            continue
        with open(name, encoding="utf-8") as file:
            text = file.read()
        lines = r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+\S+\s+.*\bmain\b" if name.endswith(".list") else r"^URIs:\s*(\S+)"
        for uri in re.findall(lines, text, re.M):
            if re.search(r"/debian/?$", uri):
                return uri
    raise TreeError(f"no Debian mirror in {names[0]} or {SOURCES}")


def make(root, suites, packages, options=()):
    """Makes the tree of a release, or of the first with packages from the others too. Only a whole tree gets the name."""
    if not shutil.which("mmdebstrap"):
        raise TreeError("no mmdebstrap here, which only root can install: apt-get install mmdebstrap")
    if os.geteuid() != 0:
        raise TreeError("only root can make the tree: run tests/e2e/setup as root")
    part = root + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(os.path.dirname(root), exist_ok=True)
    argv = ["mmdebstrap", "--variant=apt", "--mode=root", "--aptopt=APT::Install-Recommends false", "--include=" + ",".join(packages)]
    argv += [*options, suites[0], part, *(f"deb [signed-by={KEYS}] {mirror()} {suite} main" for suite in suites)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(part, ignore_errors=True)
        raise TreeError("mmdebstrap: " + "\n".join(done.stderr.splitlines()[-8:]))
    os.rename(part, root)
