"""The tutorial of docs/kubernetes.md, followed literally on a cluster without Shunt."""

import os
import subprocess
import unittest

from cluster import Cluster
from deployed import programs
from literal import section
from machine import ROOT, until
from pages import fenced, page
from test_claims import ROOT_ONLY

# The page's `cargo` has been run: its programs are given. `ssh NODE` enters the node.
CARGO = "#!/bin/sh\nexit 0\n"
SSH = """\
#!/bin/sh
node=$1
shift
case $node in
{cases}
*) echo "ssh: $node is not known" >&2; exit 255 ;;
esac
"""


@ROOT_ONLY
class Tutorial(unittest.TestCase):
    """Its commands run in one shell, from the project's directory."""

    limit_s = 900

    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.site = self.cluster.control.path("project")
        os.makedirs(f"{self.site}/bin")
        for name in ("deploy", "kubernetes"):
            os.symlink(f"{ROOT}/{name}", f"{self.site}/{name}")
        cases = "\n".join(f'{node.name}) exec {" ".join(node.within([]))} "$@" ;;' for node in self.cluster.nodes)
        for name, text in (("cargo", CARGO), ("ssh", SSH.format(cases=cases))):
            with open(f"{self.site}/bin/{name}", "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(f"{self.site}/bin/{name}", 0o755)

    def shell(self, script, timeout=400):
        """Output of commands, as a user types them on a machine that reaches the cluster."""
        control = self.cluster.control
        environment = control.environment() | programs() | {"KUBECONFIG": f"{self.cluster.pki.path('admin')}.kubeconfig"}
        environment["PATH"] = f"{self.site}/bin:{environment['PATH']}"
        environment.pop("CARGO_TARGET_DIR", None)
        # The control plane's network, and this machine's processes, from where nodes can be entered.
        argv = ["nsenter", "-t", str(control.pid()), "-n", "--", "bash", "-ec", f"cd {self.site}\n{script}"]
        done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)
        self.assertEqual(done.returncode, 0, f"{script}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_tutorial(self):
        """From nothing to two pods that ping across nodes, testpmd, a VF, and nothing again."""
        blocks = fenced(section(page("kubernetes.md"), "Tutorial"), "sh")
        said = {}
        for index, block in enumerate(blocks):
            said[index] = self.shell(block)
        everything = "\n".join(said.values())
        self.assertEqual(everything.count("3 packets transmitted, 3 packets received"), 2, "of a pod, and of testpmd")
        self.assertIn("nic0-vf0,nic0-vf1,sw0-port", everything)
        self.assertIn("10.56.0.5/24", everything)
        until(lambda: not self.cluster.ask("get", "namespace", "shunt", "--ignore-not-found").stdout, "the namespace to go", 120)
        for node in self.cluster.nodes:
            self.assertNotIn("dra-", node.run("sh", "-c", "cat /var/lib/shunt/state.json 2>/dev/null || true"))


if __name__ == "__main__":
    unittest.main()
