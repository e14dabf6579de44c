"""``apply`` and ``watch`` on two clusters: each is looked at anew when its turn comes; the vCenter is played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrators.vsphere.balance_loop import LoopSettings
from orchestrators.vsphere.errors import DrsIsMasterError, UnreachableError
from orchestrators.vsphere.inventory import Cluster, Host, Inventory, Machine, Move
from orchestrators.vsphere.migrations import Migrations, State
from orchestrators.vsphere.move_order import Order
from orchestrators.vsphere.planning import PlanSettings
from rota.commands.orchestrators.vsphere import commands
from rota.commands.orchestrators.vsphere.options import Scope
from tests.orchestrators.vsphere.states import cluster, host, machine

SCOPE = Scope((), (), PlanSettings())


class Played:
    """A vCenter with two clusters, and what happens in each turn; ``cpu`` of the machines counts the looks."""

    id = "the one"

    def __init__(self) -> None:
        self.looks = 0
        self.drs = "manual"
        self.lost = 0
        self.planned: list[tuple[str, int]] = []
        self.cancel_first = False

    async def look(self, wait: float = 0.0) -> tuple[Inventory, list[Any]]:
        if self.lost:
            self.lost -= 1
            raise UnreachableError("it does not answer")
        self.looks += 1
        clusters = tuple(Cluster(f"id-{name}", name, self.drs) for name in "cd")
        hosts = tuple(Host(f"host-{name}", f"h{name}", name, 100, 100) for name in "cd")
        machines = tuple(Machine(f"vm-{name}", f"m{name}", f"h{name}", self.looks, 10) for name in "cd")
        return Inventory(clusters, hosts, machines), []

    async def reconnect(self) -> None:
        assert self.lost >= 0

    @asynccontextmanager
    async def connected(self, _: Any) -> AsyncIterator[Played]:
        yield self

    def plan(self, _: Any, part: Inventory, *__: Any) -> Any:
        self.planned.append((part.clusters[0].name, part.machines[0].cpu))
        return None

    async def carry_out(self, _: Any, part: Inventory, *__: Any) -> Migrations:
        migrations = Migrations.of((), part)
        if self.cancel_first:
            migrations.cancel(0)
        return migrations


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(commands, "_planned", played.plan)
    monkeypatch.setattr(commands, "_carried_out", played.carry_out)
    return played


async def apply(played: Any, journal: Path) -> None:
    await commands._apply(played, SCOPE, False, journal, False)


async def test_each_cluster_is_planned_for_by_a_look_of_its_own(played: Played, tmp_path: Path) -> None:
    played.lost = 1
    await apply(played, tmp_path / "journal")
    assert played.planned == [("c", 2), ("d", 3)]


async def test_ctrl_c_in_one_cluster_leaves_the_next_alone(played: Played, tmp_path: Path) -> None:
    played.cancel_first = True
    await apply(played, tmp_path / "journal")
    assert played.planned == [("c", 2)]


async def test_a_journal_is_not_gone_on_with_where_drs_is_the_master(played: Played, tmp_path: Path) -> None:
    played.drs = "fullyAutomated"
    (tmp_path / "journal").write_text("[]")
    with pytest.raises(DrsIsMasterError):
        await apply(played, tmp_path / "journal")
    assert played.looks == 1, "the journal was not looked into"


async def test_watch_looks_again_after_moves_and_no_cluster_keeps_another_one_waiting(
    played: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    turns: list[tuple[str, int]] = []

    async def once(_: Any, __: Any, ___: Any, part: Inventory, *more: Any) -> bool:
        turns.append((part.clusters[0].name, part.machines[0].cpu))
        if len(turns) == 4:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(commands, "_watch_once", once)
    with pytest.raises(KeyboardInterrupt):
        await commands._watch(played, SCOPE, False, tmp_path / "j", LoopSettings(), lambda _: None)
    assert turns == [("c", 2), ("d", 3), ("c", 4), ("d", 5)]


async def test_what_the_order_leaves_out_is_in_the_outcome(tmp_path: Path) -> None:
    part = cluster([host("a"), host("b")], [machine("p", "a")])
    plan: Any = SimpleNamespace(order=Order((), ((Move("p", "a", "b"), "b has no room for its memory"),)))
    vcenter: Any = Played()
    found = await commands._carried_out(vcenter, part, plan, SCOPE, tmp_path / "j", lambda _: None)
    assert [(entry.state, entry.why) for entry in found.entries] == [
        (State.LEFT_OUT, "b has no room for its memory")
    ]


def test_a_host_to_be_emptied_that_is_removed_is_no_longer_asked_for() -> None:
    found = commands._with_hosts_of(cluster([host("a")], []), Scope((), ("a", "gone"), PlanSettings()))
    assert found.evacuate == ("a",)
