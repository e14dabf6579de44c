"""A cluster of real agents with the replicated log: its clients, its disks, and what came of them.

Clients in a thread with a trio of their own, and faults of disks. It is not deterministic, and what the observer
knows is as old as its last question.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from pathlib import Path

from chaos import faults
from chaos.checkers.store_outcome import LogOutcome, log_outcome
from chaos.faults import DiskLoss, Fault
from chaos.processes import control_messages as control
from chaos.processes.agent_disks import AgentDisks
from chaos.processes.links import Links
from chaos.store.agents import AgentStoreCluster
from chaos.store.application import Application

_LAST_CALLS = 70.0
"""Seconds within which every call of a client has ended: an append gives up after sixty."""
_SETTLING, _READING = 120.0, 120.0


class AgentLogCluster(AgentStoreCluster):
    """`pause`: seconds between two calls of one client, on average."""

    segments, copies = 6, 3

    def __init__(
        self,
        nodes: int,
        links: Links,
        *,
        seed: int,
        loss: float,
        logs: Path | None = None,
        pause: float = 0.05,
    ) -> None:
        super().__init__(nodes, links, seed=seed, loss=loss, logs=logs)
        self._application = Application(seed=seed, pause=pause)
        self._disks = AgentDisks(
            Path(self._folder.name), Path(self._folder.name) / "copies", random.Random(f"{seed} disks")
        )
        self._lost_disk: str | None = None
        self._lost_disks = 0

    # -- disks ----------------------------------------------------------------------------------

    def _carry_out(self, fault: Fault) -> None:
        match fault:
            case faults.FillDisk(names):
                for name in names:
                    self._let_files_grow(name, 0)
            case faults.ClearDisk(names):
                for name in names:
                    self._let_files_grow(name, resource.RLIM_INFINITY)
            case faults.FailCall(error, operation, names):
                for name in names:
                    self._agent(name).send(control.FailCall(error, operation))
            case faults.SlowDisk(seconds, names):
                for name in names:
                    self._agent(name).send(control.Disk(sync_seconds=seconds))
            case faults.ExceedQuota(names):
                for name in names:
                    self._agent(name).send(control.Disk(is_quota_used_up=True))
            case faults.MendDisk(names):
                for name in names:
                    self._agent(name).send(control.Disk())
            case faults.CopyDisk(names):
                for name in names:
                    self._disks.copy(name)
            case faults.RestoreDisk(names) | faults.WipeDisk(names) | faults.LoseFile(names):
                for name in names:
                    self._lose_disk(name, fault)
            case _:
                super()._carry_out(fault)

    def _lose_disk(self, name: str, fault: DiskLoss) -> None:
        """Of an agent that does not run; and of one at a time, until it has been made good."""
        if self._agent(name).alive:
            done = f"{name} runs: its disk is left alone"
        elif self._lost_disk not in (None, name):
            done = f"{name} keeps its disk: what {self._lost_disk} has lost is not made good yet"
        else:
            self._lost_disk = name
            self._lost_disks += 1
            done = self._disks.lose(name, fault)
        self.story.append((self.now, done))

    def run(self, until: float, *, stop: Callable[[], bool] | None = None) -> bool:
        def look() -> bool:
            lost = self._lost_disk
            if lost is not None and lost in self._running() and self.converged() and self.placed():
                self._lost_disk = None
            return stop is not None and stop()

        return super().run(until, stop=look)

    def _let_files_grow(self, name: str, limit: int) -> None:
        """Without root no disk of this machine can be filled; but a process can be kept from writing to files."""
        agent = self._agent(name)
        if agent.alive:
            resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    # -- the store ------------------------------------------------------------------------------

    def begin_use(self, duration: float) -> None:
        """Clients use the store from now on, and the rule on copies is watched."""
        addresses = [str(self._links_of_store.address(number)) for number in range(self.nodes)]
        self._application.begin(addresses)

    def conclude(self, began: float) -> LogOutcome:
        """Let the clients end and the store settle, read everything back, and report. `began`: the first fault."""
        trouble: list[str] = []
        application = self._application
        application.stop()
        if not self._run_until(lambda: application.stopped, _LAST_CALLS):
            trouble.append(f"a client's call did not end within {_LAST_CALLS:.0f} s")
        at_rest = self._come_to_rest(trouble)
        application.read_back()
        if not self._run_until(lambda: application.ended, _READING):
            trouble.append(f"the log could not be read within {_READING:.0f} s")
        elif application.failure is not None:
            trouble.append(f"the log could not be read: {application.failure!r}")
        if at_rest:
            # The view may change while the log is read, too: the end is when what it asks for is done.
            self._come_to_rest(trouble)
        plans = self._end_watching(began)
        return log_outcome(
            application.record,
            began=application.time_of(began + self._began_at),
            plans=plans,
            watch=self.watch.shifted(application.time_of(self._began_at)),
            lost_disks=self._lost_disks,
            trouble=trouble,
        )

    def _come_to_rest(self, trouble: list[str]) -> bool:
        """Wait until the store is settled and every copy where it belongs; note as trouble if it is not settled."""
        at_rest = self._run_until(lambda: self.converged() and self.placed() and self.watch.holds, _SETTLING)
        if not (self.converged() and self.placed()):
            trouble.append(f"the store did not settle within {_SETTLING:.0f} s")
        return at_rest

    def close(self) -> None:
        self._application.close()
        super().close()
