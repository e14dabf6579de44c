"""All roles of the log on one host, as one state machine: layout server, log unit, sequencer.

The dispatch of requests to roles, and what one role must tell another.  A host runs every role; one that the layout
does not name idles.  `log.host.server` moves the bytes and decides which thread calls what; the simulator calls it
directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Final

import msgspec

from datastore_adapter.log.errors import StorageError
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.layout.server import LAYOUT_FILE, LayoutRecord, LayoutServer
from datastore_adapter.log.log_unit.unit import UNIT_FILE, LogUnit, Outcome, UnitRecord
from datastore_adapter.log.messages import (
    Accept,
    AddStreamTails,
    BeginBootstrap,
    FetchDocument,
    FetchHistory,
    FinishBootstrap,
    GetStatus,
    HostIdentity,
    Install,
    Installed,
    LastAddresses,
    Misdirected,
    Prepare,
    PullChunk,
    Reclaim,
    Refused,
    Request,
    SealTokens,
    StatusReply,
    TakeTokens,
)
from datastore_adapter.log.sequencer.sequencer import SEQUENCER_FILE, Sequencer, SequencerRecord
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.disk_health import DiskHealth, refused_by
from datastore_adapter.log.storage.disk_identity import open_identity
from datastore_adapter.log.storage.file_storage import Storage


class Part(Enum):
    """Which state machine a request is for.  Requests of one part must be handled one at a time."""

    LAYOUT_SERVER = "layout server"
    LOG_UNIT = "log unit"
    SEQUENCER = "sequencer"
    STATUS = "status"
    PULL = "pull"
    """Answered by asking another host: `log.log_unit.pulling`."""


_PARTS: Final[Mapping[type[Request], Part]] = {
    FetchDocument: Part.LAYOUT_SERVER,
    Prepare: Part.LAYOUT_SERVER,
    Accept: Part.LAYOUT_SERVER,
    Install: Part.LAYOUT_SERVER,
    FetchHistory: Part.LAYOUT_SERVER,
    TakeTokens: Part.SEQUENCER,
    LastAddresses: Part.SEQUENCER,
    BeginBootstrap: Part.SEQUENCER,
    AddStreamTails: Part.SEQUENCER,
    FinishBootstrap: Part.SEQUENCER,
    SealTokens: Part.SEQUENCER,
    GetStatus: Part.STATUS,
    PullChunk: Part.PULL,
    Reclaim: Part.PULL,
}


_RECORDS: Final[Mapping[str, type[msgspec.Struct]]] = {
    LAYOUT_FILE: LayoutRecord,
    UNIT_FILE: UnitRecord,
    SEQUENCER_FILE: SequencerRecord,
}
"""What the roles must not forget."""


def part_of(request: Request) -> Part:
    """Who serves `request`."""
    return _PARTS.get(type(request), Part.LOG_UNIT)


class LogNode:
    """The roles of host `name`.  Construction recovers them from storage; may raise StorageError.

    `is_copy`: the storage is known to be a copy, perhaps an old one; `draw`: so many random bytes; `clock`: seconds of
    any steady one; without it time stands still.
    """

    def __init__(
        self,
        name: str,
        storage: Storage,
        settings: LogSettings,
        *,
        draw: Callable[[int], bytes],
        is_copy: bool = False,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.name = name
        self._storage = storage
        self.disk = DiskHealth(storage, settings, clock)
        self.identity = open_identity(storage, _RECORDS, is_copy=is_copy, draw=draw)
        disk = self.identity.disk
        self.me = HostIdentity(name, disk)
        """Who answers here; each reply says so."""
        self.layout_server = LayoutServer(storage, name, disk)
        self.log_unit = LogUnit(storage, settings)
        forgotten = bool(self.identity.forgotten)
        self.log_unit.bind(disk, name, self.layout_server.document, has_forgotten=forgotten)
        self.sequencer = Sequencer(storage, settings, disk)

    @property
    def document(self) -> EpochDocument | None:
        """The latest epoch document this host knows."""
        return self.layout_server.document

    def misdirected(self, meant: HostIdentity | None) -> Misdirected | None:
        """The answer to any request that is not meant for this host, before it is looked at; None: this one is."""
        return None if self.me.is_meant_by(meant) else Misdirected(self.me.host, self.me.disk)

    def handle(self, request: Request) -> Outcome:
        """Carry out one request in one go, for callers that need no concurrency between parts."""
        outcome = self._dispatch(request)
        self.disk.note(outcome.reply)
        return outcome

    def commit(self) -> Refused | None:
        """Make durable what `handle` answered with `needs_commit`; what to answer instead, if that failed."""
        if not self.log_unit.needs_commit:
            return None
        try:
            with self.disk.syncing():
                self.log_unit.commit()
        except StorageError as error:
            refusal = refused_by(error)
            self.disk.note(refusal)
            return refusal
        return None

    def after_care(self) -> bool:
        """`disk.care` has ended: the log unit serves again if that repaired the storage; whether it does now.

        Before any request it learns what was lost, and what it could not take while it was stopped.  A call for the
        log unit's turn.
        """
        if not self._storage.resume():
            return False
        with suppress(StorageError):  # then it is stopped again
            self.log_unit.after_repair()
            if self.layout_server.told is not None:
                self.log_unit.install(self.layout_server.told, self.name)
        return not self.log_unit.failure

    def _dispatch(self, request: Request) -> Outcome:
        match part_of(request):
            case Part.LAYOUT_SERVER:
                outcome = Outcome(self.layout_server.handle(request))
                self.after_layout_change(outcome)
                return outcome
            case Part.SEQUENCER:
                return Outcome(self.sequencer.handle(request))
            case Part.LOG_UNIT:
                return self.log_unit.handle(request)
            case Part.STATUS:
                assert isinstance(request, GetStatus)
                return Outcome(self.status(request))
            case Part.PULL:
                return Outcome(Refused("role", "this host asks no others"))

    def after_layout_change(self, outcome: Outcome) -> None:
        """Tell the log unit of a newer document.  A call for the log unit's turn."""
        told = self.layout_server.told
        if isinstance(outcome.reply, Installed | Refused) and told is not None:
            self.log_unit.install(told, self.name)

    def status(self, request: GetStatus) -> StatusReply:
        """What an observer wants to know of this host."""
        self.disk.look()
        disk = self.disk.report()
        return StatusReply(
            host=self.name,
            document_epoch=self.layout_server.epoch,
            sealed_layout=self.layout_server.is_sealed,
            sealed_epoch=self.log_unit.sealed,
            segments=self.log_unit.segments(),
            sequencer_epoch=self.sequencer.epoch,
            counters=self.statistics() if request.counters else {},
            full=disk.full,
            room=disk.room,
            disk=self.identity.disk,
            doubtful=self.log_unit.doubtful(),
            failure=disk.failure,
            sync_seconds=disk.sync_seconds,
            stopped=disk.stopped,
        )

    def statistics(self) -> dict[str, int]:
        """Counters of all roles, by ``role.event``."""
        counters: Counter[str] = Counter()
        for role, part in (
            ("storage", self._storage.counters),
            ("layout_server", self.layout_server.counters),
            ("log_unit", self.log_unit.counters),
            ("sequencer", self.sequencer.counters),
        ):
            for event, count in dict(
                part
            ).items():  # a copy in one go, for who counts may be in another thread
                counters[f"{role}.{event}"] = count
        return dict(sorted(counters.items()))
