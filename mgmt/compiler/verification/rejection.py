"""The database rejects what the solver has decided: an internal error, with everything that it takes to repeat it.

What it is not: it checks nothing (see ``oracle``); saving and replaying is ``mgmt.explaining.solutions.replay_bundle``.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgmt.compiler.decisions import Assignments
from mgmt.errors import VerificationError
from mgmt.source_text import SourceText


def rejection(
    complaints: Sequence[str],
    database: bytes,
    texts: tuple[Sequence[SourceText], Sequence[SourceText]],
    assignments: Assignments,
    seed: int,
    now: float,
) -> VerificationError:
    """The error; ``database`` is the snapshot's dump, ``texts`` are those of the schema and of the policies."""
    schema, policies = texts
    return VerificationError(
        f"the database rejects the solution: {'; '.join(complaints)}",
        bundle={
            "schema": tuple((text.name, text.text) for text in schema),
            "database": database,
            "policies": tuple((text.name, text.text) for text in policies),
            "seed": seed,
            "now": now,
            "assignments": {
                f"{table}.{column}": dict(values) for (table, column), values in assignments.items()
            },
        },
    )
