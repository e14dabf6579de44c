"""A private PostgreSQL server for tests: its own directory, a unix socket, no network, no fsync.

It runs as an unprivileged user when the tests run as root, which PostgreSQL refuses to be.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

_NUMBERS = count(1)
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_connections": "400",
    "shared_buffers": "32MB",
}


def binaries() -> Path | None:
    """Where initdb and postgres are: on Debian not on the PATH; the newest version comes first."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    on_path = shutil.which("initdb")
    return Path(found[-1]).parent if found else Path(on_path).parent if on_path else None


class PostgresServer:
    """A running server.  Its superuser is ``rota``; nobody needs a password."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def url(self, namespace: str = "", user: str = "rota", database: str = "postgres") -> str:
        """The address; with a namespace, everything happens in it."""
        options = quote(f"-csearch_path={namespace}") if namespace else ""
        return f"postgresql://{user}@/{database}?host={self.directory}&options={options}"

    def new_namespace(self) -> str:
        """A namespace that nobody has used, as good as a database of its own and made faster."""
        name = f"test_{next(_NUMBERS)}"
        self.run(f"CREATE SCHEMA {name}")
        return name

    def run(self, sql: str, namespace: str = "") -> list[tuple[object, ...]]:
        """What another program does with plain SQL."""
        with psycopg.connect(self.url(namespace), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def private_server() -> Iterator[PostgresServer]:
    """Make a server, and stop and remove it at the end."""
    programs = binaries()
    assert programs is not None
    directory = Path(tempfile.mkdtemp(prefix="rota-postgres-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        shutil.chown(directory, "nobody", "nogroup")
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    data = directory / "data"
    try:
        subprocess.run(
            [
                *(
                    str(programs / "initdb"),
                    "-D",
                    str(data),
                    "-U",
                    "rota",
                    "-A",
                    "trust",
                    "--no-sync",
                    "-E",
                    "UTF8",
                ),
                # Text sorts as people read unless one says otherwise; the state database must say otherwise.
                *("--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"),
            ],
            check=True,
            capture_output=True,
            cwd=directory,
            **user,
        )
        options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options += f" -c unix_socket_directories={directory}"
        control = [str(programs / "pg_ctl"), "-D", str(data), "-w"]
        arguments: dict[str, Any] = {"check": True, "capture_output": True, "cwd": directory, **user}
        subprocess.run([*control, "-l", str(directory / "log"), "-o", options, "start"], **arguments)
        try:
            yield PostgresServer(directory)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
