"""``rota export``: where the placement comes from, and what is said of it; in process, answers of an agent given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.client.api_client import ApiClient
from tests.datastore_adapter.exported_formats import CockroachStatement, kafka_partitions, pd_rules
from tests.rota.test_command_line import run

Output = pytest.CaptureFixture[str]

RACKS = {"n1": "r1", "n2": "r2", "n3": "r3", "n4": "r1"}
SEGMENTS = {"orders-0": ("n1", "n2", "n3"), "orders-1": ("n2", "n3", "n1")}
TARGET = {"orders-0": ["n4", "n2", "n3"], "orders-1": ["n2", "n3", "n4"]}


def layout(state: str = "in_sync") -> dict[str, Any]:
    """As ``rota layout show --json`` prints it; the copies in no particular order."""
    return {
        "layout_epoch": 7,
        "replication_factor": 3,
        "segments": [
            {
                "key": key,
                "bytes": 0,
                "retired": False,
                "replicas": [
                    {"host": host, "rack": RACKS[host], "position": position, "role": "", "state": state}
                    for position, host in reversed(list(enumerate(hosts)))
                ],
            }
            for key, hosts in SEGMENTS.items()
        ],
        "rack_violations": 0,
    }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Answers by path, to be changed."""
    answers: dict[str, Any] = {
        "/v1/layout": layout(),
        "/v1/plan": {
            "layout_epoch": 7, "feasible": True, "solve": {"text": "optimal"}, "moves": [{}, {}], "target": TARGET
        },
        "/v1/members": {
            "members": [
                {"name": host, "tags": {"rack": rack, "broker": host[1:]}} for host, rack in RACKS.items()
            ]
        },
    }  # fmt: skip
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: answers[path])
    return answers


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "placement.json").write_text(json.dumps(layout()))
    names = {
        "segments": {"orders-0": "..8000", "orders-1": "8000.."},
        "hosts": {host: {"broker": f"10{host[1:]}"} for host in RACKS},
    }
    (tmp_path / "names.json").write_text(json.dumps(names))
    return tmp_path


def brokers(out: str) -> list[list[int]]:
    return [[broker for broker, _ in replicas] for replicas in kafka_partitions(json.loads(out)).values()]


@pytest.mark.usefixtures("cluster")
def test_the_plan_is_exported_unless_what_stands_is_asked_for(capsys: Output) -> None:
    status, out, err = run(capsys, "export", "kafka")
    assert (status, brokers(out)) == (0, [[4, 2, 3], [2, 3, 4]])
    assert err == "exported: what the plan leads to, 2 moves from layout epoch 7\n"
    assert run(capsys, "export", "kafka", "--from", "plan")[1] == out
    status, out, err = run(capsys, "export", "kafka", "--from", "standing", "--json")
    assert (status, brokers(out)) == (0, [[1, 2, 3], [2, 3, 1]])
    assert err == "exported: what stands at layout epoch 7\n"


@pytest.mark.usefixtures("cluster")
def test_tiers_and_labels_are_tags_of_the_members(capsys: Output) -> None:
    arguments = ("export", "cockroachdb", "--tier", "rack", "--tier", "host")
    status, out, _ = run(capsys, *arguments)
    statements = [CockroachStatement(line) for line in out.splitlines()]
    assert status == 0
    assert statements[0].variables["lease_preferences"][0] == ["+rack=r1", "+host=n4"]
    assert json.loads(run(capsys, *arguments, "--json")[1]) == {"statements": out.splitlines()}


def test_without_a_plan_there_is_nothing_to_export(capsys: Output, cluster: dict[str, Any]) -> None:
    cluster["/v1/plan"] |= {"feasible": False, "solve": {"text": "no placement satisfies rack_rule"}}
    status, out, err = run(capsys, "export", "kafka")
    assert (status, out) == (1, "")
    assert "no placement satisfies rack_rule; `--from standing`" in err


def test_copies_that_are_gone_stand_nowhere(capsys: Output, cluster: dict[str, Any]) -> None:
    cluster["/v1/layout"] = layout("gone")
    status, out, err = run(capsys, "export", "kafka", "--from", "standing")
    assert (status, out) == (1, "")
    assert "'orders-0' has a copy on 'n1', which is gone; `--from plan`" in err


def test_a_file_needs_no_cluster(capsys: Output, files: Path) -> None:
    file, names = ("--file", "placement.json"), ("--names", "names.json")
    raw = ("--key-type", "raw", "--group", "g")
    status, out, err = run(capsys, "export", "pd", *file, *names, *raw)
    assert (status, err) == (0, "exported: layout epoch 7 as placement.json has it\n")
    rules = pd_rules(json.loads(out))
    assert {rule["group_id"] for rule in rules} == {"g"}
    assert [
        (rule["id"], rule["start_key"], rule["end_key"]) for rule in rules if rule["role"] == "leader"
    ] == [
        ("orders-0-0", b"", b"\x80\0"),
        ("orders-1-0", b"\x80\0", b""),
    ]
    (files / "names.json").write_text('{"hosts": {"n1": {"broker": "0"}}}')
    status, out, err = run(capsys, "export", "kafka", *file, *names, "--json")
    assert status == 1
    assert "host 'n2' has no tag 'broker'" in json.loads(out)["error"]
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("placement", "names", "words"),
    [
        (None, "{}", "placement.json: No such file"),
        ("[", "{}", "placement.json: "),
        ('{"segments": [{"key": 1}]}', "{}", "placement.json: Expected `str`, got `int` - at `$.segments[0].key`"),
        ("{}", "{}", "rota layout show --json"),
        ('{"segments": []}', '{"host": {}}', "names.json: Object contains unknown field `host`"),
        ('{"segments": []}', '{"hosts": {"n1": {"broker": 1}}}', "names.json: Expected `str`, got `int`"),
    ],
)  # fmt: skip
def test_malformed_files_are_usage(
    capsys: Output, files: Path, placement: str | None, names: str, words: str
) -> None:
    (files / "placement.json").unlink()
    if placement is not None:
        (files / "placement.json").write_text(placement)
    (files / "names.json").write_text(names)
    status, out, err = run(capsys, "export", "kafka", "--file", "placement.json", "--names", "names.json")
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("files")
def test_a_file_has_no_plan(capsys: Output) -> None:
    status, _, err = run(capsys, "export", "pd", "--file", "placement.json", "--from", "plan")
    assert status == 2
    assert "--from" in err


def test_what_is_there_twice_or_not_at_all_is_refused(capsys: Output, files: Path) -> None:
    document = layout()
    document["segments"] *= 2
    (files / "placement.json").write_text(json.dumps(document))
    assert "is there twice" in run(capsys, "export", "kafka", "--file", "placement.json")[2]
    (files / "placement.json").write_text('{"segments": []}')
    status, _, err = run(capsys, "export", "kafka", "--file", "placement.json")
    assert (status, "has no segment" in err) == (1, True)
