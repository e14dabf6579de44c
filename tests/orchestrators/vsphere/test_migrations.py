"""Carrying out: what vCenter does and loses is played by a few lines; nothing is moved twice, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from orchestrators.vsphere.inventory import Inventory, Move, Rule, RuleKind
from orchestrators.vsphere.migrations import Cancel, Migrations, Start, State, Task, Timeouts
from orchestrators.vsphere.move_order import Budgets
from tests.orchestrators.vsphere.states import cluster, host, machine

HOSTS = [host("a"), host("b"), host("c")]
TIMEOUTS = Timeouts(stalled=60, cancelling=30, settling=5)


@dataclass
class Fake:
    """A vCenter: tasks run until they are ended by the test."""

    state: Inventory
    tasks: dict[str, Task] = field(default_factory=dict)
    wanted: dict[str, Start] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)

    def start(self, action: Start) -> str:
        id_ = f"task-{len(self.begun)}"
        self.begun.append(action.machine)
        self.tasks[id_] = Task(id_, f"vm-{action.machine}", "running", kind="VirtualMachine.relocate")
        self.wanted[id_] = action
        self._put(action.machine, task=id_)
        return id_

    def end(self, id_: str, error: str = "") -> None:
        action = self.wanted[id_]
        self.tasks[id_] = Task(id_, f"vm-{action.machine}", "error" if error else "success", 0, error)
        where = {} if error else {"host": action.destination}
        self._put(action.machine, task="", **where)

    def progress(self, id_: str, percent: int) -> None:
        self.tasks[id_] = msgspec.structs.replace(self.tasks[id_], progress=percent)

    def _put(self, name: str, **changes: str) -> None:
        machines = (
            msgspec.structs.replace(each, **changes) if each.name == name else each
            for each in self.state.machines
        )
        self.state = msgspec.structs.replace(self.state, machines=tuple(machines))

    def running(self) -> list[str]:
        return [id_ for id_, task in self.tasks.items() if task.is_running]

    def show(self, migrations: Migrations, now: float) -> None:
        migrations.observed(self.state, list(self.tasks.values()), now)


def begin(*moves: Move, machines: int = 3, budgets: Budgets | None = None) -> tuple[Fake, Migrations]:
    state = cluster(HOSTS, [machine("pqr"[n], "a", 40) for n in range(machines)])
    return Fake(state), Migrations.of(moves, state, budgets, TIMEOUTS)


def act(fake: Fake, migrations: Migrations, now: float) -> list[str]:
    """Everything that is asked for is accepted."""
    for action in migrations.actions(now):
        if isinstance(action, Start):
            migrations.started(action.machine, fake.start(action), now)
        else:
            fake.end(action.task, "cancelled")
    return fake.running()


def states(migrations: Migrations) -> dict[str, str]:
    return {entry.machine: str(entry.state) for entry in migrations.entries}


def test_moves_are_made_as_room_comes_free() -> None:
    fake, migrations = begin(Move("p", "a", "b"), Move("q", "a", "b"), Move("r", "a", "b"))
    assert act(fake, migrations, 0) == ["task-0", "task-1"], "the third has no room as long as nothing leaves"
    for id_ in ("task-0", "task-1"):
        fake.end(id_)
    fake.show(migrations, 10)
    assert act(fake, migrations, 10) == []
    assert states(migrations) == {"p": "done", "q": "done", "r": "left out"}
    assert migrations.finished
    assert migrations.entries[2].why == "b has no room for its memory"


def test_a_failure_is_told_and_the_others_go_on() -> None:
    fake, migrations = begin(Move("p", "a", "b"), Move("q", "a", "b"))
    act(fake, migrations, 0)
    fake.end("task-0", "the network of b is not that of a")
    fake.end("task-1")
    fake.show(migrations, 5)
    assert states(migrations) == {"p": "failed", "q": "done"}
    assert migrations.entries[0].why == "the network of b is not that of a"


def test_one_without_progress_is_cancelled_and_one_with_progress_is_not() -> None:
    fake, migrations = begin(Move("p", "a", "b"), Move("q", "a", "b"))
    act(fake, migrations, 0)
    fake.progress("task-1", 50)
    fake.show(migrations, 50)
    assert migrations.actions(61) == [Cancel("p", "task-0")]
    fake.end("task-0", "cancelled")
    fake.show(migrations, 62)
    assert states(migrations) == {"p": "failed", "q": "running"}


def test_one_that_cannot_be_cancelled_is_given_up_and_still_counts_on_both_hosts() -> None:
    fake, migrations = begin(Move("p", "a", "b"), Move("q", "a", "b"), budgets=Budgets(1, 1))
    act(fake, migrations, 0)
    assert migrations.actions(61) == [Cancel("p", "task-0")]
    fake._put("q", memory=70)  # type: ignore[arg-type]
    fake.show(migrations, 70)
    assert migrations.actions(92) == [], "b has no room for both"
    assert states(migrations) == {"p": "failed", "q": "waiting"}
    fake.end("task-0", "at last")
    fake.show(migrations, 200)
    assert migrations.actions(200) == [Start("q", "b")]


def test_an_answer_that_was_lost_is_looked_for_and_its_task_found() -> None:
    fake, migrations = begin(Move("p", "a", "b"))
    (action,) = migrations.actions(0)
    assert isinstance(action, Start)
    fake.start(action)
    migrations.disconnected(1)
    assert migrations.actions(2) == [], "nothing is asked for without a connection"
    fake.show(migrations, 3)
    assert states(migrations) == {"p": "running"}
    fake.end("task-0")
    fake.show(migrations, 4)
    assert migrations.finished
    assert fake.begun == ["p"]


def test_a_request_that_never_arrived_is_made_again_once_that_is_sure() -> None:
    fake, migrations = begin(Move("p", "a", "b"))
    assert migrations.actions(0) == [Start("p", "b")]
    migrations.disconnected(1)
    fake.show(migrations, 2)
    assert migrations.actions(2) == []
    fake.show(migrations, 8)
    assert migrations.actions(8) == [Start("p", "b")]


def test_a_request_that_never_arrived_is_not_made_again_once_it_is_cancelled_or_of_an_earlier_process() -> (
    None
):
    for resumed, why in ((False, "cancelled"), (True, "its request did not arrive; it is planned anew")):
        fake, migrations = begin(Move("p", "a", "b"))
        migrations.actions(0)
        if resumed:
            migrations = Migrations.resumed(migrations.journal, fake.state, 1, timeouts=TIMEOUTS)
        else:
            migrations.disconnected(1)
            migrations.cancel(1)
        fake.show(migrations, 2)
        fake.show(migrations, 8)
        assert migrations.actions(8) == []
        assert migrations.entries[0].why == why


def test_a_rule_that_changes_meanwhile_leaves_out_what_waits() -> None:
    fake, migrations = begin(Move("p", "a", "b"), Move("q", "a", "b"))
    fake._put("p", stays="an override of the cluster makes its moves manual")
    rule = Rule("r", RuleKind.OFF, ("q",), ("b",))
    fake.state = msgspec.structs.replace(fake.state, clusters=cluster([], [], rule).clusters)
    fake.show(migrations, 1)
    assert [entry.why for entry in migrations.entries] == [
        "an override of the cluster makes its moves manual",
        "it may no longer run on b",
    ]


def test_a_later_process_finds_what_runs_and_leaves_out_what_was_not_asked_for() -> None:
    fake, first = begin(Move("p", "a", "b"), Move("q", "a", "b"), Move("r", "a", "c"), budgets=Budgets(2, 2))
    act(fake, first, 0)
    fake.end("task-1")
    later = Migrations.resumed(first.journal, fake.state, 100, timeouts=TIMEOUTS)
    fake.show(later, 100)
    assert states(later) == {"p": "running", "q": "done", "r": "left out"}
    fake.end("task-0")
    fake.show(later, 101)
    assert later.finished
    assert fake.begun == ["p", "q"]


def test_cancelling_ends_what_runs_and_begins_nothing() -> None:
    fake, migrations = begin(Move("p", "a", "b"), Move("q", "a", "b"), budgets=Budgets(1, 1))
    act(fake, migrations, 0)
    migrations.cancel(1)
    assert migrations.actions(1) == [Cancel("p", "task-0")]
    fake.end("task-0", "cancelled")
    fake.show(migrations, 2)
    assert states(migrations) == {"p": "failed", "q": "left out"}


def test_a_machine_that_somebody_moves_or_stops_is_left_alone() -> None:
    fake, migrations = begin(Move("p", "a", "b"), Move("q", "a", "b"), Move("r", "a", "c"))
    fake._put("p", host="c")
    gone = tuple(each for each in fake.state.machines if each.name != "q")
    fake.state = msgspec.structs.replace(fake.state, machines=gone)
    fake._put("r", task="task-of-drs")
    fake.show(migrations, 0)
    assert migrations.actions(0) == [], "r waits for what DRS does with it"
    assert states(migrations) == {"p": "left out", "q": "left out", "r": "waiting"}


def test_a_task_of_drs_is_not_taken_for_one_s_own() -> None:
    fake, migrations = begin(Move("p", "a", "b"))
    migrations.actions(0)
    migrations.disconnected(1)
    fake.tasks["t"] = Task("t", "vm-p", "running", kind="Drm.ExecuteVMotionLRO")
    fake._put("p", task="t")
    fake.show(migrations, 2)
    migrations.cancel(2)
    assert migrations.actions(2) == []
    assert migrations.entries[0].why == "DRS is moving it"


def test_moves_that_hang_and_those_of_others_count_in_the_budgets_and_are_not_waited_for_for_ever() -> None:
    fake, migrations = begin(Move("p", "a", "b"), budgets=Budgets(1, 4))
    fake.tasks["t"] = Task("t", "vm-q", "running", kind="Drm.ExecuteVMotionLRO")
    fake._put("q", task="t")
    fake.show(migrations, 0)
    assert migrations.actions(0) == [], "a has one move already"
    assert migrations.actions(1800) == []
    assert states(migrations) == {"p": "waiting"}
    migrations.actions(1801)
    assert migrations.entries[0].why == "it waits for moves that do not end"


def test_a_cancel_that_was_lost_is_asked_for_again() -> None:
    fake, migrations = begin(Move("p", "a", "b"))
    act(fake, migrations, 0)
    assert migrations.actions(61) == [Cancel("p", "task-0")]
    migrations.disconnected(62)
    fake.show(migrations, 63)
    assert migrations.actions(63) == [Cancel("p", "task-0")]


def test_a_machine_that_is_renamed_while_it_moves_is_waited_for() -> None:
    fake, migrations = begin(Move("p", "a", "b"))
    act(fake, migrations, 0)
    renamed = msgspec.structs.replace(fake.state.machines[0], name="other")
    fake.state = msgspec.structs.replace(fake.state, machines=(renamed, *fake.state.machines[1:]))
    fake.show(migrations, 1)
    assert states(migrations) == {"p": "running"}
    fake.tasks.clear()
    fake.show(migrations, 2)
    assert migrations.entries[0].why == "it is gone, renamed, or switched off"


def test_a_detour_goes_on_when_it_has_arrived_and_not_when_it_failed() -> None:
    for error, expected in (("", ["done", "starting"]), ("no", ["failed", "left out"])):
        fake, migrations = begin(Move("p", "a", "c"), Move("p", "c", "b"))
        act(fake, migrations, 0)
        fake.end("task-0", error)
        fake.show(migrations, 1)
        migrations.actions(1)
        assert [str(entry.state) for entry in migrations.entries] == expected


EVENTS = st.lists(
    st.sampled_from(["end", "fail", "lose answers", "lose requests", "crash", "restart", "wait"]), max_size=30
)


@given(EVENTS)
def test_nothing_moves_twice_whatever_is_lost(events: list[str]) -> None:
    """Answers, requests, the process and vCenter's tasks are lost at random; each machine arrives at most once."""
    moves = [Move("p", "a", "b"), Move("q", "a", "c"), Move("r", "a", "b")]
    fake, migrations = begin(*moves, budgets=Budgets(2, 2))
    now = 0.0
    arrivals: list[str] = []
    for event in [*events, *["end", "wait"] * 12]:
        now += 3
        if event in ("end", "fail") and fake.running():
            id_ = fake.running()[0]
            fake.end(id_, "no" if event == "fail" else "")
            arrivals += [fake.wanted[id_].machine] * (event == "end")
        elif event == "crash":
            migrations = Migrations.resumed(migrations.journal, fake.state, now, Budgets(2, 2), TIMEOUTS)
        elif event == "restart":  # vCenter forgets its tasks; hosts do not move anything then
            for id_ in fake.running():
                fake.end(id_, "vCenter was restarted")
            fake.tasks.clear()
            migrations.disconnected(now)
        fake.show(migrations, now)
        for action in migrations.actions(now):
            if not isinstance(action, Start):
                continue
            running = {fake.wanted[id_].machine for id_ in fake.running()}
            assert action.machine not in running, "it is being moved already"
            if event == "lose requests":
                migrations.disconnected(now)
                continue
            task = fake.start(action)
            if event == "lose answers":
                migrations.disconnected(now)
            else:
                migrations.started(action.machine, task, now)
    assert len(set(arrivals)) == len(arrivals)
    assert migrations.finished, states(migrations)
    places = {each.name: each.host for each in fake.state.machines}
    for entry in migrations.entries:
        if entry.state is State.DONE:
            assert places[entry.machine] == entry.destination
