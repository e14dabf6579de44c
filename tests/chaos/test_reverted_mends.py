"""What random faults find when the mend of a known defect is reverted, kept as scripts that show it.

Each defect is planted again, and the script of its name in `found_by_fuzz` breaks with what is said of it; without it,
nothing breaks. They are small, and outlast the generator: most were found by `rota chaos fuzz` and shrunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import chaos
from datastore_adapter.log.messages import HostIdentity
from datastore_adapter.log.storage.file_storage import FileStorage
from membership.protocol.context.effects import Effects
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.core.view_installation import ViewInstaller
from membership.protocol.lifecycle.founder_election import FounderElection
from membership.protocol.lifecycle.refounding import Refounding
from membership.protocol.messages import FullConfiguration
from membership.protocol.recovery.quorum_watch import QuorumWatch
from membership.protocol.view.configuration import Configuration, Lineage
from membership.protocol.view.cut import Cut
from membership.runtime import last_view
from membership.runtime.last_view import LastView, Remembered
from membership.runtime.process import MemberProcess

FOUND = Path(__file__).parent / "found_by_fuzz"

Plant = Callable[[pytest.MonkeyPatch], None]


def _whoever_is_at_the_address_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a host look whom a request is for, nor who asks whom the answer is from."""
    monkeypatch.setattr(HostIdentity, "is_meant_by", lambda self, meant: True)


def _who_is_heard_counts_as_in_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = QuorumWatch.heard

    def counted(self: QuorumWatch, index: int, now: float) -> None:
        heard(self, index, now)
        self.answered(index, now)

    monkeypatch.setattr(QuorumWatch, "heard", counted)


def _a_superseded_view_counts_after_a_founding_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    evicted = MemberProcess._evicted

    def forget(self: MemberProcess, *, by_operator: bool, is_superseded: bool, now: float) -> None:
        evicted(self, by_operator=by_operator, is_superseded=is_superseded, now=now)
        self.is_superseded = is_superseded

    monkeypatch.setattr(MemberProcess, "_evicted", forget)


def _who_was_removed_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    depart = ViewInstaller._depart

    def as_by_a_recovery(
        self: ViewInstaller, epoch: int, lineage: Lineage, *, by_operator: bool = False
    ) -> None:
        depart(self, epoch, (*lineage, b"recovered"), by_operator=by_operator)

    monkeypatch.setattr(ViewInstaller, "_depart", as_by_a_recovery)


def _a_full_disk_is_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving takes room, and what could not be saved is acted on all the same."""
    failed = MemberProcess.on_save_failed

    def save(self: LastView, memory: Remembered) -> None:
        self._replace(last_view._encode(memory))
        self.saved = memory

    def go_on(self: MemberProcess, reason: str) -> Effects:
        storage = self.core._context.storage
        storage.durable = self._durable = storage.state
        return failed(self, reason)

    monkeypatch.setattr(LastView, "save", save)
    monkeypatch.setattr(MemberProcess, "on_save_failed", go_on)


def _promises_and_votes_are_in_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = last_view._encode

    def without_accepted(memory: Remembered) -> bytes:
        return encode(Remembered(StableState(memory.view), memory.founded, memory.is_copy))

    monkeypatch.setattr(last_view, "_encode", without_accepted)


def _what_a_founder_decided_alone_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    install = ViewInstaller._install

    def as_heard(self: ViewInstaller, view: Configuration, cut: Cut | None, now: float) -> None:
        install(self, view, cut, now)
        self.on_heard()

    monkeypatch.setattr(ViewInstaller, "_install", as_heard)


def _a_founder_that_waits_has_its_metadata_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    def tick(self: Core, now: float) -> None:
        if self._instance is not None:
            self._requests.tick(now, self._instance.reporter)

    monkeypatch.setattr(Core, "_tick_requests", tick)


def _a_founder_that_needs_nobody_shows_its_view_unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ViewInstaller, "may_found", lambda self: True)


def _a_log_unit_is_not_repaired_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileStorage, "repair", lambda self: None)


def _what_was_accepted_in_another_cluster_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    on_proposed = Refounding.on_proposed

    def refuse(self: Refounding, message: FullConfiguration, now: float) -> None:
        view = self._context.cache.decode(
            message.body, message.configuration_id, self._context.settings.rings
        )
        if self._joiner.cluster_id in (None, view.cluster_id):
            on_proposed(self, message, now)

    monkeypatch.setattr(Refounding, "on_proposed", refuse)


def _nobody_passes_on_who_looks_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FounderElection, "pass_on", lambda self, message: None)


DEFECTS: dict[str, tuple[Plant, str]] = {
    "reused_address": (_whoever_is_at_the_address_answers, r"n\d at .* accepts what n\d is asked"),
    "heard_one_way": (_who_is_heard_counts_as_in_touch, r"n\d has not said that it lost its majority"),
    "superseded_view": (
        _a_superseded_view_counts_after_a_founding_in_vain,
        r"n\d takes its last view for one that counts, though it knew of later ones",
    ),
    "most_removed": (_who_was_removed_counts_for_nothing, r"not one again"),
    "full_disk": (
        _a_full_disk_is_acted_on,
        r"n0 started the cluster again in epoch 1000, and so there are two",
    ),
    "forgotten_promise": (_promises_and_votes_are_in_memory_only, r"installed a second view of epoch"),
    "founder_alone": (_what_a_founder_decided_alone_counts_at_once, r"not one again"),
    "founder_votes": (
        _a_founder_that_waits_has_its_metadata_agreed,
        r"n1 started the cluster again in epoch 1000",
    ),
    "epoch_twice": (
        _a_founder_that_needs_nobody_shows_its_view_unsaved,
        r"installed a second view of epoch 1000",
    ),
    "other_cluster": (_what_was_accepted_in_another_cluster_is_not_heard, r"not one again"),
    "moved_members": (_nobody_passes_on_who_looks_for_others, r"not one again"),
    "failed_sync": (_a_log_unit_is_not_repaired_while_it_runs, r"every segment has its copies"),
}
"""By the name of the script: what plants the defect, and what is said when it shows."""


@pytest.mark.slow("a script for each, run twice; some have a store")
@pytest.mark.parametrize("name", DEFECTS)
def test_a_reverted_mend_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, said = DEFECTS[name]
    script = (FOUND / f"{name}.txt").read_text()
    report = chaos.replay(script)
    assert report.ok, report.broken
    plant(monkeypatch)
    report = chaos.replay(script)
    assert not report.ok
    assert re.search(said, str(report.broken)), report.broken
