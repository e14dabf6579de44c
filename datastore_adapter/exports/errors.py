"""Why a placement cannot be exported.  Each is one line: what, of which segment or host, and what to do."""

from __future__ import annotations


class ExportError(Exception):
    """Base of everything an export raises on purpose; the document would have been wrong, so there is none."""


class NothingPlacedError(ExportError):
    """The placement has no segment.  Wait until one is placed, or name another file."""


class SegmentNameError(ExportError):
    """The other system cannot tell from its name which of its data a segment is.  Give it a name that says so."""


class HostTagError(ExportError):
    """A host lacks a tag that the other system knows it by, or the tag cannot be meant.  Tag the host."""


class CopiesError(ExportError):
    """The copies of a segment are none, twice on a host, or of a number that the other system refuses."""
