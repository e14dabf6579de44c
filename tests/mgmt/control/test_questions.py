"""Questions about the cluster as it is, answered by the datastore pack; nothing is changed by them."""

from __future__ import annotations

import pytest

from mgmt.control_errors import UndecidedError, UnknownHostError, UnknownSegmentError
from mgmt.solving.placement_solver import PolicySolver
from mgmt.solving.questions import Question
from tests.mgmt.control.harness import harness


async def test_why_why_not_and_what_if(autojump_clock: object) -> None:
    async with harness(make_solver=PolicySolver, segments=6) as cluster:
        requests, engine = cluster.controller.requests, cluster.engine
        before = dict(engine.intent), {key: engine.chain(key) for key in engine.segments}
        segment = next(key for key in engine.segments if "n1" not in engine.chain(key))
        assert "n4" in engine.chain(segment)  # the other host of that rack

        found = await requests.why(segment)
        assert len(found.lines) == 3
        assert all(f"replica {segment}" in line or segment in line for line in found.lines)
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
        nothing = await requests.explain(Question("what-if", sql="UPDATE host SET zone = 'z'"))
        assert nothing.lines == ("nothing would change",)

        with pytest.raises(UndecidedError, match="tabel"):
            await requests.explain(Question("what-if", sql="DELETE FROM tabel"))
        with pytest.raises(UnknownSegmentError):
            await requests.why("s77")
        with pytest.raises(UnknownHostError):
            await requests.explain(Question("why-not", segment, "n77"))
        assert (dict(engine.intent), {key: engine.chain(key) for key in engine.segments}) == before
