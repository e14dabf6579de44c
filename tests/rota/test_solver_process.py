"""The solver's process: what it answers, and what comes of every way it can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from datastore_adapter.interface import ServiceRoles
from mgmt import Controller, Host, HostView, Intent, PolicyChoice, PolicySolver, SolverUnavailableError
from mgmt.placement.placement_rows import HostRow, PlacementState, ReplicaRow, SegmentRow
from mgmt.solving.placement_questions import Question
from mgmt.solving.placement_solver import Solved, Undecided
from rota.agent.solver_process import SolverLimits, SolverProcess, open_solver_process
from rota.local.cluster import ClusterPlan, open_local_cluster
from tests.fake_adapter import FakeAdapter, FakeEngine
from tests.mgmt.support import UNHURRIED

pytestmark = pytest.mark.socket

ROOT = Path(__file__).parents[2]
# The n-th process behaves as the n-th word says; what lasts is said by files in the folder.
FAKE = """
import os, sys, time, pathlib
from mgmt.solving.placement_solver import Undecided
from mgmt.solving.solver_messages import Answer, FrameReader, Request, decode, encode
folder, words = pathlib.Path(sys.argv[1]), sys.argv[2].split(",")
number = len(list(folder.glob("started-*")))
(folder / f"started-{number}").touch()
word, frames = words[min(number, len(words) - 1)], FrameReader()
if word == "deaf":
    time.sleep(3600)
while data := os.read(0, 65536):
    frames.feed(data)
    while (body := frames.next()) is not None:
        request = decode(body, Request)
        if request.state is None:
            os.write(1, encode(Answer(request.number)))
            continue
        (folder / f"asked-{number}").touch()
        if word == "die":
            os._exit(3)
        if word == "hang":
            time.sleep(3600)
        if word == "wait":
            while not (folder / "release").exists():
                time.sleep(0.01)
        if word == "garbage":
            os.write(1, bytes([0, 0, 0, 3, 1, 2, 3]))
        elif word == "long":
            os.write(1, bytes([255] * 64))
        elif word == "other":
            os.write(1, encode(Answer(request.number + 1)))
        elif word == "nothing":
            os.write(1, encode(Answer(request.number)))
        else:
            os.write(1, encode(Answer.of(request.number, Undecided(f"said by {number}", 0.0))))
"""
FOREVER = 3600.0


def fake(folder: Path, words: str) -> list[str]:
    return [sys.executable, "-c", FAKE, str(folder), words]


def some_state(racks: int = 3) -> PlacementState:
    hosts = tuple(HostRow(f"n{i}", f"r{i % racks}", "", 10**9, True, False, i == 0, i == 0) for i in range(4))
    rows = tuple(ReplicaRow("s00", slot, None, False) for slot in range(3))
    return PlacementState(hosts, (SegmentRow("s00", 10, 3),), rows, ServiceRoles(("n0",), ("n0",)))


async def ask(solver: SolverProcess) -> Any:
    return await solver.solve(some_state(), PolicyChoice(), 1.0, 0)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - another process' doings
            await trio.sleep(0.01)


def mapped(pid: int) -> str:
    """The files mapped into a process, its libraries among them."""
    return Path(f"/proc/{pid}/maps").read_text()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_the_answer_is_the_one_this_process_would_find() -> None:
    here = PolicySolver()
    async with open_solver_process() as solver:
        await solver.prepare(PolicyChoice())
        for racks in (3, 2):
            answer = await solver.solve(some_state(racks), PolicyChoice(), 60.0, 0)
            expected = here.solve(some_state(racks), PolicyChoice(), 60.0, 0)
            assert type(answer) is type(expected)
            for name in ("status", "deltas", "objectives", "policies", "details"):
                assert getattr(answer, name, None) == getattr(expected, name, None)
        no_answer = await solver.solve(some_state(), PolicyChoice("nosuch"), 60.0, 0)
        assert isinstance(no_answer, Undecided)
        assert "nosuch" in no_answer.reason
        assert isinstance(await solver.solve(some_state(), PolicyChoice(), 60.0, 0), Solved)
        assert solver.status()["started"] == 1
        pid = solver.status()["pid"]
        assert "ortools" in mapped(pid)
    assert not is_running(pid)


@pytest.mark.parametrize("word", ["die", "garbage", "long", "other", "nothing"])
async def test_a_process_that_fails_is_replaced_once(word: str, tmp_path: Path) -> None:
    async with open_solver_process(command=fake(tmp_path, f"{word},answer")) as solver:
        assert await ask(solver) == Undecided("said by 1", 0.0)
        assert (solver.status()["started"], solver.status()["failed"]) == (2, 1)


@pytest.mark.parametrize("word", ["die", "garbage"])
async def test_the_second_failure_is_the_caller_s_and_the_next_call_begins_anew(
    word: str, tmp_path: Path
) -> None:
    async with open_solver_process(command=fake(tmp_path, f"{word},{word},answer")) as solver:
        with pytest.raises(SolverUnavailableError):
            await ask(solver)
        assert solver.status()["pid"] is None
        assert await ask(solver) == Undecided("said by 2", 0.0)


async def test_a_silent_process_is_given_up(tmp_path: Path) -> None:
    limits = SolverLimits(loading=1.0, overrun=0.0)
    async with open_solver_process(limits, fake(tmp_path, "hang")) as solver:
        with pytest.raises(SolverUnavailableError, match="was silent for 2 s"):
            await ask(solver)
        assert solver.status()["pid"] is None


async def test_a_program_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    async with open_solver_process(command=[str(tmp_path / "nosuch")]) as solver:
        with pytest.raises(SolverUnavailableError, match="could not be started"):
            await ask(solver)


async def test_killed_in_the_middle_of_a_solve(tmp_path: Path) -> None:
    async with (
        open_solver_process(command=fake(tmp_path, "hang,answer")) as solver,
        trio.open_nursery() as nursery,
    ):
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await ask(solver))

        nursery.start_soon(wait)
        await until((tmp_path / "asked-0").exists)
        os.kill(solver.status()["pid"], signal.SIGKILL)
        await until(lambda: bool(answers))
        assert answers == [Undecided("said by 1", 0.0)]


async def test_a_solve_that_nobody_wants_is_ended_and_the_next_process_is_loaded_already(
    tmp_path: Path,
) -> None:
    limits = SolverLimits(grace=0.05)
    async with open_solver_process(limits, fake(tmp_path, "hang,answer")) as solver:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, solver)
                await until((tmp_path / "asked-0").exists)
                first = solver.status()["pid"]
                scope.cancel()
        await until(lambda: solver.status()["started"] == 2)
        assert not is_running(first)
        assert (solver.status()["interrupted"], solver.status()["failed"]) == (1, 0)
        assert await ask(solver) == Undecided("said by 1", 0.0)
        assert solver.status()["started"] == 2


async def test_a_request_that_nobody_reads_can_be_given_up_too(tmp_path: Path) -> None:
    """It is longer than the pipe holds: cut in the middle, it must not be followed by another."""
    long = PolicyChoice(texts=(("long.sql", " " * (1 << 20)),))
    async with open_solver_process(SolverLimits(grace=FOREVER), fake(tmp_path, "deaf,answer")) as solver:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(solver.solve, some_state(), long, 1.0, 0)
                await until((tmp_path / "started-0").exists)
                scope.cancel()
        assert await ask(solver) == Undecided("said by 1", 0.0)
        assert (solver.status()["interrupted"], solver.status()["failed"]) == (1, 0)


async def test_a_view_change_ends_the_process_of_the_solve_it_makes_pointless(tmp_path: Path) -> None:
    """The control loop and the process together."""
    hosts = [Host(f"n{i}", f"127.0.0.1:{9000 + i}", f"r{i}", seniority=i) for i in range(4)]
    engine = FakeEngine([host.name for host in hosts])
    limits = SolverLimits(grace=0.05)
    async with (
        open_solver_process(limits, fake(tmp_path, "hang,answer")) as solver,
        trio.open_nursery() as nursery,
    ):
        controller = Controller(FakeAdapter(engine), "n0", initial=Intent.initial(2, expect=4), solver=solver)
        send, receive = trio.open_memory_channel[HostView](8)
        nursery.start_soon(controller.run, receive)
        send.send_nowait(HostView(0, tuple(hosts)))
        await until((tmp_path / "asked-0").exists)
        send.send_nowait(HostView(1, (*hosts, Host("n4", "127.0.0.1:9004", "r4", seniority=4))))
        await until((tmp_path / "asked-1").exists)
        assert solver.status()["interrupted"] == 1
        await until(lambda: "said by 1" in controller.status()["last_error"])
        nursery.cancel_scope.cancel()


async def test_a_solve_that_is_done_within_the_grace_costs_no_process(tmp_path: Path) -> None:
    async with open_solver_process(SolverLimits(grace=FOREVER), fake(tmp_path, "wait")) as solver:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, solver)
                await until((tmp_path / "asked-0").exists)
                scope.cancel()
        (tmp_path / "release").touch()
        assert await ask(solver) == Undecided("said by 0", 0.0)
        assert (solver.status()["started"], solver.status()["interrupted"]) == (1, 0)


async def test_calls_come_one_at_a_time(tmp_path: Path) -> None:
    async with (
        open_solver_process(command=fake(tmp_path, "answer")) as solver,
        trio.open_nursery() as nursery,
    ):
        for _ in range(5):
            nursery.start_soon(ask, solver)
            nursery.start_soon(solver.prepare, PolicyChoice())
    assert solver.status()["started"] == 1
    assert solver.status()["failed"] == 0


async def test_without_work_the_process_ends_and_comes_back_when_there_is_some(tmp_path: Path) -> None:
    async with open_solver_process(SolverLimits(idle=0.05), fake(tmp_path, "answer")) as solver:
        await ask(solver)
        await until(lambda: solver.status()["pid"] is None)
        assert solver.status()["idle_ended"] == 1
        assert await ask(solver) == Undecided("said by 1", 0.0)


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def test_it_does_not_outlive_its_agent_even_in_the_middle_of_a_solve() -> None:
    """The owner is killed, not asked; the process is the product's own, busy with a large state."""
    owner = f"""
import sys, trio
sys.path.insert(0, {str(ROOT)!r})
from rota.local.cluster import ClusterPlan, open_local_cluster
from rota.agent.solver_process import open_solver_process
from datastore_adapter.interface import ServiceRoles
from mgmt import PolicyChoice
from mgmt.placement.placement_rows import HostRow, PlacementState, ReplicaRow, SegmentRow
hosts = tuple(HostRow(f"n{{i}}", f"r{{i % 9}}", "", 10**9, True, False, i < 3, i == 0) for i in range(60))
keys = [f"s{{i:05}}" for i in range(30_000)]
rows = tuple(ReplicaRow(key, slot, None, False) for key in keys for slot in range(3))
state = PlacementState(hosts, tuple(SegmentRow(key, 10, 3) for key in keys), rows, ServiceRoles())
async def main():
    async with open_solver_process() as solver:
        await solver.prepare(PolicyChoice())
        print(solver.status()["pid"], flush=True)
        await solver.solve(state, PolicyChoice(), 600.0, 0)
trio.run(main)
"""
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(trio.run_process, [sys.executable, "-c", owner], stdout=subprocess.PIPE, check=False)
        )
        assert process.stdout is not None
        pid = int(await process.stdout.receive_some())
        loaded = cpu_ticks(pid)
        await until(lambda: cpu_ticks(pid) > loaded + 20)
        process.kill()
    await until(lambda: not is_running(pid))


async def test_an_agent_never_loads_the_solver_itself_and_goes_on_when_its_process_is_killed(
    tmp_path: Path,
) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=1)) as cluster:
        (agent,) = cluster.live()

        async def status() -> dict[str, Any]:
            answer: dict[str, Any] = await agent.get("/v1/status")
            return answer

        await cluster.wait_until(
            lambda answers: all(
                (answer["control"] or {}).get("phase") == "infeasible" for answer in answers.values()
            ),
            timeout=60,
            what="a first solve",
        )
        plan = await agent.get("/v1/plan")
        assert plan["clashing"] == ["replicas_on_distinct_hosts"]
        pid = (await status())["solver"]["pid"]
        assert "ortools" in mapped(pid)
        held = mapped(agent.process.pid)
        assert "msgspec" in held, "this is the process that was meant"
        assert not [name for name in ("ortools", "numpy", "pandas", "duckdb") if name in held]
        os.kill(pid, signal.SIGKILL)
        again = (await agent.get("/v1/plan"))["clashing"]
        assert set(plan["clashing"]) <= set(again), "on a busy machine it may be told less closely"
        found = (await status())["solver"]
        assert (found["started"], found["failed"]) == (2, 1)
        assert found["pid"] != pid


async def test_it_lists_the_policies_for_people_before_and_after_a_solve() -> None:
    async with open_solver_process() as solver:
        names = [entry.name for entry in await solver.policies(PolicyChoice())]
        assert "one_replica_per_rack" in names
        assert isinstance(await ask(solver), Solved)
        assert [entry.name for entry in await solver.policies(PolicyChoice())] == names
        assert await solver.policies(PolicyChoice(pack="no such pack")) == ()
        assert solver.status()["started"] == 1


async def test_it_answers_questions_about_the_state() -> None:
    policies = PolicyChoice()
    async with open_solver_process() as solver:
        segment = some_state().segments[0].key
        found = await solver.explain(some_state(), policies, Question("why", segment), UNHURRIED, 0)
        assert found.error == ""
        assert all(segment in line for line in found.lines)
        nonsense = Question("what-if", sql="DELETE FROM tabel")
        assert "tabel" in (await solver.explain(some_state(), policies, nonsense, UNHURRIED, 0)).error
        assert await solver.solve(some_state(), policies, 2.0, 0)
