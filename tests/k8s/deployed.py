"""A cluster with Shunt, as deploy/kubernetes makes it, and what tests ask of its pods, claims and adapters."""

import json
import os
import subprocess
import time

from cluster import Cluster
from machine import ROOT, TARGET, until
from managed import UnixConnection, exchange

INTERVAL_S = 2  # in which the agents release what has no pod
SUBNET = "10.56.0"
MTU = 1450  # leaves room for the tunnel's header

DOCUMENT = """\
[[nic]]
name = "nic0"
kind = "soft"
total_vfs = {vfs}

[[switch]]
name = "sw0"
nic = "nic0"
iov = true
vxlan = [{{ name = "blue", vni = 4711, vlan = 100 }}, {{ name = "red", vni = 4712, vlan = 101 }}]
"""


def binary(variable, directory, name):
    """A program: that of the variable, or the release build."""
    return os.path.abspath(os.environ.get(variable, os.path.join(directory, "release", name)))


def programs():
    """Variables for deploy/kubernetes/images."""
    ours = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "kubernetes/target"))
    return {
        "SHUNT": binary("SHUNT", TARGET, "shunt"),
        "SHUNT_AGENT": binary("SHUNT_AGENT", ours, "shunt-agent"),
        "SHUNT_CNI": binary("SHUNT_CNI", ours, "shunt-cni"),
    }


class Deployed(Cluster):
    """A cluster with a daemon and an agent on each node."""

    def __init__(self, vfs=2):
        super().__init__()
        self._addresses = 0
        try:
            self.install(vfs)
        except BaseException:
            self.close()
            raise

    def install(self, vfs):
        """Makes the images and applies the manifests."""
        images = self.control.path("images")
        done = subprocess.run([f"{ROOT}/deploy/kubernetes/images", images], env=os.environ | programs(), capture_output=True, text=True, timeout=120, check=True)
        for node in self.nodes:
            for archive in done.stdout.split():
                node.load(archive)
        self.kubectl("apply", "-f", f"{ROOT}/deploy/kubernetes/namespace.yaml")
        document = {"default.toml": DOCUMENT.format(vfs=vfs)}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shunt-nodes", "namespace": "shunt"}, "data": document})
        self.kubectl("apply", "-k", f"{ROOT}/deploy/kubernetes")
        interval = [{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["--interval", str(INTERVAL_S)]}]
        self.kubectl("-n", "shunt", "patch", "daemonset", "shunt-agent", "--type=json", "-p", json.dumps(interval))
        for name in ("shunt", "shunt-agent"):
            self.kubectl("-n", "shunt", "rollout", "status", f"daemonset/{name}", "--timeout=60s", timeout=70)
        devices = [vfs + 1] * 2
        until(lambda: [len(it["spec"].get("devices", [])) for it in self.get("resourceslices")["items"]] == devices, "the slices of both nodes", 60)

    def address(self):
        """An address that no other pod of the cluster has."""
        self._addresses += 1
        return f"{SUBNET}.{self._addresses}"

    def network(self, name, path, **parameters):
        """A class: ports of sw0 or VFs, with the parameters of an operator."""
        where = 'device.attributes["shunt.dev"].switch == "sw0"' if path == "synthetic" else 'device.attributes["shunt.dev"].nic == "nic0"'
        selector = f'device.driver == "shunt.dev" && device.attributes["shunt.dev"].path == "{path}" && {where}'
        self.apply({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
            "spec": {
                "selectors": [{"cel": {"expression": selector}}],
                "config": [{"opaque": {"driver": "shunt.dev", "parameters": {"mtu": MTU} | parameters}}],
            },
        })  # fmt: skip

    def pod(self, name, network, node=None, **options):
        """A `Pod` with a claim of its own; it may not run yet."""
        pod = Pod(self, name, node, self.address())
        pod.create(network, **options)
        return pod

    @staticmethod
    def daemon(node, path):
        """Answer of a node's daemon."""
        return exchange(UnixConnection(node.seen("/run/shunt/api.sock")), "GET", path).body

    def adapters(self, node):
        """Adapters of a node's daemon, with their state in `actual`."""
        actual = {adapter["name"]: adapter for adapter in self.daemon(node, "/v1/actual")["actual"]["adapters"]}
        return [adapter | {"actual": actual.get(adapter["name"], {})} for adapter in self.daemon(node, "/v1/adapters")]

    def pods(self):
        """Pods of the tests that have a claim, by UID."""
        return {pod["metadata"]["uid"]: pod for pod in self.get("pods")["items"] if pod["spec"].get("resourceClaims") or pod["status"].get("extendedResourceClaimStatus")}


class Pod:
    """A pod with an interface of Shunt."""

    def __init__(self, cluster, name, node, address):
        self.cluster = cluster
        self.name = name
        self.node = node
        self.address = address
        self.uid = None

    def create(self, network, claim=None, parameters=None, **options):
        """Creates its claim, with its address or other parameters, and the pod."""
        claim = claim or self.name
        parameters = parameters or {"ips": [f"{self.address}/24"]}
        self.cluster.apply(
            {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": claim},
                "spec": {"devices": {
                    "requests": [{"name": "net1", "exactly": {"deviceClassName": network}}],
                    "config": [{"opaque": {"driver": "shunt.dev", "parameters": parameters}}],
                }},
            },
            self.manifest({"resourceClaims": [{"name": "net", "resourceClaimName": claim}]}, {"claims": [{"name": "net"}]}, **options),
        )  # fmt: skip
        self.uid = self.get()["metadata"]["uid"]

    def manifest(self, spec, resources, command=None, image="busybox:1.35"):
        """The pod; it ends at once when it is to."""
        container = {
            "name": "main", "image": image, "imagePullPolicy": "Never", "resources": resources,
            "command": command or ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"],
        }  # fmt: skip
        place = {"nodeSelector": {"kubernetes.io/hostname": self.node.name}} if self.node else {}
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container], **place, **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name}, "spec": spec}

    def get(self):
        """The pod as the API server has it; None if it has none."""
        text = self.cluster.kubectl("get", "pod", self.name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def phase(self):
        """`Running` if its containers run."""
        pod = self.get() or {"status": {}}
        statuses = pod["status"].get("containerStatuses", [])
        ready = bool(statuses) and all("running" in it["state"] for it in statuses)
        return "Running" if ready else pod["status"].get("phase")

    def wait(self, timeout=60):
        """Waits until it runs."""
        try:
            until(lambda: self.phase() == "Running", f"pod {self.name} to run", timeout, pause=0.2)
        except Exception as error:
            raise AssertionError(f"{error}\n{self.cluster.ask('describe', 'pod', self.name).stdout[-2500:]}") from error
        status = self.get()
        name = status["spec"]["nodeName"]
        self.node = next(node for node in self.cluster.nodes if node.name == name)
        return self

    def container(self):
        """Its container's ID, of the last one that started."""
        return self.get()["status"]["containerStatuses"][0].get("containerID", "").removeprefix("containerd://")

    def within(self, *argv):
        """A command of the node in the pod's network namespace."""
        container = self.container()
        tasks = self.node.run("ctr", "-n", "k8s.io", "tasks", "ls")
        pid = next(line.split()[1] for line in tasks.splitlines() if line.startswith(container))
        return ["nsenter", "-t", pid, "-n", *argv]

    def run(self, *argv, **options):
        """Output of a command of the node in the pod's network namespace."""
        return self.node.run(*self.within(*argv), **options)

    def ask(self, *argv, **options):
        """Result of such a command."""
        return self.node.ask(*self.within(*argv), **options)

    def reaches(self, other, seconds=1):
        """Returns true if another pod answers it within this time."""
        return self.ask("ping", "-n", "-q", "-c", "1", "-w", str(seconds), other.address).returncode == 0

    def wait_reaches(self, other, timeout=20):
        """Waits until another pod answers it."""
        until(lambda: self.reaches(other), f"{other.name} to answer {self.name}", timeout)

    def adapter(self):
        """Its adapter in the daemon of its node; None without one."""
        found = [it for it in self.cluster.adapters(self.node) if it.get("owner", {}).get("uid") == self.uid]
        return found[0] if found else None

    def delete(self, *options, claim=True):
        """Deletes the pod, and its claim."""
        self.cluster.kubectl("delete", "pod", self.name, "--ignore-not-found", *options, timeout=120)
        if claim:
            self.cluster.kubectl("delete", "resourceclaim", self.name, "--ignore-not-found", *options, timeout=120)


class Pings:
    """Echo requests of a pod to another, twenty a second, within a `with`; then `lost()`."""

    def __init__(self, pod, other):
        self.argv = pod.node.within(pod.within("ping", "-n", "-q", "-i", "0.05", other.address))
        self.text = ""
        self._process = None

    def __enter__(self):
        self._process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(0.2)
        return self

    def __exit__(self, *_):
        # The signal goes to ping itself: the one that entered the process namespace waits for it.
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="ascii") as file:
            child = file.read().split()
        subprocess.run(["kill", "-INT", *(child or [str(self._process.pid)])], check=True)
        self.text, _ = self._process.communicate(timeout=20)

    def counts(self):
        """Requests and answers."""
        words = self.text.split(" packets transmitted, ")
        return int(words[0].split()[-1]), int(words[1].split()[0])
