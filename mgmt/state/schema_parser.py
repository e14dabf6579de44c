"""Read a schema: PostgreSQL-flavoured CREATE TABLE and CREATE INDEX statements.

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
    TypeMismatchError,
    UnboundedDomainError,
    UnknownColumnError,
    UnknownTableError,
    UnsupportedConstructError,
)
from mgmt.source import Position, SourceText
from mgmt.state.schema import (
    RESERVED_COLUMNS,
    VARIABLE_PREFIXES,
    Column,
    ForeignKey,
    Schema,
    SqlType,
    Table,
)
from mgmt.state.variable_rules import bounded, declare, declared_variables, names_variable, rules_of
from mgmt.tokens import CLOSING, OPENING, parse_tokens, position_of, refuse_too_many, split_statements

_INTEGERS = {exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT}
_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.NCHAR, exp.DType.NVARCHAR}
_NO_EXTRA_AFTER = {TokenType.COMMA, TokenType.L_PAREN, TokenType.CONSTRAINT, TokenType.REFERENCES}
_REALS = {exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL}


def parse_schema(source: SourceText, known: Schema | None = None) -> Schema:
    """Read CREATE TABLE and CREATE INDEX statements; ``known`` are the tables loaded before."""
    refuse_too_many(source)
    tables = list(known.tables) if known else []
    indexes = list(known.indexes) if known else []
    unique: list[tuple[exp.Create, Position]] = []
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
            indexes.append(_index_sql(tree))
            if tree.args.get("unique"):
                unique.append((tree, position))
            continue
        table = _read_table(tree, extras, declared_variables(tokens[0].comments), source)
        if any(other.name.lower() == table.name.lower() for other in tables):
            raise DuplicateNameError(f"table {table.name!r} is defined twice", position=position)
        tables.append(table)
    schema = Schema(tuple(tables), tuple(indexes))
    for table in schema.tables:
        _check_references(schema, table)
    for tree, position in unique:
        _check_unique_index(schema, tree, position)
    return schema


def _check_unique_index(schema: Schema, tree: exp.Create, position: Position) -> None:
    """An index is the database's matter, and what it demands of decided values would be demanded too late."""
    on = tree.find(exp.Table)
    names = {column.name.lower() for column in tree.find_all(exp.Column)}
    for table in schema.tables:
        if on is None or table.name.lower() != on.name.lower():
            continue
        for column in table.variables:
            if column.name.lower() in names:
                raise UnsupportedConstructError(
                    f"a unique index over the variable column {column.name!r}",
                    position=position,
                    hint="write UNIQUE (...) in CREATE TABLE",
                )


def _index_sql(tree: exp.Create) -> str:
    """In SQLite an index takes no NULLS FIRST or LAST; where NULLs stand in it changes no answer."""
    for ordered in tree.find_all(exp.Ordered):
        ordered.set("nulls_first", not ordered.args.get("desc"))  # its own order, which needs no word
    return tree.sql(dialect="sqlite")


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
                    "DOMAIN needs a SELECT of one column", position=source.position(token.start)
                )
            query.set("expressions", [exp.alias_(query.expressions[0].unalias(), "value")])
            query.set("distinct", exp.Distinct())
            extras[token.start] = ("DOMAIN", query.sql(dialect="sqlite"))
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
    raise PolicySyntaxError("missing )", position=source.position(tokens[opening].start))


def _read_table(
    tree: exp.Create, extras: dict[int, tuple[str, str]], declared: tuple[str, ...], source: SourceText
) -> Table:
    definition = tree.this
    if not isinstance(definition, exp.Schema):
        raise PolicySyntaxError("CREATE TABLE needs a list of columns", position=position_of(tree, source))
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
        raise DuplicateNameError(f"table {definition.this.name!r} has two primary keys", position=position)
    table = Table(
        definition.this.name,
        tuple(columns),
        keys[0] if keys else (),
        tuple(keys + uniques),
        tuple(foreign),
        tuple(check.sql(dialect="sqlite") for check in checks if not names_variable(check, columns)),
    )
    referring = {name.lower() for key in foreign for name in key.columns}
    table = replace(
        table,
        columns=tuple(
            column if column.name.lower() in referring else bounded(column, checks)
            for column in table.columns
        ),
    )
    table = _finish_table(table, position)
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
    else:
        raise UnsupportedConstructError(
            f"column {part.name!r} has type {kind.sql() if kind else 'none'!r}",
            position=position,
            hint="types are INTEGER, BIGINT, TEXT, VARCHAR, BOOLEAN and DOUBLE PRECISION",
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
            definitions.append(constraint.sql(dialect="sqlite"))
        else:
            raise UnsupportedConstructError(
                f"column {part.name!r}: {constraint.sql()!r} is not supported", position=position
            )
    return Column(part.name, sql_type, nullable, position, definition=" ".join(definitions))


def _read_reference(columns: tuple[str, ...], reference: exp.Reference, source: SourceText) -> ForeignKey:
    target = reference.this
    if isinstance(target, exp.Schema):
        return ForeignKey(columns, target.this.name, tuple(part.name for part in target.expressions))
    if isinstance(target, exp.Table):
        return ForeignKey(columns, target.name, ())
    raise PolicySyntaxError("REFERENCES needs a table", position=position_of(reference, source))


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
            f"{part.sql()!r} is not supported in CREATE TABLE", position=position_of(part, source)
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


def _finish_table(table: Table, position: Position) -> Table:
    """Check names; pair variables with current values; copy single foreign keys to their columns."""
    names: set[str] = set()
    for column in table.columns:
        lowered = column.name.lower()
        if lowered in names or lowered in RESERVED_COLUMNS:
            raise DuplicateNameError(
                f"column {column.name!r} of {table.name!r} is defined twice or reserved",
                position=column.position,
            )
        names.add(lowered)
    for unique in (*table.uniques, *(key.columns for key in table.foreign_keys)):
        for name in unique:
            if name.lower() not in names:
                raise UnknownColumnError(f"no column {name!r} in {table.name!r}", position=position)
    if table.variables and not table.primary_key:
        raise PolicySyntaxError(
            f"table {table.name!r} has variable columns but no primary key",
            position=position,
            hint="a plan names rows by their primary key",
        )
    variable = {column.name.lower() for column in table.variables}
    if variable & {name.lower() for name in table.primary_key}:
        table = _with_constant_key(table, variable, position)
    return replace(table, columns=tuple(_finish_column(table, column) for column in table.columns))


def _with_constant_key(table: Table, variable: set[str], position: Position) -> Table:
    """A primary key that holds variables is UNIQUE and NOT NULL; rows are told apart by another key."""
    others = [unique for unique in table.uniques if not variable & {name.lower() for name in unique}]
    if not others:
        raise UnsupportedConstructError(
            f"the primary key of {table.name!r} contains a variable column, and there is no other key",
            position=position,
            hint="a plan names rows by what it does not decide: add UNIQUE over constant columns",
        )
    required = {name.lower() for name in (*table.primary_key, *others[0])}
    columns = tuple(
        replace(column, nullable=column.nullable and column.name.lower() not in required)
        for column in table.columns
    )
    return replace(table, columns=columns, primary_key=others[0])


def _finish_column(table: Table, column: Column) -> Column:
    single = [key for key in table.foreign_keys if _same(key.columns, (column.name,))]
    if single:
        referenced = single[0].referenced[0] if single[0].referenced else ""
        column = replace(column, references=(single[0].table, referenced))
    if not column.is_variable:
        return column
    if len(single) > 1:
        raise UnsupportedConstructError(
            f"{column.name!r} refers to {' and to '.join(key.table for key in single)}",
            position=column.position,
            hint="refer to one table, and write the other demand as a constraint",
        )
    for key in table.foreign_keys:
        names = [name.lower() for name in key.columns]
        if not single and column.references is None and column.name.lower() in names:
            # Each column ranges over its own values; that they go together is a rule of the table.
            if len(key.referenced) != len(key.columns):
                raise PolicySyntaxError(
                    f"the foreign key of {column.name!r} must name the columns it refers to",
                    position=column.position,
                    hint="write FOREIGN KEY (a, b) REFERENCES t (c, d)",
                )
            column = replace(column, references=(key.table, key.referenced[names.index(column.name.lower())]))
    prefix = next((p for p in VARIABLE_PREFIXES if column.name.lower().startswith(p)), column.name)
    wanted = column.current or column.name[len(prefix) :]
    paired = next((c for c in table.columns if c.name.lower() == wanted.lower()), None)
    if paired is None and column.current is not None:
        raise UnknownColumnError(f"no column {column.current!r} in {table.name!r}", position=column.position)
    if paired is not None and paired.type is not column.type:
        raise TypeMismatchError(
            f"{column.name!r} is {column.type} but its current value {paired.name!r} is {paired.type}",
            position=column.position,
        )
    if column.type is not SqlType.BOOLEAN and column.references is None and column.domain is None:
        raise UnboundedDomainError(
            f"variable column {column.name!r} has no finite set of values",
            position=column.position,
            hint="add REFERENCES table (column), DOMAIN (SELECT ...), or for integers CHECK (x BETWEEN 0 AND 9)",
        )
    return replace(column, current=paired.name if paired else None)


def _check_references(schema: Schema, table: Table) -> None:
    for column in table.columns:
        if column.references is None:
            continue
        target = schema.find(column.references[0])
        if target is None:
            raise UnknownTableError(
                f"{column.name!r} references unknown table {column.references[0]!r}", position=column.position
            )
        name = column.references[1] or (target.primary_key[0] if len(target.primary_key) == 1 else "")
        try:
            referenced = target.column(name)
        except KeyError:
            raise UnknownColumnError(
                f"{column.name!r} references unknown column {name!r} of {target.name!r}",
                position=column.position,
            ) from None
        if referenced.is_variable:
            raise UnsupportedConstructError(
                f"{column.name!r} references the variable column {referenced.name!r}",
                position=column.position,
            )
        if referenced.type is not column.type:
            raise TypeMismatchError(
                f"{column.name!r} is {column.type} but references {referenced.type}", position=column.position
            )


def _same(left: Sequence[str], right: Sequence[str]) -> bool:
    return [name.lower() for name in left] == [name.lower() for name in right]
