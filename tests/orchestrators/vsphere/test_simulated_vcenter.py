"""``rota vsphere`` on the real API, as govmomi's simulator serves it; Go builds that once into the user's cache."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from orchestrators.vsphere.errors import SimulatorError
from orchestrators.vsphere.execution import VCenter, carry_out, connected, read_journal
from orchestrators.vsphere.inventory import Inventory, Move, RuleKind
from orchestrators.vsphere.migrations import Migrations, Start, State, Timeouts
from orchestrators.vsphere.move_order import Budgets
from orchestrators.vsphere.planning import Plan, Planner, PlanSettings
from orchestrators.vsphere.simulator import Description, SimulatedVCenter, binary, skewed
from rota.commands.command_line import main

pytestmark = pytest.mark.vsphere

SETTINGS = PlanSettings(budget=10)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    try:
        binary()
    except SimulatorError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals are in the current folder, if nobody says otherwise."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner()


@pytest.fixture
def described() -> Description:
    return skewed(4, 24)


@pytest.fixture
def server(described: Description) -> Iterator[SimulatedVCenter]:
    with SimulatedVCenter(described) as running:
        yield running


def told() -> tuple[list[str], Callable[[str], None]]:
    lines: list[str] = []
    return lines, lines.append


async def seen(vcenter: VCenter) -> Inventory:
    whole, _ = await vcenter.look()
    return whole.part("DC0_C0")


async def planned(vcenter: VCenter, planner: Planner) -> tuple[Inventory, Plan]:
    part = await seen(vcenter)
    return part, planner.plan(part, SETTINGS)


def migrations_of(part: Inventory, plan: Plan, **more: Any) -> Migrations:
    return Migrations.of([step.move for step in plan.order.steps], part, **more)


async def test_it_is_observed_planned_for_and_moved(server: SimulatedVCenter, planner: Planner) -> None:
    _, tell = told()
    async with connected(server.address, server.credentials, tell) as vcenter:
        part, plan = await planned(vcenter, planner)
        assert (len(part.hosts), len(part.machines)) == (4, 24)
        assert plan.after.deviation < plan.before.deviation / 5
        migrations = migrations_of(part, plan)
        await carry_out(vcenter, migrations, tell=tell)
        assert {entry.state for entry in migrations.entries} == {State.DONE}
        after = await seen(vcenter)
    wanted = {step.move.machine: step.move.destination for step in plan.order.steps}
    assert {each.name: each.host for each in after.machines if each.name in wanted} == wanted


async def test_maintenance_rules_and_overrides_are_seen(server: SimulatedVCenter) -> None:
    """The simulator tells nobody that they have changed, so all of it is read anew, as after a new login."""
    from pyVmomi import vim

    _, tell = told()
    async with connected(server.address, server.credentials, tell) as vcenter:
        part = await seen(vcenter)
        host = vcenter.observer.reference("HostSystem", "esx01", part)
        machines = [vcenter.observer.reference("VirtualMachine", name, part) for name in ("vm0000", "vm0001")]
        cluster = vim.ClusterComputeResource(part.clusters[0].id, vcenter.connection.content.rootFolder._stub)
        rule = vim.cluster.AntiAffinityRuleSpec(name="apart", enabled=True, vm=machines)
        override = vim.cluster.DrsVmConfigInfo(key=machines[0], enabled=False)
        spec = vim.cluster.ConfigSpecEx(
            rulesSpec=[vim.cluster.RuleSpec(operation="add", info=rule)],
            drsVmConfigSpec=[vim.cluster.DrsVmConfigSpec(operation="add", info=override)],
        )
        begun = [
            await vcenter.connection.call(host.EnterMaintenanceMode_Task, 0),
            await vcenter.connection.call(cluster.ReconfigureComputeResource_Task, spec, True),
        ]
        ended = False
        while not ended:  # bounded by the time of the test
            _, tasks = await vcenter.look()
            states = {task.id: task.state for task in tasks}
            ended = all(states[task._moId] == "success" for task in begun)
        vcenter.observer.forget()
        part = await seen(vcenter)
    assert [each.name for each in part.hosts if each.evacuated] == ["esx01"]
    assert [(each.kind, each.machines) for each in part.clusters[0].rules] == [
        (RuleKind.APART, ("vm0000", "vm0001"))
    ]
    stays = {each.name: each.stays for each in part.machines if each.stays}
    assert stays == {"vm0000": "an override of the cluster turns DRS off for it"}


@pytest.mark.parametrize("described", [skewed(4, 24, delay=300)], ids=["slow"])
async def test_a_host_is_emptied_within_the_budgets(server: SimulatedVCenter, planner: Planner) -> None:
    _, tell = told()
    async with connected(server.address, server.credentials, tell) as vcenter:
        part = (await seen(vcenter)).with_evacuated(["esx01"])
        plan = planner.plan(part, SETTINGS)
        migrations = migrations_of(part, plan, budgets=Budgets(2, 3))
        busy: list[Counter[str]] = []
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                while not migrations.finished:
                    busy.append(Counter(h for e in migrations.under_way for h in (e.source, e.destination)))
                    await trio.sleep(0.05)

            nursery.start_soon(look)
            await carry_out(vcenter, migrations, tell=tell)
        after = await seen(vcenter)
    assert "esx01" not in {each.host for each in after.machines}
    assert max(max(each.values(), default=0) for each in busy) == 2
    assert max(sum(each.values()) // 2 for each in busy) <= 3


@pytest.mark.parametrize(
    "described",
    [msgspec.structs.replace(skewed(4, 24), fails=("vm0000",), hangs=("vm0001",))],
    ids=["faulty"],
)
async def test_a_move_that_fails_and_one_that_hangs_are_told_and_the_others_go_on(
    server: SimulatedVCenter,
) -> None:
    lines, tell = told()
    async with connected(server.address, server.credentials, tell) as vcenter:
        part = await seen(vcenter)
        at = {each.name: each.host for each in part.machines}
        others = {name: next(h.name for h in part.hosts if h.name != at[name]) for name in at}
        moves = [Move(name, at[name], others[name]) for name in ("vm0000", "vm0001", "vm0002")]
        migrations = Migrations.of(moves, part, timeouts=Timeouts(stalled=3, cancelling=10, settling=5))
        await carry_out(vcenter, migrations, tell=tell)
    states = {entry.machine: entry.state for entry in migrations.entries}
    assert states == {"vm0000": State.FAILED, "vm0001": State.FAILED, "vm0002": State.DONE}
    assert any("vm0000: not moved" in line and "InsufficientResourcesFault" in line for line in lines), lines
    assert any("vm0001: cancelling task-" in line for line in lines), lines


@pytest.mark.parametrize("described", [skewed(4, 24, delay=1500)], ids=["slow"])
async def test_a_session_that_ends_in_the_middle_is_replaced_and_nothing_moves_twice(
    server: SimulatedVCenter, planner: Planner
) -> None:
    lines, tell = told()
    async with connected(server.address, server.credentials, tell) as vcenter:
        part, plan = await planned(vcenter, planner)
        migrations = migrations_of(part, plan, budgets=Budgets(2, 2))
        begun, two = _starts(vcenter)

        async def end_session() -> None:
            await two.wait()
            manager = vcenter.connection.content.sessionManager
            await vcenter.connection.call(manager.Logout)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_session)
            await carry_out(vcenter, migrations, tell=tell)
    assert {entry.state for entry in migrations.entries} == {State.DONE}
    assert max(begun.values()) == 1
    assert any("no longer knows the session" in line for line in lines), lines
    assert any("again" in line for line in lines)


def _starts(vcenter: VCenter) -> tuple[Counter[str], trio.Event]:
    """How often each machine is begun with, and an event: two have been."""
    begun: Counter[str] = Counter()
    two = trio.Event()
    start = vcenter.start

    async def counted(action: Start, inventory: Inventory) -> str:
        task = await start(action, inventory)
        begun[action.machine] += 1
        if len(begun) == 2:
            two.set()
        return task

    vcenter.start = counted  # type: ignore[method-assign]
    return begun, two


@pytest.mark.parametrize("described", [skewed(4, 24, delay=2000)], ids=["slow"])
async def test_a_later_process_goes_on_with_what_runs(
    server: SimulatedVCenter, planner: Planner, tmp_path: Path
) -> None:
    """The first is ended in the middle, without a word; the second finds its tasks."""
    journal = tmp_path / "journal"
    _, tell = told()
    async with connected(server.address, server.credentials, tell) as vcenter:
        part, plan = await planned(vcenter, planner)
        first = migrations_of(part, plan, budgets=Budgets(2, 2))
        running, two = _starts(vcenter)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(carry_out, vcenter, first, tell=tell, journal=journal))
            await two.wait()
            nursery.cancel_scope.cancel()
    async with connected(server.address, server.credentials, tell) as vcenter:
        begun, _ = _starts(vcenter)
        whole, tasks = await vcenter.look()
        kept = read_journal(journal, vcenter.id)
        assert kept is not None
        second = Migrations.resumed(kept, whole.part("DC0_C0"), time.time())
        second.observed(whole.part("DC0_C0"), tasks, time.time())
        await carry_out(vcenter, second, tell=tell, journal=journal)
    assert set(running) <= {entry.machine for entry in second.entries if entry.state is State.DONE}
    assert not begun
    assert not journal.exists()


def options(server: SimulatedVCenter, folder: Path, password: str = "") -> list[str]:
    login = folder / "login"
    login.write_text(f"{server.credentials.user}\n{password or server.credentials.password}\n")
    login.chmod(0o600)
    return [
        "--address",
        str(server.address),
        "--credentials",
        str(login),
        "--ca-file",
        str(server.address.ca_file),
    ]


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["vsphere", *arguments])
    assert caught.value.code == 1
    return capsys.readouterr().err.strip()


def test_what_is_wrong_is_told_in_one_line(
    server: SimulatedVCenter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = server.address
    wrong = fails(capsys, "plan", *options(server, tmp_path, "wrong"))
    assert wrong.startswith(f"rota: {at} refuses the password of {server.credentials.user}: ")
    untrusted = fails(capsys, "plan", *options(server, tmp_path)[:4])
    assert untrusted.startswith(f"rota: the certificate of {at} is not trusted")
    assert "\n" not in wrong + untrusted


@pytest.mark.parametrize(
    "described", [msgspec.structs.replace(skewed(2, 6), drs="fullyAutomated")], ids=["automatic"]
)
def test_two_masters_do_not_fight(
    server: SimulatedVCenter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = fails(capsys, "apply", *options(server, tmp_path))
    assert line.startswith("rota: DRS of cluster DC0_C0 is fully automatic: two masters would undo")


def test_the_commands(server: SimulatedVCenter, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plan and keep a dump, simulate on it, apply, and nothing is left to do."""
    dump, journal = tmp_path / "dump.json", tmp_path / "journal"
    main(["vsphere", "plan", *options(server, tmp_path), "--json", "--save-dump", str(dump)])
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["after"]["deviation"] < plan["before"]["deviation"]
    main(["vsphere", "simulate", str(dump), "--json"])
    (again,) = json.loads(capsys.readouterr().out)["plans"]
    assert again["before"] == plan["before"]
    main(["vsphere", "apply", *options(server, tmp_path), "--json", "--journal", str(journal)])
    moved = json.loads(capsys.readouterr().out)["migrations"]
    assert moved
    assert {each["state"] for each in moved} == {"done"}
