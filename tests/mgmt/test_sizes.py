"""Texts that nest too deep, and views that double and double, are refused where they do."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from mgmt.compiler.encoding.tables import TableEncoder
from mgmt.compiler.model import Model
from mgmt.errors import PolicySyntaxError, SolveTimeout, UnsupportedConstructError
from mgmt.solution import Value
from mgmt.state.database import Database
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA


def test_views_that_double_are_refused_where_they_become_too_many() -> None:
    views = ["CREATE VIEW v0 AS SELECT name FROM host;"]
    views += [
        f"CREATE VIEW v{n + 1} AS SELECT a.name FROM v{n} AS a JOIN v{n} AS b ON a.name = b.name;"
        for n in range(30)
    ]
    text = "\n".join([*views, "CREATE CONSTRAINT c AS SELECT * FROM v30 CHECK name <> ''"])
    with pytest.raises(PolicySyntaxError, match="at most 1000") as caught:
        Model.build(database(SCHEMA), text)
    assert caught.value.line == 11


@pytest.mark.parametrize("opening", ["(", "CASE WHEN weight > 0 THEN TRUE ELSE "])
def test_what_is_nested_too_deep_is_pointed_at(opening: str) -> None:
    closing = ")" if opening == "(" else " END"
    text = f"CREATE CONSTRAINT c AS SELECT * FROM task CHECK {opening * 95}variable__host = 'a'{closing * 95}"
    with pytest.raises(PolicySyntaxError, match="nested deeper than 32 levels") as caught:
        Model.build(database(SCHEMA), text)
    assert caught.value.column == text.index("CHECK") + len("CHECK ") + 32 * len(opening) + 1


def test_what_is_too_deep_without_parentheses_is_pointed_at() -> None:
    text = f"CREATE CONSTRAINT c AS SELECT * FROM task CHECK {'NOT ' * 900}variable__host = 'a'"
    with pytest.raises(PolicySyntaxError, match="nested too deep") as caught:
        Model.build(database(SCHEMA), text)
    assert (caught.value.line, "view of its own" in caught.value.hint) == (1, True)


# As DCM's users write it: the pods are a DISTINCT view of a join, and so are the places of those they are to be with.
AFFINITY = """
CREATE TABLE node (name TEXT PRIMARY KEY, pods INTEGER NOT NULL);
CREATE TABLE pod (uid INTEGER PRIMARY KEY, app TEXT NOT NULL, controllable__node TEXT NOT NULL REFERENCES node (name));
CREATE TABLE label (pod INTEGER NOT NULL REFERENCES pod (uid), key TEXT NOT NULL, PRIMARY KEY (pod, key));
CREATE TABLE affinity (pod INTEGER NOT NULL REFERENCES pod (uid), other INTEGER NOT NULL REFERENCES pod (uid));
"""
TOGETHER = """
CREATE VIEW pods_to_assign AS
SELECT DISTINCT pod.uid, pod.app, pod.controllable__node FROM pod JOIN label ON label.pod = pod.uid;
CREATE VIEW matches AS
SELECT DISTINCT a.*, label.pod AS other, b.controllable__node AS node
FROM pods_to_assign AS a JOIN affinity ON affinity.pod = a.uid JOIN label ON label.pod = affinity.other
JOIN pods_to_assign AS b ON b.uid = label.pod;
CREATE CONSTRAINT pod_affinity AS
SELECT * FROM pods_to_assign
CHECK controllable__node IN (SELECT matches.node FROM matches WHERE matches.uid = pods_to_assign.uid);
CREATE CONSTRAINT room AS
SELECT node.name FROM pod JOIN node ON pod.controllable__node = node.name GROUP BY node.name, node.pods
CHECK count(*) <= node.pods;
"""


def together(pods: int, nodes: int) -> Model:
    rows: dict[str, list[dict[str, Value]]] = {
        "node": [{"name": f"n{number}", "pods": 5} for number in range(nodes)],
        "pod": [{"uid": number, "app": f"a{number // 2}"} for number in range(pods)],
        "label": [{"pod": number, "key": key} for number in range(pods) for key in ("app", "tier")],
        "affinity": [{"pod": a, "other": b} for a in range(pods) for b in range(pods) if a != b],
    }
    return Model.build(database(AFFINITY, rows), TOGETHER)


def test_views_without_double_rows_cost_what_their_rows_do() -> None:
    """A key settles the other columns, so they are no groups of their own: 50 times 50 were out of reach."""
    sizes = {}
    for number in (5, 10, 50):
        solution = together(number, number).solve(budget=60)
        nodes = list(solution.assignments["pod", "controllable__node"].values())
        assert min(nodes.count(node) for node in nodes) >= 2
        sizes[number] = int(solution.statistics["variables"]) / number**2
    assert max(sizes.values()) < 5


def test_the_budget_holds_while_a_statement_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands at the end of the budget from the statement's first cells on; more would fill the memory."""
    model, looks = together(30, 30), []
    tables, encode = [], TableEncoder.encode

    def encode_tables(encoder: TableEncoder) -> None:
        encode(encoder)
        tables.append(encoder)

    def late() -> float:
        looks.extend(tables)
        return float("inf") if tables else 0.0

    monkeypatch.setattr(TableEncoder, "encode", encode_tables)
    monkeypatch.setattr(
        "mgmt.compiler.encoding.encoder.time", SimpleNamespace(monotonic=late, perf_counter=time.perf_counter)
    )
    with pytest.raises(
        SolveTimeout, match="pod_affinity: it is not encoded after 9 s, the budget of the solve"
    ) as caught:
        model.solve(budget=9)
    assert caught.value.line == 10
    assert "join by keys" in caught.value.hint
    assert len(looks) == 1


@pytest.mark.slow("a thousand rows that a thousand values suit")
def test_what_would_not_fit_is_refused_before_it_is_built() -> None:
    """With the statement, or the column, that is too large, and how many cells it has; the memory is a setting."""
    schema = (
        "CREATE TABLE node (name TEXT PRIMARY KEY);\n"
        "CREATE TABLE pod (uid INTEGER PRIMARY KEY, variable__node TEXT NOT NULL REFERENCES node (name),"
        " variable__n INTEGER NOT NULL CHECK (variable__n BETWEEN 0 AND 9));"
    )
    alike = "CREATE CONSTRAINT c AS SELECT a.uid FROM pod a, pod b WHERE a.uid < b.uid CHECK"
    alike += " a.variable__node <> b.variable__node OR a.variable__n <> b.variable__n"

    # No engine finds values that satisfy it, so every cell is to be written down for the solver.
    each = "CREATE CONSTRAINT c AS SELECT * FROM pod CHECK variable__node = 'n1' OR variable__n = 1"

    def refused(policy: str, pods: int, nodes: int, memory: int) -> UnsupportedConstructError:
        state = Database(memory=memory)
        state.load_schema(schema)
        state.insert("node", [{"name": f"n{number}"} for number in range(nodes)])
        state.insert("pod", [{"uid": number} for number in range(pods)])
        with pytest.raises(UnsupportedConstructError, match="or allow more memory") as caught:
            Model.build(state, policy).solve(budget=30)
        return caught.value

    column = refused(each, 1000, 1001, 10**9)
    assert column.message.startswith(
        "pod.variable__node: the model needs 2002000 cells or more, and 2000000 go into"
    )
    rows = refused(alike, 1000, 2, 10**8)  # half a million pairs, of which none is looked at
    assert rows.message.startswith("c: the model needs 5")
    assert "200000 go into the 100 MB" in rows.message


def test_the_database_has_as_much_memory_as_the_setting_says() -> None:
    state = Database(memory=100 * 10**6)
    state.load_schema(
        "CREATE TABLE task (id INTEGER PRIMARY KEY, variable__n INTEGER CHECK (variable__n BETWEEN 0 AND 3));"
    )
    state.insert("task", [{"id": 1}])
    list_of = "CREATE VIEW all_of AS SELECT list(x) AS xs FROM range(20000000) AS numbers (x), task;"
    model = Model.build(
        state, f"{list_of} CREATE CONSTRAINT c AS SELECT id FROM task, all_of CHECK len(xs) > variable__n"
    )
    with pytest.raises(
        PolicySyntaxError, match=r"more memory than there is for it; .*, or allow more memory"
    ):
        model.solve()
