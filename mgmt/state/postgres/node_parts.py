"""What stands in a node of a tree besides its operands, which a translation part by part must not lose.

What it is not: it translates nothing (see ``expressions``).
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.state.postgres.functions import ORDERED_SETS, REALS
from mgmt.state.store import RefusedStatementError

_UNDERSTOOD = {
    *("this", "expression", "expressions", "table", "quoted", "is_string", "query", "to", "decimals"),
    *("ifs", "default", "true", "false", "low", "high"),
    *("safe", "typed", "big_int"),  # of other dialects
}
"""Of what stands in a node, where it is translated part by part."""


def affirmed(node: exp.Expr) -> exp.Expr | None:
    """A condition without the NOT that is a part of it; None where there is none."""
    within = node.this if isinstance(node, exp.Escape) else node
    if not within.args.get("negate"):
        return None
    found = node.copy()
    (found.this if isinstance(node, exp.Escape) else found).set("negate", None)
    return found


def refuse_unknown_parts(node: exp.Expr) -> None:
    """Nothing is left out in silence: what is not understood here, PostgreSQL would not be told."""
    if isinstance(node, (exp.Window, exp.Filter, exp.Subquery, *REALS, *ORDERED_SETS)):
        return  # which keep, or look at, what they have
    unknown = [name for name, part in node.args.items() if part and name not in _UNDERSTOOD]
    if unknown:
        raise RefusedStatementError(f"{node.key.upper()} with {', '.join(unknown)} is not understood")
