"""A backup of a log that is written to and trimmed meanwhile, restored: the same log, up to its address."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from datastore_adapter import LogClient, MapSettings, ReplicatedDict
from rota.client import backup
from rota.client.api_client import ApiClient
from rota.client.backup import back_up, restore
from rota.client.backup_file import BackupDamagedError, parts_of, verify
from rota.errors import ApiError, UsageProblem
from rota.services.store_api import StoreApi
from tests.datastore_adapter.harness import Harness
from tests.rota.description import Description


class Agent:
    """Answers for the requests of `rota.client.backup` from a simulated cluster, as an agent's HTTP interface does."""

    url = "http://n1"

    def __init__(self, harness: Harness, description: Description) -> None:
        self.harness = harness
        self.client = harness.client()
        self.before: Callable[[str], None] = lambda path: None
        self.posted: list[tuple[str, Any]] = []
        self.longest = 0
        self._restoring = ""
        self._store = StoreApi(harness.client("api"))
        self._description = description

    def get(self, path: str) -> Any:
        self.before(path)
        answer: Any = {"phase": "paused"}
        if path == "/v1/backup":
            answer = self.harness.loop.run(self._store.cut())
            self._description.check_answer("GET", path, answer)
        return answer

    def fetch(self, path: str, **query: int) -> bytes:
        self.before(path)
        data = self.harness.loop.run(self._store.part(**query))
        self.longest = max(self.longest, len(data))
        return data

    def post(self, path: str, body: bytes | Mapping[str, Any]) -> Any:
        self.before(path)
        if isinstance(body, bytes):
            return self.harness.loop.run(self._store.write_part(body))
        self.posted.append((path, body))
        if path == "/v1/restore":
            self.begin(body["backup"], resume=body["resume"])
        return {"was_paused": False}

    def begin(self, backup: str, *, resume: bool) -> None:
        if not resume:
            self.harness.loop.run(self._store.check_empty())
        elif backup != self._restoring:
            raise ApiError("no restore of this file", code="not_restoring", status=409)
        self._restoring = backup

    @property
    def api(self) -> ApiClient:
        return cast(ApiClient, self)


@pytest.fixture
def made(description: Description) -> Callable[..., Agent]:
    def make(seed: int = 0, segments: int = 4) -> Agent:
        harness = Harness(3, segments=segments, seed=seed)
        harness.loop.run(harness.settle(harness.adapter()))
        return Agent(harness, description)

    return make


def append(agent: Agent, count: int, size: int = 100) -> None:
    async def all_of_them() -> None:
        for number in range(count):
            await agent.client.append(f"s{number % 3}", number.to_bytes(2, "big") * (size // 2))

    agent.harness.loop.run(all_of_them())


def log_of(agent: Agent, end: int, begin: int = 0) -> list[tuple[int, str, bytes] | None]:
    found = agent.harness.loop.run(agent.client.read_all(range(begin, end)))
    return [None if each is None else (each.address, each.stream, each.payload) for each in found]


async def map_of(client: LogClient, name: str) -> dict[str, bytes]:
    return await ReplicatedDict(client, name).items()


def test_a_backup_under_load_is_the_log_up_to_one_address(made: Callable[..., Agent], tmp_path: Path) -> None:
    source, target = made(), made(seed=1, segments=2)
    append(source, 200, 50_000)
    path = tmp_path / "a.backup"
    shares: list[float] = []
    source.before = lambda path: append(source, 2)
    taken = back_up(source.api, path, lambda share, words: shares.append(share))
    source.before = lambda path: None
    assert taken.end.address == 202, "what was in the log when it began"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 8
    assert source.longest < 1.2 * 2**20, "10 MB go by in parts"

    restored = restore(target.api, path)
    assert (restored.summary.end, restored.is_paused) == (taken.end, False)
    assert log_of(target, 202) == log_of(source, 202)
    assert target.harness.loop.run(target.client.tail()) == 202
    assert [path for path, _ in target.posted] == ["/v1/restore", "/v1/restore/finished", "/v1/resume"]


def test_what_is_trimmed_while_it_is_read_moves_the_address(
    made: Callable[..., Agent], tmp_path: Path
) -> None:
    """A map's snapshot above the first address takes the place of commands below it, which are not there any more."""
    source, target = made(), made(seed=1)
    shared = ReplicatedDict(source.client, "m", MapSettings(snapshot_bytes=1 << 30))

    async def use(start: int) -> None:
        for number in range(start, start + 30):
            await shared.set(f"k{number % 7}", bytes([number]) * 60_000)

    source.harness.loop.run(use(0))
    calls: list[str] = []

    def meanwhile(path: str) -> None:
        calls.append(path)
        if len(calls) == 3:
            source.harness.loop.run(use(30))
            source.harness.loop.run(shared.snapshot())
            source.harness.loop.run(use(60))

    source.before = meanwhile
    taken = back_up(source.api, tmp_path / "a.backup")
    assert taken.end.trimmed_below > 30, "the log was trimmed beyond what was its end at first"
    assert calls.count("/v1/backup") == 2
    restore(target.api, taken.file)
    begin, end = taken.end.trimmed_below, taken.end.address
    assert log_of(target, end, begin) == log_of(source, end, begin)
    restored = target.harness.loop.run(map_of(target.client, "m"))
    assert restored == source.harness.loop.run(map_of(source.client, "m"))
    assert len(restored) == 7


def test_only_an_empty_log_takes_it_or_one_that_was_begun_with_it(
    made: Callable[..., Agent], tmp_path: Path
) -> None:
    source, target, other = made(), made(seed=1), made(seed=2)
    append(source, 100, 50_000)
    path = back_up(source.api, tmp_path).file
    assert path.name.startswith("rota-c0ffee-")
    assert verify(path).end.records == 100

    def cut_short(path: str) -> None:
        if target.harness.loop.run(target.client.tail()) > 40 and path == "/v1/restore/part":
            raise ApiError("no agent answers", code="unreachable")

    target.before = cut_short
    with pytest.raises(ApiError, match="no agent answers"):
        restore(target.api, path, patience=0.0)
    target.before = lambda path: None
    with pytest.raises(ApiError, match=r"log has \d+ addresses, .* start agents with empty data") as refused:
        restore(target.api, path)
    assert (refused.value.code, refused.value.status) == ("not_empty", 409)
    restore(target.api, path, resume=True)
    assert log_of(target, 100) == log_of(source, 100)

    append(other, 1)
    with pytest.raises(ApiError, match="no restore of this file"):
        restore(other.api, path, resume=True)
    assert other.harness.loop.run(other.client.tail()) == 1
    other.begin = lambda backup, resume: None  # type: ignore[assignment, method-assign, misc]  # somebody was faster
    with pytest.raises(
        ApiError, match=r"holds something else; .* start all agents with empty data"
    ) as refused:
        restore(other.api, path)
    assert (refused.value.code, refused.value.status) == ("not_copied", 409)
    assert "/v1/restore/finished" not in [path for path, _ in other.posted], "its intent stays as it is"
    append(target, 1)
    with pytest.raises(ApiError, match="somebody else wrote to it"):
        restore(target.api, path, resume=True)


def test_an_agent_that_restarts_is_waited_for(
    made: Callable[..., Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "LOOK_EVERY", 0.0)
    source, target = made(), made(seed=1)
    append(source, 60, 50_000)
    asked: list[str] = []

    def is_away_now_and_then(path: str) -> None:
        asked.append(path)
        if path.endswith("/part") and len(asked) % 3:
            raise ApiError("no agent answers", code="unreachable", status=503 if len(asked) % 2 else 0)

    source.before = target.before = is_away_now_and_then
    path = back_up(source.api, tmp_path / "a").file
    restore(target.api, path)
    assert log_of(target, 60) == log_of(source, 60)


def test_nothing_is_asked_for_a_damaged_file_and_none_is_overwritten(
    made: Callable[..., Agent], tmp_path: Path
) -> None:
    source, target = made(), made(seed=1)
    append(source, 20)
    path = back_up(source.api, tmp_path / "a").file
    with pytest.raises(UsageProblem, match="there already"):
        back_up(source.api, path)
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    with pytest.raises(BackupDamagedError):
        restore(target.api, path)
    assert target.posted == []

    def fails(path: str) -> None:
        if path == "/v1/backup/part":
            raise ApiError("no agent answers", code="unreachable")

    source.before = fails
    with pytest.raises(ApiError):
        back_up(source.api, tmp_path / "b", patience=0.0)
    assert [each.name for each in tmp_path.iterdir()] == ["a"], "nothing half written is left"


def test_the_intent_is_taken_from_it_or_left_as_it_is(
    made: Callable[..., Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made()
    cut = StoreApi.cut

    async def with_intent(self: StoreApi) -> Any:
        return {**await cut(self), "intent": {"version": 1, "paused": True}}

    monkeypatch.setattr(StoreApi, "cut", with_intent)
    path = back_up(source.api, tmp_path / "a").file
    assert list(parts_of(path)) == []
    asked = ["/v1/restore", "/v1/restore/finished"]
    for with_intent_, paths in ((True, asked), (False, [*asked, "/v1/resume"])):
        target = made(seed=1)
        assert restore(target.api, path, with_intent=with_intent_).is_paused is with_intent_
        assert [path for path, _ in target.posted] == paths, (
            "it stays paused if it was when the backup was taken"
        )
        assert bool(target.posted[1][1]["intent"]) is with_intent_
