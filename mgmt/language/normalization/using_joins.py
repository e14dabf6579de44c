"""Joins by columns of one name: USING (...), and NATURAL, which is USING of all names that both sides have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.errors import AmbiguousColumnError, UnknownColumnError
from mgmt.language.names.scopes import Source
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import position_of
from mgmt.sql.trees import unsupported


@dataclass(frozen=True, slots=True)
class Merged:
    """A column that both sides have; ``owner`` is the left one."""

    identifier: exp.Identifier
    owner: Source

    @property
    def name(self) -> str:
        return str(self.identifier.name)

    def condition(self, right: Source) -> exp.Expr:
        """That both sides have the same value."""
        return exp.EQ(
            this=exp.column(self.identifier.copy(), table=exp.to_identifier(self.owner.alias, quoted=True)),
            expression=exp.column(self.identifier.copy(), table=right.alias, quoted=True),
        )


def merged_columns(join: exp.Join, before: Sequence[Source], right: Source, text: SourceText) -> list[Merged]:
    """The columns by which a join without ON joins; none when it is another join."""
    if str(join.args.get("method") or "").upper() == "NATURAL":
        common = [
            exp.to_identifier(column.name, quoted=True)
            for column in right.relation.columns
            if any(source.relation.find(column.name) for source in before)
        ]
        if not common:
            raise unsupported(
                join,
                text,
                "a NATURAL JOIN of relations without a common column",
                "write JOIN ... ON, or CROSS JOIN for all pairs",
            )
        position = position_of(join, text)
        return [_merged(identifier, before, right, position, "NATURAL JOIN") for identifier in common]
    return [
        _merged(identifier, before, right, position_of(identifier, text), f"USING ({identifier.name})")
        for identifier in join.args.get("using") or ()
    ]


def _merged(
    identifier: exp.Identifier, before: Sequence[Source], right: Source, position: Position, what: str
) -> Merged:
    name = identifier.name
    owners = [source for source in before if source.relation.find(name)]
    if len(owners) > 1:
        among = ", ".join(source.alias for source in owners)
        raise AmbiguousColumnError(
            f"{what}: column {name!r} is in several relations: {among}",
            position=position,
            hint=f"write ON {owners[0].alias}.{name} = {right.alias}.{name}",
        )
    if not owners or right.relation.find(name) is None:
        missing = right.alias if owners else " and ".join(source.alias for source in before)
        raise UnknownColumnError(
            f"{what}: no column {name!r} in {missing}",
            position=position,
            hint="USING takes a column that both sides have; for columns of different names write ON a.x = b.y",
        )
    return Merged(identifier, owners[0])
