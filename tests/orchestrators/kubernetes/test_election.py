"""Leader election by a Lease, with two candidates whose clocks have nothing in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestrators.kubernetes.scheduling.election import Election, ElectionSettings

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = ElectionSettings(duration=15, renewed_within=10, period=2)


class Lease:
    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None

    def look(self, election: Election, now: float, moment: datetime = MOMENT) -> bool:
        wanted = election.wanted(None if self.spec is None else {"spec": self.spec}, now, moment)
        if wanted is not None:
            self.spec = wanted
            election.written(now)
        return now < election.leads_until


def test_the_first_one_leads_and_another_one_waits_for_its_silence() -> None:
    lease, one, other = Lease(), Election("one", SETTINGS), Election("other", SETTINGS)
    assert lease.look(one, 0)
    assert not lease.look(other, 1000)
    assert not lease.look(other, 1014)
    assert lease.look(other, 1016)
    assert lease.spec is not None
    assert (lease.spec["holderIdentity"], lease.spec["leaseTransitions"]) == ("other", 1)
    assert not lease.look(one, 17)


def test_who_cannot_renew_stops_before_another_one_may_begin() -> None:
    lease, one = Lease(), Election("one", SETTINGS)
    assert lease.look(one, 0)
    assert one.leads_until < SETTINGS.duration


def test_a_holder_that_renews_keeps_it() -> None:
    lease, one, other = Lease(), Election("one", SETTINGS), Election("other", SETTINGS)
    for second in range(0, 60, 2):
        assert lease.look(one, second, MOMENT.replace(second=second))
        assert not lease.look(other, 1000 + second, MOMENT.replace(second=second))


def test_a_holder_that_ends_hands_it_over_at_once() -> None:
    lease, one, other = Lease(), Election("one", SETTINGS), Election("other", SETTINGS)
    lease.look(one, 0)
    lease.spec = one.released({"spec": lease.spec}, MOMENT)
    assert lease.look(other, 1000)
