"""The error of an infeasible state: the core in terms of policies, their rows and what the rows say.

What it is not: it does not look for what would help (see ``mgmt.compiler.relaxations``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mgmt.compiler.encoding.encoder import Encoding
from mgmt.compiler.encoding.tables import choices_of
from mgmt.errors import CoreMember, InfeasibleError, Relaxation
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.language.parsing.trailing_clauses import Tail
from mgmt.optimization.infeasible import Core, restricted, shortfall

MOST_ROWS = 20
"""Per constraint; more would not be read."""
_MOST_REASONS = 3


def infeasible(
    core: Core,
    encoding: Encoding,
    queries: Sequence[PushedView | BoundQuery],
    relax: Callable[[], Sequence[Relaxation]] | None = None,
) -> InfeasibleError:
    """The error for a core of an encoded problem."""
    by_name = {query.name: query for query in queries if isinstance(query, BoundQuery)}
    left = restricted(encoding.problem, rows=frozenset(core.rows))
    choices = choices_of(encoding.columns)
    members = []
    for name in core.constraints:
        tags = [tag for tag in core.rows if tag.constraint == name]
        known = encoding.rows.get(name, [])
        rows = [known[tag.row] for tag in tags if tag.row < len(known)]
        missing = shortfall(left, tags, choices)
        members.append(core_member(name, by_name.get(name), rows, missing, len(tags)))
    return error_of(members, queries, minimal=core.minimal, relax=relax)


def error_of(
    members: Sequence[CoreMember],
    queries: Sequence[PushedView | BoundQuery],
    *,
    minimal: bool,
    relax: Callable[[], Sequence[Relaxation]] | None = None,
) -> InfeasibleError:
    """The error for these members: what is to be given up first comes first, then in the order of the policies."""
    written = {query.name: place for place, query in enumerate(queries)}
    ordered = sorted(members, key=lambda member: (-member.priority, written.get(member.constraint, -1)))
    return InfeasibleError(ordered, minimal=minimal, relax=relax)


def core_member(
    name: str,
    query: BoundQuery | None,
    rows: Sequence[Mapping[str, Any]],
    missing: tuple[int, int] | None,
    count: int | None = None,
) -> CoreMember:
    """One constraint of a core; ``missing`` is what its rows need and allow."""
    tail = query.demand.tail if query is not None and query.demand is not None else None
    clash = "" if missing is None else f"together they need at least {missing[0]} and allow {missing[1]}"
    return CoreMember(
        name,
        None if query is None else query.position,
        tuple(rows[:MOST_ROWS]),
        len(rows) if count is None else count,
        clash,
        _reason(tail, rows),
        1 if tail is None else tail.priority,
    )


def _reason(tail: Tail | None, rows: Sequence[Mapping[str, Any]]) -> str:
    """What the policy says of the rows; of so many that somebody reads it."""
    if tail is None or tail.reason is None:
        return ""
    rows = [row for row in rows if set(tail.reason.names) <= set(row)]
    texts = [tail.reason.of(row) for row in rows] if rows or tail.reason.names else [tail.reason.of({})]
    return "; ".join(list(dict.fromkeys(texts))[:_MOST_REASONS])
