"""Hooks for schemathesis: of every two requests it makes one such that it may succeed.

What is made of a schema alone names things that do not exist, and sockets anywhere, so it is refused before anything
happens. Here every other request names things out of a few, and sockets and files in one directory, $SHUNT_E2E_DIR;
and a document without NICs becomes the one in its `seed.json`. All else stays as it was generated. Names are taken in
turn: one seed and one worker give the same requests again.
"""

import itertools
import json
import os

import schemathesis

DIRECTORY = os.environ["SHUNT_E2E_DIR"]
NAMES = {"nic": "nic", "switch": "sw", "adapter": "a", "port": "a"}
KINDS = {"nics": "nic", "switches": "switch", "adapters": "adapter"}
turn = itertools.count()


def few(kind, count=3):
    """The next of a few names."""
    return f"{kind}{next(turn) % count}"


def tame(value, field="", parent=""):
    """A copy of a document with names, addresses and paths that may be."""
    if isinstance(value, dict):
        return {name: tame(inner, name, field or parent) for name, inner in value.items()}
    if isinstance(value, list):
        return [tame(inner, field, parent) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a whole number to JSON Schema, and not to the API
    if not isinstance(value, str):
        return value
    if field == "name":
        return few(NAMES.get(parent, "nic"))
    if field in NAMES:
        return few(NAMES[field])
    if field in ("mac", "macs", "from_mac", "to_mac"):
        return f"02:00:00:00:02:{next(turn) % 256:02x}"
    if field == "frames":
        return f"ffffffffffff0200000002{next(turn) % 256:02x}0806"
    if field in ("socket", "file"):
        return os.path.join(DIRECTORY, few(field, 8))
    return value


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Tames every other request."""
    if next(turn) % 2:
        return
    (case.headers or {}).pop("If-Match", None)
    (case.query or {}).pop("dry_run", None)
    parts = case.path.strip("/").split("/")
    parameters = {name: tame(value, name) for name, value in (case.path_parameters or {}).items()}
    case.path_parameters = parameters
    if not isinstance(case.body, dict):
        return
    case.body = tame(case.body, "", KINDS.get(parts[1] if len(parts) > 1 else "", ""))
    if parts[-1] in ("state", "apply"):
        case.query = {**(case.query or {}), "prune": "true"}
        if not case.body.get("nic"):
            with open(os.path.join(DIRECTORY, "seed.json"), encoding="utf-8") as file:
                case.body = json.load(file)
    if isinstance(case.body.get("name"), str):
        case.body["name"] = parameters.get(parts[-1].strip("{}"), case.body["name"])
