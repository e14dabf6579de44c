"""DuckDB as a locked-in engine: limited in time and memory, with its errors as ours.

Every state in memory is a catalog of one instance, so that a further one costs next to nothing; a file has an
instance of its own.  Nothing outside is reached: no file, no network, no extension, and the configuration is locked.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mgmt.errors import (
    DataError,
    OverflowError,  # noqa: A004 - the published name
    PolicySyntaxError,
    StateDatabaseError,
    StatementTimeoutError,
)
from mgmt.state.date_texts import text_of
from mgmt.state.duckdb_access.watchdog import Watchdog
from mgmt.state.memory_limits import MEMORY
from mgmt.state.schema import SqlType, quote

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

STATEMENT_SECONDS = 30.0
"""How long one statement of a policy may take: far longer than any of the largest states needs."""
MOST_ROWS = 5_000_000
"""Of one query: more than the largest states need, and less than the memory holds."""
_EXACT = 2.0**53
LONGEST_TEXT = 1_000_000
"""Characters that one call of a function may make out of nothing: memory_limit does not see them coming."""
# Passes of the planner that statements of policies do not gain by: they take a sixth of the time of a small one.
_NOT_WORTH_IT = (
    "regex_range limit_pushdown row_group_pruner top_n_window_elimination compressed_materialization "
    "reorder_filter sampling_pushdown join_filter_pushdown aggregate_function_rewriter "
    "late_materialization common_subplan join_elimination window_self_join projection_pullup "
    "outer_join_simplification window_rewriter partitioned_execution partial_aggregate_pushdown "
    "remote_pushdown grouping_sets type_pushdown scalar_fn_pushdown distinct_aggregate_rewrite "
    "aggregate_reuse projection_placement redundant_order_keys self_join_aggregate duplicate_groups "
    "extension"
)
_CONFIG: Mapping[str, Any] = {
    "threads": 1,
    "max_temp_directory_size": "0B",
    "integer_division": True,
    "error_on_division_by_zero": False,
    "errors_as_json": True,
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "disabled_optimizers": _NOT_WORTH_IT.replace(" ", ","),
    "lock_configuration": True,
}
_PRESENT = "rota_present"
_OF_THE_CATALOG = re.compile(r'\s*Did you mean "(?:pg_|duckdb_|sqlite_|pragma_)[^"]*"\?')
"""DuckDB proposes tables of its own for those that are misspelt."""
_FUNCTIONS = "rota_functions"
_CLOCKS = (
    *("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp"),
    *("current_localtimestamp", "localtimestamp"),
)
_DAYS = ("current_date", "today")
_MACROS = (
    *(f"CREATE MACRO {name}() AS getvariable('{_PRESENT}')" for name in _CLOCKS),
    *(f"CREATE MACRO {name}() AS CAST(getvariable('{_PRESENT}') AS DATE)" for name in _DAYS),
    "CREATE MACRO repeat(a, n) AS CASE WHEN length(a) * n <= {most} THEN system.main.repeat(a, n)"
    " ELSE error('a value that is too long') END",
    "CREATE MACRO lpad(a, n, b) AS CASE WHEN n <= {most} THEN system.main.lpad(a, CAST(n AS INTEGER), b)"
    " ELSE error('a value that is too long') END",
    "CREATE MACRO rpad(a, n, b) AS CASE WHEN n <= {most} THEN system.main.rpad(a, CAST(n AS INTEGER), b)"
    " ELSE error('a value that is too long') END",
)
_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), SqlType.INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), SqlType.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE"), SqlType.REAL),
    **dict.fromkeys(("VARCHAR", "UUID", "JSON"), SqlType.TEXT),
    "BOOLEAN": SqlType.BOOLEAN,
    "DATE": SqlType.DATE,
}


def type_of(name: str) -> SqlType:
    """What the compiler tells apart of DuckDB's types."""
    if name.startswith("DECIMAL"):
        return SqlType.REAL
    if name.startswith("TIMESTAMP"):
        return SqlType.TIMESTAMP
    return SqlType.TEXT if name.startswith("ENUM") else _TYPES.get(name, SqlType.UNKNOWN)


class RefusedStatementError(PolicySyntaxError):
    """The engine does not run a statement.

    ``unknown_function``: because it calls one that does not exist; ``offset``: the character of the statement that it
    complains of, where it says so.
    """

    def __init__(self, reason: str, *, unknown_function: bool = False, offset: int | None = None) -> None:
        reason = _OF_THE_CATALOG.sub("", reason)
        super().__init__(f"the state database refuses this: {' '.join(reason.split())}")
        self.reason = reason
        self.unknown_function = unknown_function
        self.offset = offset


def refused_values(reason: object) -> DataError:
    """The error for values or rows that the database does not take, or cannot compute with."""
    return DataError(
        f"the state database refuses this: {reason}",
        hint="compare the values with the types of their columns, and with what the schema demands of a row",
    )


def leaves_64_bits(what: str = "a number") -> OverflowError:
    """The error for arithmetic beyond what a whole number holds."""
    return OverflowError(f"{what} leaves 64 bits", hint="use smaller units")


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When statements must have ended, by the monotonic clock, and how long they had ``together``."""

    deadline: float
    seconds: float


@dataclass(slots=True)
class _Instance:
    """One DuckDB: the process's, in memory, or that of a file."""

    connection: duckdb.DuckDBPyConnection
    names: Iterator[int]
    memory: int


_LOCK = threading.Lock()
_IN_MEMORY: dict[tuple[int, int], _Instance] = {}
"""By process, for threads do not survive a fork and neither does what they hold, and by the memory that it may take."""
_WATCHDOG = Watchdog()


def _instance_of(path: str | None, memory: int) -> _Instance:
    try:
        import duckdb
    except ImportError as error:  # an extra of the package
        raise StateDatabaseError(
            "a state database needs duckdb, which is not installed", hint="pip install 'rota[plane]'"
        ) from error
    config = {**_CONFIG, "memory_limit": f"{memory // 1000}KB"}
    if path is not None:
        with errors(path):
            return _equipped(duckdb.connect(path, config=config), memory)
    with _LOCK:
        key = os.getpid(), memory
        if key not in _IN_MEMORY:
            _IN_MEMORY[key] = _equipped(duckdb.connect(":memory:", config=config), memory)
        return _IN_MEMORY[key]


def _equipped(connection: duckdb.DuckDBPyConnection, memory: int) -> _Instance:
    """With what policies may call and DuckDB has otherwise, or without a limit."""
    import duckdb

    try:
        connection.execute(f"ATTACH ':memory:' AS {_FUNCTIONS}")
    except duckdb.BinderException as error:
        raise StateDatabaseError(
            "this program has the state database open already", hint="use the one mgmt.Database for it"
        ) from error
    for macro in _MACROS:
        text = macro.replace("CREATE MACRO ", f"CREATE MACRO {_FUNCTIONS}.main.")
        connection.execute(text.replace("{most}", str(LONGEST_TEXT)))
    return _Instance(connection, count(), memory)


class Catalog:
    """A set of tables with a connection of its own.  Used by one thread at a time."""

    def __init__(
        self, path: str | None = None, *, beside: Catalog | None = None, memory: int = MEMORY
    ) -> None:
        """In memory, or that of a file; ``beside``: in memory, in the instance of another.

        ``memory``: bytes that its instance may take.
        """
        self._instance: _Instance = beside._instance if beside is not None else _instance_of(path, memory)
        self.connection = self._instance.connection.cursor()
        if path is None:
            self.name = f"state{next(self._instance.names)}"
            self.connection.execute(
                f"ATTACH ':memory:' AS {self.name}; SET search_path = '{self.name}.main,{_FUNCTIONS}.main'"
            )
            self._close = weakref.finalize(self, _detach, self._instance, self.connection, self.name)
        else:
            ((self.name,),) = self.connection.execute("SELECT current_catalog()").fetchall()
            self._close = weakref.finalize(self, _close, self._instance, self.connection, self.name)
        self.seconds = STATEMENT_SECONDS
        self.over_rows = True
        self.limit: TimeLimit | None = None

    @property
    def memory(self) -> int:
        """The bytes that it, with all beside it, may take."""
        return self._instance.memory

    def tell(self, moment: date) -> None:
        """The present time, for whoever asks."""
        self.connection.execute(f"SET VARIABLE {_PRESENT} = TIMESTAMP '{text_of(moment)}'")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Inside, all limited statements may take so long together, and each not longer than it may anyway."""
        before, self.limit = self.limit, TimeLimit(time.monotonic() + seconds, seconds)
        try:
            yield
        finally:
            self.limit = before

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Inside, a statement is stopped when it has had its time; StatementTimeoutError."""
        import duckdb

        seconds, left, together = self.seconds, self.seconds, self.limit
        if together is not None and together.deadline - time.monotonic() < seconds:
            left, seconds = max(0.0, together.deadline - time.monotonic()), together.seconds
        else:
            together = None
        try:
            # Over empty tables it is the statement that is judged, not how busy the machine is.
            with _WATCHDOG.over(left, self.connection.interrupt, of_processor=not self.over_rows):
                yield
        except duckdb.InterruptException as error:
            raise StatementTimeoutError(
                seconds, over_rows=self.over_rows, together=together is not None
            ) from error

    def parsed(self, sql: str) -> duckdb.Statement:
        """One statement that is run again and again: its text is read once, which takes 0.3 ms for 1000 characters."""
        with errors("the state"):
            (statement,) = self.connection.extract_statements(sql)
        return statement

    def rows(
        self, sql: str | duckdb.Statement, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a query, within its time: dates as texts, decimals as floats."""
        with errors("the state"), self.limited():
            cursor = self.connection.execute(sql, parameters) if parameters else self.connection.execute(sql)
            return fetched(cursor)

    def arrays(self, sql: str) -> tuple[int, list[NDArray[Any]]]:
        """How many rows a query has, and its columns: of numbers, masked where they are NULL, or of objects."""
        import numpy as np

        with errors("the state"), self.limited():
            cursor = self.connection.execute(sql)
            types = [str(column[1]) for column in cursor.description or ()]
            found = list(cursor.fetchnumpy().values())
        if found and len(found[0]) > MOST_ROWS:
            raise too_many_rows()
        for place, kind in enumerate(types):
            if kind == "HUGEINT":  # such as sums; they come as floats
                if bool((np.abs(found[place]) >= _EXACT).any()):
                    rows = self.rows(sql)
                    return len(rows), [_objects(cells) for cells in zip(*rows, strict=True)]
                found[place] = found[place].astype(np.int64)
            elif found[place].dtype.kind == "M":
                moments = found[place].astype("datetime64[us]").tolist()
                found[place] = _objects(
                    [_plain(value.date() if kind == "DATE" and value else value) for value in moments]
                )
        return len(found[0]) if found else 0, found

    def run(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """A statement of this program's own."""
        with errors("the state"):
            if parameters:
                self.connection.execute(sql, parameters)
            else:
                self.connection.execute(sql)

    def require_query(self, sql: str) -> None:
        """RefusedStatementError for what DuckDB does not read as one statement that only reads."""
        import duckdb

        with errors("the state"):
            statements = self.connection.extract_statements(sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise RefusedStatementError("a policy may only read: it is not one SELECT")

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """The names and DuckDB's types of a query's columns, without running it."""
        self.require_query(sql)
        with errors("the state", before=len("DESCRIBE ")), self.limited():
            return [(row[0], row[1]) for row in self.connection.execute(f"DESCRIBE {sql}").fetchall()]

    def sees(self, other: Catalog) -> bool:
        """Whether the tables of another can be read from here, by its name."""
        return self._instance is other._instance

    def close(self) -> None:
        """Free it."""
        self._close()


def _detach(instance: _Instance, connection: duckdb.DuckDBPyConnection, name: str) -> None:
    connection.close()
    instance.connection.cursor().execute(f"DETACH {quote(name)}")


def _close(instance: _Instance, connection: duckdb.DuckDBPyConnection, name: str) -> None:
    del name
    connection.close()
    instance.connection.close()


def too_many_rows() -> DataError:
    """The error for a query of more than ``MOST_ROWS``."""
    return DataError(
        f"it makes more than {MOST_ROWS} rows",
        hint="filter or aggregate earlier, and look whether a join or a recursion is meant to make so many",
    )


def fetched(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """The rows of what was executed last, in plain values.  DataError when they are too many."""
    if cursor.description is None:
        return []
    found: list[tuple[Any, ...]] = cursor.fetchmany(MOST_ROWS + 1)
    if len(found) > MOST_ROWS:
        raise too_many_rows()
    places = [place for place, column in enumerate(cursor.description) if str(column[1]) not in _PLAIN]
    if not places:
        return found
    changed = []
    for row in found:
        cells = list(row)
        for place in places:
            cells[place] = _plain(cells[place])
        changed.append(tuple(cells))
    return changed


_PLAIN = {
    *[
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "VARCHAR",
        "DOUBLE",
        "NUMBER",
        "STRING",
    ]
}


def _objects(cells: Sequence[Any]) -> NDArray[Any]:
    import numpy as np

    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date):
        return text_of(value)
    return str(value) if isinstance(value, UUID) else value


@contextmanager
def errors(what: str, *, before: int = 0) -> Iterator[None]:
    """What DuckDB raises as our errors; ``before``: bytes of the statement that are not its author's."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.OutOfMemoryException as error:
        raise RefusedStatementError(
            "it needs more memory than there is for it; join by keys, filter or aggregate earlier, or allow more memory"
        ) from error
    except duckdb.Error as error:
        raise _ours(error, what, before) from error
    except (UnicodeEncodeError, TypeError, ArithmeticError) as error:
        raise refused_values(error) from error


def _ours(error: duckdb.Error, what: str, before: int) -> Exception:
    import duckdb

    known = details(error)
    reason = str(known["exception_message"]).partition("\n\nUse ")[0].strip()
    if isinstance(error, duckdb.OutOfRangeException):
        return leaves_64_bits(reason.rstrip("!"))
    if isinstance(error, (duckdb.IOException, duckdb.FatalException, duckdb.ConnectionException)):
        return StateDatabaseError(
            f"the state database {what} cannot be used: {reason}",
            hint="give the path of a DuckDB file that no other program has open, or of a file to be made",
        )
    of_values = (duckdb.ConversionException, duckdb.ConstraintException, duckdb.InvalidInputException)
    if (
        isinstance(error, (*of_values, duckdb.TypeMismatchException))
        and "value that is too long" not in reason
    ):
        return refused_values(reason.partition(" Use TRY")[0])
    position = str(known.get("position", ""))
    offset = int(position) - before if position.isdecimal() else None
    return RefusedStatementError(
        reason,
        unknown_function="Function" in str(known.get("type", "")),
        offset=offset if offset is not None and offset >= 0 else None,
    )


def details(error: BaseException) -> Mapping[str, Any]:
    """What DuckDB says in an error, where it says it as JSON, or else its text as ``exception_message``."""
    text = str(error)
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        found = {}
    return found if "exception_message" in found else {"exception_message": text}
