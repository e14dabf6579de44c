"""The oracle's statements without cross products say the same as its plain ones."""

from __future__ import annotations

from itertools import islice

import pytest

from mgmt.compiler.model import Model
from mgmt.compiler.oracle import Oracle
from mgmt.errors import UnsupportedConstructError
from tests.mgmt.policy_grammar import NULLABLE, SCHEMA, PolicyMaker
from tests.mgmt.shapes.assignment_grammar import AssignmentMaker
from tests.mgmt.support import assignments, database

_ASSIGNMENTS = 40  # of each state


def compare(schema: str, maker: PolicyMaker | AssignmentMaker) -> int:
    """Ask both of every assignment; how many were asked about."""
    state, text = database(schema, maker.data()), maker.policies()
    try:
        model = Model.build(state, text)
    except UnsupportedConstructError:
        return 0
    plain = Oracle(model.queries, model.catalog, joins=False)
    asked = 0
    with state.snapshot() as snapshot:
        for assignment in islice(assignments(model, state), _ASSIGNMENTS):
            expected = plain.examine(snapshot, assignment)
            found = model.oracle.examine(snapshot, assignment)
            assert (found.broken, found.objectives) == (expected.broken, expected.objectives), text
            asked += 1
    return asked


@pytest.mark.parametrize("schema", [SCHEMA, NULLABLE], ids=["assigned", "nullable"])
def test_any_policies(schema: str) -> None:
    assert sum(compare(schema, PolicyMaker(seed)) for seed in range(15)) > 100


def test_policies_of_assignment_shape() -> None:
    makers = [AssignmentMaker(seed) for seed in range(25)]
    assert sum(compare(maker.schema, maker) for maker in makers) > 200


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(2))
def test_many_more(chunk: int) -> None:
    for seed in range(1000 * chunk, 1000 * chunk + 40):
        maker = AssignmentMaker(seed)
        compare(maker.schema, maker)
        compare(SCHEMA, PolicyMaker(seed))
