"""A cluster of real agents that run servers of Valkey or Redis, and foreign clients that use these.

The servers die, stand still and leave with their agents, as hosts do. It is not deterministic, and what the observer
knows is as old as its last question.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.checkers.read_back import ReadBack
from chaos.processes.links import Links
from chaos.slots.checker import find_violations
from chaos.slots.clients import SlotsWorkload
from chaos.slots.inspection import inspect
from chaos.slots.outcome import SlotsOutcome
from chaos.store.agents import AgentStoreCluster

_SERVERS: Final = "engine"
"""The agents' own tag: ``host:port`` of each of a host's servers, with commas between."""
_PAUSE: Final = 0.02
"""Seconds between two writes of one client: what is tested is which of them are there, not how many."""
_SETTLING, _READING = 120.0, 60.0
_GOING_ON: Final = 10.0
"""Seconds within which every client has a further write acknowledged when all is settled."""
_LAST_CALLS: Final = 30.0
"""Seconds within which every client's request has ended."""


class AgentSlotsCluster(AgentStoreCluster):
    """`engine`: valkey or redis."""

    segments, copies = 3, 2

    def __init__(
        self, nodes: int, links: Links, *, engine: str, seed: int, loss: float, logs: Path | None = None
    ) -> None:
        super().__init__(nodes, links, seed=seed, loss=loss, logs=logs)
        self._engine = engine
        self._kept = logs
        self._workload: SlotsWorkload | None = None

    def _arguments(self, number: int, founder: bool) -> list[str]:
        return [*super()._arguments(number, founder), "--store", self._engine]

    # -- the servers ----------------------------------------------------------------------------

    def _servers(self) -> dict[str, str]:
        """``host:port`` of each server of the hosts in the latest view -> the name of its host."""
        members = [] if self.latest is None else self.latest.members
        return {
            address: member.name
            for member in members
            for address in member.attributes.get(_SERVERS, "").split(",")
            if address
        }

    def _password(self) -> str:
        """The founder's file has it even when the founder is dead."""
        return (Path(self._folder.name) / "n0" / "engine" / "password").read_text(encoding="utf-8").strip()

    # -- use and outcome ------------------------------------------------------------------------

    def begin_use(self, duration: float) -> None:
        """Clients use the servers from now on, and the rule on copies is watched."""
        self._workload = SlotsWorkload(list(self._servers()), self._password(), pause=_PAUSE)
        self._workload.start()

    def conclude(self, began: float) -> SlotsOutcome:
        """Let the servers settle and the clients end, ask every server, and read everything back."""
        workload = self._workload
        assert workload is not None, "begin_use comes first"
        trouble = self._settle(workload)
        workload.stop()
        if not self._run_until(lambda: not workload.is_running, _LAST_CALLS):
            trouble.append(f"a client's request did not end within {_LAST_CALLS:.0f} s")
        answers = inspect(self._servers(), self._password())
        violations = find_violations(answers, self._live(), self.copies)
        read_back = self._read_back(workload, trouble)
        return SlotsOutcome(
            acknowledged_writes=read_back.acknowledged,
            lost_writes=read_back.lost,
            unreadable_writes=read_back.unreadable,
            plans=tuple(self._end_watching(began)),
            rule_holds=self.watch.holds,
            repair_seconds=self.watch.longest(began),
            longest_write_pause=workload.longest_pause_since(began + self._began_at),
            trouble=tuple(trouble),
            reads=workload.reads,
            wrong_reads=workload.wrong_reads,
            client_errors=workload.client_errors,
            client_errors_seconds=workload.client_errors_seconds,
            violations=violations,
        )

    def _settle(self, workload: SlotsWorkload) -> list[str]:
        """Until nothing is left to do, and every client's writes are acknowledged; what did not happen, in words."""
        trouble = []
        if not self._run_until(lambda: self.converged() and self.placed(), _SETTLING):
            trouble.append(f"the shards did not settle within {_SETTLING:.0f} s")
        before = workload.acknowledged_by_client

        def go_on() -> bool:
            return all(count > before[name] for name, count in workload.acknowledged_by_client.items())

        if not self._run_until(go_on, _GOING_ON):
            trouble.append(
                f"no write of a client was acknowledged for {_GOING_ON:.0f} s in the end: {workload.last_error}"
            )
        return trouble

    def _read_back(self, workload: SlotsWorkload, trouble: list[str]) -> ReadBack:
        """In a thread, so that the agents' reports are taken meanwhile."""
        found: list[ReadBack] = []
        thread = _thread(lambda: found.append(workload.read_back()))
        if self._run_until(lambda: not thread.is_alive(), _READING) and found:
            return found[0]
        trouble.append(f"the keys could not be read within {_READING:.0f} s")
        return ReadBack(workload.acknowledged, 0, workload.acknowledged)

    def close(self) -> None:
        if self._workload is not None:
            self._workload.stop()
        if self._kept is not None:
            self._keep_logs(self._kept)
        super().close()

    def _keep_logs(self, folder: Path) -> None:
        """Beside those of the agents."""
        for path in Path(self._folder.name).glob("n*/engine/*/server.log"):
            host, number = path.parts[-4], path.parts[-2]
            shutil.copyfile(path, folder / f"{host}-server-{number}.log")


def _thread(job: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=job, name="reader", daemon=True)
    thread.start()
    return thread
