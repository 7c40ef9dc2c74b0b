"""Pods of a real cluster with claims: who reaches whom, what is enforced, and what becomes of claims and adapters."""

import json
import os
import time
import unittest

from deployed import INTERVAL_S, Deployed, Pod
from machine import until

ROOT_ONLY = unittest.skipUnless(os.geteuid() == 0, "needs root: makes namespaces")
RATE_MBPS = 20


class ClusterCase(unittest.TestCase):
    """A cluster for all tests of a class; each has no pod with a claim at its begin and end."""

    limit_s = 600
    vfs = 2

    @classmethod
    def setUpClass(cls):
        cls.cluster = Deployed(vfs=cls.vfs)
        cls.addClassCleanup(cls.cluster.close)
        cls.cluster.network("blue", "synthetic", vlan=100)
        cls.cluster.network("blue-vf", "vf", vlan=100)
        cls.cluster.network("red", "synthetic", vlan=101)
        cls.one, cls.other = cls.cluster.nodes

    def setUp(self):
        self.addCleanup(self.clean)

    def clean(self):
        """Deletes all pods and claims of the test; no adapter remains."""
        self.cluster.kubectl("delete", "pods,resourceclaims", "--all", "--wait=false")
        until(lambda: not self.cluster.get("pods")["items"], "the pods to go", 120)
        self.wait_adapters(0)
        until(lambda: not self.cluster.get("resourceclaims")["items"], "the claims to go", 180)  # by a controller, which may have lost the API server

    def wait_adapters(self, count):
        """Waits until the daemons have this many adapters of claims."""
        until(lambda: len(self.adapters()) == count, f"{count} adapters", 60)

    def adapters(self):
        """Adapters of both daemons."""
        return [adapter for node in self.cluster.nodes for adapter in self.cluster.adapters(node)]

    def pods(self, network, *places):
        """Running pods of one network; each place is `(name, node)`."""
        made = [self.cluster.pod(name, network, node) for name, node in places]
        return [pod.wait() for pod in made]

    def assert_consistent(self):
        """Each running pod has its adapter and its interface, and each adapter its pod."""
        pods = self.cluster.pods()
        owners = {adapter["owner"]["uid"]: adapter for adapter in self.adapters() if "claim" in adapter.get("owner", {})}
        running = {uid: pod for uid, pod in pods.items() if pod["status"]["phase"] == "Running"}
        self.assertLessEqual(set(running), set(owners), "a pod runs without its adapter")
        self.assertLessEqual(set(owners), set(pods), "an adapter is without its pod")
        for uid, pod in running.items():
            node = next(node for node in self.cluster.nodes if node.name == pod["spec"]["nodeName"])
            shown = Pod(self.cluster, pod["metadata"]["name"], node, None)
            link = json.loads(shown.run("ip", "-json", "address", "show", "dev", owners[uid]["owner"]["interface"]))[0]
            self.assertEqual(link["address"], owners[uid]["mac"])
            self.assertEqual((link["operstate"] == "DOWN", bool(link["addr_info"])), (False, True), link)

    def wait_consistent(self, timeout=60):
        """Waits until that is so: the reconcile interval is part of it."""

        def consistent():
            try:
                self.assert_consistent()
            except (AssertionError, OSError, RuntimeError):
                return False
            return True

        try:
            until(consistent, "pods and adapters to agree", timeout, pause=0.3)
        except Exception:
            self.assert_consistent()
            raise


@ROOT_ONLY
class Claims(ClusterCase):
    """What a claim gives."""

    def test_pods_reach_each_other(self):
        """Switch ports and VFs, on one node and across both, in one VLAN."""
        web, db, far = self.pods("blue", ("web", self.one), ("db", self.one), ("far", self.other))
        vf, far_vf = self.pods("blue-vf", ("vf", self.one), ("far-vf", self.other))
        for source in (web, vf, far, far_vf):
            for target in (web, db, far, vf, far_vf):
                if source is not target:
                    with self.subTest(source=source.name, target=target.name):
                        source.wait_reaches(target)
        self.assertEqual((vf.adapter()["actual"]["path"], web.adapter()["actual"]["path"] == "vf"), ("vf", False))
        status = self.cluster.get("resourceclaim", "web")["status"]["devices"][0]
        self.assertEqual(status["networkData"]["ips"], [f"{web.address}/24"])
        self.assertEqual(status["networkData"]["hardwareAddress"], web.adapter()["mac"])
        self.assert_consistent()

    def test_vlans_isolate(self):
        """Another VLAN is another segment, on one node and across both."""
        web, far = self.pods("blue", ("web", self.one), ("far", self.other))
        red, far_red = self.pods("red", ("red", self.one), ("far-red", self.other))
        web.wait_reaches(far)
        red.wait_reaches(far_red)
        for source, target in ((web, red), (red, web), (web, far_red), (far, red)):
            self.assertFalse(source.reaches(target), f"{source.name} reaches {target.name}")

    def test_rate_is_enforced(self):
        """The maximum rate of a class, for a port and for a VF; without one there is more."""
        for path in ("synthetic", "vf"):
            self.cluster.network(f"slow-{path}", path, vlan=100, max_tx_rate=RATE_MBPS)
        [sink, free] = self.pods("blue", ("sink", self.one), ("free", self.one))
        [port] = self.pods("slow-synthetic", ("slow-port", self.one))
        [vf] = self.pods("slow-vf", ("slow-vf", self.one))
        rates = {pod.name: self.rate(pod, sink) for pod in (free, port, vf)}
        self.assertGreater(rates["free"], 3 * RATE_MBPS, rates)
        for name in ("slow-port", "slow-vf"):
            self.assertLess(rates[name], 1.2 * RATE_MBPS, rates)
            self.assertGreater(rates[name], 0.2 * RATE_MBPS, rates)

    def rate(self, source, sink):
        """Rate of TCP in Mbit/s, as the sink counts it."""
        source.wait_reaches(sink)
        sink.run("iperf3", "--server", "--one-off", "--daemon", "--bind", sink.address)
        until(lambda: ":5201" in sink.run("ss", "-Hltn"), "iperf3 to listen", 10)
        text = source.run("iperf3", "--client", sink.address, "--time", "3", "--json")
        return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e6

    def test_spoof_check(self):
        """A pod with another source address reaches no pod, unless its class permits that."""
        self.cluster.network("open", "synthetic", vlan=100, spoofchk="off")
        self.cluster.network("strict", "synthetic", vlan=100, spoofchk="on")
        [sink] = self.pods("blue", ("sink", self.one))
        [strict] = self.pods("strict", ("strict", self.one))
        [permitted] = self.pods("open", ("permitted", self.one))
        for pod, reaches in ((strict, False), (permitted, True)):
            pod.wait_reaches(sink)
            own = json.loads(pod.run("ip", "-json", "link", "show", "net1"))[0]["address"]
            pod.run("ip", "link", "set", "net1", "address", "02:00:00:00:aa:aa")
            sink.run("ip", "neigh", "flush", "dev", "net1")
            self.assertEqual(pod.reaches(sink, 3), reaches, pod.name)
            pod.run("ip", "link", "set", "net1", "address", own)
            sink.run("ip", "neigh", "flush", "dev", "net1")
            pod.wait_reaches(sink)

    def test_dpdk(self):
        """testpmd gets a socket by its claim, and answers echo requests of pods with interfaces, on its node and another."""
        self.cluster.network("dpdk", "synthetic", vlan=100, attachment="vhost-user")
        mac, cpu = "02:00:00:00:0d:0d", max(os.sched_getaffinity(0))
        eal = f"--lcores 0@{cpu},1@{cpu} -m 128 --no-huge --no-pci --no-telemetry --vdev net_virtio_user0,path=/run/shunt/net1/vhost.sock,mac={mac}"
        command = f"dpdk-testpmd {eal} -- --forward-mode=icmpecho --stats-period 5 --total-num-mbufs=4096".split()
        dpdk = self.cluster.pod("dpdk", "dpdk", self.one, parameters={"mac": mac}, image="testpmd:1", command=command)
        web, far = self.pods("blue", ("web", self.one), ("far", self.other))
        dpdk.wait()
        for pod in (web, far):
            pod.wait_reaches(dpdk, 30)
            text = pod.run("ping", "-n", "-q", "-c", "100", "-i", "0.05", "-W", "5", dpdk.address)
            print(f"    {pod.name}: {text.splitlines()[-2]}", flush=True)
            self.assertIn("100 packets transmitted, 100 received", text)
        self.assertEqual(dpdk.adapter()["mac"], mac)
        dpdk.delete()
        self.wait_adapters(2)

    def test_extended_resource(self):
        """`limits: {shunt.dev/vf: 1}` gives a VF, without a claim of the user's."""
        pod = Pod(self.cluster, "limits", self.one, None)
        self.cluster.apply(pod.manifest({}, {"limits": {"shunt.dev/vf": "1"}}))
        pod.uid = pod.get()["metadata"]["uid"]
        pod.wait()
        self.assertEqual((pod.adapter()["actual"]["path"], pod.adapter()["owner"]["interface"]), ("vf", "net1"))
        pod.run("ip", "link", "show", "net1")
        pod.delete()
        self.wait_adapters(0)

    def test_last_vf(self):
        """Two claims for the last VF of a node: one pod runs, and the other waits for its end."""
        self.pods("blue-vf", *((f"taken{i}", self.one) for i in range(self.vfs - 1)))
        both = [self.cluster.pod(name, "blue-vf", self.one) for name in ("first", "second")]
        until(lambda: any(pod.phase() == "Running" for pod in both), "one of two pods to run", 60)
        runs = next(pod for pod in both if pod.phase() == "Running")
        waits = next(pod for pod in both if pod is not runs)
        until(lambda: "cannot allocate all claims" in json.dumps(waits.get()["status"]), "the scheduler's word on the other", 30)
        self.assertEqual(waits.phase(), "Pending")
        self.wait_adapters(self.vfs)
        runs.delete()
        waits.wait()
        self.assert_consistent()

    def test_deleted_pods_leave_no_adapter(self):
        """A pod that is deleted, one deleted by force, and one deleted while it is prepared."""
        [web] = self.pods("blue", ("web", self.one))
        web.delete()
        self.wait_adapters(0)
        [web] = self.pods("blue", ("web", self.one))
        web.delete("--force", "--grace-period=0")
        self.wait_adapters(0)
        for _ in range(3):
            hasty = self.cluster.pod("hasty", "blue", self.one)
            until(lambda: (self.cluster.get("resourceclaim", "hasty").get("status") or {}).get("allocation"), "the allocation", 30, pause=0)
            hasty.delete()
            self.wait_adapters(0)

    def test_claim_of_the_same_name(self):
        """A claim and its pod are made again with their names: the new one has an adapter of its own."""
        [web] = self.pods("blue", ("web", self.one))
        before = web.adapter()["name"]
        web.delete()
        [web, db] = self.pods("blue", ("web", self.one), ("db", self.one))
        self.assertNotEqual(web.adapter()["name"], before)
        web.wait_reaches(db)
        self.wait_adapters(2)
        web.delete("--force", "--grace-period=0")
        [web] = self.pods("blue", ("web", self.one))
        web.wait_reaches(db)
        self.wait_adapters(2)

    def test_lost_unprepare(self):
        """A pod is deleted by force while its kubelet is away: the agent releases its adapter."""
        # A name of its own: the kubelet prepares no other claim of that name before its next pass, a minute later.
        [gone, db] = self.pods("blue", ("gone", self.one), ("db", self.one))
        self.one.kill("kubelet")
        gone.delete("--force", "--grace-period=0")
        self.wait_adapters(1)
        self.one.restart("kubelet")
        db.wait()
        self.wait_consistent()

    def test_lost_del(self):
        """A container of shunt-cni whose DEL is lost: its adapter goes with its pod, within the interval."""
        [web] = self.pods("blue", ("web", self.one))
        config = {"cniVersion": "1.0.0", "name": "secondary", "type": "shunt-cni", "switch": "sw0", "vlan": 100}
        self.one.run("ip", "netns", "add", "lost")
        self.addCleanup(self.one.run, "ip", "netns", "delete", "lost")
        arguments = f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID={web.uid}"
        variables = {"COMMAND": "ADD", "CONTAINERID": "lost", "NETNS": "/run/netns/lost", "IFNAME": "net9", "PATH": "/opt/cni/bin", "ARGS": arguments}
        self.one.run("env", *(f"CNI_{name}={value}" for name, value in variables.items()), "/opt/cni/bin/shunt-cni", input=json.dumps(config))
        self.wait_adapters(2)
        time.sleep(3 * INTERVAL_S)
        self.assertEqual(len(self.adapters()), 2, "an adapter of a living pod is released")
        web.delete()
        self.wait_adapters(0)

    def test_rights(self):
        """An agent may do what it needs, and write slices of its own node only; a deleted slice comes back."""
        pods = self.cluster.get("pods", "-n", "shunt", "-l", "app=shunt-agent")["items"]
        pod = next(pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == self.one.name)
        token = self.cluster.kubectl("-n", "shunt", "create", "token", "shunt-agent", "--bound-object-kind=Pod", f"--bound-object-name={pod}").strip()
        for words, may in (("list pods", True), ("patch resourceclaims.resource.k8s.io --subresource=status", True), ("get resourceclaims.resource.k8s.io", True),
                           ("delete pods", False), ("get secrets", False), ("patch nodes", False), ("update resourceclaims.resource.k8s.io", False)):  # fmt: skip
            answer = self.cluster.ask("auth", "can-i", *words.split(), "--token", token).stdout.strip()
            self.assertEqual(answer, "yes" if may else "no", words)
        theirs, own = (f"{node.name}-shunt.dev-0" for node in (self.other, self.one))
        uid = self.cluster.get("resourceslice", own)["metadata"]["uid"]
        denied = self.cluster.ask("delete", "resourceslice", theirs, "--token", token)
        self.assertIn("an agent writes only slices of its own node", denied.stderr)
        self.cluster.kubectl("delete", "resourceslice", own, "--token", token)
        until(lambda: self.cluster.get("resourceslices", "--field-selector", f"metadata.name={own}")["items"], "the slice to come back", 30)
        self.assertNotEqual(self.cluster.get("resourceslice", own)["metadata"]["uid"], uid)


if __name__ == "__main__":
    unittest.main()
