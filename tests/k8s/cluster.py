"""A cluster of Kubernetes: a machine with the control plane, and two nodes with containerd and kubelet, on one bridge.

Pods have the bridge plugin's `eth0`, and Services kube-proxy, as in any cluster. Shunt is not there yet: deployed.py adds it.
"""

import json
import os
import subprocess

from machine import CACHE, Machine, MachineError, until
from pki import Pki

CONTROL = "10.77.0.1"
SERVICES = "10.96.0.0/16"
SERVER = f"https://{CONTROL}:6443"

CNI = """\
{{"cniVersion": "1.0.0", "name": "pods", "plugins": [{{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "10.244.{number}.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}
}}]}}
"""

CONTAINERD = """\
version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "registry.k8s.io/pause:shunt-test"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{bin}/runc"
      SystemdCgroup = false
"""

# A short status period and a short back-off: tests wait for both.
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
address: {address}
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: false}}, x509: {{clientCAFile: {pki}/ca.crt}}}}
authorization: {{mode: AlwaysAllow}}
failSwapOn: false
nodeStatusUpdateFrequency: 1s
syncFrequency: 10s
crashLoopBackOff: {{maxContainerRestartPeriod: 1s}}
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}}
resolvConf: ""
"""


# Ends each process but the first of the machine, which keeps it, and this one. Mounts below others cannot be unmounted.
POWER_CUT = """\
kill -KILL -1
sed -n 's,^[^ ]* [^ ]* [^ ]* [^ ]* \\(/run/[^ ]*\\|/var/lib/[^ ]*/[^ ]*\\) .*,\\1,p' /proc/self/mountinfo | sort -r | xargs -r umount -l 2>/dev/null || true
find /run -mindepth 1 -delete
mkdir /run/netns
cd /sys/class/net
for name in *; do [ $name = lo ] || [ $name = eth0 ] || ip link delete $name 2>/dev/null || true; done
"""


class Node(Machine):
    """A node: its machine is on the bridge under `address`."""

    def __init__(self, cluster, number):
        super().__init__(f"node{number}")
        self.cluster = cluster
        self.number = number
        self.address = f"10.77.0.{10 + number}"

    def join(self, pki, others):
        """Starts containerd, kubelet and kube-proxy."""
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", CONTROL)
        for other in others:
            self.run("ip", "route", "add", f"10.244.{other.number}.0/24", "via", other.address)
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.run("sh", "-ec", f"cp {CACHE}/cni/* /opt/cni/bin/")
        self.write("/etc/cni/net.d/10-pods.conflist", CNI.format(number=self.number))
        self.write("/etc/containerd/config.toml", CONTAINERD.format(bin=f"{CACHE}/bin"))
        self.write("/etc/kubelet.yaml", KUBELET.format(address=self.address, pki=pki.directory))
        self.start("containerd", "containerd")
        self.wait_containerd()
        for image in sorted(os.listdir(f"{CACHE}/images")):
            self.load(f"{CACHE}/images/{image}")
        self.start("kubelet", "kubelet", "--config=/etc/kubelet.yaml", f"--kubeconfig={pki.path(self.name)}.kubeconfig",
                   f"--hostname-override={self.name}", f"--node-ip={self.address}", "--v=2")  # fmt: skip
        self.start("kube-proxy", "kube-proxy", "--proxy-mode=nftables", f"--kubeconfig={pki.path('proxy')}.kubeconfig",
                   f"--hostname-override={self.name}", "--bind-address=0.0.0.0", "--conntrack-max-per-core=0", "--cluster-cidr=10.244.0.0/16")  # fmt: skip

    def wait_containerd(self):
        """Waits until containerd answers."""
        until(lambda: self.ask("ctr", "version").returncode == 0, f"containerd of {self.name}", 30, self.processes["containerd"], self.path("containerd.log"))

    def reboot(self):
        """Like a power cut: processes, mounts, `/run` and interfaces are gone, and `/var` remains. Its services start again."""
        self.run("sh", "-ec", POWER_CUT)
        for process in self.processes.values():
            process.wait(timeout=10)
        self.restart("containerd")
        self.wait_containerd()
        for name in ("kubelet", "kube-proxy"):
            self.restart(name)

    def load(self, archive):
        """Makes an image known to containerd."""
        self.run("ctr", "-n", "k8s.io", "images", "import", archive)


class Cluster:
    """A running cluster."""

    def __init__(self):
        if not os.path.exists(f"{CACHE}/images/busybox.tar"):
            raise MachineError(f"{CACHE} is not complete: run tests/k8s/setup")
        self.control = None
        self.nodes = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        self.control = Machine("control")
        self.control.run("ip", "link", "add", "br0", "type", "bridge")
        self.control.run("ip", "address", "add", f"{CONTROL}/24", "dev", "br0")
        self.control.run("ip", "link", "set", "br0", "up")
        self.pki = Pki(self.control.path("pki"), SERVER, [CONTROL, "10.96.0.1", "127.0.0.1"])
        self._control_plane()
        self.nodes = [Node(self, number) for number in (1, 2)]
        for node in self.nodes:
            self.connect(node)
            node.join(self.pki, [other for other in self.nodes if other is not node])
        until(lambda: self.kubectl("get", "nodes", "--no-headers").split().count("Ready") == 2, "both nodes to be Ready", 90)

    def connect(self, node):
        """The cable from a node to the bridge."""
        ends = [["name", "eth0", "netns", str(node.pid())], ["name", node.name, "netns", str(self.control.pid())]]
        subprocess.run(["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]], check=True, timeout=10)
        self.control.run("ip", "link", "set", node.name, "master", "br0", "up")

    def _control_plane(self):
        control, pki = self.control, self.pki
        etcd = "http://127.0.0.1:2379"
        control.start("etcd", "etcd", f"--data-dir={control.path('etcd')}", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
                      "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync")  # fmt: skip
        control.start(
            "apiserver", "kube-apiserver", f"--etcd-servers={etcd}", f"--bind-address={CONTROL}", f"--advertise-address={CONTROL}", "--secure-port=6443",
            f"--tls-cert-file={pki.path('apiserver.crt')}", f"--tls-private-key-file={pki.path('apiserver.key')}",
            f"--client-ca-file={pki.path('ca.crt')}", f"--token-auth-file={pki.path('tokens.csv')}",
            f"--kubelet-client-certificate={pki.path('kubelet-client.crt')}", f"--kubelet-client-key={pki.path('kubelet-client.key')}",
            f"--service-account-key-file={pki.path('sa.key')}", f"--service-account-signing-key-file={pki.path('sa.key')}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip
        until(lambda: self.ask("get", "--raw", "/readyz").returncode == 0, "the API server", 60, control.processes["apiserver"], control.path("apiserver.log"), 0.3)
        control.start("scheduler", "kube-scheduler", f"--kubeconfig={pki.path('scheduler')}.kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1")
        control.start("controllers", "kube-controller-manager", f"--kubeconfig={pki.path('controllers')}.kubeconfig", "--leader-elect=false",
                      "--bind-address=127.0.0.1", f"--service-account-private-key-file={pki.path('sa.key')}", f"--root-ca-file={pki.path('ca.crt')}",
                      "--use-service-account-credentials=true")  # fmt: skip

    def ask(self, *argv, **options):
        """Result of kubectl, as the administrator."""
        return self.control.ask("kubectl", f"--kubeconfig={self.pki.path('admin')}.kubeconfig", *argv, **options)

    def kubectl(self, *argv, **options):
        """Output of kubectl, which must succeed."""
        return self.control.run("kubectl", f"--kubeconfig={self.pki.path('admin')}.kubeconfig", *argv, **options)

    def apply(self, *objects):
        """Creates or changes objects, which are JSON's."""
        self.kubectl("apply", "-f", "-", input="\n---\n".join(json.dumps(it) for it in objects))

    def get(self, *argv):
        """An object or a list of them."""
        return json.loads(self.kubectl("get", *argv, "-o", "json"))

    def machines(self):
        """All machines."""
        return [*self.nodes, *([self.control] if self.control else [])]

    def close(self):
        """Ends everything."""
        errors = []
        for machine in self.machines():
            try:
                machine.close()
            except MachineError as error:
                errors.append(error)
        if errors:
            raise errors[0]
