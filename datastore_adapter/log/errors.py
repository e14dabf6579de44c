"""What can go wrong in the replicated log, as seen by the code that asked.

One hierarchy below `interface.AdapterError`; each error says what happened and what to do. The refusals that one
process sends to another (`log.messages`) are turned into these.
"""

from __future__ import annotations

from datastore_adapter.interface import AdapterError


class LogError(AdapterError):
    """Base of everything the replicated log raises on purpose.  Its text is one line."""


class LogSettingsError(LogError, ValueError):
    """A setting is outside its range.  Correct it; the text names the field."""


class LayoutError(LogError, ValueError):
    """A layout or a wanted placement is malformed or cannot be reached safely.  The text names the segment."""


class LayoutVersionError(LayoutError):
    """The epoch document is of a later version of this program.  Upgrade this agent."""


class CallError(LogError):
    """A request to another process got no answer.  It may or may not have been carried out; ask again."""


class PeerUnreachableError(CallError):
    """No connection to the process: it is not running, or the network is down."""


class MisdirectedError(PeerUnreachableError):
    """Somebody else is at the address of the host that was meant: another host, or this one with another disk.

    Nothing was carried out.  The host meant is as good as away: start it with its disk, wherever it is now.
    """


class CallTimeoutError(CallError):
    """The process did not answer in time."""


class ProtocolError(CallError):
    """The process answered something that is no answer to the request.  It runs another version, or is broken."""


class StorageError(LogError):
    """The disk refused an operation.  The unit stops serving; free space or replace the disk, then restart it."""


class DamagedRecordError(StorageError):
    """A record that a role must not forget is on the disk, and cannot be read.  It is as good as lost."""


class StorageFullError(StorageError):
    """No space left.  Nothing was written; free space, then retry."""


class EpochSealedError(LogError):
    """A process refused a request of a sealed epoch: fetch the current layout and retry."""

    def __init__(self, host: str, sealed: int) -> None:
        super().__init__(f"{host} has sealed epoch {sealed}; fetch the current layout and retry")
        self.host = host
        self.sealed = sealed


class ReplicaUnavailableError(LogError):
    """A replica that is needed did not answer or refused.  Retry; a new layout will drop it if it is dead."""


class ReplicaSilentError(ReplicaUnavailableError):
    """A replica or sequencer did not answer, or not in time."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host}: {why}")
        self.host = host


class ReplicaRefusedError(ReplicaUnavailableError):
    """A replica or sequencer is there, and refuses this very request; the text says why."""

    def __init__(self, host: str, code: str, message: str) -> None:
        super().__init__(f"{host} refused ({code}): {message}")
        self.host = host
        self.code = code


class LayoutUnavailableError(LogError):
    """No majority of the layout servers answered, so the current layout is unknown.  Retry.

    Where a majority cannot be without those that are `lost`, one of them has to come back, or an operator has to order
    to go on without them.
    """

    def __init__(self, message: str, lost: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.lost = lost


class SupersededError(LogError):
    """Another reconfiguration decided this epoch first.  Fetch the current layout and start again."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"epoch {epoch} was decided by another reconfiguration; fetch the layout and retry")
        self.epoch = epoch


class BootstrapRefusedError(LogError):
    """This host already holds a layout of another genesis.  Use another data directory, or the right cluster."""


class LogClientError(LogError):
    """Base of what a user of `LogClient` has to handle."""


class LogUnavailableError(LogClientError):
    """The log could not serve the request before the time-out; nothing is known to be wrong with the data.  Retry."""


class NoLayoutError(LogUnavailableError):
    """No agent knows a layout with segments yet: the cluster is still forming.  Retry later."""


class OutcomeUnknownError(LogClientError):
    """An append was not confirmed before the time-out: it may be in the log or may still get there."""


class ExtentAwayError(LogUnavailableError, ReplicaUnavailableError):
    """No host that holds these addresses is there; `hosts` names them.  Start one; the rest of the log goes on."""

    def __init__(self, message: str, hosts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.hosts = hosts


class UnwrittenError(LogClientError):
    """The address is at or beyond the log's tail."""


class TrimmedError(LogClientError):
    """The address was trimmed: its record is gone for good.  Start from a later one: `below` is the first left."""

    def __init__(self, message: str, below: int) -> None:
        super().__init__(message)
        self.below = below


class RecordLostError(LogClientError):
    """Every replica's copy of the record is damaged, or an operator has declared its hosts lost.

    Restore from a backup; nothing wrong was served.
    """


class NotCopiedError(LogClientError):
    """A part of another log has no place in this one: it is not empty, others write to it, or its layout changed in the
    middle.  Restore into a new cluster that nobody uses yet."""


class PayloadTooLargeError(LogClientError, ValueError):
    """The payload is longer than `LogSettings.max_payload`.  Cut it into several records."""


class InvalidStreamError(LogClientError, ValueError):
    """A stream's name must have 1 to 255 bytes of UTF-8."""


class MapError(LogClientError):
    """Base of what a user of `ReplicatedDict` has to handle besides the log's own errors."""


class InvalidEntryError(MapError, ValueError):
    """A key, a value or a map's name is outside its limits, which the text gives.  Nothing was written."""


class MapFullError(MapError):
    """The map would grow beyond `MapSettings.max_bytes`.  Nothing was changed; delete something, or raise it."""


class MapVersionError(MapError):
    """The map's log holds a record of a later version of this program.  Upgrade this process."""


class SnapshotDamagedError(MapError):
    """A snapshot is not what its manifest says.  Nothing wrong was served; restore a backup of the log."""
