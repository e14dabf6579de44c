"""What `rota status` makes of an agent's answer, for people."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.doctor.host_checks import Outcome, agent
from rota.terminal.output import field
from tests.rota.test_command_line import run

CONTROL: dict[str, Any] = {
    "layout_epoch": 8, "open_moves": 6, "progress": None, "paused": False, "held": None, "away": [], "full": [],
    "disks": [], "frozen": {}, "pins": [], "rack_violations": 0, "under_replicated": 0, "last_error": "",
    "observing": False, "asks": [], "shards": [], "drains": {},
}  # fmt: skip
STATUS: dict[str, Any] = {
    "name": "n1", "address": "127.0.0.1:7946", "state": "member", "epoch": 4, "id": "a053009e", "size": 6,
    "recoveries": [], "quorum": True, "controller": "n1", "keys": None, "dropped": {}, "control": CONTROL,
    "engine": None,
}  # fmt: skip
PROGRESS = {
    "wave": 1, "waves": 2, "steps": 8, "steps_done": 1,
    "bytes": 60_000_000, "bytes_done": 15_000_000, "rate": 1_000_000.0, "eta": 45.0,
}  # fmt: skip


def answered(monkeypatch: pytest.MonkeyPatch, control: dict[str, Any], **more: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # no terminal bounds the lines
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: {**STATUS, "control": control, **more})


def test_a_plan_under_way_is_told_with_bytes_rate_and_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, {**CONTROL, "progress": PROGRESS})
    status, out, _ = run(capsys, "status")
    assert status == 0
    assert "progress      25%, wave 1 of 2, 15.0 MB of 60.0 MB, 1.0 MB/s, 45 s left" in out.splitlines()


def test_lost_layout_servers_are_named_with_the_command_that_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, {**CONTROL, "layout_servers_lost": ["n2", "n4", "n5"]})
    _, out, _ = run(capsys, "status")
    (layout,) = [line for line in out.splitlines() if line.startswith("layout ")]
    assert layout.startswith("layout        epoch 8, LOST its majority: layout servers n2, n4, n5;")
    assert "`rota layout recover`" in layout
    found, finding = agent(Target("127.0.0.1:7947"))
    assert (found, finding.outcome) == (True, Outcome.FAILED)
    assert "n2, n4, n5" in finding.text
    assert "rota layout recover" in finding.remedy


def test_drained_hosts_are_told_with_what_they_still_hold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, {**CONTROL, "drains": {"n4": 0, "n1": 12}})
    _, out, _ = run(capsys, "status")
    assert "drained       n1 (12 copies left), n4" in out.splitlines()


@pytest.mark.parametrize(
    ("paused", "words"),
    [(False, "n4 is being drained"), (True, "once the loop is no longer paused: `rota resume`")],
)
def test_a_drain_says_whether_it_has_to_wait(
    paused: bool, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApiClient, "get", lambda self, path: {"paused": paused})
    monkeypatch.setattr(ApiClient, "post", lambda self, path, body: {"host": "n4", "drained": True})
    status, out, _ = run(capsys, "drain", "n4")
    assert (status, words in out) == (0, True)


def test_without_a_plan_there_is_no_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, CONTROL)
    _, out, _ = run(capsys, "status")
    assert "progress" not in out


def test_servers_shards_and_what_operators_are_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = {"key": "s00", "primary": "n1", "slots": 8192, "bytes": 5, "load": 1.0, "in_sync": 2}
    question = {"segment": "s01", "text": "fail s01 over: no replica is known to have its data"}
    control = {**CONTROL, "observing": True, "asks": [question], "shards": [shard, {**shard, "key": "s01"}]}
    engine = {"name": "valkey", "servers": ["127.0.0.1:1", "127.0.0.1:3"], "running": 1, "restarts": 4}
    answered(monkeypatch, control, engine=engine)
    _, out, _ = run(capsys, "status")
    lines = out.splitlines()
    assert "servers       valkey: 127.0.0.1:1, 127.0.0.1:3; 1 run, 4 restarts" in lines
    assert "shards        2, with 16384 slots" in lines
    assert "asks          fail s01 over: no replica is known to have its data" in lines
    assert any(line.startswith("observing") for line in lines)
    assert "rules         0 rack violations, 0 under-replicated shards" in lines


def test_a_layout_of_shards_has_their_slots_and_free_servers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [
        {"host": "n1", "rack": "r1", "role": "primary", "state": "in_sync"},
        {"host": "n2", "rack": "r2", "role": "replica", "state": "syncing"},
    ]
    shard = {"key": "s00", "slots": [[0, 99], [200, 200]], "bytes": 2000, "load": 12.4, "replicas": copies}
    layout = {
        "layout_epoch": 3, "segments": [{**shard, "retired": False, "away": []}], "drained": [],
        "roles": {"layout_servers": ["n1"], "sequencers": ["n1"], "log_units": []}, "servers": {"n1": 1, "n2": 2},
        "notices": ["127.0.0.1:1 may move replicas by itself"], "rack_violations": 0, "under_replicated": 1,
    }  # fmt: skip
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: layout)
    _, out, _ = run(capsys, "layout", "show")
    assert "101 (0-99, 200)" in out
    assert "n2 (syncing)" in out
    assert "2.0 kB" in out
    assert "free servers    n2 1\n" in out
    assert "notice          127.0.0.1:1 may move replicas by itself\n" in out
    assert "1 under-replicated shards" in out
    assert "log units" not in out
    assert "(the latest known)" not in out
    layout["known_only"] = True
    monkeypatch.setattr(ApiClient, "post", lambda self, path, body: {"host": "n1", "drained": True})
    _, out, _ = run(capsys, "layout", "show")
    assert "layout epoch 3 (the latest known)" in out
    status, _, err = run(capsys, "drain", "n1", "--wait")
    assert (status, "may move replicas by itself" in err) == (1, True), "what is known may be out of date"


@pytest.mark.parametrize(
    ("control", "more", "words"),
    [
        ({}, {"quorum": False, "silent": ["n4", "n5"]}, "no majority is within reach"),
        ({"layout_servers_lost": ["n2"]}, {}, "the store does not answer"),
        ({"under_replicated": 3}, {}, "3 under-replicated segments"),
        (
            {"away": [{"segment": "s00", "start": 0, "end": 9, "hosts": ["n3"]}]},
            {},
            "records of s00 cannot be read",
        ),
        ({}, {"epoch": None, "state": "joining"}, "n1 is in no view"),
    ],
)
def test_the_status_is_a_health_check(
    control: dict[str, Any],
    more: dict[str, Any],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered(monkeypatch, CONTROL)
    assert run(capsys, "status")[0] == 0
    answered(monkeypatch, {**CONTROL, **control}, **more)
    for arguments in (("status",), ("status", "--json")):
        status, _, err = run(capsys, *arguments)
        assert status == 1
        assert words in err


def test_who_is_gone_who_is_silent_and_which_segments_are_in_trouble(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {
        "name": "n3",
        "address": "10.0.0.3:7946",
        "how": "failed",
        "time": time.time() - 190,
        "epoch": 5,
        "tags": {},
    }
    troubled = [
        {"segment": "s01", "copies": 1, "wanted": 3, "hosts": ["n2"], "crowded": []},
        {"segment": "s02", "copies": 3, "wanted": 3, "hosts": ["n1", "n2", "n4"], "crowded": ["r1"]},
    ]
    answered(monkeypatch, {**CONTROL, "troubled": troubled}, former=[gone], quorum=False, silent=["n4"],
             short_racks=[{"rack": "r1", "hosts": 1, "gone": ["n3"]}])  # fmt: skip
    _, out, _ = run(capsys, "status")
    assert "gone          n3 failed 3 min ago; `rota members --all` has all" in out
    assert "racks         r1 is without n3 (1 left)" in out
    assert "silent: n4. Start those again; if they never come back, `rota recover --survivors`" in out
    assert "too few copies: s01 (1 of 3)" in out
    assert "too many copies in one rack: s02 (r1)" in out


def test_what_was_refused_is_put_into_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {
        "datagrams_not_rota": 1,
        "messages_sender_not_in_view": 2,
        "frames_newly_counted": 3,
        "streams_stalled": 0,
    }
    answered(monkeypatch, CONTROL, dropped=counted)
    assert run(capsys, "status")[1].endswith(
        "dropped       1 datagram not of rota; 3 frames (newly counted); "
        "2 messages (a message whose sender is not in the view)\n"
    )


def test_what_the_loss_of_one_more_would_break(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_members = [{"what": "rack", "names": ["r1"], "breaks": "no majority of the members would be left"}]
    of_store = [{"what": "host", "names": ["n1", "n2", "n3"], "breaks": "no copy of s00 would be left"}]
    answered(monkeypatch, {**CONTROL, "at_risk": of_store}, at_risk=of_members)
    status, out, _ = run(capsys, "status")
    assert status == 0, "nothing is broken yet"
    assert "at risk       rack r1 lost: no majority of the members would be left\n" in out
    assert f"{'':<14}host n1, n2 or n3 lost: no copy of s00 would be left\n" in out


def test_of_a_controller_that_does_not_tell_what_is_at_risk_the_last_copies_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    troubled = [{"segment": "s01", "hosts": ["n4"], "copies": 1, "wanted": 3, "crowded": []}]
    answered(monkeypatch, {**CONTROL, "troubled": troubled})
    assert "at risk       with n4 the last copy of 1 would be lost\n" in run(capsys, "status")[1]
    answered(monkeypatch, {**CONTROL, "troubled": troubled, "at_risk": []})
    assert "at risk" not in run(capsys, "status")[1]


def test_lines_that_a_terminal_bounds_break_between_words_and_not_in_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, CONTROL, quorum=False, silent=["n4", "n5"])
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "status")
    assert max(map(len, out.splitlines())) <= 80
    assert "`rota recover --survivors`" in out


def test_no_line_is_broken_within_a_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    field("gone", "host-with-a-name, another-host-of-ours and " + "x-" * 25)
    assert capsys.readouterr().out.splitlines() == [
        f"{'gone':<14}host-with-a-name,",
        f"{'':<14}another-host-of-ours and",
        f"{'':<14}{'x-' * 25}",
    ]
