"""Hooks for schemathesis: of every two requests it makes one such that it may succeed.

What is made of a schema alone names things that do not exist, and sockets anywhere, so it is refused before anything
happens. Here half of the requests name things out of a few, and sockets and files in one directory, $SHUNT_E2E_DIR;
all else stays as it was generated. Which half, and which names, is decided by a checksum, so a seed gives one run.
"""

import json
import os
import zlib

import schemathesis

DIRECTORY = os.environ["SHUNT_E2E_DIR"]


def few(kind, value, count):
    """One of a few names instead of any."""
    return f"{kind}{zlib.crc32(repr(value).encode()) % count}"


def tame(value, field="", parent=""):
    """A copy of a document with names, addresses and paths that may be."""
    if isinstance(value, dict):
        return {name: tame(inner, name, field) for name, inner in value.items()}
    if isinstance(value, list):
        return [tame(inner, field, parent) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a whole number to JSON Schema, and not to the API
    if not isinstance(value, str):
        return value
    if field == "name":
        return few({"adapter": "a", "switch": "sw"}.get(parent, "nic"), value, 3)
    names = {"nic": ("nic", 3), "switch": ("sw", 3), "adapter": ("a", 3), "port": ("a", 3)}
    if field in names:
        return few(names[field][0], value, names[field][1])
    if field in ("mac", "macs", "from_mac", "to_mac"):
        return few("02:00:00:00:00:0", value, 10)
    if field in ("socket", "file"):
        return os.path.join(DIRECTORY, few(field, value, 20))
    return value


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Tames every other request."""
    shown = json.dumps([case.path_parameters, case.body], default=repr, sort_keys=True)
    if zlib.crc32(shown.encode()) % 2:
        return
    (case.headers or {}).pop("If-Match", None)
    (case.query or {}).pop("dry_run", None)
    parameters = {name: tame(value, name) for name, value in (case.path_parameters or {}).items()}
    case.path_parameters = parameters
    if isinstance(case.body, (dict, list)):
        kind = case.path.split("/")[2].rstrip("s") if case.path.count("/") >= 2 else ""
        case.body = tame(case.body, "", kind)
        name = parameters.get(case.path.split("/")[-1].strip("{}"))
        if name and isinstance(case.body, dict) and isinstance(case.body.get("name"), str):
            case.body["name"] = name
