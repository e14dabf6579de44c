"""What real agents answer is held against the OpenAPI document, in every test that asks one through `ApiClient`."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import pytest

from rota.client.api_client import ApiClient
from rota.http.api import build_application
from rota.http.backend import Backend
from tests.rota.description import Description


class _Nobody:
    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError("nobody is asked")


@pytest.fixture(scope="session")
def description() -> Description:
    return Description(build_application(cast(Backend, _Nobody())).state.operations)


@pytest.fixture(autouse=True)
def answers_are_as_described(description: Description, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ApiClient._call

    def asked(self: ApiClient, method: str, path: str, *rest: Any) -> Any:
        answer = ask(self, method, path, *rest)
        description.check_answer(method, path, answer)
        return answer

    monkeypatch.setattr(ApiClient, "_call", asked)
