"""The layout server: keeps the latest epoch document, and is an acceptor for the next one.

A state machine whose every answer that promises something is preceded by an fsync.  Every host runs one and keeps the
latest document it was told, and earlier ones (`log.layout.history`); only the hosts that the document names as layout
servers are asked to decide.

The document of epoch e + 1 is decided by classic single-decree Paxos among the layout servers of epoch e.
A promise is at the same time the seal of epoch e: from then on `FetchDocument` tells that something is under
way, until the decision arrives.

An acceptor is a disk, not a host name: a layout server votes in no epoch whose document names another disk for its
host (`log.storage.disk_identity`).  One whose disk was replaced keeps what it is told, and waits to be named.
Source: L. Lamport, D. Malkhi, L. Zhou, *Vertical Paxos and Primary-Backup Replication*, 2009.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

import msgspec

from consensus import Accepted, Acceptor, AcceptorState, Ballot, ConsensusError, Promise
from datastore_adapter.log.errors import BootstrapRefusedError, LayoutError, StorageError
from datastore_adapter.log.layout.document import (
    EpochDocument,
    decode_document,
    encode_document,
    genesis_document,
)
from datastore_adapter.log.layout.history import DocumentHistory
from datastore_adapter.log.messages import (
    Accept,
    DocumentReply,
    FetchDocument,
    FetchHistory,
    Install,
    Installed,
    Prepare,
    Promised,
    Refused,
    Rejected,
    Reply,
    Request,
    Voted,
    WrongEpoch,
    ballot_of,
)
from datastore_adapter.log.storage.disk_health import refused_by
from datastore_adapter.log.storage.durable_record import load_record, save_record
from datastore_adapter.log.storage.file_storage import Storage

LAYOUT_FILE: Final = "layout/state"


class LayoutRecord(msgspec.Struct, frozen=True, array_like=True):
    """Everything a layout server must remember, in one file so that it changes at once."""

    document: bytes | None = None
    promised: tuple[int, int] = Ballot.NONE
    accepted_ballot: tuple[int, int] = Ballot.NONE
    accepted: bytes | None = None


class LayoutServer:
    """The layout server of host `name`, whose memory is `disk`; idle until it knows a document."""

    def __init__(self, storage: Storage, name: str, disk: bytes) -> None:
        self._storage = storage
        self._name = name
        self._disk = disk
        self._encoded: bytes | None = None
        self._acceptor = Acceptor()
        self.document: EpochDocument | None = None
        self.told: EpochDocument | None = None
        """The latest document told to this host, which a full disk may have kept it from keeping."""
        self._is_saved = False
        """What is held here is on the disk for certain; what was read may never have reached it."""
        self._history = DocumentHistory(storage)
        self.counters: Counter[str] = self._history.counters
        if storage.load(LAYOUT_FILE) is None:
            save_record(storage, LAYOUT_FILE, LayoutRecord())
        self._load()

    @property
    def epoch(self) -> int:
        """Epoch of the latest document known; -1: none."""
        return -1 if self.document is None else self.document.epoch

    @property
    def is_sealed(self) -> bool:
        """Whether deciding the next epoch has begun here."""
        return self._acceptor.state.promised > Ballot.NONE

    def found(self, cluster_id: str, name: str, address: str) -> EpochDocument:
        """Write epoch 0 of a new cluster, once; the document now in force.

        Raises BootstrapRefusedError when this host holds a document of another genesis.
        """
        if self.document is None:
            genesis = genesis_document(cluster_id, name, address, self._disk)
            self._keep(genesis, encode_document(genesis))
            return genesis
        if self.document.cluster_id != cluster_id:
            raise BootstrapRefusedError(
                f"this host's data belongs to cluster {self.document.cluster_id}, not {cluster_id}; "
                "use another data directory, or join that cluster"
            )
        return self.document

    def handle(self, request: Request) -> Reply:
        """Carry out one request; what the answer promises is durable on return."""
        self.counters[type(request).__name__] += 1
        try:
            match request:
                case FetchDocument():
                    document = self._encoded if self.epoch > request.known else None
                    unvoted = self.is_sealed and self._acceptor.state.accepted_value is None
                    return DocumentReply(document, self.is_sealed, self.epoch, self._disk, unvoted)
                case Prepare():
                    return self._no_vote(request.epoch) or self._prepare(request)
                case Accept():
                    return self._no_vote(request.epoch) or self._accept(request)
                case Install():
                    return self._install(request)
                case FetchHistory():
                    return self._history.answer(request, self.epoch)
                case _:
                    return Refused("role", f"a layout server does not serve {type(request).__name__}")
        except StorageError as error:
            # The acceptor may have moved in memory while the disk did not: go back to what is there, if that can be
            # read.  Which of the two a power cut would leave is not known: nothing is promised before a save.
            with suppress(StorageError):
                self._load()
            return refused_by(error)
        except (ConsensusError, LayoutError) as error:
            self.counters["malformed"] += 1
            return Refused("malformed", str(error))

    def _no_vote(self, epoch: int) -> Reply | None:
        """Why this server takes no part in deciding the document after `epoch`; None: it does."""
        if self.document is None or epoch != self.epoch:
            self.counters["wrong_epoch"] += 1
            return WrongEpoch(self.epoch)
        if self.document.disks.get(self._name) != self._disk:
            self.counters["not_named"] += 1
            return Refused("not_named", f"the disk of {self._name} is not the one that epoch {epoch} names")
        return None

    def _prepare(self, request: Prepare) -> Reply:
        answer = self._acceptor.prepare(ballot_of(request))
        if not isinstance(answer, Promise):
            return Rejected(*answer.promised)
        if answer.changed or not self._is_saved:
            self._save()
        return Promised(*answer.accepted_ballot, answer.accepted_value)

    def _accept(self, request: Accept) -> Reply:
        proposed = decode_document(request.document)
        if proposed.epoch != request.epoch + 1:
            return Refused("malformed", f"epoch {proposed.epoch} cannot follow {request.epoch}")
        self._check_cluster(proposed)
        answer = self._acceptor.accept(ballot_of(request), request.document)
        if not isinstance(answer, Accepted):
            return Rejected(*answer.promised)
        if answer.changed or not self._is_saved:
            self._save()
        return Voted()

    def _install(self, request: Install) -> Reply:
        document = decode_document(request.document)
        self._check_cluster(document)
        if self.told is None or document.epoch > self.told.epoch:
            self.told = document
        if document.epoch > self.epoch:
            self._keep(document, request.document)
        elif document.epoch == self.epoch and request.document != self._encoded:
            self.counters["contradictions"] += 1
            return Refused("contradiction", f"another document of epoch {self.epoch} is in force here")
        elif not self._is_saved:
            self._save()
        return Installed(self.epoch, self._disk)

    def _check_cluster(self, document: EpochDocument) -> None:
        if self.document is not None and document.cluster_id != self.document.cluster_id:
            raise LayoutError(
                f"a document of cluster {document.cluster_id}; this host belongs to {self.document.cluster_id}"
            )

    # storage

    def _keep(self, document: EpochDocument, encoded: bytes) -> None:
        self._write(LayoutRecord(encoded))
        self.document, self._encoded, self._acceptor = document, encoded, Acceptor()
        self.counters["installed"] += 1
        self._history.keep(document, encoded)

    def _save(self) -> None:
        assert self._encoded is not None
        state = self._acceptor.state
        self._write(LayoutRecord(self._encoded, state.promised, state.accepted_ballot, state.accepted_value))

    def _write(self, record: LayoutRecord) -> None:
        self._is_saved = False
        save_record(self._storage, LAYOUT_FILE, record)
        self._is_saved = True

    def _load(self) -> None:
        record = load_record(self._storage, LAYOUT_FILE, LayoutRecord)
        if record is None or record.document is None:
            return
        self.document = decode_document(record.document)
        self.told = self.told or self.document
        self._encoded = record.document
        self._acceptor = Acceptor(
            AcceptorState(Ballot(*record.promised), Ballot(*record.accepted_ballot), record.accepted)
        )
