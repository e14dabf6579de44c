"""Taking a backup of a cluster through any of its agents, and restoring it into an empty one.

A backup is all of the log (so all streams and maps) below one address, and the operators' intent that were in force
when the log ended there.  What is below the address never changes, so the parts can be fetched one after the other,
whatever is appended meanwhile.  But it can be trimmed meanwhile, and what justifies that may stand above the address (a
map's newer snapshot): then the backup goes on to the end of the log of that moment, and counts from the trim on.

Restoring puts every record back at its address, in order.  While it lasts the controller is paused, since a change of
the layout would make holes of addresses that are not written yet, and the intent names the backup: no other is gone on
with, and none is put into a log that holds something else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from datastore_adapter.log.client.copying import LogPart, Pointers, decode_part, encode_part
from rota.client.api_client import ApiClient
from rota.client.backup_file import BackupWriter, End, Summary, parts_of, verify
from rota.errors import AgentError, ApiError, UsageProblem

PAUSE_PATIENCE: Final = 60.0
"""Seconds that the controller may take to stop what it is at."""
PATIENCE: Final = 60.0
"""Seconds that the agent may be away in the middle, or a host that it needs: one that restarts is back sooner."""
LOOK_EVERY: Final = 0.2
_AWAY: Final = (0, 503)
"""Status of an answer that did not come, or of an agent that has to wait for something."""
SKIPPED_AT_ONCE: Final = 1 << 26
"""Addresses that were trimmed, which the sequencer gives out in a second or so."""

T = TypeVar("T")

Told = Callable[[float, str], None]
"""What is done, 0 to 1, and what to say beside it."""


@dataclass(frozen=True, slots=True)
class Backup:
    """One that was taken."""

    file: Path
    cluster_id: str
    end: End
    size: int


@dataclass(frozen=True, slots=True)
class Restored:
    """One that was put back."""

    summary: Summary
    is_paused: bool
    """Data movement is left paused: it was so when the backup was taken, or before the restore."""


def back_up(
    client: ApiClient, target: Path, told: Told = lambda share, words: None, patience: float = PATIENCE
) -> Backup:
    """Write a backup to the file `target`, or to a new one in that directory, for its owner alone to read.

    What is half written has another name.  Raises :class:`ApiError`, :class:`UsageProblem`.
    """
    if not target.is_dir() and target.exists():
        raise UsageProblem(f"{target} is there already; name another file, or a directory")
    cut = _cut(client)
    name = f"rota-{cut['cluster_id'][:8]}-{time.strftime('%Y%m%dT%H%M%S')}.backup"
    final = target / name if target.is_dir() else target
    unfinished = final.with_name(f"{final.name}.partial")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            writer = BackupWriter(file, cut["cluster_id"], time.time())
            end = _copy(_RetryingClient(client, patience), writer, cut, told)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(final)
        _sync_directory(final.parent)
    except OSError as error:
        raise AgentError(
            f"{unfinished}: {error.strerror}; the backup was not finished: give a FILE or DIR that can be written"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return Backup(final, cut["cluster_id"], end, writer.size)


class _RetryingClient:
    """Asks an agent again that is away for a moment.  Everything here may be asked twice."""

    def __init__(self, client: ApiClient, patience: float) -> None:
        self._client = client
        self._patience = patience

    def cut(self) -> dict[str, Any]:
        return self._retry(partial(_cut, self._client))

    def fetch(self, start: int, end: int) -> LogPart:
        return decode_part(self._retry(partial(self._client.fetch, "/v1/backup/part", start=start, end=end)))

    def put(self, part: LogPart) -> None:
        self._retry(partial(self._client.post, "/v1/restore/part", encode_part(part)))

    def _retry(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return ask()
            except ApiError as error:
                if error.status not in _AWAY or time.monotonic() >= deadline:
                    raise
            time.sleep(LOOK_EVERY)


def _copy(client: _RetryingClient, writer: BackupWriter, cut: dict[str, Any], told: Told) -> End:
    pointers = Pointers()
    position = trimmed_below = 0
    while position < cut["address"]:
        part = client.fetch(position, cut["address"])
        if part.start > position:
            trimmed_below = part.start
            cut = client.cut()
        if part.next > part.start:
            writer.add(pointers.renewed(part))
        position = part.next
        done = (position - trimmed_below) / max(1, cut["address"] - trimmed_below)
        told(min(1.0, done), f"address {position} of {cut['address']}")
    return writer.finish(cut["address"], trimmed_below, cut["layout_epoch"], cut["intent"])


def _cut(client: ApiClient) -> dict[str, Any]:
    """Where the log ends now, and the intent of that moment."""
    answer: dict[str, Any] = client.get("/v1/backup")
    return answer


def restore(
    client: ApiClient,
    path: Path,
    *,
    with_intent: bool = True,
    resume: bool = False,
    told: Told = lambda share, words: None,
    patience: float = PATIENCE,
) -> Restored:
    """Put everything in the file back, into a cluster with nothing in its log; the file is read and checked before.

    With `resume` the log may hold a beginning of it.  Raises :class:`ApiError`, :class:`BackupError`.
    """
    summary = verify(path, lambda share: told(share / 4, "checking the file"))
    end = summary.end
    backup = {"backup": end.digest.hex()}
    was_paused = client.post("/v1/restore", {**backup, "resume": resume})["was_paused"]
    _wait_until_paused(client)
    _put_back(_RetryingClient(client, patience), path, end, told)
    intent = (end.intent or None) if with_intent else None
    client.post("/v1/restore/finished", {**backup, "intent": intent})
    is_paused = bool(intent.get("paused", False) if intent else was_paused)
    if not is_paused:
        client.post("/v1/resume", {})
    return Restored(summary, is_paused)


def _put_back(agent: _RetryingClient, path: Path, end: End, told: Told) -> None:
    trimmed = end.trimmed_below
    for below in (*range(SKIPPED_AT_ONCE, trimmed, SKIPPED_AT_ONCE), trimmed):
        if below:
            agent.put(LogPart(below, below, below, {}))
    for part in parts_of(path):
        if part.start >= trimmed:
            agent.put(part)
            done = (part.next - trimmed) / max(1, end.address - trimmed)
            told(0.25 + 0.75 * done, f"address {part.next} of {end.address}")
    tail = agent.cut()["address"]
    if tail != end.address:
        raise ApiError(
            f"the log ends at {tail}, the backup at {end.address}: somebody else wrote to it; restore into agents "
            "with empty data directories, and let nobody write before this is done",
            code="not_copied",
        )


def _wait_until_paused(client: ApiClient) -> None:
    deadline = time.monotonic() + PAUSE_PATIENCE
    while (phase := client.get("/v1/control")["phase"]) != "paused":
        if time.monotonic() > deadline:
            raise AgentError(
                f"the controller does not come to rest ({phase}); look at `rota status`, then restore with --resume"
            )
        time.sleep(LOOK_EVERY)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
