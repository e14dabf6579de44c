"""The policies as people read them."""

from __future__ import annotations

import pytest

from mgmt.control.dry_run import solve_to_json
from mgmt.errors import PolicyError
from mgmt.language.policy_packs import pack_names
from mgmt.placement.intent import PolicyChoice
from mgmt.solving.placement_solver import Infeasible
from mgmt.solving.policy_listing import list_policies


@pytest.mark.parametrize("pack", pack_names())
def test_every_policy_of_a_pack_is_listed_and_explained_in_its_readme(pack: str) -> None:
    from mgmt.compiler.model import Model
    from mgmt.language.policy_packs import load_pack
    from mgmt.state.database import Database

    loaded = load_pack(pack)
    database = Database()
    database.load_schema(loaded.schema)
    listed = list_policies(PolicyChoice(pack))
    assert tuple(entry.name for entry in listed) == Model.build(database, loaded.policies).constraints
    assert [entry.name for entry in listed if not entry.meaning] == []


def test_kinds_tiers_and_places() -> None:
    entries = {entry.name: entry for entry in list_policies(PolicyChoice())}
    rack, moves = entries["one_replica_per_rack"], entries["fewest_moves"]
    assert (rack.kind, rack.tier) == ("rule", None)
    assert rack.where.startswith("datastore/10_rules.sql:")
    assert "no rack holds two copies" in rack.meaning
    assert (moves.kind, moves.tier) == ("minimize", 2)


def test_a_rule_of_one_s_own_stands_after_the_pack_without_a_meaning() -> None:
    text = "CREATE CONSTRAINT mine AS SELECT slot FROM replica CHECK slot >= 0;"
    entry = list_policies(PolicyChoice(texts=(("mine.sql", text),)))[-1]
    assert (entry.name, entry.kind, entry.meaning, entry.where) == ("mine", "rule", "", "mine.sql:1:1")


def test_a_text_that_cannot_be_read() -> None:
    with pytest.raises(PolicyError):
        list_policies(PolicyChoice(texts=(("bad.sql", "CREATE CONSTRAINT ("),)))


def test_what_clashes_is_told_with_rows() -> None:
    outcome = Infeasible(("a", "b"), ("a (x:1:1)", "b (x:2:1)"), 0.5, rows=("segment s00", ""))
    document = solve_to_json(outcome)
    assert document is not None
    assert document["clashing"] == [{"policy": "a", "rows": "segment s00"}, {"policy": "b", "rows": ""}]
    bare = solve_to_json(Infeasible(("a",), ("a",), 0.5))
    assert bare is not None
    assert bare["clashing"] == [{"policy": "a", "rows": ""}]
