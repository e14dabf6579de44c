"""Columns of numbers that no demand connects with choices are decided apart from them."""

from __future__ import annotations

from typing import Any

import pytest

from mgmt.compiler.model import Model
from mgmt.compiler.parts import encoded_part
from mgmt.explaining.policies.lint import lint
from mgmt.state.database import Database
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, size INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, w INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
CREATE TABLE app (id INTEGER PRIMARY KEY, want INTEGER NOT NULL,
  variable__n INTEGER NOT NULL CHECK (variable__n BETWEEN 0 AND 9));
"""
POLICY = """
CREATE VIEW load AS SELECT variable__host AS h, sum(w) AS s FROM task GROUP BY variable__host;
CREATE CONSTRAINT even AS SELECT h FROM load MINIMIZE max(s);
CREATE CONSTRAINT enough AS SELECT id FROM app CHECK variable__n >= want;
CREATE CONSTRAINT few AS SELECT id FROM app MINIMIZE sum(variable__n) TIER 2;
"""


def state_of() -> Database:
    return database(
        SCHEMA,
        {
            "host": [{"name": f"h{n}", "size": 9} for n in range(3)],
            "task": [{"id": n, "w": 1 + n, "host": None} for n in range(4)],
            "app": [{"id": n, "want": n} for n in range(3)],
        },
    )


def test_choices_that_take_all_the_time_leave_some_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    search = encoded_part.search

    def slow(*arguments: Any, **named: Any) -> Any:
        nonlocal now
        now += 100.0
        return search(*arguments, **named)

    monkeypatch.setattr(encoded_part, "search", slow)
    solution = Model.build(state_of(), POLICY, clock=lambda: now).solve(budget=10)
    assert {each.name: each.after for each in solution.objectives} == {"even": 4, "few": 3}


def test_lint_names_rules_without_rows_where_there_is_nothing_to_choose_from() -> None:
    state = state_of()
    state.execute("DELETE FROM host")
    policy = """
      CREATE CONSTRAINT room AS SELECT h.name FROM task JOIN host AS h ON variable__host = h.name
        GROUP BY h.name, h.size CHECK sum(w) <= h.size;"""
    model = Model.build(state, policy)
    assert any("room (host is empty)" in finding.message for finding in lint(model))
