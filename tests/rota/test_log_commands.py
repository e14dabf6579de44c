"""What `rota log` and `rota layout recover` make of an agent's answers: what is printed, and the exit status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.client.api_client import ApiClient
from tests.rota.test_command_line import run

LOST = [
    {"segment": "s03", "start": 0, "end": 42, "hosts": ["n4", "n5"]},
    {"segment": "s04", "start": None, "end": None, "hosts": ["n4"]},
    {"segment": "s05", "start": 7, "end": 9, "hosts": []},
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What was posted; the agent answers as one that has lost hosts."""
    requests: list[tuple[str, Any]] = []

    def post(self: ApiClient, path: str, body: Any) -> dict[str, Any]:
        requests.append((path, body))
        if path == "/v1/forget":
            lost = [] if body["hosts"] == ["n9"] else LOST
            return {"hosts": body["hosts"], "lost": lost, "forgotten": body["confirmed"]}
        return {
            "layout_epoch": 12,
            "hosts": ["n1", "n2"],
            "risks": ["n3: away"],
            "recovered": body["confirmed"],
        }

    monkeypatch.setattr(ApiClient, "post", post)
    return requests


def test_what_would_be_lost_is_told_and_nothing_is_changed(
    capsys: pytest.CaptureFixture[str], asked: list[tuple[str, Any]]
) -> None:
    status, out, err = run(capsys, "log", "forget", "n4", "n5")
    assert asked == [("/v1/forget", {"hosts": ["n4", "n5"], "confirmed": False})]
    assert status == 1
    assert out.splitlines() == [
        "s03, addresses 0 to 41: is on n4, n5",
        "s04, what was written last: is on n4",
        "s05, addresses 7 to 8: is on no host any more",
    ]
    assert err == "rota: nothing was changed; with --yes this is declared lost\n"


def test_with_yes_it_is_declared(capsys: pytest.CaptureFixture[str], asked: list[tuple[str, Any]]) -> None:
    status, out, _ = run(capsys, "log", "forget", "n4", "n5", "--yes")
    assert status == 0
    assert out.endswith("n4, n5: declared lost\n")
    status, out, _ = run(capsys, "log", "forget", "n9")
    assert (status, out) == (0, "nothing is on n9 only\n")
    status, out, _ = run(capsys, "log", "forget", "n4", "--json")
    assert status == 1
    assert json.loads(out)["lost"] == LOST
    assert [body["confirmed"] for _, body in asked] == [True, False, False]


def test_a_layout_is_recovered_only_with_yes(
    capsys: pytest.CaptureFixture[str], asked: list[tuple[str, Any]]
) -> None:
    status, out, err = run(capsys, "layout", "recover")
    assert (status, err) == (1, "rota: nothing was changed; with --yes it is done\n")
    assert out == "the layout would go on from epoch 12, the latest known to n1, n2\n  n3: away\n"
    status, out, _ = run(capsys, "layout", "recover", "--yes")
    assert (status, out) == (0, "the layout begins again at epoch 12, with n1, n2\n")
    assert [path for path, _ in asked] == ["/v1/layout/recover"] * 2


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("read", "s"), 0),
        (("read", "s", "--start", "5"), 0),
        (("tail", "s"), 0),
        (("read", "s", "--address", "5"), 1),
        (("read", "s", "--address", "5", "--raw"), 1),
        (("read", "s", "--address", "5", "--json"), 1),
    ],
)
def test_a_stream_without_records_is_said_to_have_none(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    status: int,
) -> None:
    """To ask for one address that has none is to fail: a script must not take nothing for a record."""
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: {"stream": "s", "records": []})
    ended, out, err = run(capsys, "log", *arguments)
    assert ended == status
    assert "no record of stream s" in err
    if "--json" in arguments:
        assert json.loads(out) == {"stream": "s", "records": []}
    else:
        assert out == ""


@pytest.mark.parametrize("key", ["", "k" * 1025, "é" * 513])
def test_a_key_that_cannot_be_is_a_wrong_use(
    capsys: pytest.CaptureFixture[str], asked: list[tuple[str, Any]], key: str
) -> None:
    status, out, err = run(capsys, "map", "set", key, "value")
    assert (status, out, asked) == (2, "", [])
    assert err == f"rota: a key has 1 to 1024 bytes, not {len(key.encode())}\n"


def test_long_records_are_fetched_answer_by_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def get(self: ApiClient, path: str, **query: Any) -> dict[str, Any]:
        asked.append(query)
        first = query.get("start") or 0
        records = [{"address": first, "text": "x", "hex": "78", "bytes": 1}]
        return {"stream": "s", "records": records, "more": first < 7}

    monkeypatch.setattr(ApiClient, "get", get)
    _, out, err = run(capsys, "log", "read", "s", "--start", "6", "--limit", "9", "--json")
    assert [record["address"] for record in json.loads(out)["records"]] == [6, 7]
    assert (asked[-1]["start"], asked[-1]["limit"], err) == (7, 8, "")
    for command in ("read", "tail"):
        _, out, err = run(capsys, "log", command, "s")
        assert out.split() == ["0", "x"]
        assert err.startswith("the newest 1: one answer has no more of such long records")
