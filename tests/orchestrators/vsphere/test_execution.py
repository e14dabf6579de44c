"""The shell, with a vCenter that is lost and comes back, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

import pytest
import trio
import trio.testing

from orchestrators.vsphere.errors import CredentialsError, JournalError, NoPermissionError, UnreachableError
from orchestrators.vsphere.inventory import Inventory, Move
from orchestrators.vsphere.migrations import Cancel, Migrations, Start, Task
from tests.orchestrators.vsphere.states import cluster, host, machine
from tests.orchestrators.vsphere.test_migrations import Fake

pytest.importorskip("pyVmomi")

MOVES = [Move("p", "a", "b"), Move("q", "a", "c")]


class Lossy:
    """A vCenter in the place of ``VCenter``: each call may be told to fail, before or after it has its effect."""

    id = "the one"

    def __init__(self) -> None:
        self.fake = Fake(cluster([host("a"), host("b"), host("c")], [machine("p", "a"), machine("q", "a")]))
        self.begun: Counter[str] = Counter()
        self.down = 0
        self.faults: list[str] = []
        self.looks = 0

    async def look(self, wait: float = 0.0) -> tuple[Inventory, list[Task]]:
        await trio.sleep(wait)
        self.looks += 1
        if self.faults and self.faults[0] == "look":
            self.faults.pop(0)
            raise UnreachableError("it does not answer")
        for id_ in self.fake.running():
            self.fake.end(id_)
        return self.fake.state, list(self.fake.tasks.values())

    async def start(self, action: Start, _: Inventory) -> str:
        fault = self.faults.pop(0) if self.faults and self.faults[0] != "look" else ""
        if fault == "permission":
            raise NoPermissionError("ada may not do this: it lacks Resource.HotMigrate")
        if fault == "request":
            raise UnreachableError("it does not answer")
        self.begun[action.machine] += 1
        task = self.fake.start(action)
        if fault == "answer":
            raise UnreachableError("it does not answer")
        return task

    async def cancel(self, action: Cancel) -> None:
        raise AssertionError(action)

    async def reconnect(self) -> None:
        await trio.sleep(60)


async def run(*faults: str) -> tuple[Lossy, dict[str, str], list[str]]:
    from orchestrators.vsphere.execution import carry_out

    vcenter, lines = Lossy(), list[str]()
    vcenter.faults = list(faults)
    migrations = Migrations.of(MOVES, vcenter.fake.state)
    tell: Callable[[str], None] = lines.append
    shown: Any = vcenter
    with trio.fail_after(1000):
        await carry_out(shown, migrations, tell=tell, clock=trio.current_time)
    return vcenter, {entry.machine: str(entry.state) for entry in migrations.entries}, lines


DONE = {"p": "done", "q": "done"}


@pytest.mark.parametrize(
    "faults",
    [["answer"], ["request"], ["answer", "answer"], ["request", "look"], ["look", "look"]],
    ids=" ".join,
)
async def test_whatever_is_lost_everything_moves_once(
    faults: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    vcenter, states, lines = await run(*faults)
    assert (states, vcenter.begun) == (DONE, {"p": 1, "q": 1})
    assert "it does not answer" in lines


async def test_a_journal_is_of_one_vcenter_and_one_run(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    from orchestrators.vsphere.execution import carry_out, owned, read_journal

    vcenter, journal = Lossy(), tmp_path / "journal"
    shown: Any = vcenter
    migrations = Migrations.of(MOVES, vcenter.fake.state)
    kept: list[bytes | None] = []

    async def start(action: Start, _: Inventory) -> str:
        kept.append(read_journal(journal, "the one"))
        with pytest.raises(JournalError, match="is of another vCenter"):
            read_journal(journal, "another")
        return vcenter.fake.start(action)

    shown.start = start
    await carry_out(shown, migrations, tell=lambda _: None, journal=journal, clock=trio.current_time)
    assert kept[0] is not None
    found = Migrations.resumed(kept[0], vcenter.fake.state, 0)
    assert [entry.move for entry in found.entries] == MOVES
    with owned(journal), pytest.raises(JournalError, match="another rota uses"), owned(journal):
        pass


async def test_nothing_is_asked_for_by_an_old_look(autojump_clock: trio.testing.MockClock) -> None:
    from orchestrators.vsphere.execution import carry_out

    vcenter = Lossy()
    migrations = Migrations.of(MOVES, vcenter.fake.state)
    vcenter.fake._put("p", host="c")
    shown: Any = vcenter
    await carry_out(shown, migrations, tell=lambda _: None, clock=trio.current_time)
    assert vcenter.begun == {"q": 1}


async def test_a_fault_of_the_collector_or_of_a_login_is_a_lost_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    from orchestrators.vsphere.connection import Address, Connection, Credentials
    from orchestrators.vsphere.errors import RefusedError
    from orchestrators.vsphere.execution import VCenter

    connection = Connection(Address("vcenter.example"), Credentials("ada", "secret"))
    faults: list[Exception] = [
        RefusedError("it was canceled (RequestCanceled)"),
        RefusedError("(SystemError)"),
    ]

    async def call(*_: object) -> None:
        if faults:
            raise faults.pop()

    connection.call = connection.connect = call  # type: ignore[method-assign, assignment]
    vcenter = VCenter(connection, lambda _: None)
    with pytest.raises(UnreachableError, match="SystemError"):
        await vcenter.look()
    await vcenter.reconnect()
    assert not faults


async def test_a_missing_privilege_is_told_of_each_move(autojump_clock: trio.testing.MockClock) -> None:
    _, states, lines = await run("permission")
    assert sorted(states.values()) == ["done", "failed"]
    assert any("not moved" in line and "it lacks Resource.HotMigrate" in line for line in lines), lines


async def test_it_connects_again_until_that_works_and_ends_where_it_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    from orchestrators.vsphere.connection import Address, Connection, Credentials
    from orchestrators.vsphere.execution import VCenter

    connection = Connection(Address("vcenter.example"), Credentials("ada", "secret"))
    outcomes: list[Exception | None] = [UnreachableError("refused"), UnreachableError("refused"), None]

    async def connect() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    connection.connect = connect  # type: ignore[method-assign]
    lines: list[str] = []
    vcenter = VCenter(connection, lines.append)
    await vcenter.reconnect()
    assert lines == [
        "refused; trying again in 1 s",
        "refused; trying again in 2 s",
        "connected to vcenter.example again",
    ]
    outcomes = [UnreachableError("refused"), CredentialsError("the password has changed")]
    with pytest.raises(CredentialsError):
        await vcenter.reconnect()


async def test_a_login_that_hangs_is_given_up_and_leaves_no_session(
    autojump_clock: trio.testing.MockClock,
) -> None:
    from orchestrators.vsphere.connection import Address, Connection, Credentials

    connection = Connection(Address("vcenter.example"), Credentials("ada", "secret"))

    async def call(*_: object) -> None:
        await trio.sleep_forever()

    connection.call = call  # type: ignore[method-assign, assignment]
    with trio.fail_after(100), pytest.raises(UnreachableError, match="does not answer within 60 s"):
        await connection.connect()
    assert connection.content is None


def test_faults_of_vcenter_are_told_in_one_line() -> None:
    from pyVmomi import vim, vmodl

    from orchestrators.vsphere.connection import Address, Connection, Credentials
    from orchestrators.vsphere.errors import RefusedError, SessionExpiredError

    connection = Connection(Address.parsed("https://vcenter.example/sdk"), Credentials("ada", "secret"))
    missing = connection.translated(vim.fault.NoPermission(privilegeId="Resource.HotMigrate"))
    assert isinstance(missing, NoPermissionError)
    assert str(missing) == "ada may not do this at vcenter.example: it lacks Resource.HotMigrate"
    assert isinstance(connection.translated(vim.fault.NotAuthenticated()), SessionExpiredError)
    refused = connection.translated(vmodl.fault.InvalidArgument(msg="a host\n of another cluster"))
    assert isinstance(refused, RefusedError)
    assert str(refused) == "a host of another cluster (InvalidArgument)"
    for garbled in (ExpatError("no element found"), UnicodeDecodeError("utf-8", b"", 0, 1, "")):
        assert isinstance(connection.translated(garbled), UnreachableError)
    assert connection.translated(KeyError("a defect of ours")) is None
