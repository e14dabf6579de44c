"""How an API server is reached: what stands in kubeconfigs, and in a pod."""

from __future__ import annotations

import base64
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrators.kubernetes.api import credentials
from orchestrators.kubernetes.api.credentials import Credentials
from orchestrators.kubernetes.errors import CredentialsError
from tests.orchestrators.kubernetes.control_plane import write_certificates


def written(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "here"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(document))
    return path


def test_a_token_in_a_file_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("abc\n")
    path = written(tmp_path / "config", {"tokenFile": "secret"})
    access = Credentials(path).access()
    assert (access.server, access.token, access.namespace) == ("https://127.0.0.1:6443", "abc", "here")


def test_certificates_in_the_kubeconfig(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    certificate, key = ((tmp_path / name).read_bytes() for name in ("server.crt", "server.key"))
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    access = Credentials(
        written(tmp_path / "config", user, **{"certificate-authority": "server.crt"})
    ).access()
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(access.tls.get_ca_certs()) == 1


def test_a_program_hands_out_a_token_each_time(tmp_path: Path) -> None:
    answer = "import json, os; print(json.dumps({'status': {'token': os.environ['WHO'] + '-token'}}))"
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", answer],
        "env": [{"name": "WHO", "value": "ada"}],
    }
    assert Credentials(written(tmp_path / "config", {"exec": program})).access().token == "ada-token"


def test_the_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificates(tmp_path)
    (tmp_path / "server.crt").rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("abc")
    (tmp_path / "namespace").write_text("kube-system")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = Credentials().access()
    assert (access.server, access.token, access.namespace) == ("https://[fd00::1]:443", "abc", "kube-system")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no YAML"),
        ("[]", "is no kubeconfig"),
        ("{}", "no current-context"),
        (
            '{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c"}}]}',
            "'c' is not among",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(CredentialsError, match=told) as error:
        Credentials(tmp_path / "config").access()
    assert "\n" not in str(error.value)
