"""Prints what must be as before when all that was done to SR-IOV NICs has been taken back, as JSON.

Contents: attributes of all PCI functions in sysfs with their drivers, IOMMU groups and VFs; interfaces of all namespaces
with the settings of their VFs; devlink's devices, ports and rates; modules with the number of their users.

Left out, because it differs for the same configuration:
- numbers that the kernel chooses each time (ifindex, irq), counters, power states' times, content of memory
- addresses that a driver has chosen at random (`addr_assign_type` 1): the word `random` instead, also in the PF's list
"""

import json
import os
import subprocess

DEVICES = "/sys/bus/pci/devices"
# Content, counters, and what is the same information again.
NO_ATTRIBUTES = {"config", "rom", "vpd", "irq", "remove", "rescan", "reset", "label", "uevent"}
NO_ATTRIBUTES |= {f"resource{number}{kind}" for number in range(6) for kind in ("", "_wc")}
LINKS = ("driver", "iommu_group", "physfn")
NOT_OF_A_LINK = {"ifindex", "link_index", "stats", "stats64", "inet6_addr_gen_mode", "map"}


def text(path):
    """Content of an attribute, or None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def function(path):
    """Attributes and links of a PCI function."""
    found = {}
    for name in sorted(os.listdir(path)):
        where = os.path.join(path, name)
        if os.path.islink(where):
            if name in LINKS or name.startswith("virtfn"):
                found[name] = os.path.basename(os.readlink(where))
        elif os.path.isfile(where) and name not in NO_ATTRIBUTES and not name.startswith("aer_"):
            found[name] = text(where)
    found["resource"] = [line for line in found["resource"].splitlines() if line.strip("0x ")]
    found["power"] = text(os.path.join(path, "power/control"))
    return found


def command(*argv):
    """Output of a command as JSON; null if there is none."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.stdout.strip() else None


def random_addresses(within):
    """Addresses of a namespace's interfaces that their drivers have chosen at random."""
    script = 'for kind in /sys/class/net/*/addr_assign_type; do [ "$(cat $kind)" != 1 ] || cat ${kind%/*}/address; done'
    return subprocess.run([*within, "sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def interfaces():
    """Interfaces of all namespaces, as `NAMESPACE/NAME`."""
    names = sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []
    spaces = {"": [], **{name: ["ip", "netns", "exec", name] for name in names}}
    random = {address for within in spaces.values() for address in random_addresses(within)}
    made = {}
    for space, within in spaces.items():
        for link in command(*within, "ip", "-d", "-j", "link") or []:
            for one in [link, *link.get("vfinfo_list", [])]:
                one.pop("stats", None)
                one.update({key: "random" for key in ("address", "permaddr") if one.get(key) in random})
            made[f"{space}/{link['ifname']}"] = {key: value for key, value in link.items() if key not in NOT_OF_A_LINK}
    return made


def main():
    modules = [line.split() for line in (text("/proc/modules") or "").splitlines()]
    print(json.dumps({
        "pci": {name: function(os.path.join(DEVICES, name)) for name in sorted(os.listdir(DEVICES))},
        "links": interfaces(),
        "devlink": {what: command("devlink", "-j", *what.split(), "show") for what in ("dev", "port", "port function rate")},
        "modules": {words[0]: f"{words[2]} users" if words[0] in ("igb", "igbvf") else "" for words in modules},
    }))  # fmt: skip


main()
