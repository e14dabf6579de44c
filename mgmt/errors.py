"""Everything that the management plane raises on purpose: policies and state, solving, the control loop.

One class per cause, so that a caller can tell a typo from a cluster that is too small.  Each message says
what is wrong, where (source, line and column, when a text is to blame) and what to do about it.  What an engine
raises is in ``datastore_adapter.interface``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgmt.solution import Solution
    from mgmt.source_text import Position

_LEAST_SECONDS = 1.0
"""For what would help, when the time of a solve is over."""
_MOST_TOLD = 3
"""Changes that would help that an error's line names."""


class PolicyError(Exception):
    """Base of all errors of the management plane's policies.  ``position`` and ``hint`` may be absent."""

    def __init__(self, message: str, *, position: Position | None = None, hint: str = "") -> None:
        text = f"{position}: {message}" if position is not None else message
        super().__init__(f"{text} ({hint})" if hint else text)
        self.message = message
        self.position = position
        self.hint = hint

    def move(self, position: Position) -> None:
        """Say that it stands elsewhere: for what was written out from something shorter."""
        self.position = position
        self._say()

    def advise(self, hint: str) -> None:
        """Say what else helps."""
        self.hint = f"{self.hint}; {hint}" if self.hint else hint
        self._say()

    def say_of(self, place: str) -> None:
        """Say which file it is that it speaks of."""
        self.message = f"{place}: {self.message}"
        self._say()

    def _say(self) -> None:
        text = f"{self.position}: {self.message}" if self.position is not None else self.message
        self.args = (f"{text} ({self.hint})" if self.hint else text,)

    @property
    def line(self) -> int | None:
        """Line of the offending text, counted from 1."""
        return None if self.position is None else self.position.line

    @property
    def column(self) -> int | None:
        """Column of the offending text, counted from 1."""
        return None if self.position is None else self.position.column


class PolicySyntaxError(PolicyError):
    """The text is not a statement of the policy language.  Correct it at the position given."""


class UnknownTableError(PolicyError):
    """A name in FROM is neither a table of the schema nor a view defined before it."""


class UnknownColumnError(PolicyError):
    """A column is in none of the relations in scope."""


class UnknownFunctionError(PolicyError):
    """A function is known neither to the policy language nor to the database."""


class AmbiguousColumnError(PolicyError):
    """An unqualified column is in several relations in scope.  Qualify it."""


class DuplicateNameError(PolicyError):
    """Two tables, views or constraints (or two columns of one of them) share a name."""


class TypeMismatchError(PolicyError):
    """An operator got operands of types it does not take."""


class UnsupportedConstructError(PolicyError):
    """The compiler cannot encode this.  Nothing is approximated or dropped: rewrite it as the hint says."""


class NoConstraintsError(PolicyError):
    """The policies contain neither a constraint nor an objective, so there is nothing to solve."""


class UnboundedDomainError(PolicyError):
    """A variable column has no finite set of values.  Add a foreign key or ``DOMAIN (SELECT ...)``."""


class EmptyDomainError(PolicyError):
    """Rows must choose a value, but the table they reference is empty."""

    def __init__(self, message: str, *, rows: Sequence[tuple[Any, ...]] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rows = tuple(rows)


class OverflowError(PolicyError):  # noqa: A001 - the published name; callers say mgmt.OverflowError
    """Exact integer arithmetic left 64 bits.  ``row`` says for which row."""

    def __init__(
        self, message: str, *, row: object = None, position: Position | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, position=position, hint=hint)
        self.row = row


class DataError(PolicyError):
    """Rows of the state database break the schema or cannot be used exactly.  ``rows`` holds some of them."""

    def __init__(self, message: str, *, rows: Sequence[object] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rows = tuple(rows)


class StateDatabaseError(PolicyError):
    """The state database is not to be had: wrong address, server away, no permission, a later format.

    ``retryable`` is true when the same call may succeed if it is made again: nothing was changed by this one,
    or it cannot be known (a connection lost while committing), in which case look at the state first.
    """

    def __init__(self, message: str, *, hint: str = "", retryable: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class CoreMember:
    """One constraint of an infeasible core: its name, where it is written, and which of its rows clash.

    ``rows`` are at most twenty of the ``count`` rows, by their constant columns.  ``clash`` says in words what they
    need and what they allow where that can be added up, ``reason`` what the policy's author says of it (REASON), and
    ``priority`` how dear it is to them (PRIORITY; 1 is the last to be given up).
    """

    constraint: str
    position: Position | None = None
    rows: tuple[Mapping[str, Any], ...] = field(default=())
    count: int = 0
    clash: str = ""
    reason: str = ""
    priority: int = 1

    def __str__(self) -> str:
        return self.constraint if self.position is None else f"{self.constraint} ({self.position})"


@dataclass(frozen=True, slots=True)
class Waiver:
    """A constraint that lets some of its ``rows`` go, or all of them when there are none.

    ``condition`` is what to add to its ``clause``: with AND to its WHERE, with OR to its CHECK; empty when the
    constraint is to be dropped.
    """

    constraint: str
    rows: tuple[Mapping[str, Any], ...] = ()
    condition: str = ""
    clause: str = "WHERE"

    def __str__(self) -> str:
        if not self.condition:
            return f"{self.constraint}: leave it out"
        if self.clause == "WHERE":
            return f"{self.constraint}: ... WHERE {self.condition}"
        return f"{self.constraint}: CHECK (...) OR {self.condition}"


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One way to make the constraints satisfiable, tried before it is offered.

    Either ``statements`` that change the state, or ``waivers`` of constraints.
    """

    text: str
    statements: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()

    def __str__(self) -> str:
        return self.text


class InfeasibleError(PolicyError):
    """No assignment satisfies the hard constraints.  ``core`` names those that clash.

    ``minimal`` is true when dropping any one member of the core makes the rest satisfiable (shown by
    deletion); false when time ran out before that was shown.
    """

    def __init__(
        self,
        core: Sequence[CoreMember],
        *,
        minimal: bool = True,
        relax: Callable[[float | None], Sequence[Relaxation]] | None = None,
    ) -> None:
        names = ", ".join(str(member) for member in core)
        super().__init__(
            f"no placement satisfies these constraints together: {names}"
            if names
            else "no placement satisfies the constraints",
            hint="relax one of them or change the state they speak of",
        )
        self.core = tuple(core)
        self.minimal = minimal
        self._relax = relax
        self._relaxations: tuple[Relaxation, ...] | None = None

    @property
    def constraints(self) -> tuple[str, ...]:
        """The names of the clashing constraints."""
        return tuple(member.constraint for member in self.core)

    @property
    def relaxations(self) -> tuple[Relaxation, ...]:
        """The smallest changes found that make the constraints satisfiable, each tried on the state that was solved.

        Smallest is the least amount in all, or the fewest rows; a text that ends with "(less may do)" was not shown to
        be that: in a cluster that is too small as a whole, it is on few rows rather than little in all.
        They are looked for when first asked for; that takes about as long as a few solves.
        """
        return self._looked_for(None)

    def relaxations_within(self, seconds: float) -> tuple[Relaxation, ...]:
        """The same, as far as they are found in these seconds, or a second at least; not looked for again then."""
        return self._looked_for(max(_LEAST_SECONDS, seconds))

    def _looked_for(self, seconds: float | None) -> tuple[Relaxation, ...]:
        if self._relaxations is None:
            self._relaxations = () if self._relax is None else tuple(self._relax(seconds))
        return self._relaxations


class SolveTimeout(PolicyError):  # noqa: N818 - the published name
    """The time budget ended before any solution was found.  ``best`` is the best one known, if any.

    With a ``position`` it ended before there was anything to solve: the state database, or the encoding of what stands
    there, took too long.
    """

    def __init__(
        self,
        message: str,
        *,
        best: Solution | None = None,
        position: Position | None = None,
        hint: str = "raise the budget or shrink the problem",
    ) -> None:
        super().__init__(message, position=position, hint=hint)
        self.best = best


class StatementTimeoutError(PolicyError):
    """The state database was computing one statement of a policy for too long.  ``seconds``: how long it may.

    When a model is built all tables are empty (``over_rows`` is false), and a second is more than enough: what takes
    longer there never ends over rows.  ``together``: it is the time of several statements that has ended, of which this
    was the last; a solve then says SolveTimeout.
    """

    def __init__(self, seconds: float, *, over_rows: bool = True, together: bool = False) -> None:
        limit = f"for more than {seconds:g} s" if over_rows else "for too long, although all tables are empty"
        super().__init__(
            f"the state database computes this {limit}",
            hint="join by keys, filter earlier, or split the statement into views",
        )
        self.seconds = seconds
        self.together = together
        self.what = ""  # it was run for, where that is known


class StalePlanError(PolicyError):
    """The state changed after the snapshot the plan was computed from.  Solve again."""

    def __init__(self, expected: int, current: int) -> None:
        super().__init__(
            f"the plan was computed from version {expected} of the state, which is now at {current}",
            hint="solve again",
        )
        self.expected = expected
        self.current = current


class VerificationError(PolicyError):
    """The database disagrees with the solver about a plan: a defect of the compiler, never of the policy.

    ``bundle`` holds what is needed to reproduce it: schema, rows, policies, seed and the rejected values.
    """

    def __init__(self, message: str, *, bundle: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint="please report this with the bundle")
        self.bundle: Mapping[str, Any] = {} if bundle is None else bundle


class ControlError(Exception):
    """Base of everything the control loop raises on purpose.  The message is one line for people."""


class IntentError(ControlError):
    """The operators' intent in the epoch document are malformed, or of a version this build does not know.

    Nothing is changed while the document cannot be read: upgrade this agent, or correct what wrote it.
    """


class NotControllerError(ControlError):
    """The request came to a host that is not the controller.  Ask ``controller`` (None: nobody is)."""

    def __init__(self, controller: str | None) -> None:
        if controller is None:
            super().__init__("no live host carries the manager role; start an agent that does")
        else:
            super().__init__(f"{controller} is the controller; send the request there")
        self.controller = controller


class UnknownHostError(ControlError):
    """The request names a host that is not in the view.  Look the names up with ``rota members``."""

    def __init__(self, host: str, known: Sequence[str]) -> None:
        names = ", ".join(sorted(known)[:12])
        super().__init__(f"no host {host!r} in the view; known are {names}")
        self.host = host


class UnknownSegmentError(ControlError):
    """The request names a segment that is not wanted.  ``rota layout show`` lists them.

    ``hosts``, where one of them would have done as well.
    """

    def __init__(self, segment: str, known: Sequence[str], hosts: Sequence[str] = ()) -> None:
        what = "segment or host" if hosts else "segment"
        names = [*list(known)[:12], *sorted(hosts)[:12]]
        super().__init__(f"no {what} {segment!r}; known are {', '.join(names)}")
        self.segment = segment


class UnknownEpochError(ControlError):
    """The request names a version of the layout that is not kept.  ``rota layout history`` lists those that are."""

    def __init__(self, epoch: int, known: Sequence[int]) -> None:
        kept = f"{known[0]} to {known[-1]} are, but for gaps" if known else "none is"
        super().__init__(f"layout epoch {epoch} is not kept; {kept} (`rota layout history`)")
        self.epoch = epoch


class InvalidRequestError(ControlError, ValueError):
    """The request cannot be meant: a number outside its range, SQL that is none.  Nothing was changed."""


class NotRestoringError(ControlError):
    """No restore of this backup is under way that could be gone on with.  Nothing was changed."""


class NothingLostError(ControlError):
    """A last resort is not called for: the host is there, or holds nothing, or a majority answers.

    Nothing was changed; ``rota status`` names the hosts that are away.
    """


class EngineUnreachableError(ControlError):
    """No majority of the engine answered, so nothing may be concluded.  Nothing was changed; try again."""


class RefusedError(ControlError):
    """The policies cannot all hold with what was asked for; nothing was changed.

    ``policies`` names the clashing rules, ``details`` may say more about each.  Each of ``relaxations`` is a smallest
    change that would help; where they are not known: add hosts, or relax a rule.
    """

    def __init__(
        self,
        what: str,
        policies: Sequence[str],
        details: Sequence[str] = (),
        relaxations: Sequence[str] = (),
    ) -> None:
        names = ", ".join(policies) or "the policies"
        # Within one line, as errors are; the attribute and `rota plan` have them all.
        some = "; or ".join(relaxations[:_MOST_TOLD])
        remedy = f"it would help to {some}" if some else "add a host or relax a rule"
        super().__init__(f"{what} {names}; nothing was changed ({remedy})")
        self.policies = tuple(policies)
        self.details = tuple(details)
        self.relaxations = tuple(relaxations)


class DrainRefusedError(RefusedError):
    """The drain cannot be satisfied; nothing was changed.  Add hosts, undrain another one, or relax a rule."""

    def __init__(
        self,
        host: str,
        policies: Sequence[str],
        details: Sequence[str] = (),
        relaxations: Sequence[str] = (),
    ) -> None:
        super().__init__(f"draining {host} would break", policies, details, relaxations)
        self.host = host


class PlanChangedError(ControlError):
    """What would be carried out now is another plan than the one that was shown; nothing was changed.

    Look at the next one with ``rota plan``.
    """

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"the plan is no longer the one that was shown ({shown}); nothing was changed, look at `rota plan` again"
        )
        self.shown = shown


class NothingToAbortError(ControlError):
    """No plan is under way, or nothing stood before it that one could go back to.

    ``rota pause`` keeps further ones from starting.
    """

    def __init__(self) -> None:
        super().__init__(
            "no plan is under way that could be undone; `rota pause` keeps the next from starting"
        )


class UndecidedError(ControlError):
    """The solver or the engine gave no answer in time.  Nothing was changed; try again."""


class PlacementError(ControlError):
    """A solved placement is not one: a copy without a host, or two copies on one.

    The policies lack a rule; add it.
    """


class SolverUnavailableError(ControlError):
    """The solver ended, fell silent or answered nonsense, twice in a row.  Nothing was changed.

    The agent's log says what it said last; the control loop tries again by itself.
    """
