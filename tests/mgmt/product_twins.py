"""One state and policies encoded twice: with products that are expanded, and with every candidate row."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np

from mgmt.compiler.encoding.columns import Choices, Column, Truths
from mgmt.compiler.encoding.encoder import Encoder, Encoding
from mgmt.compiler.encoding.tables import TableEncoder, VariableColumn
from mgmt.compiler.model import Model
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.columns import FALSE
from mgmt.optimization.general.lexicographic import tier_objectives
from mgmt.state.database import Database


def encodings(database: Database, policies: str) -> tuple[Encoding, Encoding]:
    """Factored, and cell by cell."""
    model = Model.build(database, policies)

    def encoded() -> Encoding:
        with database.snapshot() as snapshot, snapshot.scratch():
            found = Encoder(snapshot).encode(model.program, model.catalog)
            _ = found.problem
            return found

    factored = encoded()
    with patch.object(TableEncoder, "encode", _encode_in_lists):
        return factored, encoded()


_encode = TableEncoder.encode


def _encode_in_lists(encoder: TableEncoder) -> None:
    """Every choice has its values and literals listed, so that nothing sees that they are in a grid."""
    _encode(encoder)
    for name, relation in encoder.relations.items():
        columns = {column: _listed(cells) for column, cells in relation.columns.items()}
        encoder.relations[name] = replace(relation, columns=columns)


def _listed(cells: Column) -> Column:
    if not isinstance(cells, Choices):
        return cells
    return Choices(cells.options.take(np.arange(len(cells.options))), cells.index)


def answers(encoding: Encoding) -> list[tuple[int, ...] | None]:
    """For each way to choose, in order, the least values of the tiers' objectives; None where it is not allowed."""
    found: list[tuple[int, ...] | None] = []
    problem = encoding.problem
    for chosen in product(*(way for column in encoding.columns for way in _ways(column))):
        session = CpSatBackend().load(problem)
        session.require_all(chosen)
        values: list[int] = []
        for objective in tier_objectives(problem).values() or [None]:
            answer = session.minimize(objective, {}, 10.0, 0, 1)
            if answer.status is AnswerStatus.INFEASIBLE:
                break
            assert answer.status is AnswerStatus.OPTIMAL
            values.append(0 if objective is None or answer.bound is None else int(answer.bound))
        else:
            found.append(tuple(values))
            continue
        found.append(None)
    return found


def _ways(column: VariableColumn) -> list[list[int]]:
    """Of each row the literals of its values, by value, and that of NULL."""
    if isinstance(column.cells, Truths):
        return [
            [int(literal) for literal in both]
            for both in zip(column.cells.true, column.cells.false, strict=True)
        ]
    options = column.cells.options.take(np.arange(len(column)))  # type: ignore[union-attr]
    return [
        [*options.literals[options.codes.starts[row] : options.codes.starts[row + 1]].tolist()]
        + ([int(options.null[row])] if options.null[row] != FALSE else [])
        for row in range(len(column))
    ]
