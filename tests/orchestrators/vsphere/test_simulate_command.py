"""``rota vsphere simulate``: plans and questions about a dump, without any vCenter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrators.vsphere.inventory import Inventory, Rule, RuleKind, save
from rota.commands.command_line import main
from tests.orchestrators.vsphere.states import cluster, host, machine

HOSTS = [host("a", site="north"), host("b", site="south"), host("c", site="south")]
MACHINES = [
    machine("p", "a", 60, 40),
    machine("q", "a", 10, 30),
    machine("r", "b", 10, 20),
    machine("s", "b", 10, 0),
]
RULE = Rule("apart", RuleKind.APART, ("p", "r"))


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return kept(cluster(HOSTS, MACHINES, RULE), tmp_path)


def kept(state: Inventory, folder: Path) -> Path:
    save(state, folder / "dump.json")
    return folder / "dump.json"


def asked(capsys: pytest.CaptureFixture[str], dump: Path, *options: str) -> Any:
    main(["vsphere", "simulate", str(dump), "--budget", "60", "--json", *options])
    return json.loads(capsys.readouterr().out)


def test_a_plan(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = asked(capsys, dump)["plans"]
    assert plan["proven"]
    assert [(each["machine"], each["from"], each["to"], each["why"]) for each in plan["moves"]] == [
        ("q", "a", "c", "balance")
    ]
    assert plan["after"]["deviation"] < plan["before"]["deviation"]


def test_why_not_and_headroom(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, dump, "--why-not", "r", "a")
    assert answer["possible"], answer
    room = asked(capsys, dump, "--headroom", "p")
    assert (room["count"], room["exact"]) == (1, True), "one like it is kept apart from r as well, and from p"


def test_what_if_a_site_is_lost(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, dump, "--lose", "b")
    moved = {tuple(each["primary_key"]): each["other"] for each in answer["difference"]["decisions"]}
    assert "b" not in moved.values()
    with pytest.raises(SystemExit) as caught:
        main(["vsphere", "simulate", str(dump), "--budget", "60", "--lose-site", "south"])
    assert caught.value.code == 1
    shown = capsys.readouterr()
    assert "anti_affinity" in shown.out
    assert shown.err.startswith("rota: cluster c: no placement satisfies these constraints together: ")


def test_a_loss_may_take_the_room_that_is_kept_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = [machine(name, where, 40, memory_reservation=40) for name, where in ("pa", "qb", "rc")]
    dump = kept(cluster([host("a"), host("b"), host("c")], machines, failover_hosts=1), tmp_path)
    answer = asked(capsys, dump, "--lose", "c")
    assert answer["difference"] is not None, answer


def test_unknown_names_are_usage(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        (["--evacuate", "x"], "there is no host 'x' in a cluster"),
        (["--lose", "x"], "there is no host 'x' in these clusters"),
        (["--why", "x"], "there is no machine 'x' that is switched on in these clusters"),
        (["--cluster", "x"], "there is no cluster 'x': there are c"),
        (
            ["--why", "p", "--headroom", "p"],
            "one question at a time: --why, --why-not, --headroom, or --lose and --lose-site",
        ),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["vsphere", "simulate", str(dump), *options])
        assert caught.value.code == 2
        assert capsys.readouterr().err.strip() == f"rota: {message}"
