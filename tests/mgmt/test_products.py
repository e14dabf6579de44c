"""Sums of products: rows and values fetched apart mean what every row with every value means."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from mgmt.compiler.encoding.encoder import Encoder
from mgmt.compiler.model import Model
from mgmt.errors import OverflowError, UnsupportedConstructError  # noqa: A004 - the published name
from mgmt.optimization.columns import filled
from mgmt.optimization.general.expansion import expanded
from mgmt.optimization.problem import LinearRows, LiteralRows, Relation
from mgmt.optimization.products import CellRows, FactoredProblem, Side
from mgmt.state.database import Database
from tests.budget import budgeted
from tests.mgmt.product_twins import answers, encodings

_SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, rack TEXT, cap INTEGER NOT NULL, price INTEGER, ready BOOLEAN NOT NULL);
CREATE TABLE spare (node TEXT NOT NULL REFERENCES node (name), kind TEXT NOT NULL, room INTEGER NOT NULL,
                    PRIMARY KEY (node, kind));
CREATE TABLE pod (name TEXT PRIMARY KEY, app TEXT, cpu INTEGER NOT NULL, weight INTEGER,
                  variable__node TEXT {null} REFERENCES node (name){flag});
CREATE TABLE demand (pod TEXT NOT NULL REFERENCES pod (name), kind TEXT NOT NULL, amount INTEGER NOT NULL,
                     PRIMARY KEY (pod, kind));
"""
_NUMBERS = ("pod.cpu", "pod.weight", "node.price", "pod.cpu * node.cap", "pod.cpu - node.price", "1")
_TRUTHS = ("node.ready", "pod.cpu > 2", "pod.cpu < node.cap", "pod.weight IS NULL", "node.rack = pod.app")
_FLAGGED = (
    "pod.variable__on",
    "pod.variable__on AND node.ready",
    "pod.cpu > 1 AND pod.variable__on",
    "NOT pod.variable__on",
)
_ALIKE = ("count(DISTINCT node.rack)", "min(pod.cpu)", "max(node.price)", "max(pod.weight)")


class _Maker:
    """Random rows and policies over them."""

    def __init__(self, seed: int, truths: tuple[str, ...] = _TRUTHS, most_pods: int = 3) -> None:
        self._draw = Random(seed)
        self._truths = truths
        self._most_pods = most_pods

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        draw = self._draw
        nodes = [f"n{number}" for number in range(draw.randrange(1, 4))]
        pods = [f"p{number}" for number in range(draw.randrange(1, 1 + self._most_pods))]
        return {
            "node": [
                {
                    "name": name,
                    "rack": draw.choice(("x", "y", None)),
                    "cap": draw.randrange(6),
                    "price": draw.choice((1, 3, None)),
                    "ready": draw.random() < 0.7,
                }
                for name in nodes
            ],
            "spare": [
                {"node": name, "kind": kind, "room": draw.randrange(6)}
                for name in nodes
                for kind in "ab"
                if draw.random() < 0.8
            ],
            "pod": [
                {
                    "name": name,
                    "app": draw.choice(("x", "y", None)),
                    "cpu": draw.randrange(4),
                    "weight": draw.choice((-2, 0, 5, None)),
                }
                for name in pods
            ],
            "demand": [
                {"pod": name, "kind": kind, "amount": draw.randrange(4)}
                for name in pods
                for kind in "abc"
                if draw.random() < 0.6
            ],
        }

    def policies(self) -> str:
        statements = [self._statement(number) for number in range(2)]
        return "\n".join((*statements, self._objective()))

    def _statement(self, number: int) -> str:
        draw = self._draw
        name = f"c{number}"
        where = f" WHERE {draw.choice(self._truths)}" if draw.random() < 0.4 else ""
        joined = f"FROM pod JOIN node ON pod.variable__node = node.name{where}"
        keys = draw.choice(
            (
                "node.name",
                "node.rack",
                "pod.app",
                "pod.app, node.name",
                "node.name, node.cap",
                "node.rack, pod.app",
            )
        )
        bound = f"{draw.choice(('<=', '>=', '<>', '='))} {draw.randrange(-1, 5)}"
        kind = draw.randrange(15)
        if kind == 0:
            check = draw.choice((*self._truths, "FALSE"))
            return f"CREATE CONSTRAINT {name} AS SELECT pod.name {joined} CHECK {check};"
        if kind == 1:
            return (
                f"CREATE CONSTRAINT {name} AS SELECT {keys} {joined} GROUP BY {keys} "
                f"HAVING {self._aggregate()} {bound} CHECK {self._aggregate()} {bound};"
            )
        if kind == 2:
            strict = draw.choice(("", " STRICT GROUPS"))
            return f"""CREATE VIEW {name}_seen AS
SELECT {keys}, {self._aggregate()} AS seen {joined} GROUP BY {keys}{strict};
CREATE CONSTRAINT {name} AS SELECT * FROM {name}_seen CHECK seen {bound};"""
        if kind == 3:
            return f"""CREATE CONSTRAINT {name} AS SELECT spare.node, spare.kind FROM demand JOIN pod
ON pod.name = demand.pod JOIN spare ON pod.variable__node = spare.node AND spare.kind = demand.kind
GROUP BY spare.node, spare.kind, spare.room CHECK sum(demand.amount) <= spare.room;"""
        if kind == 4:
            number_ = draw.choice([number for number in _NUMBERS if "pod" in number])
            return f"""CREATE CONSTRAINT {name} AS SELECT * FROM node
CHECK (SELECT sum({number_}) FROM pod WHERE pod.variable__node = node.name) {bound};"""
        if kind == 5:
            return f"""CREATE CONSTRAINT {name} AS
SELECT node.name FROM pod CROSS JOIN node GROUP BY node.name, node.cap
CHECK sum(CASE WHEN pod.variable__node = node.name THEN pod.cpu ELSE 0 END) <= node.cap;"""
        if kind == 6:
            return (
                f"CREATE CONSTRAINT {name} AS SELECT * FROM spare CHECK (SELECT {self._different()} FROM pod, demand "
                + (
                    "WHERE demand.pod = pod.name AND pod.variable__node = spare.node AND demand.kind = spare.kind) "
                    f"{bound};"
                )
            )
        if kind == 7:
            return f"""CREATE CONSTRAINT {name} AS SELECT * FROM node CHECK {draw.choice(("", "NOT "))}EXISTS
(SELECT 1 FROM pod WHERE pod.variable__node = node.name AND {draw.choice(self._truths)});"""
        if kind == 8:
            return f"""CREATE CONSTRAINT {name} AS SELECT a.name FROM pod AS a JOIN node AS x
ON a.variable__node = x.name JOIN pod AS b ON a.name < b.name JOIN node AS y ON b.variable__node = y.name
CHECK {draw.choice(("x.rack <> y.rack", "x.cap + y.cap < 7", "x.rack IS NULL OR y.price > 1"))};"""
        if kind == 9:
            return f"""CREATE CONSTRAINT {name} AS SELECT * FROM pod CHECK variable__node {draw.choice(("", "NOT "))}IN
(SELECT node.name FROM node WHERE {draw.choice(("ready", "rack = 'x'", "cap > 9"))});"""
        if kind == 11:
            rule = draw.choice(
                (
                    "CHECK a.variable__node <> b.variable__node",
                    "WHERE a.variable__node = b.variable__node CHECK FALSE",
                )
            )
            return f"""CREATE CONSTRAINT {name} AS SELECT a.name FROM pod AS a JOIN pod AS b ON a.app = b.app
AND a.name {draw.choice(("<", "<>", "<="))} b.name {rule};"""
        if kind == 12:
            return f"""CREATE CONSTRAINT {name} AS SELECT app FROM pod GROUP BY app
CHECK count(DISTINCT variable__node) {bound};"""
        if kind == 13:
            looked_for = draw.choice(
                (
                    "NOT EXISTS (SELECT 1 FROM pod AS b WHERE b.name < a.name AND b.variable__node = a.variable__node)",
                    "a.variable__node NOT IN (SELECT b.variable__node FROM pod AS b WHERE b.name <> a.name)",
                    "NOT (a.variable__node = 'n0' AND a.cpu > 1)",
                )
            )
            return f"CREATE CONSTRAINT {name} AS SELECT * FROM pod AS a CHECK {looked_for};"
        if kind == 10:
            return f"CREATE CONSTRAINT {name} AS SELECT app FROM pod GROUP BY app CHECK all_different(variable__node);"
        return (
            f"CREATE CONSTRAINT {name} AS SELECT {keys} {joined} GROUP BY {keys} "
            f"CHECK {self._aggregate()} {bound} SOFT TIER 2;"
        )

    def _different(self) -> str:
        return self._draw.choice(
            ("count(DISTINCT demand.amount)", "max(demand.amount)", "sum(demand.amount)")
        )

    def _aggregate(self) -> str:
        draw = self._draw
        condition = f" FILTER (WHERE {draw.choice(self._truths)})" if draw.random() < 0.4 else ""
        return (
            draw.choice((f"sum({draw.choice(_NUMBERS)})", "count(*)", "count(pod.weight)", *_ALIKE))
            + condition
        )

    def _objective(self) -> str:
        draw = self._draw
        if draw.random() < 0.5:
            return f"""CREATE CONSTRAINT o AS SELECT pod.name FROM pod JOIN node ON pod.variable__node = node.name
MINIMIZE {draw.choice(_NUMBERS)};"""
        total = f"{draw.choice(('MINIMIZE', 'MAXIMIZE'))} {draw.choice(('max(used)', 'sum(used)'))}"
        return f"""CREATE VIEW load AS SELECT node.name, {self._aggregate()} AS used FROM pod JOIN node
ON pod.variable__node = node.name GROUP BY node.name;
CREATE CONSTRAINT o AS SELECT * FROM load {total};"""


def _check(seed: int, *, flagged: bool = False) -> bool:
    """Whether anything of it was a product, of flagged rows if there are any."""
    maker = _Maker(seed, _FLAGGED, 2) if flagged else _Maker(seed)
    rows, policies = maker.rows(), maker.policies()
    database = Database()
    flag = ", variable__on BOOLEAN NOT NULL" if flagged else ""
    database.load_schema(_SCHEMA.format(null="NOT NULL" if flagged or seed % 2 else "", flag=flag))
    database.replace_rows(rows)
    try:
        factored, cells = encodings(database, policies)
    except UnsupportedConstructError:
        return False
    assert answers(factored) == answers(cells), (rows, policies)
    if flagged:
        return bool(factored.factored.flagged_grids)
    return bool(factored.factored.sums or factored.factored.cell_rows)


def _problem(rows: int, values: int, *, nullable: bool = False) -> FactoredProblem:
    problem = FactoredProblem()
    problem.new_grids([(rows, values, nullable)])
    return problem


def test_a_sum_reaches_what_its_rows_weigh_whatever_the_number_of_values() -> None:
    """And is refused where that is beyond 64 bits."""
    problem = _problem(3, 100)
    everything = Side.of(np.arange(100), filled(100, 1), filled(100, 0), 1)
    rows = Side.of(np.array([0, 1, 1, 2]), np.array([5, -2, 4, -3]), np.array([0, 0, 0, 1]), 2)
    total = problem.new_sums(problem.grids[0], rows, everything, np.array([0, 1]), np.array([0, 0]))
    low, high = problem.ranges(total)
    assert (low.tolist(), high.tolist()) == ([0, -3], [7, 0])
    large = Side(rows.members, filled(3, 2**62))
    with pytest.raises(OverflowError, match=str(2**63)):
        problem.new_sums(problem.grids[0], large, everything, np.array([0]), np.array([0]))


def test_a_sum_that_stands_in_many_rows_is_written_out_once() -> None:
    problem = _problem(6, 2)
    rows = Side.of(np.arange(6), filled(6, 1), filled(6, 0), 1)
    total = problem.new_sums(problem.grids[0], rows, Side.alone(np.array([1])), np.array([0]), np.array([0]))
    problem.require_range(total.take(filled(9, 0)).scaled(np.arange(9) + 1), None, 9)
    sizes = [
        block.linears.terms.lengths.tolist()
        for block in expanded(problem).rows
        if isinstance(block, LinearRows)
    ]
    assert sorted(sizes) == [[1] * 8, [7]]


def test_whether_anybody_is_there_is_a_cell_one_of_a_row_s_cells_or_a_definition() -> None:
    problem = _problem(2, 3)
    (grid,) = problem.grids
    total = problem.new_sums(
        grid,
        Side.of(np.array([0, 0, 1]), filled(3, 1), np.array([0, 1, 1]), 2),
        Side.of(np.array([0, 0, 1]), filled(3, 4), np.array([0, 1, 1]), 2),
        np.array([0, 0, 1]),
        np.array([0, 1, 1]),
    )
    empty = problem.at_most(total, 0)
    assert empty[0] == grid.literals(np.array([0]), np.array([0]))[0] ^ 1
    assert problem.at_most(total.plus(1), 1).tolist() == empty.tolist()
    found = expanded(problem)
    one = found.rows[-1]
    assert isinstance(one, LiteralRows)
    assert one.literals.items.tolist() == [*grid.literals(np.array([0, 0]), np.array([0, 1])), empty[1]]
    (definition,) = found.conjunctions
    assert definition.targets.tolist() == empty[2:].tolist()
    assert definition.literals.lengths.tolist() == [4]


def test_rows_over_cells_say_of_which_row_of_a_constraint_each_is() -> None:
    problem = _problem(3, 3)
    (grid,) = problem.grids
    values = Side.alone(np.array([0, 2]))
    forbidden = CellRows(
        grid, Side.alone(np.array([1])), values, True, "no", np.array([10]), np.array([0, 2])
    )
    pairs = Side.of(np.array([0, 1, 2]), filled(3, 1), np.array([0, 0, 1]), 2)
    apart_ = CellRows(grid, pairs, values, False, "apart", np.array([5, 6]), filled(2, 0))
    for block in (forbidden, apart_):
        problem.require_cells(block)
    _, none, one = expanded(problem).rows
    assert isinstance(none, LiteralRows)
    assert isinstance(one, LiteralRows)
    assert none.source is not None
    assert none.source.rows.tolist() == [10, 12]
    assert none.literals.items.tolist() == (grid.literals(np.array([1, 1]), np.array([0, 2])) ^ 1).tolist()
    assert one.source is not None
    assert one.source.rows.tolist() == [5, 5]
    assert (one.relation, one.literals.lengths.tolist()) == (Relation.AT_LEAST_ONE, [2, 2])
    assert (one.literals.items & 1 == 1).all()


def test_thirty_million_cells_take_no_room_where_nobody_asks_for_them() -> None:
    database = Database(memory=10**9)  # of which two million cells would be enough
    database.load_schema(_SCHEMA.format(null="NOT NULL", flag=""))
    nodes = [
        {"name": f"n{number}", "rack": f"r{number % 20}", "cap": 9, "price": 1, "ready": number % 9 > 0}
        for number in range(1000)
    ]
    pods = [
        {"name": f"p{number}", "app": f"a{number // 3}", "cpu": 1, "weight": 1} for number in range(30_000)
    ]
    database.insert("node", nodes)
    database.insert("pod", pods)
    joined = "FROM pod JOIN node ON pod.variable__node = node.name"
    policies = f"""
CREATE CONSTRAINT ready AS SELECT pod.name {joined} CHECK node.ready;
CREATE CONSTRAINT known AS SELECT * FROM pod CHECK variable__node IN (SELECT node.name FROM node WHERE price > 0);
CREATE CONSTRAINT apart AS SELECT app FROM pod GROUP BY app CHECK all_different(variable__node);
CREATE CONSTRAINT room AS SELECT node.name {joined} GROUP BY node.name, node.cap CHECK sum(pod.cpu) <= node.cap;
CREATE VIEW load AS SELECT node.name, count(*) AS pods {joined} GROUP BY node.name;
CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE max(pods);
"""
    model = Model.build(database, policies)
    with database.snapshot() as snapshot, snapshot.scratch():
        encoding = Encoder(snapshot).encode(model.program, model.catalog)
        assert encoding.factored.cells < 20 * 31_000
        with pytest.raises(
            UnsupportedConstructError, match=r"pod\.variable__node: the model needs 60000000 cells"
        ):
            _ = encoding.problem


@pytest.mark.parametrize("chunk", budgeted(range(2), 60, in_test=1))
def test_what_is_fetched_apart_allows_and_costs_what_every_candidate_does(chunk: int) -> None:
    found = [_check(1000 * chunk + number) for number in range(12)]
    assert sum(found) > len(found) // 2


@pytest.mark.parametrize("chunk", budgeted(range(30), 3))
def test_so_it_is_of_rows_that_are_flagged_beside_their_choice(chunk: int) -> None:
    found = [_check(1000 * chunk + number, flagged=True) for number in range(16)]
    assert any(found)
