"""A control plane of its own for tests and benchmarks: etcd and kube-apiserver on loopback, and nodes without kubelets.

Nothing of it outlives the block.  ``admin`` may do everything; ``rota`` is the service account of ``deploy/``, and may
do what its manifest says once that is applied.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.orchestrators.kubernetes.servers.programs import CACHE

PATIENCE: Final = 180.0
"""Seconds for a server to come up on a busy machine."""
TOKENS: Final = {
    "admin": ("admin", "system:masters"),
    "rota": ("system:serviceaccount:kube-system:rota-scheduler", ""),
}


class ControlPlane:
    """A running one.  ``kubeconfig(user)`` is a file that leads to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etcd_port, self.peer_port, self.port, self.scheduler_port = _free_ports(4)
        self.server = f"https://127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        write_certificates(folder)
        (folder / "tokens.csv").write_text(
            "".join(f'{name}-token,{user},{name},"{group}"\n' for name, (user, group) in TOKENS.items())
        )
        self._tls = ssl.create_default_context(cafile=str(folder / "server.crt"))

    def kubeconfig(self, user: str = "admin") -> Path:
        path = self.folder / f"{user}.kubeconfig"
        cluster = {"server": self.server, "certificate-authority": str(self.folder / "server.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "own", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": f"{user}-token"}}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": user}}],
            "current-context": "own",
        }
        path.write_text(json.dumps(document))
        return path

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As the administrator, blocking.  Raises urllib.error.HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": "Bearer admin-token", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self._tls, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def start_etcd(self) -> None:
        url, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        self._start(
            "etcd", "etcd", "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", url,
            "--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        )  # fmt: skip

    def start_apiserver(self) -> None:
        folder = self.folder
        self._start(
            "kube-apiserver", str(CACHE / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--secure-port={self.port}", "--bind-address=127.0.0.1", "--authorization-mode=RBAC",
            f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key",
            "--service-account-issuer=https://rota.test", f"--service-account-key-file={folder}/accounts.key",
            f"--service-account-signing-key-file={folder}/accounts.key", f"--token-auth-file={folder}/tokens.csv",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--service-cluster-ip-range=10.0.0.0/24",
        )  # fmt: skip
        self._wait()

    def stop_apiserver(self) -> None:
        self._stop("kube-apiserver")

    def start_scheduler(self) -> None:
        """kube-scheduler, with a client that is not held back."""
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig()), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False},
        }
        path = self.folder / "scheduler.json"
        path.write_text(json.dumps(configuration))
        self._start(
            "kube-scheduler", str(CACHE / "kube-scheduler"), f"--config={path}",
            f"--secure-port={self.scheduler_port}", "--bind-address=127.0.0.1", f"--cert-dir={self.folder}/scheduler",
        )  # fmt: skip

    def stop_scheduler(self) -> None:
        self._stop("kube-scheduler")

    def cpu_seconds(self, name: str) -> float:
        """Of the processor that a server has taken so far."""
        words = Path(f"/proc/{self._processes[name].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / 100

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            self._stop(name)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.request("GET", "/api/v1/namespaces/default")
                return
            except (urllib.error.URLError, OSError, json.JSONDecodeError):
                ended = [name for name, process in self._processes.items() if process.poll() is not None]
                if ended or time.monotonic() > end:
                    name = ended[0] if ended else "kube-apiserver"
                    log = (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{name} does not serve:\n{log}") from None
            time.sleep(0.1)


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    folder = Path(tempfile.mkdtemp(prefix="rota-kubernetes-"))
    plane = ControlPlane(folder)
    try:
        plane.start_etcd()
        plane.start_apiserver()
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)


def node(
    name: str, cpu: str = "4", memory: str = "16Gi", zone: str = "", labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A node that is ready."""
    names = {"kubernetes.io/hostname": name, **({"topology.kubernetes.io/zone": zone} if zone else {})}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**names, **(labels or {})}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(
    name: str, cpu: str = "100m", memory: str = "64Mi", *, scheduler: str = "rota", app: str = "", **spec: Any
) -> dict[str, Any]:
    """A pending pod."""
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app or name}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **spec,
        },
    }


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def write_certificates(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for file, each in (("server.key", key), ("accounts.key", accounts)):
        (folder / file).write_bytes(
            each.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
