"""What came of servers of Valkey or Redis in a run: what their clients saw, and the evidence of what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.checkers.store_outcome import StoreOutcome, StorePromise
from chaos.slots.checker import (
    CopiesMissing,
    CopiesOnOneHost,
    CopiesUneven,
    NoPrimary,
    OpenSlots,
    SeveralPrimaries,
    SilentServer,
    Violation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsOutcome(StoreOutcome):
    """A write counts as acknowledged once `WAIT 1` has said that a replica has it, too."""

    reads: int
    wrong_reads: int
    """Of acknowledged keys, while things went wrong: nothing was there, or something else."""
    client_errors: int
    """What the clients raised to their callers, after their own retries."""
    client_errors_seconds: float
    """Of the client that had the most."""
    violations: tuple[Violation, ...]
    """In the end."""

    @property
    def findings(self) -> tuple[str, ...]:
        return (*self.trouble, *(violation.sentence for violation in self.violations))

    @property
    def promises(self) -> tuple[StorePromise, ...]:
        return (
            StorePromise("no write is lost that a replica had, too", not self.lost_writes, True),
            StorePromise("every such write can be read in the end", not self.unreadable_writes),
            StorePromise(
                "one primary for each slot in the eyes of most servers",
                self._lacks(NoPrimary, SeveralPrimaries),
                True,
            ),
            StorePromise("no slot is open in the end", self._lacks(OpenSlots)),
            StorePromise(
                "in the end every shard has its copies on hosts of their own, as even over the racks as can be",
                self.rule_holds and self._lacks(CopiesMissing, CopiesOnOneHost, CopiesUneven),
            ),
            StorePromise("every server of a live host answers in the end", self._lacks(SilentServer)),
            StorePromise("clients and control loops go on to the end", not self.trouble),
        )

    def _lacks(self, *kinds: type[Violation]) -> bool:
        return not any(isinstance(violation, kinds) for violation in self.violations)

    def details(self) -> dict[str, object]:
        return {
            "reads": self.reads,
            "wrong_reads": self.wrong_reads,
            "client_errors": self.client_errors,
            "client_errors_seconds": round(self.client_errors_seconds, 3),
            "one_primary_per_slot": self._lacks(NoPrimary, SeveralPrimaries),
            "no_open_slot": self._lacks(OpenSlots),
            "violations": [violation.to_json() for violation in self.violations],
        }
