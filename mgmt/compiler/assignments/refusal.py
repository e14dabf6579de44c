"""Why something is no assignment problem in columns."""

from __future__ import annotations


class NotAnAssignment(Exception):  # noqa: N818 - not an error: a constraint model is made instead
    """This cannot be done in columns, for the reason given."""
