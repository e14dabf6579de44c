"""How an API server is reached: what stands in kubeconfigs, and in a pod."""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrators.kubernetes.api import credentials
from orchestrators.kubernetes.api.client import ApiClient
from orchestrators.kubernetes.api.connections import Connections
from orchestrators.kubernetes.api.credentials import Access, Credentials
from orchestrators.kubernetes.errors import CredentialsError, RequestError
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


def test_of_several_files_the_first_with_a_context_counts_and_a_token_file_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").write_text("clusters: []\n")
    (tmp_path / "secret").write_text("abc")
    second = written(tmp_path / "config", {"token": "old", "tokenFile": "secret"}, server="http://there")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'first'}{os.pathsep}{second}")
    assert Credentials().access().token == "abc"


@pytest.mark.parametrize("text", ["users:\n- token: SECRET: x\n", None])
def test_no_error_tells_a_token(tmp_path: Path, text: str | None) -> None:
    path = written(tmp_path / "config", {"token": "SEC\nRET"})
    if text is not None:
        path.write_text(text)
    with pytest.raises(CredentialsError, match="line") as error:
        Credentials(path).access()
    assert "SEC" not in str(error.value)


def test_a_program_that_gives_no_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "PROGRAM_PATIENCE", 0.05)
    program = {"apiVersion": "v1", "command": sys.executable, "args": ["-c", "import time; time.sleep(9)"]}
    with pytest.raises(CredentialsError, match="gave no answer"):
        Credentials(written(tmp_path / "config", {"exec": program})).access()


async def test_other_credentials_are_tried_once_and_none_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def access() -> Access:
        asked.append(1)
        if len(asked) > 2:
            raise CredentialsError("the program failed")
        return Access("http://there", None, f"token{len(asked)}")

    class Refusing:
        async def ask(self, *_: object) -> int:
            return 401

        async def chunk(self, *_: object) -> None:
            return None

    @asynccontextmanager
    async def one(_: Connections) -> AsyncIterator[Refusing]:
        yield Refusing()

    monkeypatch.setattr(Connections, "one", one)
    client = ApiClient(access)
    for number in (2, 3):
        with pytest.raises(RequestError):
            await client.get("/api/v1/pods")
        assert len(asked) == number


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
