"""How to reach an API server: a kubeconfig, or the service account of a pod.

A kubeconfig may name files or hold what would be in them, and may name a program that hands out credentials.  Keys
touch the disk only for as long as OpenSSL reads them.  Credentials run out; they are read again when the server
refuses them.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrators.kubernetes.errors import CredentialsError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PROGRAM_PATIENCE: Final = 60.0
"""Seconds that a program may take to hand out credentials."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs; ``namespace`` is where it belongs to."""

    server: str
    tls: ssl.SSLContext | None
    token: str | None = None
    server_name: str | None = None
    namespace: str = "default"
    certificate: bytes | None = None
    """Of the client, as in ``tls``."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Of a kubeconfig; for None of ``KUBECONFIG``, else the service account, else ``~/.kube/config``."""

    kubeconfig: Path | None = None
    context: str | None = None

    def access(self) -> Access:
        """Read them.  Raises CredentialsError."""
        files = [self.kubeconfig] if self.kubeconfig else _files_named(os.environ.get("KUBECONFIG", ""))
        if not files and (SERVICE_ACCOUNT / "token").is_file():
            try:
                return _of_service_account(SERVICE_ACCOUNT, os.environ)
            except (ValueError, OSError) as error:
                raise CredentialsError(f"{SERVICE_ACCOUNT}: {error}") from error
        files = files or [Path.home() / ".kube/config"]
        try:
            return _of_kubeconfig(_merged(files), self.context)
        except (KeyError, TypeError, ValueError, OSError) as error:
            where = ", ".join(map(str, files))
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise CredentialsError(f"{where}: {what}; give --kubeconfig FILE") from error


def _files_named(variable: str) -> list[Path]:
    return [Path(name).expanduser() for name in variable.split(os.pathsep) if name]


def _merged(files: list[Path]) -> dict[str, Any]:
    """As kubectl merges them: what comes first counts.  Paths are made absolute: each is relative to its file."""
    import yaml

    merged: dict[str, Any] = {}
    found = [path for path in files if path.is_file()]
    if not found:
        raise CredentialsError(f"there is no file {', '.join(map(str, files))}; give --kubeconfig FILE")
    for path in found:
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise CredentialsError(f"{path} is no YAML: {_problem(error)}") from None
        if not isinstance(document, Mapping):
            raise CredentialsError(f"{path} is no kubeconfig: it holds no mapping")
        if document.get("current-context"):
            merged.setdefault("current-context", document["current-context"])
        for section in ("clusters", "users", "contexts"):
            named = merged.setdefault(section, {})
            for entry in document.get(section) or ():
                content = dict(entry[section[:-1]] or {})
                for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                    if content.get(key):
                        content[key] = str(path.parent / content[key])
                named.setdefault(entry["name"], content)
    return merged


def _problem(error: Exception) -> str:
    """What is wrong and where, without the text: there are secrets in it."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be read"
    return problem if mark is None else f"{problem} (line {mark.line + 1})"


def _token(text: str) -> str:
    token = text.strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("the token is not one line of printable characters")
    return token


def _of_kubeconfig(config: Mapping[str, Any], wanted: str | None) -> Access:
    name = wanted or config.get("current-context")
    if not name:
        raise ValueError("no current-context; give --context NAME")
    context = _named(config, "contexts", name)
    cluster = _named(config, "clusters", context["cluster"])
    if cluster.get("proxy-url"):
        raise ValueError("proxy-url is not supported")
    user = dict(_named(config, "users", context["user"])) if context.get("user") else {}
    if "exec" in user:
        user |= _from_program(user["exec"])
    token = user.get("token")
    if user.get("tokenFile"):
        token = Path(user["tokenFile"]).read_text(encoding="utf-8")
    server = str(cluster["server"]).rstrip("/")
    return Access(
        server,
        _tls(cluster, user) if server.startswith("https:") else None,
        _token(token) if token else None,
        cluster.get("tls-server-name"),
        context.get("namespace") or "default",
        _content(user, "client-certificate"),
    )


def _named(config: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = config[section].get(name)
    if found is None:
        raise ValueError(f"{name!r} is not among its {section}")
    return found


def _from_program(given: Mapping[str, Any]) -> dict[str, Any]:
    """What an exec plugin hands out (client.authentication.k8s.io)."""
    environment = os.environ | {each["name"]: each["value"] for each in given.get("env") or ()}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(
        {"apiVersion": given["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    )
    command = [given["command"], *(given.get("args") or ())]
    try:
        run = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{command[0]} gave no answer in {PROGRAM_PATIENCE:g} s") from None
    if run.returncode:
        raise ValueError(
            f"{command[0]} ended with {run.returncode}: {run.stderr.decode(errors='replace')[:200]!r}"
        )
    status = json.loads(run.stdout)["status"]
    found = {"token": status.get("token")}
    for key, name in (
        ("clientCertificateData", "client-certificate-data"),
        ("clientKeyData", "client-key-data"),
    ):
        if status.get(key):
            found[name] = base64.b64encode(status[key].encode()).decode()
    return found


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=None if authority is None else authority.decode())
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate"), _content(user, "client-key")
    if certificate is not None and key is not None:
        with _file_of(certificate + b"\n" + key) as path:
            context.load_cert_chain(path)
    return context


def _content(section: Mapping[str, Any], name: str) -> bytes | None:
    if section.get(f"{name}-data"):
        return base64.b64decode(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if section.get(name) else None


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile() as file:  # for its owner's eyes only
        file.write(content)
        file.flush()
        yield file.name


def _of_service_account(folder: Path, environment: Mapping[str, str]) -> Access:
    try:
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    except KeyError as error:
        raise CredentialsError(
            f"{folder} is there and {error} is not set: no way to the API server"
        ) from error
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ssl.create_default_context(cafile=str(folder / "ca.crt")),
        _token((folder / "token").read_text(encoding="utf-8")),
        namespace=(folder / "namespace").read_text(encoding="utf-8").strip(),
    )
