"""The same work for both switches: a VLAN, and a hundred rules of which none meets a frame of the guest.

Both learn addresses, forward by them within the VLAN, and hold each flow against every rule. Ours also knows
both addresses beforehand and refuses all others, as it does for every adapter with a spoof check.
"""

import json

VLAN = 7
RULES = 100


def ours():
    """The rules as shunt's documents say them."""
    kinds = [
        lambda i: {"to_ip": f"203.0.113.{i}", "protocol": 17},
        lambda i: {"protocol": 6, "to_port": str(1000 + i)},
        lambda i: {"from_mac": f"02:5b:ee:00:00:{i:02x}"},
        lambda i: {"from_ip": f"10.{i}.0.0/16"},
    ]
    return [{"action": "deny", **kinds[i % 4](i)} for i in range(RULES)]


def ovs_flows():
    """The same as OpenFlow: what no rule denies is forwarded as by a learning switch."""
    kinds = [
        lambda i: f"udp,nw_dst=203.0.113.{i}",
        lambda i: f"tcp,tp_dst={1000 + i}",
        lambda i: f"dl_src=02:5b:ee:00:00:{i:02x}",
        lambda i: f"ip,nw_src=10.{i}.0.0/16",
    ]
    denied = [f"priority={1000 - i},{kinds[i % 4](i)},actions=drop" for i in range(RULES)]
    return [*denied, "priority=1,actions=NORMAL"]


def switch_config(run_dir, vfs, cpu):
    """A shunt.toml in which the guests' adapters are on a switch, in a VLAN, with all rules at each port."""
    lines = [f"run_dir = {json.dumps(run_dir)}", "[lanes]", f"cpus = [{cpu}]"]
    lines += ["[[nic]]", 'name = "nic0"', 'kind = "soft"', "total_vfs = 0"]
    lines += ["[[switch]]", 'name = "sw0"', 'nic = "nic0"']
    for i in range(len(vfs)):
        lines += ["[[switch.port]]", f'adapter = "vf{i}"', f"acl = [{', '.join(map(inline, ours()))}]"]
    for i, vf in enumerate(vfs):
        lines += ["[[adapter]]", f'name = "vf{i}"', 'switch = "sw0"', f"mac = {json.dumps(vf.mac)}"]
        lines += ['path = "synthetic"', f"vlan = {{ id = {VLAN} }}"]
        attachment = {"socket": f"{run_dir}/{vf.socket}", "mode": vf.mode, "in_order": vf.in_order}
        lines += [f"attachment = {inline(attachment)}"]
    return "\n".join(lines) + "\n"


def inline(table):
    """An inline table of TOML."""
    return "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in table.items()) + " }"
