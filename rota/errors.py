"""Errors that end a command: one line saying what, where and what to do."""

from __future__ import annotations

_MALFORMED = 400
"""The HTTP status of a request that cannot be meant."""


class AgentError(Exception):
    """Base of what a command reports to its user; the message is one complete line."""

    exit_status = 1
    code = "failed"
    """Names the reason for programs."""


class ReportedFailure(AgentError):  # noqa: N818 - it is the end of a report, not an error of anybody
    """What was asked for failed, and the report that was printed says how; with ``--json`` it is the one document."""


class UsageProblem(AgentError):  # noqa: N818 - an "UsageProblemError" would be no clearer
    """The command cannot mean anything with these arguments; nothing was tried."""

    exit_status = 2
    code = "usage"


class SettingsError(UsageProblem):
    """An option or a configuration file is wrong.  Says which key, in which file, and what is allowed."""


class Interrupted(AgentError):  # noqa: N818 - not an error of anybody
    """Ctrl-C or SIGTERM ended the command before its work was done."""

    exit_status = 130
    code = "interrupted"


class NotInstalledError(UsageProblem):
    """What was asked for needs a library of an extra that is not installed.  Says which, and how to install it."""

    code = "not_installed"


class ApiError(AgentError):
    """An agent's HTTP interface could not be reached, or refused.  ``code`` names the reason for programs.

    ``status``: of HTTP, 0 where there is none.  What the agent calls malformed was the command's usage.
    """

    def __init__(self, message: str, *, code: str = "api", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        if status == _MALFORMED:
            self.exit_status = UsageProblem.exit_status


class LocalClusterError(AgentError):
    """An agent process of a local cluster did not start, or ended by itself.  Shows the end of its log."""


def first_error(error: BaseException) -> BaseException:
    """The first leaf of an exception group: what a person wants to read."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
