"""Carrying a plan out: a shell that performs what ``migrations`` asks for, and shows it what vCenter says.

The connection may be lost at any time; it is made again, with a login, until that works.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import trio
from pyVmomi import vim

from orchestrators.vsphere.connection import Address, Connection, Credentials
from orchestrators.vsphere.errors import JournalError, RefusedError, UnreachableError, VsphereError
from orchestrators.vsphere.inventory import Inventory
from orchestrators.vsphere.migrations import Cancel, Migrations, Start, Task
from orchestrators.vsphere.observation import HOST, MACHINE
from orchestrators.vsphere.property_collection import Observer

_LONGEST_PAUSE = 30.0
"""Seconds between attempts to connect again."""
_LOOK = 2.0
"""Seconds to wait for a change before time is looked at again."""
_PAUSE = 0.2
"""Seconds between two looks at least: vCenter may have something new at any moment."""


class VCenter:
    """A vCenter that is connected, and connected again where the connection is lost."""

    def __init__(self, connection: Connection, tell: Callable[[str], None]) -> None:
        self.connection = connection
        self.observer = Observer(connection)
        self._tell = tell

    @property
    def id(self) -> str:
        """What no other vCenter has."""
        return str(self.connection.content.about.instanceUuid)

    async def look(self, wait: float = 0.0) -> tuple[Inventory, list[Task]]:
        """The state and the recent tasks.  Raises UnreachableError: call :meth:`reconnect`."""
        return await self.observer.look(wait)

    async def reconnect(self) -> None:
        """Connect again, however long that takes.  Raises CredentialsError, CertificateError."""
        pause = 1.0
        while True:
            try:
                await self.connection.connect()
            except (UnreachableError, RefusedError) as error:  # one that is being started refuses at first
                self._tell(f"{error}; trying again in {pause:.0f} s")
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self.observer.forget()
                self._tell(f"connected to {self.connection.address} again")
                return

    async def start(self, action: Start, inventory: Inventory) -> str:
        """Ask for a migration; the task's id."""
        machine = self.observer.reference(MACHINE, action.machine, inventory)
        host = self.observer.reference(HOST, action.destination, inventory)
        task = await self.connection.call(machine.RelocateVM_Task, vim.vm.RelocateSpec(host=host))
        return str(task._moId)

    async def cancel(self, action: Cancel) -> None:
        """Ask for the end of a task; that it has ended is no error."""
        task = vim.Task(action.task, self.connection.content.rootFolder._stub)
        await self.connection.call(task.CancelTask)


@asynccontextmanager
async def connected(
    address: Address, credentials: Credentials, tell: Callable[[str], None]
) -> AsyncIterator[VCenter]:
    """A vCenter, logged out of at the end.  Raises CertificateError, CredentialsError, UnreachableError."""
    connection = Connection(address, credentials)
    await connection.connect()
    try:
        yield VCenter(connection, tell)
    finally:
        await connection.close()


async def carry_out(
    vcenter: VCenter,
    migrations: Migrations,
    *,
    tell: Callable[[str], None],
    journal: Path | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Until all migrations have ended.  Raises CredentialsError and its like where a new login is refused."""
    lost, wait = None, 0.0
    while not migrations.finished:
        await _observe(vcenter, migrations, lost, wait, tell, clock)
        _tell(migrations, tell)
        actions = migrations.actions(clock())
        _save(journal, migrations, vcenter.id)  # what is asked for is known to whoever comes after us
        lost = await _perform(vcenter, migrations, actions, clock)
        _save(journal, migrations, vcenter.id)
        wait = _LOOK
    _save(journal, migrations, vcenter.id)
    _tell(migrations, tell)


async def _observe(
    vcenter: VCenter,
    migrations: Migrations,
    lost: UnreachableError | None,
    wait: float,
    tell: Callable[[str], None],
    clock: Callable[[], float],
) -> None:
    """Show what vCenter says, once it says anything."""
    cluster = migrations.inventory.clusters[0].name
    while not migrations.finished:
        if lost is not None:
            migrations.disconnected(clock())
            tell(str(lost))
            await vcenter.reconnect()
        await trio.sleep(_PAUSE)
        try:
            whole, tasks = await vcenter.look(0 if lost else wait)
        except UnreachableError as error:
            lost = error
            continue
        migrations.observed(whole.part(cluster), tasks, clock())
        return


async def _perform(
    vcenter: VCenter, migrations: Migrations, actions: list[Start | Cancel], clock: Callable[[], float]
) -> UnreachableError | None:
    """All of them at once; why the connection was lost, if it was."""
    lost: list[UnreachableError] = []

    async def perform(action: Start | Cancel) -> None:
        try:
            if isinstance(action, Start):
                task = await vcenter.start(action, migrations.inventory)
                migrations.started(action.machine, task, clock())
            else:
                await vcenter.cancel(action)
        except UnreachableError as error:
            lost.append(error)
        except VsphereError as error:
            answer = migrations.refused if isinstance(action, Start) else migrations.not_cancelled
            answer(action.machine, str(error), clock())

    async with trio.open_nursery() as nursery:
        for action in actions:
            nursery.start_soon(perform, action)
    return lost[0] if lost else None


def _tell(migrations: Migrations, tell: Callable[[str], None]) -> None:
    for notice in migrations.notices:
        tell(notice.text)
    migrations.notices.clear()


class _Journal(msgspec.Struct):
    vcenter: str
    entries: msgspec.Raw


def read_journal(journal: Path, vcenter: str) -> bytes | None:
    """What an earlier run has left; None where it has ended.  Raises JournalError for that of another vCenter."""
    try:
        found = msgspec.json.decode(journal.read_bytes(), type=_Journal)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise JournalError(f"{journal} is no journal of rota vsphere: {error}; remove it") from error
    if found.vcenter != vcenter:
        raise JournalError(f"{journal} is of another vCenter: give each a file of its own with --journal")
    return bytes(found.entries)


@contextmanager
def owned(journal: Path) -> Iterator[None]:
    """Nobody else uses it meanwhile.  Raises JournalError where somebody does, or it cannot be written."""
    path = journal.with_name(journal.name + ".lock")
    try:
        file = path.open("ab")
    except OSError as error:
        raise JournalError(f"cannot write {path}: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(
                f"another rota uses {journal}: end it, or give another file with --journal"
            ) from error
        yield


def _save(journal: Path | None, migrations: Migrations, vcenter: str) -> None:
    """Whole or not at all."""
    if journal is None:
        return
    if migrations.finished:
        journal.unlink(missing_ok=True)
        return
    beside = journal.with_name(journal.name + ".new")
    with beside.open("wb") as file:
        file.write(msgspec.json.encode(_Journal(vcenter, msgspec.Raw(migrations.journal))))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(journal)
