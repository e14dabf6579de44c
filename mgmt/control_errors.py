"""The errors of the control loop: what an operator's request can run into, and what to do about it.

Not here: errors of policies and solving (the policy compiler has its own) and errors of an engine
(``datastore_adapter.interface``).
"""

from __future__ import annotations

from collections.abc import Sequence

_MOST_TOLD = 3
"""Changes that would help that an error's line names."""


class ControlError(Exception):
    """Base of everything the control loop raises on purpose.  The message is one line for people."""


class IntentError(ControlError):
    """The operators' wishes in the epoch document are malformed, or of a version this build does not know.

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
