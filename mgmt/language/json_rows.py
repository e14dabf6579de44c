"""Rows made of texts that hold JSON: json_each(x) and PostgreSQL's functions of that kind in FROM.

The texts that there are become a view, their rows another one, and the join with it says which text a row is of.  So it
may be a column of a table to the left, and whatever reads the join needs to know nothing of it.

What it is not: what a text holds is the business of ``mgmt.state.json_texts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from mgmt.errors import PolicySyntaxError, TypeMismatchError, UnsupportedConstructError
from mgmt.language.catalog import Catalog, RelationColumn
from mgmt.language.json_operators import OPERATORS
from mgmt.language.scopes import Scope, Source, candidates
from mgmt.language.syntax import Statement
from mgmt.source import SourceText
from mgmt.state import json_texts
from mgmt.state.schema import SqlType
from mgmt.tokens import position_of


@dataclass(frozen=True, slots=True)
class _Kind:
    """``function`` makes an object of the text, of which SQLite's json_each makes the rows."""

    function: str
    columns: tuple[str, ...]


_BOTH, _PLACED = ("key", "value"), ("value",)
_KINDS: Mapping[str, _Kind] = {
    "json_each": _Kind(json_texts.MEMBERS, _BOTH),
    **dict.fromkeys(("json_each_text", "jsonb_each_text"), _Kind(json_texts.PAIRS, _BOTH)),
    **dict.fromkeys(
        ("json_array_elements_text", "jsonb_array_elements_text"), _Kind(json_texts.ELEMENTS, _PLACED)
    ),
}
_DOCUMENT = "document"
_STRICT = (exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Paren, *OPERATORS)
"""Of these all is NULL where a column is."""


class Views(Protocol):
    """Makes views, and returns their names."""

    def define_anonymous(self, label: str, tree: exp.Expr, statement: Statement) -> str:
        """Of a SELECT as policies have it."""

    def define_made(
        self, label: str, tree: exp.Expr, columns: Sequence[RelationColumn], statement: Statement
    ) -> str:
        """Of a SELECT that needs no binding, which has these columns."""


def is_json_rows(item: exp.Expr) -> bool:
    """Whether it is one of the functions in FROM."""
    return _name(item) in _KINDS


def _name(item: exp.Expr) -> str:
    call = item.this if isinstance(item, (exp.Table, exp.Lateral)) else None
    return str(call.this).lower() if isinstance(call, exp.Anonymous) else ""


@dataclass(frozen=True, slots=True)
class JsonRows:
    """What is known where one of the functions stands.  ``outer`` are the scopes of the SELECTs around it."""

    views: Views
    catalog: Catalog
    scope: Scope
    outer: tuple[Scope, ...]
    statement: Statement

    @property
    def _text(self) -> SourceText:
        return self.statement.source

    def replace(self, holder: exp.Expr, select: exp.Select) -> exp.Table:
        """A view in the place of the function below ``holder``, which is FROM or a join of the SELECT."""
        item = holder.this
        name, alias = _name(item), item.args.get("alias")
        self._refuse_others(item)
        called = item.alias or name
        document = item.this.expressions[0]
        sources = self._sources(document)
        text = exp.Paren(this=document.copy())
        tree = exp.Select(expressions=[exp.alias_(text, _DOCUMENT, quoted=True)])
        if sources:
            self._refuse_join(holder, document, select)
            self._read(tree, sources, select)
        texts = self.views.define_anonymous(called, tree, self.statement)
        relation = self.catalog.find(texts)
        assert relation is not None
        if relation.symbolic:
            raise self._decided(document)
        if relation.columns[0].type not in {SqlType.TEXT, SqlType.UNKNOWN}:
            raise TypeMismatchError(
                f"{name} of a value of type {relation.columns[0].type}",
                position=position_of(item, self._text),
                hint="it takes a text that holds JSON",
            )
        names = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
        view, of = self._rows(texts, _KINDS[name], names, called, item)
        made = exp.Table(
            this=exp.to_identifier(view, quoted=True),
            alias=exp.TableAlias(this=exp.to_identifier(called, quoted=True)),
        )
        item.replace(made)
        if sources:
            own = exp.column(exp.to_identifier(of, quoted=True), table=exp.to_identifier(called, quoted=True))
            condition = exp.EQ(this=own, expression=exp.Paren(this=document.copy()))
            demand(holder, select, condition)
        return made

    def _rows(
        self, texts: str, kind: _Kind, names: Sequence[str], called: str, item: exp.Expr
    ) -> tuple[str, str]:
        """The view of all rows of the texts of a view, and the column of it that has the text."""
        if len(names) > len(kind.columns):
            raise PolicySyntaxError(
                f"{len(names)} names are given to {len(kind.columns)} columns",
                position=position_of(item, self._text),
                hint=f"its columns are {' and '.join(kind.columns)}",
            )
        named = [*names, *kind.columns[len(names) :]]
        of = f"{_DOCUMENT} of {called}"
        columns = [RelationColumn(name, SqlType.TEXT, False) for name in named]
        parts = list(kind.columns)
        if kind.columns == _PLACED and called.lower() != named[0].lower() and not names:
            parts.append("value")  # by the name of the whole, as in PostgreSQL
            columns.append(RelationColumn(called, SqlType.TEXT, False, hidden=True))
        columns.append(RelationColumn(of, SqlType.TEXT, False, hidden=True))
        document = exp.column(exp.to_identifier(_DOCUMENT, quoted=True), table="texts", quoted=True)
        values = [*(exp.column(part, table="rows", quoted=True) for part in parts), document]
        call = exp.Anonymous(this=kind.function, expressions=[document.copy()])
        each = exp.Table(
            this=exp.Anonymous(this="json_each", expressions=[call]),
            alias=exp.TableAlias(this=exp.to_identifier("rows", quoted=True)),
        )
        source = exp.Table(
            this=exp.to_identifier(texts, quoted=True),
            alias=exp.TableAlias(this=exp.to_identifier("texts", quoted=True)),
        )
        tree = exp.Select(
            expressions=[
                exp.alias_(value, column.name, quoted=True)
                for value, column in zip(values, columns, strict=True)
            ],
            from_=exp.From(this=source),
            joins=[exp.Join(this=each, kind="CROSS")],
        )
        return self.views.define_made(called, tree, columns, self.statement), of

    # ---- what the text is of ------------------------------------------------------------------------

    def _sources(self, document: exp.Expr) -> list[Source]:
        """The relations to the left, or of the SELECTs around, whose columns the text is made of."""
        found: dict[str, Source] = {}
        around = document.find_ancestor(exp.Query)
        own = [
            column for column in document.find_all(exp.Column) if column.find_ancestor(exp.Query) is around
        ]
        if own and document.find(exp.Query) is not None:
            raise self._unsupported(
                document, "a subquery beside columns in a text of JSON", "select the text in a view"
            )
        for column in own:
            for scope in (self.scope, *self.outer):
                meant = candidates(scope, column.name, column.table)
                for source, known in meant:
                    if known.symbolic or source.relation.gated:
                        raise self._decided(column)
                    if found.setdefault(source.alias.lower(), source) is not source:
                        raise self._unsupported(
                            column, "JSON of two relations of one name", "give one of them an alias"
                        )
                if meant:
                    break
        return list(found.values())

    def _read(self, tree: exp.Select, sources: Sequence[Source], select: exp.Select) -> None:
        """Let the SELECT of the texts read the sources, without the rows that the SELECT around leaves out."""
        tables = [
            exp.Table(
                this=exp.to_identifier(source.relation.name, quoted=True),
                alias=exp.TableAlias(this=exp.to_identifier(source.alias, quoted=True)),
            )
            for source in sources
        ]
        tree.set("distinct", exp.Distinct())
        tree.set("from_", exp.From(this=tables[0]))
        tree.set("joins", [exp.Join(this=table, kind="CROSS") for table in tables[1:]])
        where = select.args.get("where")
        condition = None if where is None else where.this
        for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
            if part is not None:
                self._keep(tree, part, sources)

    def _keep(self, tree: exp.Select, condition: exp.Expr, sources: Sequence[Source]) -> None:
        """Repeat a condition that is of the constants of the sources alone."""
        if condition.find(exp.Query, exp.Func, *OPERATORS) is not None:
            return
        for column in condition.find_all(exp.Column):
            if not column.table:
                return  # what it means is not settled before all of FROM is known
            meant = candidates(self.scope, column.name, column.table)
            if len(meant) != 1 or meant[0][1].symbolic or meant[0][0] not in sources:
                return
        tree.where(condition.copy(), copy=False)

    # ---- what is refused ----------------------------------------------------------------------------

    def _refuse_others(self, item: exp.Expr) -> None:
        others = sorted(
            name for name, given in item.args.items() if given and name not in {"this", "alias", "view"}
        )
        if others:
            raise self._unsupported(item, f"{others[0].upper()} of {_name(item)}", "leave it out")
        if len(item.this.expressions) != 1:
            raise self._unsupported(
                item, f"{_name(item)} of other than one text", "name a member by labels -> 'name'"
            )

    def _refuse_join(self, holder: exp.Expr, document: exp.Expr, select: exp.Select) -> None:
        joins = select.args.get("joins") or ()
        side = str(holder.args.get("side") or "").upper()
        if side not in {"", "LEFT"}:
            raise self._unsupported(holder, f"a {side} JOIN of what stands to the left", "write LEFT JOIN")
        if holder.args.get("using") or holder.args.get("method"):
            raise self._unsupported(holder, "USING of rows made of JSON", "write ON a.x = b.y")
        around = any(scope is not self.scope for scope in self.outer)
        if around or any(join.args.get("side") and join is not holder for join in joins):
            for node in document.walk():
                if not isinstance(node, _STRICT) and not _is_written_out(node):
                    raise self._unsupported(
                        document,
                        "rows of computed JSON beside an outer join, or in a subquery",
                        "select the text in a view",
                    )

    def _decided(self, node: exp.Expr) -> UnsupportedConstructError:
        return self._unsupported(
            node,
            "rows made of what the solver decides",
            "make the rows of constant columns, in a view, and join that",
        )

    def _unsupported(self, node: exp.Expr, what: str, hint: str) -> UnsupportedConstructError:
        return UnsupportedConstructError(
            f"cannot be encoded: {what}", position=position_of(node, self._text), hint=hint
        )


def _is_written_out(node: exp.Expr) -> bool:
    """Whether it was one of the operators."""
    return isinstance(node, exp.Anonymous) and str(node.this) in json_texts.FUNCTIONS


def demand(holder: exp.Expr, select: exp.Select, condition: exp.Expr) -> None:
    """Put the condition beside those of a join, or into WHERE where there is no join."""
    if not isinstance(holder, exp.Join):
        select.where(condition, copy=False)
        return
    on = holder.args.get("on")
    holder.set("kind", None)
    holder.set("on", condition if on is None else exp.and_(condition, on.copy(), copy=False))
