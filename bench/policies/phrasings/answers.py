"""Checks of a plan that do not go through rota: plain SQL in a DuckDB of its own over the rows with what was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from bench.policies.phrasings.family import Family
from bench.policies.phrasings.state import Tables

_CAPACITY = """
SELECT node.name FROM node JOIN pod ON pod.node = node.name
GROUP BY node.name, cpu_cap, memory_cap, pods_cap
HAVING sum(cpu) > cpu_cap OR sum(memory) > memory_cap OR count(*) > pods_cap
"""
_DATASTORE = """
SELECT segment FROM replica JOIN host ON host.name = replica.host GROUP BY segment
HAVING count(DISTINCT rack) < 3 OR NOT bool_and(alive)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the plan is by plain SQL: rows that break a rule, and the objective (None where there is none)."""

    broken: int
    value: int | None
    first_fit: int | None = None
    """How many nodes first-fit decreasing takes, where fewest nodes are wanted."""


def check(family: Family, tables: Tables, chosen: Mapping[tuple[Any, ...], Any]) -> Answer:
    """Check a plan: ``chosen`` has the node (the host) of each pod (copy) by its primary key."""
    table, key, column = (
        ("pod", ("name",), "node") if family.state == "pods" else ("replica", ("segment", "slot"), "host")
    )
    decided = [{**row, column: chosen[tuple(row[name] for name in key)]} for row in tables[table]]
    with duckdb.connect() as connection:
        for name, rows in {**tables, table: decided}.items():
            columns = {column: np.array([row[column] for row in rows]) for column in rows[0]}
            connection.register(f"{name}_rows", columns)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        always = _CAPACITY if family.state == "pods" else _DATASTORE
        broken = sum(len(connection.execute(sql).fetchall()) for sql in (always, family.broken) if sql)
        broken += sum(row[column] is None for row in decided)
        value = connection.execute(family.value).fetchall()[0][0] if family.value else None
    first_fit = _first_fit_decreasing(tables) if family.name == "fewest_nodes" else None
    return Answer(broken, None if value is None else int(value), first_fit)


def _first_fit_decreasing(tables: Tables) -> int:
    """The nodes that are used when the largest pods go first, each to the first of the largest nodes with room."""
    sizes = ("cpu", "memory")
    spare = [[node["cpu_cap"], node["memory_cap"], node["pods_cap"]] for node in tables["node"]]
    spare.sort(key=lambda room: min(room[:2]), reverse=True)
    used = set()
    for pod in sorted(tables["pod"], key=lambda pod: max(pod[size] for size in sizes), reverse=True):
        wanted = [*(pod[size] for size in sizes), 1]
        place = next(
            n for n, room in enumerate(spare) if all(w <= r for w, r in zip(wanted, room, strict=True))
        )
        spare[place] = [r - w for w, r in zip(wanted, spare[place], strict=True)]
        used.add(place)
    return len(used)
