"""Questions about the cluster as it is, answered by the datastore pack; nothing is changed by them."""

from __future__ import annotations

import pytest

from mgmt.errors import (
    InvalidRequestError,
    SolverUnavailableError,
    UnknownHostError,
    UnknownSegmentError,
)
from mgmt.solving.async_solver import ThreadSolver
from mgmt.solving.placement_questions import Question
from tests.mgmt.control.harness import harness, pack_solver
from tests.mgmt.control.test_with_the_datastore_pack import PATIENT


@pytest.mark.slow("the pack is solved for each question")
async def test_why_why_not_and_what_if(autojump_clock: object) -> None:
    async with harness(make_solver=pack_solver, settings=PATIENT, segments=6) as cluster:
        requests, engine = cluster.controller.requests, cluster.engine
        before = dict(engine.intent), {key: engine.chain(key) for key in engine.segments}
        segment = next(key for key in engine.segments if "n1" not in engine.chain(key))
        assert "n4" in engine.chain(segment)  # the other host of that rack

        found = await requests.why(segment)
        assert len(found.lines) == 3
        assert all(line.startswith(f"a copy of {segment} ") for line in found.lines)
        assert not any("slot" in line or "controllable__" in line or "tier" in line for line in found.lines)
        assert any("n4" in line for line in (await requests.why("n4")).lines)

        elsewhere = await requests.explain(Question("why-not", segment, "n1"))
        assert elsewhere.possible
        assert "n1" in elsewhere.lines[0]
        stands = await requests.explain(Question("why-not", segment, "n4"))
        assert "is what was chosen" in stands.lines[0]

        gone = Question("what-if", sql="UPDATE host SET alive = FALSE WHERE name = 'n4'")
        moves = await requests.explain(gone)
        assert moves.possible
        assert any("n4 -> n1" in line for line in moves.lines)
        rack = await requests.explain(
            Question("what-if", sql="UPDATE host SET alive = FALSE WHERE rack <> 'r1'")
        )
        assert not rack.possible
        assert "replicas_on_live_hosts" in rack.lines[0]
        assert any("would help to add a host" in line for line in rack.lines[1:])
        nothing = await requests.explain(Question("what-if", sql="UPDATE host SET zone = 'z'"))
        assert nothing.lines == ("nothing would change",)

        with pytest.raises(
            InvalidRequestError,
            match=r"Table with name tabel does not exist! \(the tables are frozen, host, .*, replica, segment, .*\)",
        ):
            await requests.explain(Question("what-if", sql="DELETE FROM tabel"))
        for neither in ("s77", ""):
            with pytest.raises(
                UnknownSegmentError, match=r"no segment or host '.*'; known are s00, .*, n1, "
            ):
                await requests.why(neither)
        with pytest.raises(UnknownHostError):
            await requests.explain(Question("why-not", segment, "n77"))
        assert (dict(engine.intent), {key: engine.chain(key) for key in engine.segments}) == before


@pytest.mark.slow("the pack is solved for each question")
async def test_a_plan_that_cannot_be_says_what_would_help(autojump_clock: object) -> None:
    """The rules that clash by name, and the smallest changes, each of which is enough."""
    async with harness(make_solver=pack_solver, settings=PATIENT, segments=6) as cluster:
        assert (await cluster.controller.requests.plan()).to_json()["relaxations"] == []
        engine = cluster.engine
        cluster.lose("n2", "n3", "n5", "n6")
        await cluster.until(lambda: all(set(engine.chain(key)) <= {"n1", "n4"} for key in engine.segments))
        run = await cluster.controller.requests.plan()
        document = run.to_json()
        assert document["clashing"] == ["replicas_on_distinct_hosts"]
        host, rule = document["relaxations"]
        assert host.startswith("add a host like n")
        assert rule.startswith("drop replicas_on_distinct_hosts for segment s0")
        assert f"any one of these helps:\n  * {host}\n  * {rule}\n" in run.text()


async def test_a_plan_that_cannot_be_is_told_also_where_nothing_can_say_what_would_help(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> None:
        raise SolverUnavailableError("it ended")

    monkeypatch.setattr(ThreadSolver, "explain", unavailable)
    async with harness() as cluster:
        cluster.lose("n3", "n6")
        document = (await cluster.controller.requests.plan()).to_json()
        assert document["clashing"] == ["one_replica_per_rack", "only_live_hosts"]
        assert document["relaxations"] == []
