"""What if the state were different: the change is made to a private copy, which is solved and forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from mgmt.compiler.model import Model
from mgmt.errors import DataError, InfeasibleError, PolicySyntaxError
from mgmt.explaining.policies.policy_files import statements_of
from mgmt.explaining.solutions.difference import Difference, diff
from mgmt.solution import Solution
from mgmt.source_text import SourceText
from mgmt.state.duckdb_access.engine import RefusedStatementError

_HINT = "give INSERT, UPDATE or DELETE statements"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The best solutions as things are and as they would be; an error where there is none."""

    before: Solution | InfeasibleError
    after: Solution | InfeasibleError

    @property
    def difference(self) -> Difference | None:
        """What would change; None unless both can be solved."""
        if isinstance(self.before, InfeasibleError) or isinstance(self.after, InfeasibleError):
            return None
        return diff(self.before, self.after)


def what_if(model: Model, sql: str, *, budget: float = 2.0, seed: int = 0) -> WhatIf:
    """Solve the present state, and again after running ``sql`` (one or more statements) on a private copy of it.

    Raises PolicySyntaxError or DataError when the copy refuses the statements, or one is about more than rows;
    SolveTimeout.
    """
    statements = statements_of(SourceText("what-if", sql))
    if not statements:
        raise DataError("there is nothing to try", hint=_HINT)
    for statement in statements:
        if not statement.is_rows:
            what = " ".join(statement.words[:1]) or "this"
            raise DataError(f"{what} is not tried: only rows may be other than they are", hint=_HINT)
    before = model.database.clone()
    after = before.clone()
    for statement in statements:
        try:
            after.execute(statement.text)
        except RefusedStatementError as error:
            tables = ", ".join(sorted(table.name for table in model.database.schema.tables))
            raise PolicySyntaxError(error.message, hint=f"the tables are {tables}") from error
    return WhatIf(
        _solved(model.revised(database=before), budget, seed),
        _solved(model.revised(database=after), budget, seed),
    )


def _solved(model: Model, budget: float, seed: int) -> Solution | InfeasibleError:
    try:
        return model.solve(budget, seed)
    except InfeasibleError as error:
        return error
