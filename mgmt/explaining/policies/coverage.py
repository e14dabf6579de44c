"""Coverage: whether a policy is *binding* in a state, so that a plan made without it could tell.

A constraint binds when, without it, there is a plan at least as good that breaks it, or a better one, or one where
there was none.  An objective binds when, without it, a plan as good in all else can be worse in it.  So what is left
out is sought: the plan that breaks the constraint most, or is worst in the objective, among the best of the others.
"""

from __future__ import annotations

from dataclasses import replace

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError, PolicyError, SolveTimeout
from mgmt.explaining.policies.policy_files import statements_of
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.language.parsing.trailing_clauses import TailKind
from mgmt.solution import Solution
from mgmt.source_text import SourceText
from mgmt.sql.tokens import tokenize
from mgmt.state.database import Database

_SOUGHT = "what is sought"
_LAST_TIER = 1_000_000


def solved(model: Model, budget: float, seed: int, *, clashes: bool = True) -> Solution | InfeasibleError:
    """The outcome of a solve, infeasible or not."""
    try:
        return model.solve(budget, seed, clashes=clashes)
    except InfeasibleError as error:
        return error


class Coverage:
    """Asks of states of one schema which of a model's policies bind; what is sought instead is compiled once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._opposed: dict[str, Model] = {}

    def may_bind(self, state: Database) -> frozenset[str]:
        """The policies that have rows in a state, whatever is decided; the others cannot bind in it."""
        with state.snapshot() as snapshot:
            return frozenset(self._model.constraints) - self._model.without_rows(snapshot)

    def binds(
        self, asked: Model, outcome: Solution | InfeasibleError, name: str, budget: float, seed: int
    ) -> bool:
        """Whether a constraint or objective binds in a state, whose outcome is this one.

        False also when ``budget`` seconds were too few to tell.
        """
        if isinstance(outcome, InfeasibleError) and outcome.constraints and name not in outcome.constraints:
            return False  # the others clash without it
        if name not in self._opposed:
            self._opposed[name] = _opposed(self._model, name)
        try:
            other = solved(self._opposed[name].beside(asked), budget, seed, clashes=False)
        except SolveTimeout:
            return False
        if isinstance(outcome, InfeasibleError):
            return isinstance(other, Solution)
        if isinstance(other, InfeasibleError):
            return False  # what clashes are others
        return self._tells(asked.database, outcome, other, name)

    def _tells(self, state: Database, mine: Solution, theirs: Solution, name: str) -> bool:
        """Whether the plan made without a policy is one that it would not have let be."""
        own = {objective.name: objective for objective in mine.objectives}
        others = {objective.name: objective.after for objective in theirs.objectives}
        if name in own:
            change = others[name] - own[name].after
            return change < 0 if own[name].sense == "maximize" else change > 0
        if any(objective.after != others[each] for each, objective in own.items()):
            return True
        if _SOUGHT in others:
            return others[_SOUGHT] > 0
        with state.snapshot() as snapshot:
            return name in self._model.oracle.examine(snapshot, theirs.assignments).broken


def _opposed(model: Model, name: str) -> Model:
    """The model without a policy, and with its opposite as the least of all objectives."""
    query = next(query for query in model.queries if query.name == name)
    assert isinstance(query, BoundQuery)
    assert query.demand is not None
    if query.demand.is_objective:
        return model.revised(lambda each: _reversed(each) if each.name == name else each)
    try:
        if query.demand.tail.kind is not TailKind.CHECK:
            raise LookupError(name)
        softened = model.extended(_softened(model, query))
    except (PolicyError, LookupError):
        # Not every form can be written so: then what the solver finds without the constraint has to do.
        return model.revised(lambda each: None if each.name == name else each)
    return softened.revised(
        lambda each: None if each.name == name else _reversed(each) if each.name == _SOUGHT else each
    )


def _reversed(query: BoundQuery) -> BoundQuery:
    """To be as bad as possible, where nothing else is lost."""
    assert query.demand is not None
    kind = TailKind.MINIMIZE if query.demand.maximize else TailKind.MAXIMIZE
    tail = replace(query.demand.tail, kind=kind, soft=False, tier=_LAST_TIER, weight=1)
    return replace(query, demand=replace(query.demand, tail=tail))


def _softened(model: Model, query: BoundQuery) -> SourceText:
    """The text of a constraint under another name, its violation to be minimised.  LookupError when it has none."""
    for text in model.texts:
        for statement in statements_of(text):
            if statement.position == query.position:
                name = tokenize(SourceText(text.name, statement.text))[2]
                before, after = statement.text[: name.start], statement.text[name.end + 1 :]
                return SourceText("coverage", f'{before}"{_SOUGHT}"{after} SOFT TIER {_LAST_TIER}')
    raise LookupError(query.name)
