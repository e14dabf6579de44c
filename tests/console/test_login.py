"""The console of an agent that asks for a token: typed once, then a session; over real TLS in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.access.access import COOKIE, Access
from rota.access.roles import OPERATE, READ
from rota.access.tls import TlsFiles
from rota.access.tokens import Token, digest_of, write_tokens
from tests.console.conftest import Page
from tests.console.fake_agent import FakeAgent, Server, served
from tests.rota.certificates import Authority

pytestmark = pytest.mark.system


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Server]:
    file = tmp_path / "tokens"
    write_tokens(
        file, [Token("alice", OPERATE, digest_of("rota_alice")), Token("bob", READ, digest_of("rota_bob"))]
    )
    files = TlsFiles(*Authority(tmp_path).issue("agent", "127.0.0.1", "localhost"))
    with served(FakeAgent(), Access(file, files)) as server:
        yield server


def log_in(page: Page, token: str) -> None:
    page.until(lambda: page.run("return !document.getElementById('login').hidden"), "no login appears")
    page.run(
        "document.getElementById('token').value = arguments[0]; document.getElementById('enter').click()",
        token,
    )


def test_a_token_opens_the_console_and_logging_out_closes_it(page: Page, remote: Server) -> None:
    page.open(remote.url)
    log_in(page, "rota_eve")
    page.until_text("#login-problem", "this token is not known here")
    assert page.run("return document.querySelector('main').hidden")
    log_in(page, "rota_bob")
    page.until_text("#headline", "Everything is in place")
    page.until_text("#who", "bob (read)")
    page.until(lambda: page.texts(".log li"), "the stream of events does not come through")
    assert page.run("return document.cookie") == "", "no script can read it"
    cookie = page.driver.get_cookie(COOKIE)
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    page.open(remote.url)
    page.until_text("#who", "bob (read)")
    page.run("document.getElementById('logout').click()")
    page.until(lambda: page.run("return !document.getElementById('login').hidden"), "it stays open")
    assert page.run("return document.querySelector('main').hidden")
    assert page.texts(".host, .cell, .log li, #facts div") == [], (
        "nothing stays in the page for who comes next"
    )
    assert page.driver.get_cookie(COOKIE) is None
    errors = [error for error in page.errors() if "401" not in error]
    assert errors == []


def test_the_session_ends_with_the_agents_memory_of_it(page: Page, remote: Server) -> None:
    page.open(remote.url)
    log_in(page, "rota_alice")
    page.until_text("#headline", "Everything is in place")
    remote.access.sessions = type(remote.access.sessions)()
    page.until(lambda: page.run("return !document.getElementById('login').hidden"), "it goes on without")
    log_in(page, "rota_alice")
    page.until_text("#headline", "Everything is in place")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_login_fits(page: Page, remote: Server, width: int, scheme: str) -> None:
    page.look(width=width, scheme=scheme)
    page.open(remote.url)
    page.until(lambda: page.text("#login"), "no login appears")
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run("return document.activeElement.id") == "token"
