"""An agent or a command of another version is told from one that is broken."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

import rota
from rota.client.api_client import ApiClient
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
