"""nginx follows the view: real nginx, real members, real HTTP (the paper's Figure 13)."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import membership
from membership.protocol.view.cut import Cut
from tests.examples.running import PATIENCE, Program, load
from tests.own_addresses import own_address

PROCESSES = 5
BACKENDS_EACH = 10
CLIENTS = 4


@pytest.fixture
def example() -> Any:
    return load("nginx_upstreams")


def view_of(*http: str | None) -> membership.Configuration:
    members = [
        membership.Member.create(
            f"m{number}",
            membership.Address("127.0.0.1", 1000 + number),
            bytes([number]) * 16,
            {} if address is None else {"http": address},
        )
        for number, address in enumerate(http, start=1)
    ]
    first = membership.Configuration.found(members[0], bytes(16), 10)
    return first.apply(Cut.of(members[1:])) if members[1:] else first


def test_the_list_is_sorted_by_name_and_knows_only_backends(example: Any) -> None:
    view = view_of(None, "127.0.0.1:9003", "[::1]:9002")
    assert example.render(view) == "server 127.0.0.1:9003;  # m2\nserver [::1]:9002;  # m3\n"
    assert example.render(view_of(None)) == example.NOBODY


@pytest.mark.parametrize(
    "address", ["x;}:80", "evil.example:80", "127.0.0.1:80;", "", "127.0.0.1", "[::1]:x"]
)
def test_metadata_of_others_does_not_get_into_the_configuration(example: Any, address: str) -> None:
    assert example.render(view_of(address)) == example.NOBODY


# With nginx


needs_nginx = pytest.mark.skipif(
    shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") is None,
    reason="there is no nginx here: `make system` installs it",
)


def reloads(directory: Path) -> int:
    """As nginx itself has counted them."""
    return (directory / "error.log").read_text().count("signal 1 (SIGHUP) received")


def listed(directory: Path) -> list[str]:
    text = (directory / "upstreams.conf").read_text()
    return [line.split()[1].rstrip(";") for line in text.splitlines() if " down;" not in line]


@pytest.mark.system
@needs_nginx
def test_a_list_that_nginx_refuses_leaves_the_old_one_and_reloads_nothing(
    example: Any, tmp_path: Path
) -> None:
    nginx = example.Nginx(tmp_path, str(own_address()))
    with nginx.running():
        good = "server 127.0.0.1:9001;  # m1\n"
        assert "reload 1" in nginx.install(good)
        assert "REFUSED" in nginx.install("server 127.0.0.1:9001 nonsense;\n")
        assert "REFUSED" in nginx.install("server no-such-host.invalid:1;\n")
        assert (tmp_path / "upstreams.conf").read_text() == good
        assert nginx.install(good) == "no backend changed"
        assert nginx.reloads == 1
    assert reloads(tmp_path) == 1


class Load:
    """Clients that ask nginx for a page all the time; what they get is counted."""

    def __init__(self, where: str) -> None:
        self.answers: Counter[int | str] = Counter()
        self._where = where
        self._stop = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _client(self) -> None:
        while not self._stop.wait(0.01):
            connection = http.client.HTTPConnection(self._where, timeout=PATIENCE)
            try:
                connection.request("GET", "/")
                response = connection.getresponse()
                whole = response.read().startswith(b"hello from ")
                self.answers[response.status if whole or response.status != 200 else "cut short"] += 1
            except (OSError, http.client.HTTPException) as error:
                self.answers[type(error).__name__] += 1
            finally:
                connection.close()

    def wait_for_more(self, count: int) -> None:
        """Until so many further pages have come."""
        until = self.answers[200] + count
        deadline = time.monotonic() + PATIENCE
        while self.answers[200] < until:
            assert time.monotonic() < deadline
            self._stop.wait(0.01)


@pytest.mark.system
@pytest.mark.slow("fifty real members and a proxy")
@needs_nginx
def test_ten_of_fifty_backends_die_at_once_and_nginx_reloads_once(tmp_path: Path) -> None:
    total = PROCESSES * BACKENDS_EACH
    with contextlib.ExitStack() as programs:
        http = str(own_address())
        options = ["--listen", "127.0.0.1:0", "--http", http, "--directory", str(tmp_path), "--preset", "lan"]
        proxy = programs.enter_context(Program("nginx_upstreams", "proxy", *options))
        seed = proxy.wait_for(lambda line: "member proxy" in line).rpartition("(")[2].rstrip(")")
        backends = [
            programs.enter_context(
                Program("nginx_upstreams", "backends", str(BACKENDS_EACH), "--seed", seed, "--preset", "lan")
            )
            for _ in range(PROCESSES)
        ]
        proxy.wait_for(lambda line: f" {total} backends" in line)
        assert len(listed(tmp_path)) == total
        load = Load(http)
        with load.running():
            load.wait_for_more(200)  # the reload that brought the fifty has not happened when it is ordered
            load.answers.clear()
            before, lines = reloads(tmp_path), len(proxy.lines)
            begin = time.monotonic()
            backends[2].kill()
            line = proxy.wait_for(lambda line: f" {total - BACKENDS_EACH} backends" in line)
            took = time.monotonic() - begin
            load.wait_for_more(400)
        assert f"x{BACKENDS_EACH}" in line, "all ten in one cut"
        assert len(listed(tmp_path)) == total - BACKENDS_EACH
        assert [each for each in proxy.lines[lines:] if "reload" in each] == [line]
        assert reloads(tmp_path) - before == 1
        print(f"removed and reloaded {took:.1f} s after the kill; answers while it happened: {load.answers}")
        assert load.answers[200] > 600
        # nginx asks another backend when one does not answer; only an answer cut off midway can be lost.
        assert load.answers.total() - load.answers[200] <= CLIENTS, load.answers
        for program in (*backends[:2], *backends[3:]):
            assert program.stop() == 0
        last = proxy.wait_for(lambda line: "    0 backends" in line and "view    0" not in line)
        assert proxy.stop() == 0
        assert "REFUSED" not in last
