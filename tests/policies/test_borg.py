"""The borg pack: a test for each rule that fails without it, and for how the rules play together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from mgmt.solution import Value
from tests.policies.scenario import Pack

Row = dict[str, Value]
BANDS: list[Row] = [
    {"name": "monitoring", "rank": 4},
    {"name": "production", "rank": 3},
    {"name": "batch", "rank": 2},
    {"name": "free", "rank": 1, "quota_needed": False},
]


@pytest.fixture(scope="module")
def cell() -> Pack:
    return Pack("borg", "task", "controllable__machine")


def machine(name: str, rack: str = "r", power: str = "w", **more: Value) -> Row:
    return {"name": name, "rack": rack, "power": power, "cpu": 100, "ram": 100, **more}


def job(name: str, band: str, *, budget: int = 99, owner: str = "ann") -> Row:
    return {"name": name, "owner": owner, "band": band, "disruption_budget": budget}


def task(name: str, of: str = "free", size: int = 10, ram: int | None = None, **more: Value) -> Row:
    return {"name": name, "job": of, "cpu": size, "ram": size if ram is None else ram, **more}


def running(name: str, where: str, cpu: int, ram: int, of: str = "free") -> Row:
    return {"name": name, "job": of, "machine": where, "cpu": cpu, "ram": ram}


def state(
    tasks: Iterable[Row], machines: Iterable[Row] = (), **tables: list[Row]
) -> dict[str, Iterable[Row]]:
    """A cell of two machines, or those given; a job of each band by its name, all of ann, who has all the quota."""
    jobs = tables.pop("job", [])
    ample: list[Row] = [
        {"owner": "ann", "band": str(band["name"]), "cpu": 10**6, "ram": 10**6} for band in BANDS[:3]
    ]
    return {
        "machine": list(machines) or [machine("a"), machine("b")],
        "band": BANDS,
        "job": [*(job(str(band["name"]), str(band["name"])) for band in BANDS), *jobs],
        "quota": tables.pop("quota", ample),
        "task": list(tasks),
        **tables,
    }


def on(**places: str | None) -> Any:
    """The expectation that these tasks are exactly there."""
    return lambda found: {name: found[name] for name in places} == places


# ---- rules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(60, 1), (1, 60)], ids=["cpu", "ram"])
def test_machine_capacity(cell: Pack, sizes: tuple[int, int]) -> None:
    tasks = [task("p", "free", *sizes), task("q", "free", *sizes)]
    cell.needs("machine_capacity", state(tasks, [machine("a")]), lambda found: None in found.values())
    rows = state([task("p", "free", 41)], running_task=[running("r", "a", 60, 0), running("s", "b", 0, 60)])
    assert cell.places(rows) == {"p": None}, "what stays counts, too"


def test_machines_are_up(cell: Pack) -> None:
    machines = [machine("a", up=False), machine("b")]
    rows = state([task("p"), task("q", machine="a")], machines, running_task=[running("r", "a", 50, 50)])
    cell.needs("machines_are_up", rows, on(p="b", q="b"))


def test_tasks_are_where_their_alloc_is(cell: Pack) -> None:
    """The alloc can be on one machine only; the task inside would rather be in the other rack."""
    machines = [machine("a", "r1"), machine("b", "r2")]
    loads = [running("r", "a", 50, 50), running("s", "b", 10, 10)]
    tasks = [task("alloc", "batch", 40), task("guest", "batch", 30, alloc="alloc")]
    rows = state([*tasks, task("other", "free", 80)], machines, running_task=loads)
    cell.needs("tasks_are_where_their_alloc_is", rows, on(alloc="a", guest="a", other="b"))


def test_a_task_whose_alloc_has_no_place_has_none(cell: Pack) -> None:
    tasks = [task("alloc", "free", 101), task("guest", "free", 1, alloc="alloc")]
    assert cell.places(state(tasks)) == {"alloc": None, "guest": None}


@pytest.mark.parametrize("sizes", [(30, 1), (1, 30)], ids=["cpu", "ram"])
def test_alloc_capacity(cell: Pack, sizes: tuple[int, int]) -> None:
    guests = [task(name, "free", *sizes, alloc="alloc") for name in ("g1", "g2")]
    rows = state([task("alloc", "free", 50), *guests])
    cell.needs("alloc_capacity", rows, lambda found: sum(found[g] is None for g in ("g1", "g2")) == 1)


def test_what_runs_in_an_alloc_takes_nothing_of_the_machine(cell: Pack) -> None:
    tasks = [task("alloc", "free", 100), task("guest", "free", 100, alloc="alloc")]
    assert None not in cell.places(state(tasks, [machine("a")])).values()


def quota(cpu: int, ram: int, band: str = "production") -> list[Row]:
    return [{"owner": "ann", "band": band, "cpu": cpu, "ram": ram}]


@pytest.mark.parametrize("limits", [(25, 99), (99, 25)], ids=["cpu", "ram"])
def test_quota_is_kept(cell: Pack, limits: tuple[int, int]) -> None:
    tasks = [task(f"p{n}", "production") for n in range(4)]
    rows = state(tasks, quota=quota(*limits))
    cell.needs("quota_is_kept", rows, lambda found: sum(where is None for where in found.values()) == 2)


def test_no_quota_no_place_but_in_the_band_that_needs_none(cell: Pack) -> None:
    rows = state([task("p", "production"), task("b", "batch"), task("f", "free")], quota=quota(10, 10))
    assert {name for name, where in cell.places(rows).items() if where} == {"p", "f"}


def test_quota_counts_what_stays_and_takes_nobody_off_when_it_is_cut(cell: Pack) -> None:
    there = [running("r", "a", 15, 15, "production")]
    tasks = [task("old", "production", machine="a"), task("new", "production")]
    assert cell.places(state(tasks, quota=quota(35, 35), running_task=there)) == {"old": "a", "new": "a"}
    assert cell.places(state(tasks, quota=quota(34, 34), running_task=there)) == {"old": "a", "new": None}
    assert cell.places(state(tasks, quota=quota(5, 5), running_task=there)) == {"old": "a", "new": None}


def test_what_runs_in_an_alloc_is_paid_for_by_the_alloc(cell: Pack) -> None:
    tasks = [task("alloc", "production", 20), task("guest", "production", 20, alloc="alloc")]
    assert None not in cell.places(state(tasks, quota=quota(20, 20))).values()


def test_only_lower_bands_are_preempted(cell: Pack) -> None:
    """Two of one band would both have a place if the first moved; it must not, for the second has no claim on it."""
    loads = [running("r", "b", 30, 30)]
    tasks = [task("old", "batch", 60, machine="a"), task("new", "free", 80)]
    cell.needs("only_lower_bands_are_preempted", state(tasks, running_task=loads), on(old="a", new=None))
    tasks[1]["job"] = "batch"
    assert cell.places(state(tasks, running_task=loads)) == {"old": "a", "new": None}, "nor of the same band"
    tasks[1]["job"] = "production"
    assert cell.places(state(tasks, running_task=loads)) == {"old": "b", "new": "a"}


def test_a_task_that_lost_its_machine_may_preempt_as_a_pending_one(cell: Pack) -> None:
    machines = [machine("a", up=False), machine("b")]
    tasks = [task("homeless", "production", 80, machine="a"), task("low", "batch", 80, machine="b")]
    assert cell.places(state(tasks, machines)) == {"homeless": "b", "low": None}


def test_disruptions_within_budget(cell: Pack) -> None:
    victims = [task(f"v{n}", "careful", 30, machine="a") for n in range(3)]
    tasks = [*victims, task("new", "production", 100)]
    rows = state(tasks, [machine("a")], job=[job("careful", "batch", budget=2)])
    cell.needs("disruptions_within_budget", rows, on(v0="a", v1="a", v2="a", new=None))
    rows = state(tasks, [machine("a")], job=[job("careful", "batch", budget=3)])
    assert cell.places(rows) == {"v0": None, "v1": None, "v2": None, "new": "a"}


def test_a_machine_that_went_down_is_not_charged_to_the_budget(cell: Pack) -> None:
    machines = [machine("a", up=False), machine("b")]
    tasks = [task(f"v{n}", "careful", 10, machine="a") for n in range(3)]
    rows = state(tasks, machines, job=[job("careful", "batch", budget=0)])
    assert set(cell.places(rows).values()) == {"b"}


def test_bands_can_be_weighed(cell: Pack) -> None:
    bands: list[Row] = [{"name": f"x{n}", "rank": 100 + n, "quota_needed": False} for n in range(52)]
    jobs = [job(str(band["name"]), str(band["name"])) for band in bands]
    tasks = [task(f"t{n:02}", f"x{n}", 1) for n in range(52)]
    rows = {**state(tasks, [machine("a")], job=jobs), "band": [*BANDS, *bands]}
    assert cell.clash(rows) == {"bands_can_be_weighed"}
    rows["task"] = tasks[:51]
    assert None not in cell.places(rows).values()


# ---- objectives ---------------------------------------------------------------------------------------


def test_tasks_left_out_are_of_the_lowest_bands(cell: Pack) -> None:
    tasks = [task("p", "production", 100), *(task(f"f{n}", "free", 10) for n in range(10))]
    rows = state(tasks, [machine("a")])
    cell.needs("tasks_left_out", rows, lambda found: [n for n, where in found.items() if where] == ["p"])


def test_least_harm(cell: Pack) -> None:
    """Either could make room and go to ``c``; less would be stranded at the expense of the higher band."""
    machines = [machine("a"), machine("b"), machine("c", cpu=60, ram=60)]
    tasks = [task("low", "free", 60, machine="a"), task("mid", "batch", 60, machine="b")]
    rows = state(
        [*tasks, task("new", "production", 80, 70)], machines, running_task=[running("r", "b", 0, 10)]
    )
    cell.needs("least_harm", rows, on(low="c", mid="b", new="a"))


@pytest.mark.parametrize(
    ("objective", "other"), [("spread_over_racks", "power"), ("spread_over_power_domains", "rack")]
)
def test_spread_over_failure_domains(cell: Pack, objective: str, other: str) -> None:
    """Both machines are in one domain of the other kind, so only this kind pulls the tasks apart."""
    machines = [machine("a", "r1", "w1"), machine("b", "r2", "w2")]
    for row in machines:
        row[other] = "same"
    cell.needs(objective, state([task("p"), task("q")], machines), lambda found: found["p"] != found["q"])


def test_spread_is_for_each_job_alone(cell: Pack) -> None:
    machines = [machine("a", "r1", "w1"), machine("b", "r2", "w2")]
    rows = state([task("p", "free"), task("q", "batch")], machines, running_task=[running("r", "a", 50, 50)])
    assert cell.places(rows) == {"p": "a", "q": "a"}, "two jobs have no reason to be apart"


def test_least_stranded(cell: Pack) -> None:
    """``a`` has much memory left and little cpu, ``b`` the reverse, and less in all: both would fit there."""
    loads = [running("r", "a", 60, 10), running("s", "b", 12, 62)]
    rows = state([task("hungry", "free", 5, 30), task("busy", "batch", 30, 5)], running_task=loads)
    cell.needs("least_stranded", rows, on(hungry="a", busy="b"))


def test_best_fit(cell: Pack) -> None:
    loads = [running("r", "b", 70, 70), running("s", "c", 40, 40)]
    machines = [machine("a"), machine("b"), machine("c")]
    cell.needs("best_fit", state([task("p")], machines, running_task=loads), on(p="b"))
    rows = state([task("p", "free", 40)], machines, running_task=loads)
    assert cell.places(rows) == {"p": "c"}, "the tightest that it fits into"
