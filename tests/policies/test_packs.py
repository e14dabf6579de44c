"""What holds for every policy pack: it is short, written down, and each of its rules is tested by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mgmt.compiler.model import Model
from mgmt.explaining.policies.policy_test_syntax import parse_tests
from mgmt.explaining.policies.policy_tests import run_tests
from mgmt.language.policy_packs import load_pack, pack_names
from mgmt.placement.intent import PolicyChoice
from mgmt.solving.policy_listing import list_policies
from mgmt.sql.tokens import split_statements
from mgmt.state.database import Database

LONGEST = 20
TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", pack_names())
def test_every_statement_is_short(name: str) -> None:
    for source in load_pack(name).policies:
        for tokens in split_statements(source):
            first, last = source.position(tokens[0].start), source.position(tokens[-1].end)
            assert last.line - first.line < LONGEST, f"{first}: {last.line - first.line + 1} lines"


@pytest.mark.parametrize("name", pack_names())
def test_every_rule_is_explained_and_every_explanation_is_of_a_rule(name: str) -> None:
    entries = list_policies(PolicyChoice(name))
    assert [entry.name for entry in entries if not entry.meaning] == []
    tiers = {entry.name: entry.tier for entry in entries}
    said = re.findall(r"^\| (?:(\d+) \| )?`([a-z_]+)` \|", load_pack(name).readme, re.MULTILINE)
    tables = set(re.findall(r"CREATE TABLE (\w+)", load_pack(name).schema))
    assert {rule: int(tier) if tier else None for tier, rule in said if rule not in tables} == tiers


@pytest.mark.first
@pytest.mark.slow("every case again without each rule")
@pytest.mark.parametrize("name", pack_names())
def test_the_tests_that_a_pack_brings_pass_and_would_miss_every_rule(name: str) -> None:
    """Every case is solved, and again without each rule it may show."""
    pack = load_pack(name)
    database = Database()
    database.load_schema(pack.schema)
    cases = [case for text in pack.tests for case in parse_tests(text)]
    report = run_tests(Model.build(database, pack), cases, budget=60)
    assert [str(failure) for result in report.results for failure in result.failures] == []
    assert len(report.results) == len(cases) > 0
    assert [rule for rule, case in report.covered.items() if case is None] == []
