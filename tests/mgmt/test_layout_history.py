"""What differs between two versions of the layout: numbers, names and words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import Cause, LayoutVersion, Placement, ServiceRoles
from mgmt.errors import UnknownEpochError
from mgmt.placement.intent import Intent
from mgmt.placement.layout_history import difference, difference_report, history_report

HOSTS = [f"n{number}" for number in range(5)]
ROLES = ServiceRoles(("n1", "n2", "n3"), ("n1",), ("n1", "n2", "n3"))


def version(epoch: int, chains: dict[str, tuple[str, ...]], **changes: object) -> LayoutVersion:
    made = LayoutVersion(epoch, Placement(chains, ROLES), chains, {}, 1, "", Cause())
    return replace(made, **changes)  # type: ignore[arg-type]


chains_of_any = st.dictionaries(
    st.sampled_from(["s0", "s1", "s2"]),
    st.lists(st.sampled_from(HOSTS), min_size=1, max_size=4, unique=True).map(tuple),
)


@given(chains_of_any, chains_of_any)
def test_the_difference_leads_from_one_to_the_other(
    before: dict[str, tuple[str, ...]], after: dict[str, tuple[str, ...]]
) -> None:
    changed = difference(version(1, before), version(2, after))
    hosts = {key: set(chain) for key, chain in before.items()}
    primaries = {key: chain[0] for key, chain in before.items()}
    for segment in changed.segments:
        held = hosts.setdefault(segment.segment, set())
        assert set(segment.removed) <= held
        assert not held & set(segment.added)
        held -= set(segment.removed)
        held |= set(segment.added)
        old, new = segment.primary
        assert primaries.get(segment.segment) == old
        primaries[segment.segment] = new or ""
    assert {key: held for key, held in hosts.items() if held} == {
        key: set(chain) for key, chain in after.items()
    }
    assert {key: host for key, host in primaries.items() if host} == {
        key: chain[0] for key, chain in after.items()
    }
    back = difference(version(2, after), version(1, before))
    assert [(each.segment, each.added) for each in back.segments] == [
        (each.segment, each.removed) for each in changed.segments
    ]


def test_roles_and_requests_are_told_by_name() -> None:
    intent = Intent.initial(2)
    before = version(3, {"s00": ("n1", "n2")}, intent=intent.to_mapping())
    roles = ServiceRoles(("n1", "n2", "n4"), ("n2",), ROLES.log_units)
    drained = intent.with_drain("n3").with_pin("s00", "n1").with_paused(True)
    placement = Placement({"s00": ("n2", "n1")}, roles)
    after = version(
        4, dict(placement.segments), placement=placement, intent=drained.to_mapping(), view_epoch=2
    )
    changed = difference(before, after)
    assert changed.words() == (
        "1 primaries changed; layout servers +n4 -n3; sequencer +n2 -n1; "
        "drained +n3; pinned +s00 on n1; paused +paused"
    )
    assert changed.views == (1, 2)
    assert difference(after, after).words() == ""
    told = difference(before, after).to_json()
    assert told["wishes"] == told["intent"], "as commands of 0.1 call it"


def test_an_intent_that_cannot_be_read_is_left_out() -> None:
    odd = version(1, {}, intent={"version": 99})
    assert difference(odd, version(2, {}, intent=Intent.initial(1).to_mapping())).intent[0].what == "segments"


def test_the_history_tells_each_version_beside_the_one_kept_before_it() -> None:
    cause = Cause("n1", 12.5, "n3 gone in view 2: p4", "n2")
    first = version(3, {"s00": ("n1", "n3")})
    second = version(7, {"s00": ("n1",)}, cause=cause, plan_id="p4")
    report = history_report([first, second])
    assert report["layout_epoch"] == 7
    latest, oldest = report["versions"]
    assert (latest["epoch"], latest["since"], latest["what"]) == (7, 3, "1 copies removed")
    told = [latest[name] for name in ("at", "by", "why", "asked_at", "plan_id")]
    assert told == [12.5, "n1", "n3 gone in view 2: p4", "n2", "p4"]
    assert (oldest["since"], oldest["difference"], oldest["at"]) == (None, None, None)


def test_a_version_that_is_not_kept_is_named_with_those_that_are() -> None:
    kept = [version(3, {}), version(5, {})]
    assert difference_report(kept, 5, 3)["what"] == ""
    with pytest.raises(UnknownEpochError, match="layout epoch 4 is not kept; 3 to 5 are"):
        difference_report(kept, 3, 4)
