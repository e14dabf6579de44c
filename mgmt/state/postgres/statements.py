"""Translate whole statements, and parts of a table's definition, from SQL as SQLite reads it to PostgreSQL.

What it is not: it runs nothing (see ``store`` and ``snapshots``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from mgmt.solution import Value
from mgmt.state.postgres.expressions import Columns, ColumnType
from mgmt.state.postgres.queries import QueryTranslator
from mgmt.state.postgres.typed import assigned, identifier
from mgmt.state.schema import SqlType
from mgmt.state.store import Parameters, RefusedStatementError

# Quoted parts are skipped; ?, ?2 and :name are parameters.
_LEXEMES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\?(\d*)|(?<![:\w]):([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Translation:
    """A statement for PostgreSQL.  ``parameters`` says which parameter $1, $2, ... is: a place from 0, or a name."""

    sql: str
    columns: tuple[tuple[str, ColumnType], ...]
    parameters: tuple[int | str, ...]

    def values(self, given: Parameters) -> list[Value]:
        """The values of $1, $2, ...  RefusedStatementError when one of them is not given."""
        try:
            if isinstance(given, Mapping):
                return [given[str(key)] for key in self.parameters]
            return [given[int(key)] for key in self.parameters]
        except (KeyError, IndexError, ValueError) as error:
            raise RefusedStatementError("a parameter, and there is no value for it") from error


def translate(sql: str, relations: Mapping[str, Columns]) -> Translation:
    """One SELECT, INSERT, UPDATE or DELETE.  RefusedStatementError when it is none, or cannot be read."""
    text, parameters = _number_parameters(sql)
    try:
        trees = sqlglot.parse(text, dialect="sqlite")
        tree = trees[0] if len(trees) == 1 else None
        if tree is None:
            raise RefusedStatementError("it is not one statement")
        if tree.find(exp.Parameter) is not None:
            raise RefusedStatementError("a parameter, and there is no value for it")
        translator = StatementTranslator(relations)
        translated, columns = translator.statement(tree)
        return Translation(render(translated), tuple(columns), parameters)
    except RecursionError as error:
        raise RefusedStatementError("it is nested too deeply") from error
    except (SqlglotError, UnicodeEncodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RefusedStatementError(f"it cannot be read: {reason}") from error


def render(tree: exp.Expr) -> str:
    """The text of a translated tree."""
    return tree.sql(dialect="postgres", identify=True, comments=False)


class StatementTranslator(QueryTranslator):
    """Translates one statement over the relations given (lower-case name -> columns)."""

    def statement(self, tree: exp.Expr) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        """A translated statement, and the columns of its answer."""
        if isinstance(tree, exp.Insert):
            return self._insert(tree)
        if isinstance(tree, exp.Update):
            return self._update(tree)
        if isinstance(tree, exp.Delete):
            return self._delete(tree)
        if isinstance(tree, exp.Query):
            return self.query(tree)
        raise RefusedStatementError(f"{tree.key.upper()} is not a query")

    def over(self, columns: Columns) -> StatementTranslator:
        """Itself, where these columns can be named."""
        self._scopes.append({"": columns})
        return self

    # ---- changes ------------------------------------------------------------------------------------

    def _insert(self, tree: exp.Insert) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        target = tree.this
        table = target.this if isinstance(target, exp.Schema) else target
        relation = self._relation(table)
        names = (
            [part.name for part in target.expressions] if isinstance(target, exp.Schema) else list(relation)
        )
        kinds = [relation.get(name.lower()) or SqlType.UNKNOWN for name in names]
        source = tree.expression
        if isinstance(source, exp.Values):
            rows = [
                exp.Tuple(
                    expressions=[
                        assigned(self.value(value), kind)
                        for value, kind in zip(row.expressions, kinds, strict=True)
                    ]
                )
                for row in source.expressions
            ]
            translated: exp.Expr = exp.Values(expressions=rows)
        else:
            inner, columns = self.query(source)
            parts = [f"c{place}" for place in range(len(columns))]
            values = [
                assigned(self._typed_column(exp.column(identifier(part)), kind), wanted)
                for part, (_, kind), wanted in zip(parts, columns, kinds, strict=True)
            ]
            alias = exp.TableAlias(this=identifier("source"), columns=[identifier(part) for part in parts])
            translated = exp.Select(
                expressions=values, from_=exp.From(this=exp.Subquery(this=inner, alias=alias))
            )
        into = exp.Schema(
            this=exp.Table(this=identifier(table.name)), expressions=[identifier(name) for name in names]
        )
        _refuse_others(tree, {"this", "expression", "returning"})
        made = exp.Insert(this=into, expression=translated)
        return self._returning(tree, made, table.name, relation)

    def _update(self, tree: exp.Update) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        relation = self._relation(tree.this)
        alias = tree.this.alias or tree.this.name
        self._scopes.append({alias.lower(): relation})
        changes = []
        for change in tree.expressions:
            if not isinstance(change, exp.EQ) or not isinstance(change.this, exp.Column):
                raise RefusedStatementError("only SET column = value is understood")
            kind = relation.get(change.this.name.lower()) or SqlType.UNKNOWN
            value = assigned(self.value(change.expression), kind)
            changes.append(exp.EQ(this=exp.column(identifier(change.this.name)), expression=value))
        made = exp.Update(this=_target(tree.this, alias), expressions=changes)
        if tree.args.get("where"):
            made.set("where", exp.Where(this=self.condition(tree.args["where"].this)))
        self._scopes.pop()
        _refuse_others(tree, {"this", "expressions", "where", "returning"})
        return self._returning(tree, made, alias, relation)

    def _delete(self, tree: exp.Delete) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        relation = self._relation(tree.this)
        alias = tree.this.alias or tree.this.name
        self._scopes.append({alias.lower(): relation})
        made = exp.Delete(this=_target(tree.this, alias))
        if tree.args.get("where"):
            made.set("where", exp.Where(this=self.condition(tree.args["where"].this)))
        self._scopes.pop()
        _refuse_others(tree, {"this", "where", "returning"})
        return self._returning(tree, made, alias, relation)

    def _returning(
        self, tree: exp.Expr, made: exp.Expr, alias: str, relation: Columns
    ) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        clause = tree.args.get("returning")
        if clause is None:
            return made, []
        scope = {alias.lower(): relation}
        self._scopes.append(scope)
        outputs = self._select_list(exp.Select(expressions=[p.copy() for p in clause.expressions]), scope)
        self._scopes.pop()
        made.set(
            "returning",
            exp.Returning(
                expressions=[exp.Alias(this=value.tree, alias=identifier(name)) for name, value in outputs]
            ),
        )
        return made, [(name, value.column_type) for name, value in outputs]


def constraint(condition_: str | exp.Expr, columns: Columns) -> str:
    """A CHECK condition over a table's columns."""
    tree = _parsed_condition(condition_) if isinstance(condition_, str) else condition_
    translated = StatementTranslator({}).over(columns).condition(tree)
    for column in translated.find_all(exp.Column):
        column.set("table", None)
    return render(translated)


def _parsed_condition(text: str) -> exp.Expr:
    """By itself it would be read as another statement when it begins with the name of one."""
    select = sqlglot.parse_one(f"SELECT {text}", dialect="sqlite")
    found: exp.Expr = select.expressions[0]
    return found


def default(value: exp.Expr, kind: SqlType) -> str:
    """A DEFAULT value for a column of this type."""
    return render(assigned(StatementTranslator({}).value(value), kind))


def _number_parameters(sql: str) -> tuple[str, tuple[int | str, ...]]:
    """The text with its parameters named :p1, :p2, ..., and which parameter each of them is."""
    found: list[int | str] = []

    def rename(match: re.Match[str]) -> str:
        number_, name = match.group(1), match.group(2)
        if number_ is None and name is None:
            return match.group(0)
        key: int | str = name if name is not None else (int(number_) - 1 if number_ else len(found))
        if key not in found:
            found.append(key)
        return f":p{found.index(key) + 1}"

    return _LEXEMES.sub(rename, sql), tuple(found)


def _target(table: exp.Expr, alias: str) -> exp.Table:
    return exp.Table(this=identifier(table.name), alias=exp.TableAlias(this=identifier(alias)))


def _refuse_others(tree: exp.Expr, known: Sequence[str] | set[str]) -> None:
    for clause, found in tree.args.items():
        if found and clause not in known:
            raise RefusedStatementError(f"{clause.rstrip('_').upper()} is not understood here")
