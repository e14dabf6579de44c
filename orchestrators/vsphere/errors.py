"""What goes wrong with a vCenter; each message is one line that says what to do."""

from __future__ import annotations


class VsphereError(Exception):
    """Base of the errors here."""


class DumpError(VsphereError):
    """A file is no dump of an inventory."""


class CredentialsError(VsphereError):
    """The file with user and password cannot be used, or vCenter refuses what it says."""


class CertificateError(VsphereError):
    """vCenter's certificate is not trusted."""


class UnreachableError(VsphereError):
    """vCenter does not answer, or stopped to.  Trying again may help."""


class SessionExpiredError(UnreachableError):
    """vCenter no longer knows the session: log in again."""


class NoPermissionError(VsphereError):
    """The user may not do this."""


class RefusedError(VsphereError):
    """vCenter refuses what was asked for, for the reason it gives."""


class DrsIsMasterError(VsphereError):
    """DRS balances the cluster by itself: two masters would undo each other's moves."""


class JournalError(VsphereError):
    """The journal is not one, or another vCenter's, or in use."""


class SimulatorError(VsphereError):
    """The simulated vCenter cannot be built or started."""
