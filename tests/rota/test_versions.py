"""An agent or a command of another version is told from one that is broken."""

from __future__ import annotations

import socket
from importlib.metadata import version
from threading import Thread
from typing import Any

import pytest

import rota
from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.errors import ApiError
from tests.rota.test_command_line import run


def test_the_version_is_the_same_wherever_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert rota.__version__ == version("rota"), (
        "the environment is older than the code; `make lint` renews it"
    )
    assert run(capsys, "--version")[1] == f"rota, version {rota.__version__}\n"


def test_an_agent_that_does_not_know_what_is_asked_is_of_another_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def old(self: ApiClient, *arguments: Any, **options: Any) -> tuple[int, bytes]:
        return 404, b'{"error": "GET /v1/backup: no such thing here", "code": "not_found"}'

    monkeypatch.setattr(ApiClient, "_exchange", old)
    for ask in (ApiClient.get, ApiClient.post, ApiClient.fetch):
        with pytest.raises(
            ApiError, match=r"does not know /v1/backup .* upgrade the older of the two"
        ) as told:
            ask(ApiClient("127.0.0.1:1"), "/v1/backup")
        assert (told.value.code, told.value.status) == ("other_version", 404)


@pytest.mark.socket
@pytest.mark.parametrize("sent", [b"", b'{"records": ['])
def test_an_answer_that_is_cut_off_is_none(sent: bytes) -> None:
    """As of an agent that is killed between the head of its answer and the rest: it is no empty one."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n" + sent)

        killed = Thread(target=answer)
        killed.start()
        client = ApiClient(Target(f"http://127.0.0.1:{server.getsockname()[1]}"))
        with pytest.raises(ApiError, match="no agent answers") as refused:
            client.get("/v1/status")
        killed.join()
    assert refused.value.code == "unreachable"
