"""Keys, certificates, tokens and kubeconfig files of the test cluster, made by openssl."""

import os
import secrets
import subprocess

USERS = {  # by the name of the kubeconfig: user and groups
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controllers": ("system:kube-controller-manager", ""),
    "proxy": ("system:kube-proxy", ""),
    "node1": ("system:node:node1", "system:nodes"),
    "node2": ("system:node:node2", "system:nodes"),
}

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{server}", certificate-authority: {directory}/ca.crt}}}}]
users: [{{name: {name}, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: {name}}}}}]
current-context: test
"""


class Pki:
    """The files, in a directory."""

    def __init__(self, directory, server, addresses):
        self.directory = directory
        os.mkdir(directory)
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=shunt-test-ca",
                      "-keyout", self.path("ca.key"), "-out", self.path("ca.crt"))  # fmt: skip
        names = [f"IP:{address}" for address in addresses] + ["DNS:kubernetes", "DNS:kubernetes.default.svc"]
        self._certificate("apiserver", "/CN=kube-apiserver", f"subjectAltName={','.join(names)}")
        self._certificate("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", "extendedKeyUsage=clientAuth")
        self._openssl("genrsa", "-out", self.path("sa.key"), "2048")
        lines = []
        for number, (name, (user, groups)) in enumerate(USERS.items()):
            token = secrets.token_hex(16)
            lines.append(f"{token},{user},{number}{',' if groups else ''}{groups}\n")
            text = KUBECONFIG.format(server=server, directory=directory, name=name, token=token)
            with open(self.path(f"{name}.kubeconfig"), "w", encoding="ascii") as file:
                file.write(text)
        with open(self.path("tokens.csv"), "w", encoding="ascii") as file:
            file.writelines(lines)

    def path(self, name):
        """Path of a file."""
        return os.path.join(self.directory, name)

    def _openssl(self, *argv):
        done = subprocess.run(["openssl", *argv], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise OSError(f"openssl {argv[0]}: {done.stderr}")

    def _certificate(self, name, subject, extension):
        with open(self.path(f"{name}.ext"), "w", encoding="ascii") as file:
            file.write(extension + "\n")
        self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", self.path(f"{name}.key"),
                      "-out", self.path(f"{name}.csr"))  # fmt: skip
        self._openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path("ca.crt"), "-CAkey", self.path("ca.key"),
                      "-CAcreateserial", "-days", "2", "-extfile", self.path(f"{name}.ext"), "-out", self.path(f"{name}.crt"))  # fmt: skip
