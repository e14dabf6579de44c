"""Models with some of their queries changed, and private copies of the state."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from tests.mgmt.test_solving import POLICY, state_of

pytestmark = pytest.mark.usefixtures("each_database")


def test_a_model_without_a_constraint_or_over_another_state() -> None:
    state = state_of(3)
    model = Model.build(state, POLICY)
    assert model.satisfiable() is False
    without = model.revised(lambda query: None if query.name == "apart" else query)
    assert without.constraints == ("room", "no_harm", "stay")
    assert without.satisfiable() is True
    fewer = state.clone()
    fewer.execute("DELETE FROM task WHERE id = 2")
    assert model.revised(database=fewer).satisfiable() is True
    assert state.execute("SELECT count(*) FROM task") == [(3,)], "the copy is private"
    assert fewer.version == state.version + 1
    assert fewer.schema_texts == state.schema_texts


def test_who_does_not_ask_for_clashes_gets_none() -> None:
    with pytest.raises(InfeasibleError) as caught:
        Model.build(state_of(3), POLICY).solve(clashes=False)
    assert caught.value.core == ()
