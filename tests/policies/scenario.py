"""What the tests of the packs have in common: a state of a few rows, and what a rule makes of it.

Each rule is shown twice: with it the expectation holds, and with that rule alone left out it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.language.policy_packs import load_pack
from mgmt.solution import Solution, SolveStatus, Value

Row = Mapping[str, Value]
Rows = Mapping[str, Iterable[Row]]


class Pack:
    """A compiled pack over one database, whose rows each test replaces."""

    def __init__(self, name: str, table: str, column: str) -> None:
        pack = load_pack(name)
        self.database = mgmt.Database()
        self.database.load_schema(pack.schema)
        self.model = Model.build(self.database, pack)
        self._place = (table, column)
        self._revised: dict[str, Model] = {}

    def fill(self, rows: Rows) -> None:
        empty: dict[str, Iterable[Row]] = {table.name: () for table in self.database.schema.tables}
        self.database.replace_rows({**empty, **rows})

    def solve(self, rows: Rows | None = None, without: str | None = None) -> Solution:
        """The optimum, proven; ``without`` one of the rules if it is named."""
        if rows is not None:
            self.fill(rows)
        model = self.model
        if without is not None:
            assert without in model.constraints
            if without not in self._revised:
                self._revised[without] = model.revised(lambda query: None if query.name == without else query)
            model = self._revised[without]
        solution = model.solve(budget=60)
        assert solution.status is not SolveStatus.FEASIBLE
        return solution

    def places(self, rows: Rows | None = None, without: str | None = None) -> dict[str, Any]:
        """Where each row is put, by its key."""
        solution = self.solve(rows, without)
        return {str(key[0]): value for key, value in solution.assignments[self._place].items()}

    def clash(self, rows: Rows | None = None) -> set[str]:
        """The names of the rules that clash; there must be no solution."""
        with pytest.raises(InfeasibleError) as caught:
            self.solve(rows)
        assert caught.value.minimal
        return set(caught.value.constraints)

    def needs(self, rule: str, rows: Rows, expected: Callable[[dict[str, Any]], bool]) -> None:
        """The expectation holds with all rules, and without this one it does not."""
        found = self.places(rows)
        assert expected(found), found
        loose = self.places(without=rule)
        assert not expected(loose), f"{loose}: {rule} makes no difference here"
