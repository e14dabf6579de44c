"""The state database on PostgreSQL among others: other programs, other roles, lost connections, locks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from mgmt.compiler.model import Model
from mgmt.errors import DataError, PolicyError, PolicySyntaxError, StalePlanError, StateDatabaseError
from mgmt.state.database import Database
from tests.mgmt.test_database import POLICY, ROWS, SCHEMA
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]


def test_without_psycopg_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import mgmt\n"
        "mgmt.Database().close()\n"
        "try: mgmt.Database('postgresql://localhost/state')\n"
        "except mgmt.StateDatabaseError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "pip install 'rota[postgres]'" in done.stdout


@pytest.mark.parametrize(
    ("url", "advice", "retryable"),
    [
        ("postgresql://[state", "postgresql://user@host:port/database", False),
        ("postgresql://localhost/state?colour=red", "postgresql://user@host:port/database", False),
        ("postgresql://rota:secret@/state?host=/nowhere", "is the server running", True),
    ],
)
def test_an_address_that_leads_nowhere(url: str, advice: str, retryable: bool) -> None:
    with pytest.raises(StateDatabaseError) as caught:
        Database(url)
    assert advice in str(caught.value)
    assert caught.value.retryable is retryable
    assert "secret" not in str(caught.value)


@dataclass
class Place:
    """A namespace of its own on the server, and the clients that a test opened in it."""

    server: PostgresServer
    namespace: str
    clients: list[Database]

    def open(self, user: str = "rota", more: str = "") -> Database:
        url = self.server.url(self.namespace, user) + more
        self.clients.append(Database(url))
        return self.clients[-1]

    def filled(self) -> Database:
        state = self.open()
        state.load_schema(SCHEMA)
        for table, rows in ROWS.items():
            state.insert(table, rows)
        return state

    def run(self, sql: str) -> list[tuple[object, ...]]:
        """What another program does."""
        return self.server.run(sql, self.namespace)

    def role(self, *rights: str) -> str:
        """A new role with these rights, and those to see the namespace."""
        name = f"role_{self.namespace}"
        self.run(f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {self.namespace} TO {name}")
        for right in rights:
            self.run(f"GRANT {right} TO {name}")
        return name


@pytest.fixture
def place(postgres_server: PostgresServer) -> Iterator[Place]:
    made = Place(postgres_server, postgres_server.new_namespace(), [])
    yield made
    for client in made.clients:
        client.close()


# ---- other programs -------------------------------------------------------------------------------------


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("sql", "counted"),
    [
        ("INSERT INTO host VALUES ('b', TRUE, 3)", 1),
        ("UPDATE host SET size = 7", 1),
        ("DELETE FROM task", 1),
        ("TRUNCATE task", 1),
        ("INSERT INTO host VALUES ('a', TRUE) ON CONFLICT (name) DO UPDATE SET size = 9", 1),
        ("COPY host (name, up) FROM PROGRAM 'echo b,t' (FORMAT csv)", 1),
        ("UPDATE host SET size = 7 WHERE name = 'nobody'", 0),
        ("INSERT INTO host VALUES ('a', TRUE) ON CONFLICT DO NOTHING", 0),
        (
            "BEGIN; UPDATE host SET size = 7; DELETE FROM task; SAVEPOINT s; UPDATE host SET size = 8; COMMIT",
            1,
        ),
        ("BEGIN; DELETE FROM task; ROLLBACK", 0),
        ("SELECT * FROM host", 0),
    ],
)
def test_what_other_programs_change_counts_once_per_transaction(place: Place, sql: str, counted: int) -> None:
    state = place.filled()
    solution = Model.build(state, POLICY).solve()
    place.run(sql)
    assert state.version == solution.version + counted
    if counted:
        with pytest.raises(StalePlanError):
            state.apply(solution)
    else:
        assert state.apply(solution) == solution.version + 1


@pytest.mark.postgres
def test_two_namespaces_know_nothing_of_each_other(place: Place, postgres_server: PostgresServer) -> None:
    state = place.filled()
    other = Place(postgres_server, postgres_server.new_namespace(), place.clients).open()
    other.load_schema("CREATE TABLE host (id INTEGER PRIMARY KEY)")
    other.insert("host", [{"id": 5}])
    assert state.execute("SELECT name FROM host") == [("a",)]
    assert other.version == 1


@pytest.mark.postgres
def test_many_clients_load_a_schema_at_once(place: Place) -> None:
    failures: list[BaseException] = []

    def load() -> None:
        try:
            place.open().load_schema(SCHEMA + "CREATE INDEX sizes ON host (size);")
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    assert place.run(
        "SELECT count(*) FROM pg_indexes WHERE indexname = 'sizes' AND schemaname = current_schema()"
    ) == [(1,)]


# ---- rights ---------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_who_may_only_read_solves_but_does_not_apply(place: Place) -> None:
    place.filled()
    reader = place.open(place.role(f"SELECT ON ALL TABLES IN SCHEMA {place.namespace}"))
    reader.load_schema(SCHEMA)
    solution = Model.build(reader, POLICY).solve()
    with pytest.raises(StateDatabaseError, match=r"docs/state-database\.md") as caught:
        reader.apply(solution)
    assert not caught.value.retryable


@pytest.mark.postgres
def test_who_may_write_the_tables_counts_without_a_right_to_the_version(place: Place) -> None:
    state = place.filled()
    before = state.version
    rights = "SELECT, INSERT, UPDATE, DELETE ON"
    writer = place.open(place.role(f"{rights} host", f"{rights} task"))
    writer.load_schema(SCHEMA)
    writer.insert("host", [{"name": "b", "up": False}])
    assert writer.apply(Model.build(writer, POLICY).solve()) == before + 2
    assert state.version == before + 2


@pytest.mark.postgres
def test_who_may_not_create_is_told_so(place: Place) -> None:
    with pytest.raises(StateDatabaseError, match="create in their namespace"):
        place.open(place.role())
    with pytest.raises(StateDatabaseError, match="create the role"):
        place.open("nobody_of_that_name")
    with pytest.raises(StateDatabaseError, match="create the database"):
        Database(place.server.url(database="nowhere"))
    with pytest.raises(StateDatabaseError, match="search_path"):
        Database(place.server.url("no_such_namespace"))


@pytest.mark.postgres
def test_a_database_of_a_later_format_or_with_other_tables_is_refused(place: Place) -> None:
    place.filled()
    with pytest.raises(DataError, match="no column 'colour'"):
        place.open().load_schema("CREATE TABLE host (name TEXT PRIMARY KEY, colour TEXT)")
    with pytest.raises(DataError, match="is text there"):
        place.open().load_schema("CREATE TABLE host (name INTEGER PRIMARY KEY)")
    place.run("UPDATE rota_state_version SET format = format + 1")
    with pytest.raises(StateDatabaseError, match="upgrade"):
        place.open()


OLDER = """
    ALTER TABLE rota_state_version DROP COLUMN moved_at;
    CREATE OR REPLACE FUNCTION rota_state_count() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
      IF TG_OP <> 'TRUNCATE' THEN
        PERFORM 1 FROM changed LIMIT 1;
        IF NOT FOUND THEN RETURN NULL; END IF;
      END IF;
      UPDATE rota_state_version SET version = version + 1, counted_in = pg_current_xact_id()
      WHERE counted_in IS DISTINCT FROM pg_current_xact_id();
      RETURN NULL;
    END $$
"""


@pytest.mark.postgres
def test_a_database_of_an_older_rota_is_brought_up_to_date(place: Place) -> None:
    """One from before the time of the last plan was kept: the column, and the function that writes it."""
    place.filled()
    place.run(OLDER)
    before = place.run("SELECT version FROM rota_state_version")
    with pytest.raises(StateDatabaseError, match="older rota"):
        Database(place.server.url(place.namespace), create=False)
    state = place.open()
    state.load_schema(SCHEMA)
    assert place.run("SELECT version FROM rota_state_version") == before
    assert place.run("SELECT count(*) FROM task") != [(0,)]
    with state.snapshot() as snapshot:
        assert snapshot.moved_at is None
    state.apply(Model.build(state, POLICY).solve(), now=1234.5)
    with state.snapshot() as snapshot:
        assert snapshot.moved_at == 1234.5
    Database(place.server.url(place.namespace), create=False).close()


# ---- snapshots ------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_a_snapshot_holds_no_lock_and_no_old_row_while_it_lives(place: Place) -> None:
    state = place.filled()
    with state.snapshot() as snapshot:
        snapshot.rows("SELECT * FROM host")
        locks = "SELECT count(*) FROM pg_locks WHERE relation = 'host'::regclass AND pid <> pg_backend_pid()"
        assert place.run(locks) == [(0,)]
        kept = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rota' AND backend_xmin IS NOT NULL"
        assert place.run(kept) == [(0,)]
        place.run("BEGIN; LOCK TABLE host IN ACCESS EXCLUSIVE MODE; UPDATE host SET size = 5; COMMIT")
        with snapshot.scratch():
            assert snapshot.rows("SELECT size FROM host") == [(1,)]


@pytest.mark.postgres
def test_every_snapshot_is_one_moment_of_what_others_write(place: Place) -> None:
    """Another program moves size from host to host, and keeps the sum in the same transaction."""
    state = place.filled()
    state.insert("host", [{"name": name, "up": True, "size": 1} for name in "bcd"])
    state.insert("task", [{"id": 100, "home": "a"}])
    before = state.version
    stop = Event()

    def write() -> None:
        with psycopg.connect(place.server.url(place.namespace)) as other:
            for number in count(1):
                if stop.is_set():
                    return
                giver, taker = "abcd"[number % 4], "abcd"[number % 3]
                other.execute("UPDATE host SET size = size + 1 WHERE name = %s", (taker,))
                other.execute("UPDATE task SET id = id + 1 WHERE id >= 100")
                other.execute("DELETE FROM host WHERE name = 'z'")
                if number % 2:
                    other.execute("INSERT INTO host VALUES ('z', TRUE, 0)")
                other.execute("UPDATE task SET home = %s WHERE id >= 100", (giver,))
                other.commit()

    thread = Thread(target=write)
    thread.start()
    try:
        seen = set()
        while len(seen) < 15:
            with state.snapshot() as snapshot:
                (size,) = snapshot.rows("SELECT sum(size) FROM host")[0]
                (moves,) = snapshot.rows("SELECT max(id) - 100 FROM task")[0]
                assert size == 4 + moves
                assert snapshot.version == before + moves
                seen.add(moves)
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.postgres
def test_a_session_is_used_again_and_a_spoiled_one_is_not(place: Place) -> None:
    state = place.filled()
    sessions = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rota' AND pid <> pg_backend_pid()"
    )
    with state.snapshot() as snapshot:
        snapshot.rows("SELECT 1")
    (before,) = place.run(sessions)[0]
    for _ in range(3):
        with state.snapshot() as snapshot:
            assert snapshot.rows("SELECT id FROM task") == [(1,)]
    assert place.run(sessions) == [(before,)]
    with state.snapshot() as snapshot:
        snapshot.run("DELETE FROM task")
        snapshot.define_view("v", "SELECT 1 AS a")
    with state.snapshot() as snapshot:
        assert snapshot.rows("SELECT id FROM task") == [(1,)]
        with pytest.raises(PolicySyntaxError):
            snapshot.rows("SELECT * FROM v")


@pytest.mark.postgres
def test_a_query_that_would_write_is_refused_and_such_functions_are_unknown_to_policies(place: Place) -> None:
    state = place.filled()
    place.run("CREATE SEQUENCE counter")
    with state.snapshot() as snapshot:
        for _ in range(2):
            with pytest.raises(PolicySyntaxError, match="must not write"):
                snapshot.rows(f"SELECT nextval('{place.namespace}.counter')")
            with snapshot.scratch(), pytest.raises(PolicySyntaxError, match="must not write"):
                snapshot.rows(f"SELECT nextval('{place.namespace}.counter')")
        with pytest.raises(PolicySyntaxError, match="each time"):
            snapshot.rows("SELECT random() FROM host")
    ten = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(10))
    crossed = ", ".join(f"({ten}) AS t{number}" for number in range(12))
    view = f"CREATE VIEW v AS SELECT count(*) AS n FROM {crossed};"
    with pytest.raises(PolicyError):  # before it has counted to 10^12
        Model.build(state, f"{view} CREATE CONSTRAINT c AS SELECT * FROM v CHECK n > 0")
    assert {"length", "upper", "date_part", "row_number"} <= state.functions
    assert (
        not {"pg_sleep", "nextval", "set_config", "pg_read_file", "lo_create", "query_to_xml"}
        & state.functions
    )


@pytest.mark.postgres
def test_a_dump_is_a_copy_that_solves_alike(place: Place) -> None:
    state = place.filled()
    solution = Model.build(state, POLICY).solve()
    copy = state.clone()
    assert Model.build(copy, POLICY).solve().deltas == solution.deltas
    assert copy.version == state.version
    assert copy.apply(solution) == solution.version + 1
    assert state.version == solution.version


# ---- failures -------------------------------------------------------------------------------------------

END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota'"


@pytest.mark.postgres
def test_a_connection_lost_while_idle_is_made_again(place: Place) -> None:
    state = place.filled()
    with state.snapshot():
        pass
    version = state.version
    place.run(END_ALL)
    state.execute("UPDATE host SET size = 2")
    assert state.version == version + 1
    with state.snapshot() as snapshot:
        assert snapshot.rows("SELECT size FROM host") == [(2,)]


@pytest.mark.postgres
def test_a_connection_lost_in_the_middle_is_an_error_that_may_be_retried(place: Place) -> None:
    state = place.filled()
    with pytest.raises(StateDatabaseError, match="look at the version") as caught:
        state.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert caught.value.retryable
    assert state.execute("SELECT name FROM host") == [("a",)]
    with state.snapshot() as snapshot, snapshot.scratch():
        place.run(END_ALL)
        with pytest.raises(StateDatabaseError) as caught:
            snapshot.rows("SELECT name FROM host")
    assert caught.value.retryable
    with state.snapshot() as snapshot:
        assert snapshot.rows("SELECT name FROM host") == [("a",)]


@pytest.mark.postgres
def test_a_lock_held_too_long_is_an_error_that_may_be_retried(place: Place) -> None:
    place.filled()
    state = place.open(more="%20-clock_timeout%3D50ms")
    state.load_schema(SCHEMA)
    with psycopg.connect(place.server.url(place.namespace)) as other:
        other.execute("UPDATE host SET size = 3")
        for change in ("UPDATE host SET size = 4", "DELETE FROM task"):
            with pytest.raises(StateDatabaseError, match="busy") as caught:
                state.execute(change)
            assert caught.value.retryable
        with state.snapshot() as snapshot:
            assert snapshot.rows("SELECT size FROM host") == [(1,)], "readers wait for nobody"
    state.execute("UPDATE host SET size = size + 1")
    assert state.execute("SELECT size FROM host") == [(4,)]


@pytest.mark.postgres
def test_writers_that_meet_wait_instead_of_blocking_each_other_for_ever(place: Place) -> None:
    """Two programs change the same rows in opposite order: the version is locked before any row."""
    state = place.filled()
    state.insert("host", [{"name": "b", "up": True}])
    with psycopg.connect(place.server.url(place.namespace)) as other:
        other.execute("UPDATE host SET size = 3 WHERE name = 'a'")
        thread = Thread(target=state.execute, args=("UPDATE host SET size = 5",))
        thread.start()
        other.execute("UPDATE host SET size = 3 WHERE name = 'b'")
        other.commit()
        thread.join(60)
    assert state.execute("SELECT DISTINCT size FROM host") == [(5,)]


@pytest.mark.postgres
def test_numbers_beyond_64_bits_and_wrong_values_are_errors_of_ours(place: Place) -> None:
    state = place.filled()
    state.execute("UPDATE host SET size = 9223372036854775807")
    with state.snapshot() as snapshot:
        for sql in ("SELECT size + 1 FROM host", "SELECT sum(size) + size FROM host GROUP BY size"):
            with pytest.raises(PolicyError, match="64 bits"):
                snapshot.rows(sql)
        with pytest.raises(DataError):
            snapshot.rows("SELECT CAST(name AS INTEGER) FROM host")
    with pytest.raises(DataError):
        state.insert("host", [{"name": "nul \x00", "up": True}])
    with pytest.raises(DataError):
        state.insert("host", [{"name": "b", "up": True, "size": 2.5}])  # type: ignore[dict-item]
    assert state.execute("SELECT count(*) FROM host") == [(1,)]


@pytest.mark.postgres
def test_after_close_it_says_so(place: Place) -> None:
    state = place.filled()
    state.close()
    with pytest.raises(StateDatabaseError, match="closed by this program"):
        state.execute("SELECT 1")
