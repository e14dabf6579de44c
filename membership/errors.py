"""The root of this package's errors, `MembershipError`, and the errors that both a core and its driver raise.

Every other error stands beside the code that raises it.
"""

from __future__ import annotations


class MembershipError(Exception):
    """Base of every error this package raises on purpose.  Its text is one line and says what to do."""


class EvictionError(MembershipError):
    """The member cannot be evicted: there is none of this name, or it is this process, or no majority agreed."""


class EdgeError(MembershipError):
    """The report is not this process's to make: it does not observe that member, at present at least."""


class RecoveryError(MembershipError):
    """The cluster was not recovered; nothing has changed, unless the text says so."""
