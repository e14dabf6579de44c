"""The typed errors of `chaos`; each says what to do."""


class ChaosError(Exception):
    """The root of every error of this package."""


class UnknownScenarioError(ChaosError, ValueError):
    """No scenario of that name; the message lists those that exist."""


class NotRunnableError(ChaosError, ValueError):
    """The scenario exists, but not on the backend asked for; the message says where it runs."""


class UnknownBackendError(ChaosError, ValueError):
    """A backend that does not exist or is not built in; the message lists those that are."""


class NotInstalledError(NotRunnableError):
    """A library of an extra is not installed; the message says which, and how to install it."""


class BackendError(ChaosError, RuntimeError):
    """The machine did not do what the backend needs of it; the message says what and what to do."""


class PlotError(ChaosError, ValueError):
    """A picture that can not be drawn; the message says what to change."""


class BadArgumentError(ChaosError, ValueError):
    """A number of nodes, a share or a duration that makes no sense; the message says which and why."""


class ScriptError(ChaosError, ValueError):
    """A fault script that can not be read; the message gives line number and what was expected."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


class SimulationError(ChaosError, RuntimeError):
    """The simulator was used wrongly, such as a second host under one name or address."""


class InvariantViolation(ChaosError, AssertionError):  # noqa: N818 - the field's word for it
    """The system under test broke its word; the message holds the seed, the time and the last events.

    It is never the harness's error: replay the seed, and correct the core.
    """

    def __init__(self, what: str, *, seed: int, now: float, trace: tuple[str, ...] = ()) -> None:
        lines = "\n".join(("", *trace)) if trace else ""
        super().__init__(f"seed {seed}, {now:.3f} s: {what}{lines}")
        self.what = what
        self.seed = seed
        self.now = now
        self.trace = trace
