"""Random policies on PostgreSQL: what enumeration there finds is found, and both databases say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, UnsupportedConstructError
from mgmt.state.database import Database
from tests.mgmt.policy_grammar import NULLABLE, SCHEMA, PolicyMaker
from tests.mgmt.support import Assignments, assignments, database, solution_value
from tests.mgmt.test_against_brute_force import attempt, check
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres
SCHEMAS = {"assigned": SCHEMA, "nullable": NULLABLE}


@pytest.fixture(scope="module", params=SCHEMAS)
def state(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[Database]:
    made = Database(postgres_server.url(postgres_server.new_namespace()))
    made.load_schema(SCHEMAS[request.param])
    yield made
    made.close()


def some_assignments(model: Model, state: Database, seed: int) -> list[Assignments]:
    """A few of all the assignments there are."""
    found = list(islice(assignments(model, state), 200))
    return Random(seed).sample(found, min(4, len(found)))


def compare(state: Database, seed: int) -> str:
    """Both databases refuse, judge and solve alike."""
    maker = PolicyMaker(seed)
    data, text = maker.data(), maker.policies()
    embedded = database(state.schema_texts[0].text, data)
    state.replace_rows(data)
    models = [attempt(lambda base=base: Model.build(base, text)) for base in (embedded, state)]  # type: ignore[misc]
    one, other = models
    if isinstance(one, UnsupportedConstructError):
        assert str(one) == str(other), text
        return "refused"
    assert isinstance(one, Model)
    assert isinstance(other, Model)
    with embedded.snapshot() as first, state.snapshot() as second:
        for assignment in some_assignments(one, embedded, seed):
            verdict = one.oracle.examine(first, assignment)
            assert other.oracle.examine(second, assignment) == verdict, text
    solutions = [attempt(lambda model=model: model.solve(budget=30)) for model in (one, other)]  # type: ignore[misc]
    if isinstance(solutions[0], InfeasibleError):
        assert isinstance(solutions[1], InfeasibleError), text
        return "infeasible"
    values = [solution_value(one, solution) for solution in solutions]  # type: ignore[arg-type]
    assert values[0] == values[1], text
    return "solved"


def test_the_answer_is_what_enumeration_on_postgresql_finds(state: Database) -> None:
    outcomes = Counter(check(state.schema_texts[0].text, 2_000_000 + number, state) for number in range(8))
    assert outcomes["solved"] >= 2


def test_both_databases_say_the_same(state: Database) -> None:
    outcomes = Counter(compare(state, 3_000_000 + number) for number in range(25))
    assert outcomes["solved"] >= 4


@pytest.mark.slow
def test_both_say_the_same_of_many_more(state: Database) -> None:
    for number in range(25):
        compare(state, 4_000_000 + number)
