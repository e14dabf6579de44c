"""The file with the last view a process was in, so that its next incarnation finds the others again.

It holds one configuration with a checksum, and is replaced as a whole whenever a view is installed. With it stands
whether this process founded the cluster, and the views proposed since for a refounding (see
`membership.protocol.lifecycle.refounding`), which are durable before anybody is told. The protocol does not wait for
an ordinary view to be saved: after a crash the file may hold the view before, which `founder_election` allows for.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio

from membership.address import Address
from membership.errors import MembershipError
from membership.files import replace_file
from membership.protocol.context.stable_storage import StableState
from membership.protocol.view.configuration import Configuration, ConfigurationError
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.runtime.change_feed import ClusterState
from membership.transport.resolve import resolve_seeds

log = logging.getLogger("membership")

LARGEST: Final = 64 << 20
"""Bytes that are read of such a file; ten thousand members take about one megabyte."""

RETRY: Final = 5.0
"""Seconds until a view that could not be saved is tried again."""

_CHECKSUM_BYTES: Final = 16


class LastViewError(MembershipError):
    """The file of the last view cannot be used. The text says what to do."""


class DamagedViewError(LastViewError):
    """The file of the last view is damaged: whoever has a seed can do without it."""


class Remembered(msgspec.Struct, frozen=True):
    """What is known of an earlier process of this name."""

    stable: StableState
    founded: bool
    """Whether it, or one before it, founded the cluster."""
    is_copy: bool = False
    """There may have been later views: the file was put back from a copy, or the others removed this process."""


class Process(Protocol):
    """Whose views are kept."""

    @property
    def state(self) -> ClusterState: ...

    @property
    def founded(self) -> bool: ...

    @property
    def is_superseded(self) -> bool: ...

    @property
    def to_save(self) -> StableState: ...

    def on_saved(self, state: StableState) -> None: ...


class _Record(msgspec.Struct, frozen=True, array_like=True):
    founded: bool
    id: bytes
    view: bytes
    """Both empty: the process was in no view so far."""
    superseded: bool = False
    """The process was told that it was removed from this view."""
    accepted: tuple[tuple[bytes, bytes], ...] = ()
    """Identifiers and bytes of the proposed views."""


class LastView:
    """The file at `path`. `rings`: as in the cluster's settings."""

    def __init__(self, path: Path, rings: int) -> None:
        self._path = path
        self._rings = rings
        self._saved = StableState()
        self._saved_as_superseded = False
        self._first_try = trio.Event()

    def load(self) -> Remembered | None:
        """What it says, None if there is no such file. Raises LastViewError."""
        try:
            with self._path.open("rb") as file:
                data = file.read(LARGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LastViewError(f"{self._path}: {error.strerror}; make it readable, or remove it") from error
        body = data[_CHECKSUM_BYTES:]
        try:
            if data[:_CHECKSUM_BYTES] != _checksum(body):
                raise ConfigurationError("the checksum does not match")
            record = msgspec.msgpack.decode(body, type=_Record)
            cache = ConfigurationCache()
            view = cache.decode(record.view, record.id, self._rings) if record.view else None
            accepted = tuple(cache.decode(body, name, self._rings) for name, body in record.accepted)
        except (msgspec.DecodeError, ValueError) as error:
            raise DamagedViewError(
                f"{self._path} is damaged ({error}); remove it: this process then needs a seed to find its cluster"
            ) from None
        self._saved, self._saved_as_superseded = StableState(view, accepted), record.superseded
        return Remembered(self._saved, record.founded, record.superseded)

    def save(self, state: StableState, *, founded: bool, superseded: bool = False) -> None:
        """Durable on return. Raises LastViewError; then what was saved before stands."""
        view = (b"", b"") if state.view is None else (state.view.id, state.view.encoded())
        accepted = tuple((each.id, each.encoded()) for each in state.accepted)
        body = msgspec.msgpack.encode(_Record(founded, *view, superseded, accepted))
        try:
            replace_file(self._path, _checksum(body) + body)
        except OSError as error:
            raise LastViewError(f"{self._path}: {error.strerror}; the view was not saved") from error
        self._saved, self._saved_as_superseded = state, superseded

    async def warn_of_strangers(self, view: Configuration, seeds: Sequence[Address]) -> None:
        """Log it if none of the seeds is in `view`: somebody may expect this process to join their cluster."""
        addresses = {member.address for member in view.members}
        if not seeds or not addresses.isdisjoint(seeds):
            return
        if not addresses.isdisjoint((await resolve_seeds(seeds)).addresses):
            return
        log.warning(
            "this process goes on in cluster %s, whose view %d (members: %d) is remembered in %s; none of the seeds "
            "(%s) was in it. If they are another cluster, to be joined instead, stop this process and remove that file",
            view.cluster_id.hex()[:8],
            view.epoch,
            len(view),
            self._path,
            ", ".join(map(str, seeds)),
        )

    async def keep(self, process: Process) -> None:
        """Save every view from now on, or the latest of those that come while the disk is busy; until cancelled.

        Also that it is not the last one any more, once this process was removed: that is mostly how it ends.
        """
        state = process.state

        def is_news() -> bool:
            if process.to_save != self._saved:
                return True
            removed = process.is_superseded and not self._saved_as_superseded
            return removed and self._saved.view is not None

        try:
            while True:
                await state.wait_until(lambda _: is_news())
                if not await self._try_to_save(process):
                    await trio.sleep(RETRY)
        finally:
            if is_news():
                with trio.CancelScope(shield=True):
                    await self._try_to_save(process)

    async def _try_to_save(self, process: Process) -> bool:
        wanted = process.to_save
        save = partial(self.save, wanted, founded=process.founded, superseded=process.is_superseded)
        try:
            await trio.to_thread.run_sync(save)
        except LastViewError as error:
            log.warning("%s; trying again in %.0f s", error, RETRY)
            return False
        finally:
            if process.state.view is not None:
                self._first_try.set()
        process.on_saved(wanted)
        return True

    async def wait_until_tried(self) -> None:
        """Wait until `keep` has saved the first view, or could not."""
        await self._first_try.wait()


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES, person=b"rota last view").digest()
