"""Reads a schema: CREATE TABLE and CREATE INDEX statements.

``CURRENT column`` and ``DOMAIN (SELECT ...)`` belong to our dialect, not to SQL, and are cut off by token before
the rest is parsed strictly.  What is read is ``mgmt.state.schema``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from mgmt.errors import (
    DuplicateNameError,
    PolicySyntaxError,
    UnsupportedConstructError,
)
from mgmt.source_text import Position, SourceText
from mgmt.sql.annotations import refuse_misspelt
from mgmt.sql.tokens import CLOSING, OPENING, parse_tokens, position_of, refuse_too_many, split_statements
from mgmt.state.schema import (
    VARIABLE_PREFIXES,
    Column,
    ForeignKey,
    Schema,
    SqlType,
    Table,
)
from mgmt.state.schema_parsing.consistency import (
    check_references,
    check_unique_index,
    finish_table,
    with_constant_key,
)
from mgmt.state.schema_parsing.variable_columns import (
    bounded,
    declare,
    declared_variables,
    names_variable,
    rules_of,
)

_INTEGERS = {exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT}
_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.NCHAR, exp.DType.NVARCHAR}
_NO_EXTRA_AFTER = {TokenType.COMMA, TokenType.L_PAREN, TokenType.CONSTRAINT, TokenType.REFERENCES}
_REALS = {exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL}
_TEMPORAL = {
    exp.DType.DATE: SqlType.DATE,
    exp.DType.TIMESTAMP: SqlType.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: SqlType.TIMESTAMP,
}


def parse_schema(source: SourceText, known: Schema | None = None) -> Schema:
    """Read CREATE TABLE and CREATE INDEX statements; ``known`` are the tables loaded before."""
    refuse_too_many(source)
    refuse_misspelt(source)
    tables = list(known.tables) if known else []
    unique: list[tuple[exp.Create, Position]] = []
    positions: dict[str, Position] = {}
    for tokens in split_statements(source):
        position = source.position(tokens[0].start)
        tree: exp.Expr | None = None
        extras: dict[int, tuple[str, str]] = {}
        if tokens[0].token_type == TokenType.CREATE:
            tokens, extras = _cut_extras(tokens, source)
            tree = parse_tokens(tokens, source)
        if not isinstance(tree, exp.Create) or tree.args.get("kind") not in {"TABLE", "INDEX"}:
            raise UnsupportedConstructError(
                "a schema holds CREATE TABLE and CREATE INDEX only",
                position=position,
                hint="views belong to the policies, rows are inserted through Database.insert",
            )
        if tree.args["kind"] == "INDEX":
            # Of an index only what it demands: the engine reads whole columns.
            if tree.args.get("unique"):
                unique.append((tree, position))
            continue
        table = _read_table(tree, extras, declared_variables(tokens[0].comments), source)
        tables = [other for other in tables if not (other.found and other.name.lower() == table.name.lower())]
        if any(other.name.lower() == table.name.lower() for other in tables):
            raise DuplicateNameError(
                f"table {table.name!r} is defined twice",
                position=position,
                hint="leave one out, or rename it",
            )
        tables.append(table)
        positions[table.name] = position_of(tree.this, source)
    schema = Schema(tuple(tables))
    for tree, position in unique:
        check_unique_index(schema, tree, position)
        schema = _with_unique_index(schema, tree)
    keyed = (with_constant_key(table, positions.get(table.name)) for table in schema.tables)
    schema = Schema(tuple(keyed))
    for table in schema.tables:
        check_references(schema, table)
    return schema


def _with_unique_index(schema: Schema, tree: exp.Create) -> Schema:
    """What an index demands of rows is demanded of its table; how rows are found is the engine's matter."""
    on = tree.find(exp.Table)
    columns = [ordered.this for ordered in tree.find_all(exp.Ordered)]
    if on is None or not columns or not all(isinstance(column, exp.Column) for column in columns):
        return schema
    unique = tuple(column.name for column in columns)
    tables = [
        replace(table, uniques=(*table.uniques, unique)) if table.name.lower() == on.name.lower() else table
        for table in schema.tables
    ]
    return replace(schema, tables=tuple(tables))


def _cut_extras(tokens: list[Token], source: SourceText) -> tuple[list[Token], dict[int, tuple[str, str]]]:
    """Remove ``CURRENT column`` and ``DOMAIN (SELECT ...)``; they are found again by the offset before them.

    Returns the remaining tokens and, per offset of the last token kept before it, (word, text).
    """
    kept: list[Token] = []
    extras: dict[int, tuple[str, str]] = {}
    index, depth = 0, 0
    while index < len(tokens):
        token = tokens[index]
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        # Elsewhere these words are names, as they are at the beginning of a definition and after REFERENCES.
        inside_definition = depth == 1 and kept and kept[-1].token_type not in _NO_EXTRA_AFTER
        word = token.text.upper() if inside_definition and token.token_type is TokenType.VAR else ""
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if word == "CURRENT" and following is not None:
            extras[token.start] = ("CURRENT", following.text)
            index += 2
        elif word == "DOMAIN" and following is not None and following.token_type == TokenType.L_PAREN:
            end = _closing(tokens, index + 1, source)
            query = parse_tokens(tokens[index + 2 : end], source)
            if not isinstance(query, exp.Select) or len(query.expressions) != 1:
                raise PolicySyntaxError(
                    "DOMAIN needs a SELECT of one column",
                    position=source.position(token.start),
                    hint="write DOMAIN (SELECT column FROM table)",
                )
            query.set("expressions", [exp.alias_(query.expressions[0].unalias(), "value")])
            query.set("distinct", exp.Distinct())
            extras[token.start] = ("DOMAIN", query.sql(dialect="duckdb", identify=True))
            index = end + 1
        else:
            kept.append(token)
            index += 1
    return kept, extras


def _closing(tokens: Sequence[Token], opening: int, source: SourceText) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].token_type == TokenType.L_PAREN:
            depth += 1
        elif tokens[index].token_type == TokenType.R_PAREN:
            depth -= 1
            if depth == 0:
                return index
    raise PolicySyntaxError(
        "missing )", position=source.position(tokens[opening].start), hint="close this parenthesis"
    )


def _read_table(
    tree: exp.Create, extras: dict[int, tuple[str, str]], declared: tuple[str, ...], source: SourceText
) -> Table:
    definition = tree.this
    if not isinstance(definition, exp.Schema):
        raise PolicySyntaxError(
            "CREATE TABLE needs a list of columns",
            position=position_of(tree, source),
            hint="write CREATE TABLE name (column type, ...)",
        )
    if inherits := tree.find(exp.InheritsProperty):
        raise UnsupportedConstructError(
            f"{inherits.sql()!r} is not supported in CREATE TABLE",
            position=position_of(definition.this, source),
            hint="name the columns",
        )
    columns: list[Column] = []
    keys: list[tuple[str, ...]] = []
    uniques: list[tuple[str, ...]] = []
    foreign: list[ForeignKey] = []
    checks: list[exp.Expr] = []
    for part in definition.expressions:
        if isinstance(part, exp.Constraint):  # CONSTRAINT name PRIMARY KEY (...)
            for inner in part.expressions:
                _read_table_constraint(inner, keys, uniques, foreign, checks, source)
        elif isinstance(part, exp.ColumnDef):
            columns.append(_read_column(part, keys, uniques, foreign, checks, source))
        else:
            _read_table_constraint(part, keys, uniques, foreign, checks, source)
    position = position_of(definition.this, source)
    declare(columns, declared, position)
    _attach_extras(columns, extras, source)
    if len(keys) > 1:
        raise DuplicateNameError(
            f"table {definition.this.name!r} has two primary keys",
            position=position,
            hint="keep one: PRIMARY KEY (a, b) for a key of several columns",
        )
    kept = [check for check in checks if not names_variable(check, columns)]
    table = Table(
        definition.this.name,
        tuple(columns),
        keys[0] if keys else (),
        tuple(keys + uniques),
        tuple(foreign),
        tuple(check.sql(dialect="duckdb", identify=True) for check in kept),
    )
    referring = {name.lower() for key in foreign for name in key.columns}
    table = replace(
        table,
        columns=tuple(
            column if column.name.lower() in referring else bounded(column, checks)
            for column in table.columns
        ),
    )
    table = finish_table(table, position)
    return replace(table, rules=rules_of(table, checks, source, position))


def _read_column(
    part: exp.ColumnDef,
    keys: list[tuple[str, ...]],
    uniques: list[tuple[str, ...]],
    foreign: list[ForeignKey],
    checks: list[exp.Expr],
    source: SourceText,
) -> Column:
    position = position_of(part, source)
    kind = part.args.get("kind")
    dtype = kind.this if isinstance(kind, exp.DataType) else None
    if dtype in _INTEGERS:
        sql_type = SqlType.INTEGER
    elif dtype in _TEXTS:
        sql_type = SqlType.TEXT
    elif dtype == exp.DType.BOOLEAN:
        sql_type = SqlType.BOOLEAN
    elif dtype in _REALS:
        sql_type = SqlType.REAL
    elif dtype in _TEMPORAL:
        sql_type = _TEMPORAL[dtype]
    else:
        raise UnsupportedConstructError(
            f"column {part.name!r} has type {kind.sql() if kind else 'none'!r}",
            position=position,
            hint="types are INTEGER, BIGINT, TEXT, VARCHAR, BOOLEAN, DOUBLE PRECISION, DATE and TIMESTAMP (in UTC)",
        )
    nullable = True
    definitions: list[str] = []
    for constraint in part.args.get("constraints") or ():
        inner = constraint.args.get("kind")
        if isinstance(inner, exp.NotNullColumnConstraint):
            nullable = bool(inner.args.get("allow_null"))
        elif isinstance(inner, exp.PrimaryKeyColumnConstraint):
            keys.append((part.name,))
            nullable = False
        elif isinstance(inner, exp.UniqueColumnConstraint) and not inner.args.get("nulls"):
            uniques.append((part.name,))
        elif isinstance(inner, exp.Reference):
            foreign.append(_read_reference((part.name,), inner, source))
        elif isinstance(inner, exp.CheckColumnConstraint):
            checks.append(inner.this)
        elif isinstance(inner, exp.DefaultColumnConstraint):
            definitions.append(constraint.sql(dialect="duckdb", identify=True))
        else:
            raise UnsupportedConstructError(
                f"column {part.name!r}: {constraint.sql()!r} is not supported",
                position=position,
                hint="a column has NOT NULL, PRIMARY KEY, UNIQUE, REFERENCES, CHECK and DEFAULT",
            )
    return Column(part.name, sql_type, nullable, position, definition=" ".join(definitions))


def _read_reference(columns: tuple[str, ...], reference: exp.Reference, source: SourceText) -> ForeignKey:
    target = reference.this
    if isinstance(target, exp.Schema):
        return ForeignKey(columns, target.this.name, tuple(part.name for part in target.expressions))
    if isinstance(target, exp.Table):
        return ForeignKey(columns, target.name, ())
    raise PolicySyntaxError(
        "REFERENCES needs a table",
        position=position_of(reference, source),
        hint="write REFERENCES table (column)",
    )


def _read_table_constraint(
    part: exp.Expr,
    keys: list[tuple[str, ...]],
    uniques: list[tuple[str, ...]],
    foreign: list[ForeignKey],
    checks: list[exp.Expr],
    source: SourceText,
) -> None:
    if isinstance(part, exp.PrimaryKey):
        keys.append(tuple(inner.name for inner in part.expressions))
    elif isinstance(part, exp.ForeignKey):
        names = tuple(inner.name for inner in part.expressions)
        foreign.append(_read_reference(names, part.args["reference"], source))
    elif (
        isinstance(part, exp.UniqueColumnConstraint)
        and isinstance(part.this, exp.Schema)
        and not part.args.get("nulls")
    ):
        uniques.append(tuple(inner.name for inner in part.this.expressions))
    elif isinstance(part, exp.CheckColumnConstraint):
        checks.append(part.this)
    else:
        raise UnsupportedConstructError(
            f"{part.sql()!r} is not supported in CREATE TABLE",
            position=position_of(part, source),
            hint="a table has columns, PRIMARY KEY, UNIQUE, FOREIGN KEY and CHECK",
        )


def _attach_extras(columns: list[Column], extras: dict[int, tuple[str, str]], source: SourceText) -> None:
    """Give each CURRENT and DOMAIN to the column defined last before it."""
    for offset, (word, text) in extras.items():
        where = source.position(offset)
        place = (where.line, where.column)
        owner = None
        for index, column in enumerate(columns):
            if (column.position.line, column.position.column) < place:
                owner = index
        if owner is None or not columns[owner].is_variable:
            raise PolicySyntaxError(
                f"{word} belongs to a variable column",
                position=where,
                hint=f"variable columns start with {' or '.join(VARIABLE_PREFIXES)}",
            )
        columns[owner] = (
            replace(columns[owner], current=text)
            if word == "CURRENT"
            else replace(columns[owner], domain=text)
        )
