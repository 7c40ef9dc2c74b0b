"""Faults of a real cluster under pings: a program is killed, a control plane is away, a node starts again. After each fault
every running pod has its adapter, every adapter its pod, and pods that exist reach each other."""

import sys

from deployed import Pings
from machine import MachineError, until
from test_claims import ROOT_ONLY, ClusterCase

KILLS = 20 if "--all" in sys.argv else 3
REBOOTS = 3 if "--all" in sys.argv else 1


@ROOT_ONLY
class Faults(ClusterCase):
    """Two pods that ping from node to node; beside them pods come and go while something is killed."""

    limit_s = 1800

    def setUp(self):
        super().setUp()
        self.near, self.far = self.pods("blue", ("near", self.one), ("far", self.other))
        self.near.wait_reaches(self.far)

    def churn(self, number, fault):
        """A pod goes and one comes while `fault` happens; then everything agrees."""
        old, new = f"pod-{number}", f"pod-{number + 1}"
        self.cluster.kubectl("delete", "pod,resourceclaim", old, "--ignore-not-found", "--wait=false")
        pod = self.cluster.pod(new, "blue-vf" if number % 2 else "blue", self.one)
        fault()
        pod.wait(120)
        until(lambda: not self.cluster.ask("get", "pod", old).stdout, f"{old} to go", 120)
        pod.wait_reaches(self.near)
        pod.wait_reaches(self.far)
        self.wait_consistent()
        for node in self.cluster.nodes:
            node.check_alive()

    def kill_in_turn(self, kill, untouched=True):
        """Kills a program again and again under churn; with `untouched` the two pods lose no echo request."""
        identities = [self.links(pod) for pod in (self.near, self.far)]
        with Pings(self.near, self.far) as pings:
            for number in range(KILLS):
                self.churn(number, kill)
        sent, answered = pings.counts()
        if untouched:
            self.assertEqual(sent - answered, 0, f"of {sent} echo requests")
        self.assertGreater(answered, 0)
        self.near.wait_reaches(self.far)
        self.assertEqual([self.links(pod) for pod in (self.near, self.far)], identities, "an interface was made again")

    @staticmethod
    def links(pod):
        """Index and address of the pod's interface."""
        return pod.run("ip", "-oneline", "link", "show", "net1").split(":")[0], pod.adapter()["mac"]

    def kill_container(self, program):
        """SIGKILL for a program in a pod on the first node; waits until it runs again."""
        before = self.one.run("pgrep", "-x", program).split()
        self.one.run("kill", "-KILL", *before)
        until(lambda: set(self.one.ask("pgrep", "-x", program).stdout.split()) - set(before), f"{program} to run again", 60)

    def test_agent_killed(self):
        """kill -9 of shunt-agent."""
        self.kill_in_turn(lambda: self.kill_container("shunt-agent"))

    def test_daemon_killed(self):
        """kill -9 of the daemon: interfaces stay, and traffic resumes."""
        self.kill_in_turn(lambda: self.kill_container("shunt"), untouched=False)

    def test_kubelet_killed(self):
        """kill -9 of the kubelet."""
        self.kill_in_turn(lambda: self.kill_service("kubelet"))

    def test_containerd_killed(self):
        """kill -9 of containerd."""
        self.kill_in_turn(lambda: self.kill_service("containerd"))

    def kill_service(self, name):
        """SIGKILL for a service of the first node, which starts again."""
        self.one.kill(name)
        self.one.restart(name)

    def test_etcd_killed(self):
        """kill -9 of etcd: nothing of the nodes changes."""

        def fault():
            self.cluster.control.kill("etcd")
            self.cluster.control.restart("etcd")
            until(lambda: self.cluster.ask("get", "--raw", "/readyz").returncode == 0, "the API server", 60)

        self.kill_in_turn(fault)

    def test_node_reboots(self):
        """The first node loses power: its pods run again with their adapters, and those of the other node never stopped."""
        [near_vf] = self.pods("blue-vf", ("near-vf", self.one))
        own, beside = (self.near, near_vf), self.far.container()
        for _ in range(REBOOTS):
            before = {pod.name: pod.container() for pod in own}
            self.one.reboot()
            for pod in own:
                until(lambda pod=pod: pod.phase() == "Running" and pod.container() != before[pod.name], f"{pod.name} to run again", 180)
                pod.wait_reaches(self.far, 60)
            self.wait_consistent()
            self.assertEqual(self.far.container(), beside, "a pod of the other node was started again")

    def test_api_server_away(self):
        """The API server is away for a minute: pods keep their adapters."""
        before = sorted(adapter["name"] for adapter in self.adapters())
        with Pings(self.near, self.far) as pings:
            self.cluster.control.kill("apiserver")
            try:
                until(lambda: sorted(it["name"] for it in self.adapters()) != before, "an adapter to go", 60)
                self.fail("an adapter was released while the API server was away")
            except MachineError:
                pass
            self.cluster.control.restart("apiserver")
            until(lambda: self.cluster.ask("get", "--raw", "/readyz").returncode == 0, "the API server", 90)
            self.churn(0, lambda: None)
        sent, answered = pings.counts()
        self.assertEqual(sent - answered, 0, f"of {sent} echo requests")
