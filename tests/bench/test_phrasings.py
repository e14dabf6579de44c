"""The benchmark of phrasings at a tiny size: cases are solved apart, and what is wrong with an answer shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bench.policies.phrasings.answers import check
from bench.policies.phrasings.case import SMALL, run_case, state_of
from bench.policies.phrasings.families import FAMILIES
from bench.policies.phrasings.family import Family
from bench.policies.phrasings.growth import grown
from bench.policies.phrasings.report import chosen, compared, phrasings

_BY_NAME = {family.name: family for family in FAMILIES}


def test_every_family_has_three_spellings_and_a_check_of_its_own() -> None:
    for family in FAMILIES:
        assert len(family.spellings) >= 3, family.name
        assert {*family.listed, *family.asked_of} <= set(family.spellings), family.name
        assert family.broken or family.value or family.name == "capacity"
    further = [case for case in chosen(()) if case not in chosen(("listed",))]
    assert len(further) >= 20


@pytest.mark.slow("two interpreters solve a case each")
def test_cases_are_solved_in_processes_of_their_own_and_their_plans_checked() -> None:
    result = phrasings(SMALL, budget=20.0, only=("apart/all_different", "level_share/max"))
    assert result.ok
    apart, level = result.figures["cases"]
    assert (apart["status"], apart["broken"]) == ("optimal", 0)
    assert level["value"] == level["objectives"][0]["value"]
    assert apart["peak_mb"] >= apart["resting_mb"] > 0
    assert apart["solve_cpu_seconds"] > 0
    assert apart["met"] is None, "nothing is asked at this size"


def test_what_is_refused_is_told_in_a_line() -> None:
    wrong = Family("wrong", "", None, {"misspelt": "CREATE CONSTRAINT c AS SELECT * FROM nodes CHECK FALSE;"})
    outcome = run_case(wrong, "misspelt", SMALL, 5.0)
    assert outcome["status"] == "refused"
    assert outcome["error"].startswith("UnknownTableError: case.sql:2:")


@pytest.mark.parametrize("family", ["apart", "one_zone", "pack_tenant"])
def test_plain_sql_counts_the_rows_that_break_a_rule(family: str) -> None:
    """All pods of an app on one node, and pods far apart: one breaks the one rule, one the other."""
    _, tables, _ = state_of(_BY_NAME[family], SMALL)
    if family == "pack_tenant":
        hosts = [host["name"] for host in tables["host"] if host["alive"] and host["rack"] == "r000"]
        wrong: Mapping[Any, Any] = {(row["segment"], row["slot"]): hosts[0] for row in tables["replica"]}
    elif family == "apart":
        wrong = {(pod["name"],): tables["node"][0]["name"] for pod in tables["pod"]}
    else:
        wrong = {(pod["name"],): tables["node"][n]["name"] for n, pod in enumerate(tables["pod"])}
    assert check(_BY_NAME[family], tables, wrong).broken > 0


def test_plans_of_a_family_are_equal_only_if_no_optimum_is_beaten_and_all_are_feasible() -> None:
    def equal(*cases: tuple[str, int | None]) -> bool:
        documents = [{"family": "squares", "status": status, "value": value} for status, value in cases]
        return next(iter(compared(documents)))["equal"] is True

    assert equal(("optimal", 7), ("unchanged", 7), ("feasible", 9), ("timeout", None))
    assert not equal(("optimal", 7), ("optimal", 8))
    assert not equal(("optimal", 7), ("feasible", 6))
    assert not equal(("feasible", 7), ("infeasible", None))
    moves = [
        {"family": "pack_tenant", "status": "optimal", "objectives": [{"tier": 2, "value": value}]}
        for value in (30, 31)
    ]
    assert [family["equal"] for family in compared(moves)] == [False]


def test_growth_is_linear_if_neither_time_nor_memory_grow_faster_than_cells() -> None:
    def linear(*rungs: tuple[int, float, int]) -> bool:
        documents = [
            {
                "case": "apart/pairs",
                "ladder": "nodes",
                "status": "optimal",
                "cells": cells,
                "seconds": seconds,
                "solve_cpu_seconds": seconds,
                "resting_mb": 100,
                "peak_mb": megabytes,
            }
            for cells, seconds, megabytes in rungs
        ]
        (found,) = grown(documents, budget=10.0)
        return found["linear"] is True

    assert linear((1000, 0.1, 120), (3000, 9.0, 900), (10_000, 1.0, 300))
    assert linear((1000, 0.001, 101), (10_000, 0.5, 200)), "what every case takes is no growth"
    assert not linear((1000, 0.1, 120), (10_000, 1.1, 120))
    assert not linear((1000, 0.1, 120), (10_000, 0.1, 301))
    assert linear((1000, 0.1, 120), (10_000, 9.5, 120)), "the budget was used"
