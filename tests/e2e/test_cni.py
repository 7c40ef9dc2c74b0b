"""The CNI plugin of docs/kubernetes.md, as a runtime runs it, with Debian's plugins for addresses and beside its bridge plugin."""

import json
import os
import statistics
import subprocess
import time
import unittest
from multiprocessing.pool import ThreadPool

from bench import cpus
from managed import Managed
from netns import Network
from pages import fenced, page
from qemu import TARGET
from test_containers import SWITCH

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PLUGINS = "/usr/lib/cni"  # of Debian's containernetworking-plugins
PLUGIN = os.environ.get("SHUNT_CNI", os.path.join(ROOT, "kubernetes/target/release/shunt-cni"))
CNITOOL = os.path.join(os.path.abspath(TARGET), "e2e-go", "bin", "cnitool")


class Runtime:
    """What a container runtime does: runs a plugin with variables and a configuration."""

    def __init__(self, plugin, config):
        self.plugin = plugin
        self.config = config

    def ask(self, command, space, container="c1", **more):
        """Exit code and output of a command for a namespace."""
        variables = {
            "CNI_COMMAND": command, "CNI_CONTAINERID": container, "CNI_IFNAME": "net1",
            "CNI_NETNS": space.path if space else "", "CNI_PATH": f"{os.path.dirname(self.plugin)}:{PLUGINS}",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=test;K8S_POD_NAME=web-0",
        }  # fmt: skip
        done = subprocess.run(
            [self.plugin], input=json.dumps(self.config | more), capture_output=True, text=True, timeout=60, check=False,
            env=os.environ | variables,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None

    def does(self, command, space, container="c1", **more):
        """Output of a command that must succeed."""
        code, said = self.ask(command, space, container, **more)
        if code != 0:
            raise AssertionError(f"{command}: {said}")
        return said


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no commands")
@unittest.skipUnless(os.geteuid() == 0, "needs root: makes network namespaces")
class Cni(unittest.TestCase):
    """Containers are namespaces here."""

    limit_s = 600
    long_tests = ("test_time_beside_the_bridge_plugin",)

    def setUp(self):
        self.assertTrue(os.path.exists(PLUGIN), "run: cargo build --release --manifest-path kubernetes/Cargo.toml")
        self.network = Network()
        self.addCleanup(self.network.close)
        self.daemon = Managed(cpu=cpus()[0])
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.daemon.wait_ready()
        self.daemon.apply(SWITCH)
        [text] = fenced(page("kubernetes.md"), "json")
        config = json.loads(text) | {"runDir": self.daemon.run_dir, "socketDir": self.daemon.path("cni")}
        config["ipam"]["dataDir"] = self.daemon.path("addresses")
        self.runtime = Runtime(PLUGIN, config)

    def adapters(self):
        """Adapters of the daemon."""
        return self.daemon.ask("/v1/adapters").body

    def addresses(self):
        """Addresses that the IPAM plugin has given away."""
        kept = os.path.join(self.daemon.path("addresses"), self.runtime.config["name"])
        names = os.listdir(kept) if os.path.isdir(kept) else []
        return [name for name in names if name[0].isdigit()]

    def test_page(self):
        """The network of the page: containers reach each other, others do not; each command twice."""
        spaces = [self.network.namespace(name) for name in ("web", "db", "other")]
        other = Runtime(PLUGIN, self.runtime.config | {"name": "red", "vlan": 101})
        results = [self.runtime.does("ADD", space, f"c{i}") for i, space in enumerate(spaces[:2])]
        results.append(other.does("ADD", spaces[2], "c2"))
        addresses = [result["ips"][0]["address"].split("/")[0] for result in results]
        self.assertEqual(addresses[0], addresses[2], "two networks have the same addresses")
        link = spaces[0].link("net1")
        self.assertEqual((link["address"], link["operstate"] != "DOWN"), (results[0]["interfaces"][0]["mac"], True))
        self.assertIn("1 received", spaces[0].run("ping", "-c", "1", "-W", "2", addresses[1]))
        self.assertIn("0 received", spaces[2].run("ping", "-c", "1", "-W", "1", addresses[1], check=False))
        self.assertIn("default via 10.56.0.1 dev net1", spaces[0].ip("route"))
        pod = {label["name"]: label["owner"] for label in self.adapters()}
        self.assertEqual({owner["pod"] for owner in pod.values()}, {"web-0"})
        again = self.runtime.does("ADD", spaces[0], "c0")
        self.assertEqual(again["ips"], results[0]["ips"])
        for _ in range(2):
            self.runtime.does("CHECK", spaces[0], "c0", prevResult=results[0])
            self.runtime.does("STATUS", None)
        spaces[0].ip("link", "set", "net1", "name", "gone")
        self.assertEqual(self.runtime.ask("CHECK", spaces[0], "c0", prevResult=results[0])[0], 1)
        for runtime, space, container in ((self.runtime, spaces[0], "c0"), (self.runtime, spaces[1], "c1"), (other, spaces[2], "c2")):
            for _ in range(2):
                runtime.does("DEL", space, container)
        self.assertEqual((self.adapters(), self.addresses()), ([], []))
        self.assertIsNone(spaces[1].link("net1"))

    def test_cnitool(self):
        """Each command by the reference client, twice; its GC deletes what it has added, and gives no list."""
        if not os.path.exists(CNITOOL):
            raise unittest.SkipTest(f"cnitool is not in {os.path.dirname(CNITOOL)}: run tests/e2e/setup")
        space, networks, kept = self.network.namespace("web"), self.daemon.path("networks"), self.daemon.path("cnitool")
        for directory in (networks, kept):
            os.mkdir(directory)
        plugin = {key: value for key, value in self.runtime.config.items() if key not in ("name", "cniVersion", "ipam")}
        with open(f"{networks}/blue.conflist", "w", encoding="utf-8") as file:
            json.dump({"cniVersion": "1.1.0", "name": "blue", "plugins": [plugin | {"capabilities": {"ips": True}}]}, file)
        variables = {
            "CNI_PATH": os.path.dirname(PLUGIN), "NETCONFPATH": networks, "CNI_IFNAME": "net1", "CAP_ARGS": json.dumps({"ips": ["10.56.0.9/24"]}),
        }  # fmt: skip
        # It keeps results in /var/lib/cni.
        own = f"mount -t tmpfs none /var/lib; mkdir /var/lib/cni; mount --bind {kept} /var/lib/cni"

        def tool(command):
            script = f"{own}; exec {CNITOOL} {command} blue {space.path}"
            argv = ["unshare", "--mount", "sh", "-ec", script]
            done = subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
            return done.stdout

        for command, adapters in (("add", 1), ("check", 1), ("status", 1), ("del", 0), ("add", 1), ("gc", 0)):
            for _ in range(2):
                said = tool(command)
                self.assertEqual(len(self.adapters()), adapters, command)
            if command == "add":
                self.assertEqual(json.loads(said)["ips"][0]["address"], "10.56.0.9/24")
                self.assertEqual(space.link("net1")["address"], self.adapters()[0]["mac"])
            elif adapters == 0:
                self.assertIsNone(space.link("net1"))

    def test_hundred_at_once(self):
        """A hundred containers come at once, and go at once."""
        spaces = [self.space(f"c{i}") for i in range(100)]
        with ThreadPool(len(spaces)) as pool:
            for command in ("ADD", "DEL"):
                begin = time.monotonic()
                pool.starmap(lambda i, space, command=command: self.runtime.does(command, space, f"c{i}"), enumerate(spaces))
                print(f"    {command} of {len(spaces)} containers at once: {time.monotonic() - begin:.1f} s")
                links = [space.link("net1") is not None for space in spaces]
                self.assertEqual(links, [command == "ADD"] * len(spaces))
                self.assertEqual(len(self.adapters()), sum(links))
        self.assertEqual(self.addresses(), [])

    def test_sockets(self):
        """A vhost-user socket, and its description."""
        info = self.daemon.path("info.json")
        more = {"attachment": "vhost-user", "ipam": {}, "runtimeConfig": {"CNIDeviceInfoFile": info}}
        space = self.network.namespace("web")
        socket = self.runtime.does("ADD", space, cniVersion="1.1.0", **more)["interfaces"][0]["socketPath"]
        self.assertTrue(os.path.exists(socket))
        with open(info, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["vhost-user"]["path"], socket)
        self.runtime.does("DEL", space, **more)
        self.assertFalse(os.path.exists(socket) or os.path.exists(info))

    def test_faults(self):
        """Without a daemon the runtime is told to try again; a killed one comes back with the container's interface."""
        space, other = self.network.namespace("web"), self.network.namespace("db")
        self.runtime.does("ADD", space)
        before = space.link("net1")["ifindex"]
        self.daemon.kill()
        code, said = self.runtime.ask("ADD", other, "c2")
        self.assertEqual((code, said["code"]), (1, 11))
        self.assertEqual(self.runtime.ask("STATUS", None)[1]["code"], 50)
        self.assertEqual(self.runtime.ask("DEL", space)[1]["code"], 11)
        self.assertEqual(len(self.addresses()), 1, "the address of the container that was not added is free")
        self.daemon.start()
        self.daemon.wait_ready()
        self.assertEqual(space.link("net1")["ifindex"], before)
        space.ip("route", "del", "default")
        self.runtime.config["ipam"]["ranges"] = [[{"subnet": "10.56.0.0/24", "rangeStart": "10.56.0.2", "rangeEnd": "10.56.0.2"}]]
        code, said = self.runtime.ask("ADD", other, "c2")
        self.assertEqual((code, len(self.adapters())), (1, 1), said)
        self.runtime.does("DEL", None)

    def test_garbage(self):
        """GC deletes the adapters of containers that are gone, and nothing else."""
        spaces = [self.network.namespace(name) for name in ("web", "db")]
        for i, space in enumerate(spaces):
            self.runtime.does("ADD", space, f"c{i}")
        self.daemon.says("adapter", "create", "mine", "--switch", "sw0", "--mac", "02:00:00:00:00:09", "--attachment", "tap:mine0")
        valid = [{"containerID": "c1", "ifname": "net1"}]
        self.runtime.does("GC", None, **{"cni.dev/valid-attachments": valid})
        self.assertEqual({one["name"] == "mine" or one["owner"]["container"] == "c1" for one in self.adapters()}, {True})
        self.assertEqual(len(self.adapters()), 2)

    def test_time_beside_the_bridge_plugin(self):
        """ADD and DEL of 200 containers, by turns with the bridge plugin: percentiles are printed."""
        bridge = {"type": "bridge", "bridge": "shunt-e2e-br", "name": "bridge", "isGateway": False}
        ipam = self.runtime.config["ipam"]
        both = {
            "shunt": Runtime(PLUGIN, self.runtime.config | {"ipam": ipam | {"ranges": [[{"subnet": "10.56.0.0/22"}]]}}),
            "bridge": Runtime(f"{PLUGINS}/bridge", bridge | {"cniVersion": "1.0.0", "ipam": ipam | {"ranges": [[{"subnet": "10.57.0.0/22"}]]}}),
        }
        self.addCleanup(subprocess.run, ["ip", "link", "del", "shunt-e2e-br"], check=False, capture_output=True)
        took = {(name, command): [] for name in both for command in ("ADD", "DEL")}
        for command in ("ADD", "DEL"):
            for i in range(200):
                for name, runtime in both.items():
                    space = self.space(f"{name}{i}")
                    begin = time.monotonic()
                    runtime.does(command, space, f"{name}-{i}")
                    took[name, command].append(1000 * (time.monotonic() - begin))
        for (name, command), times in took.items():
            p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
            print(f"    {name:6} {command}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        self.assertEqual((self.adapters(), self.addresses()), ([], []))

    def space(self, name):
        """A namespace that is made once."""
        self.spaces = getattr(self, "spaces", {})
        if name not in self.spaces:
            self.spaces[name] = self.network.namespace(name)
        return self.spaces[name]


if __name__ == "__main__":
    unittest.main()
