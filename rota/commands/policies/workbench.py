"""What ``rota policy`` works on: files, a pack, rows and a state database, made into one compiled model.

The state database is only read: everything is solved on a private copy, and a plan is written when it is applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mgmt.source_text import UnreadableTextError, decoded, read_bytes
from mgmt.state.memory_limits import MEMORY
from rota.errors import AgentError, UsageProblem

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.errors import PolicyError
    from mgmt.explaining.policies.policy_files import SourceStatement
    from mgmt.explaining.policies.policy_test_syntax import PolicyTest
    from mgmt.explaining.solutions.replay_bundle import Bundle
    from mgmt.solution import Solution
    from mgmt.source_text import Position, SourceText
    from mgmt.state.database import Database

LARGEST_FILE = 64 << 20
"""Bytes; policies are text that people write."""


class PolicyProblem(AgentError):  # noqa: N818 - it reports an error of mgmt, it is none of its own
    """A policy, a schema or rows are wrong, or cannot all hold.  ``excerpt`` points at the place, if there is one."""

    code = "policy"

    def __init__(self, message: str, excerpt: str = "") -> None:
        super().__init__(message)
        self.excerpt = excerpt


_SHOWN_BEFORE, _SHOWN_AFTER = 70, 50
"""Characters of a line that is longer than both."""


@dataclass(slots=True)
class Workbench:
    """Texts by what they are for; the model is compiled when it is asked for."""

    schema: list[SourceText] = field(default_factory=list)
    policies: list[SourceText] = field(default_factory=list)
    tests: list[SourceText] = field(default_factory=list)
    readme: str = ""
    originals: dict[str, str] = field(default_factory=dict)
    """Texts as they were read, by name, to show the place of an error."""
    stored: Database | None = None
    """The state database named, to apply plans to."""
    state: Database | None = None
    """A private copy of it, or one in memory, with schema and rows."""
    read_version: int = 0
    """The version of the state when it was copied."""
    brought: set[str] = field(default_factory=set)
    """The tables, in lower case, that files and databases bring rows of, or say to have none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for database in (self.stored, self.state):
            if database is not None:
                database.close()

    @property
    def rows_added(self) -> bool:
        """Whether the files have put rows into the copy."""
        assert self.state is not None
        return self.state.version != self.read_version

    def model(self) -> Model:
        """The policies compiled over the rows."""
        from mgmt.compiler.model import Model

        if not self.policies:
            raise UsageProblem("there are no policies: give files with CREATE CONSTRAINT, or --pack NAME")
        assert self.state is not None
        return Model.build(self.state, self.policies)

    def require_rows(self) -> None:
        """Raises UsageProblem where nothing brings rows of anything that is decided."""
        from mgmt.state.schema import quote

        assert self.state is not None
        decided = [table for table in self.state.schema.tables if table.variables]
        missing = [table for table in decided if table.name.lower() not in self.brought]
        if missing and not any(self.state.execute(f"SELECT 1 FROM {quote(t.name)} LIMIT 1") for t in decided):
            table = missing[0]
            raise UsageProblem(
                f"nothing brings rows of {table.name!r}, whose {table.variables[0].name} is to be decided: give "
                f"--data {table.name}=FILE, or INSERT INTO {table.name} in a FILE"
            )

    def apply(self, solution: Solution) -> int:
        """Write a plan to the state database; returns its new version.

        Raises StalePlanError when it has changed meanwhile.
        """
        assert self.stored is not None
        return self.stored.apply(solution)

    def cases(self) -> list[PolicyTest]:
        """The tests in the files."""
        from mgmt.explaining.policies.policy_test_syntax import parse_tests

        return [case for text in self.tests for case in parse_tests(text)]

    @contextmanager
    def problems_shown(self) -> Iterator[None]:
        """Errors of mgmt as errors of the command, with the line and a caret."""
        from mgmt.errors import PolicyError

        try:
            yield
        except PolicyError as error:
            raise self.problem(error) from error

    def problem(self, error: PolicyError) -> PolicyProblem:
        return PolicyProblem(str(error), self.excerpt(error.position))

    def excerpt(self, position: Position | None) -> str:
        """The line of a position with a caret below the character; empty when it is not known."""
        text = self.originals.get(position.source) if position is not None else None
        if position is None or text is None:
            return ""
        lines = text.split("\n")
        if position.line > len(lines):
            return ""
        number = str(position.line)
        shown, place = _around(lines[position.line - 1], position.column - 1)
        before = "".join("\t" if character == "\t" else " " for character in shown[:place])
        return f"{number} | {shown}\n{' ' * len(number)} | {before}^"


def _around(line: str, place: int) -> tuple[str, int]:
    """A line, of a long one what stands around a place, and where the place is in that."""
    start = max(0, place - _SHOWN_BEFORE)
    end = max(place, start) + _SHOWN_AFTER
    if len(line) <= _SHOWN_BEFORE + _SHOWN_AFTER:
        return line, place
    head, rest = ("…", line[start:end]) if start else ("", line[:end])
    return f"{head}{rest}{'…' if end < len(line) else ''}", place - start + len(head)


def open_workbench(
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    state_url: str | None,
    memory: int = MEMORY,
) -> Workbench:
    """Read everything and load the rows; to be closed.  ``memory``: as of ``mgmt.Database``.

    Raises UsageProblem for files that cannot be read, PolicyProblem for what is in them.
    """
    with ExitStack() as undone:
        bench = undone.enter_context(Workbench())
        with bench.problems_shown():
            _take_pack(bench, pack)
            statements = _take_files(bench, files)
            fixtures = dict(_fixtures(bench, data))
            _open_state(bench, state_url, [path for path in data if path not in fixtures], memory)
            assert bench.state is not None
            bench.read_version = bench.state.version
            for statement in statements:
                _run(bench.state, statement.text, statement.position)
            for path, tables in fixtures.items():
                _load_data(bench, path, tables)
            _check_names(bench)
        undone.pop_all()
    return bench


def read_bundle(path: Path) -> tuple[Workbench, Bundle]:
    """A bundle, and a workbench that knows its texts.

    Raises UsageProblem for a file that cannot be read, PolicyProblem for one that is no bundle.
    """
    from mgmt.explaining.solutions.replay_bundle import Bundle

    bench = Workbench()
    with bench.problems_shown():
        try:
            bundle = Bundle.load(path.read_bytes())
        except OSError as error:
            raise UsageProblem(f"cannot read {path}: {error.strerror or error}") from error
    bench.originals.update({text.name: text.text for text in (*bundle.schema, *bundle.policies)})
    return bench, bundle


def _take_pack(bench: Workbench, name: str | None) -> None:
    from mgmt.language.policy_packs import load_pack, pack_names
    from mgmt.source_text import SourceText

    if name is None:
        return
    if name not in pack_names():
        raise UsageProblem(
            f"there is no policy pack {name!r}: the installed ones are {', '.join(pack_names())}"
        )
    pack = load_pack(name)
    bench.schema.append(SourceText(f"{name}/schema.sql", pack.schema))
    bench.policies.extend(pack.policies)
    bench.tests.extend(pack.tests)
    bench.readme = pack.readme
    for text in (*bench.schema, *pack.policies, *pack.tests):
        bench.originals[text.name] = text.text


def _take_files(bench: Workbench, files: Sequence[Path]) -> list[SourceStatement]:
    """Sort the texts; returns the statements for rows."""
    from mgmt.explaining.policies.policy_files import sorted_sources, statements_of
    from mgmt.source_text import SourceText

    rows: list[SourceStatement] = []
    for path in files:
        text = SourceText(str(path), _read(path))
        bench.originals[text.name] = text.text
        statements = statements_of(text)
        if not statements:
            raise UsageProblem(f"{path} holds no statement: it says nothing")
        if any(statement.words[:1] == ("TEST",) for statement in statements):
            bench.tests.append(text)
            continue
        sources = sorted_sources([text])
        bench.schema.extend(sources.schema)
        bench.policies.extend(sources.policies)
        rows.extend(sources.rows)
    return rows


def _open_state(bench: Workbench, url: str | None, data: Sequence[Path], memory: int) -> None:
    from mgmt.state.database import Database
    from mgmt.state.sources.opening import is_source

    if url is None and not data:
        bench.state = Database(memory=memory)
        _load_schema(bench, bench.state)
        return
    if url is not None and "://" not in url and not Path(url).is_file():
        raise UsageProblem(f"there is no state database {url}")
    if url is not None and not is_source(url) and data:
        raise UsageProblem("a state database of rota's own keeps its rows itself: leave out --data, or --db")
    bench.stored = Database(url or ":memory:", memory=memory, create=url is None)
    _load_schema(bench, bench.stored)
    bench.stored.attach(data)
    if not bench.stored.has_rows_of_schema():
        raise UsageProblem("the state database has none of the schema's tables: is it the right one?")
    bench.brought |= bench.stored.brought_tables
    with bench.stored.snapshot() as snapshot:
        contents = snapshot.dump()
    # Tables that the state database does not have are empty ones of the copy; undeclared ones are declared there.
    bench.state = Database(memory=memory)
    for text in bench.stored.schema_texts:
        bench.state.load_schema(text.text, text.name)
    bench.state.restore(contents)


def _load_schema(bench: Workbench, database: Database) -> None:
    for text in bench.schema:
        database.load_schema(text.text, text.name)
    if not bench.schema:
        raise UsageProblem("there is no schema: give a file with CREATE TABLE, or --pack NAME")


def _fixtures(bench: Workbench, data: Sequence[Path]) -> Iterator[tuple[Path, Mapping[str, object] | None]]:
    """Those files that hold statements, or the rows of several tables, which come along, rather than those of one."""
    from mgmt.state.schema_parsing.parser import parse_schema
    from mgmt.state.sources.json_file import are_tables, json_values, rows_in
    from mgmt.state.sources.opening import parts_of

    schema = None
    for text in bench.schema:
        schema = parse_schema(text, schema)
    for path in data:
        stem, suffix = parts_of(path)
        if suffix == ".sql":
            yield path, None
        elif suffix == ".json" and path.is_file():
            content = _read(path, None)
            values = json_values(content, str(path)) if content.lstrip().startswith("{") else [[]]
            is_row = schema is not None and schema.find(stem) is not None
            if are_tables(values) or (len(values) == 1 and rows_in(values)[1] is None and not is_row):
                yield path, values[0]


def _load_data(bench: Workbench, path: Path, tables: Mapping[str, object] | None) -> None:
    """The rows that a file brings; ``tables``: it is JSON, and has been read."""
    from mgmt.explaining.policies.policy_files import insert_tables, statements_of
    from mgmt.source_text import SourceText

    assert bench.state is not None
    if tables is not None:
        bench.brought |= insert_tables(bench.state, tables, str(path))
        return
    text = SourceText(str(path), _read(path))
    bench.originals[text.name] = text.text
    for statement in statements_of(text):
        _run(bench.state, statement.text, statement.position)


def _check_names(bench: Workbench) -> None:
    from mgmt.state.schema import quote

    assert bench.state is not None
    misspelt = {} if bench.stored is None else bench.stored.misspelt_tables()
    for declared, found in misspelt.items():
        if not bench.state.execute(f"SELECT 1 FROM {quote(declared)} LIMIT 1"):
            raise UsageProblem(
                f"nothing brings table {declared!r}, and no schema declares {found!r}: to read one as the other, write "
                f"--data {declared}=FILE; if they are two, declare both"
            )


def _run(database: Database, sql: str, position: Position) -> None:
    from mgmt.errors import PolicyError
    from mgmt.explaining.policies.policy_files import located

    try:
        database.execute(sql)
    except PolicyError as error:
        raise (located(error, position) if error.position is None else error) from error


def _read(path: Path, most: int | None = LARGEST_FILE) -> str:
    try:
        content = read_bytes(path, -1 if most is None else most + 1)
        if most is not None and len(content) > most:
            raise UsageProblem(f"{path} has more than {most >> 20} MiB; policies are text that people write")
        return decoded(content)
    except OSError as error:
        raise UsageProblem(f"cannot read {path}: {error.strerror or error}") from error
    except UnreadableTextError as error:
        raise UsageProblem(f"{path}: {error}") from error
