"""What can go wrong between the adapter and the servers."""

from __future__ import annotations

from datastore_adapter.interface import AdapterError


class SlotsError(AdapterError):
    """Base of what the adapter for Valkey and Redis Cluster raises on purpose."""


class ServerUnreachableError(SlotsError):
    """A server gave no answer in time.  The command may have been carried out all the same."""


class CommandRefusedError(SlotsError):
    """A server answered with an error.  Nothing was changed by that command."""

    def __init__(self, address: str, command: str, answer: str) -> None:
        super().__init__(f"{address} refused {command}: {answer}")
        self.answer = answer


class AccessError(SlotsError):
    """A server does not let us in.  Give the right user and password, or the right certificates."""


class OtherServerError(SlotsError):
    """Another server answers at the address of the one that is meant.  Nothing was done to it: look again."""


class UnfitServerError(SlotsError):
    """A server that cannot be managed: no cluster mode, too old, or of another cluster.  Nothing was changed."""


class MalformedReplyError(SlotsError):
    """A server's answer does not read as what was asked for."""


class SlotRangeError(SlotsError, ValueError):
    """Slots that overlap, or that there are not."""


class StepFailedError(SlotsError):
    """A step could not be carried out."""

    def __init__(self, code: str, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        """Whether trying again may help; else an operator has to say what becomes of it."""
