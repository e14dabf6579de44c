"""The HTTP server on real sockets: TLS, the Unix socket, and clients that mean harm."""

from __future__ import annotations

import gc
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from membership import Address
from rota.access.access import Access
from rota.access.roles import OPERATE, READ
from rota.access.tls import TlsFiles
from rota.access.tokens import Token, digest_of, write_tokens
from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.errors import AgentError, ApiError, SettingsError
from rota.http import requests as http_requests
from rota.http import server as http_server
from rota.http.api import build_application
from rota.http.server import UnixSocket, reload_access, serve
from tests.rota import hostile_http
from tests.rota.certificates import DAY, Authority
from tests.rota.test_api import FakeNode

pytestmark = pytest.mark.socket

LOOPBACK = Address("127.0.0.1", 0)
HEAD = b"GET /v1/members HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    write_tokens(
        tmp_path / "tokens", [Token("a", OPERATE, digest_of("rota_a")), Token("b", READ, digest_of("rota_b"))]
    )
    file = tmp_path / "a.token"
    file.write_text("rota_a\n")
    return file


@asynccontextmanager
async def serving(access: Access | None = None, socket: Path | None = None) -> AsyncIterator[Address]:
    access = access or Access()
    async with trio.open_nursery() as nursery:
        unix = None if socket is None else UnixSocket(socket)
        application = build_application(FakeNode(), access)
        yield await nursery.start(serve, application, LOOPBACK, access, unix)
        nursery.cancel_scope.cancel()


async def ask(target: Target | str, path: str = "/v1/session") -> Any:
    return await trio.to_thread.run_sync(lambda: ApiClient(target, timeout=30).get(path))


async def refusal(target: Target | str) -> str:
    with pytest.raises(ApiError) as refused:
        await ask(target)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def refused(problem: str) -> Any:
    return pytest.RaisesGroup(pytest.RaisesExc(AgentError, match=problem), flatten_subgroups=True)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is no event
            await trio.sleep(0.01)


async def closed(stream: trio.abc.ReceiveStream) -> bytes:
    """All that comes until the other side closes."""
    received = b""
    with trio.fail_after(20), suppress(trio.BrokenResourceError):
        while chunk := await stream.receive_some(65536):
            received += chunk
    return received


class TestTls:
    async def test_who_has_a_token_and_knows_the_authority_gets_in(
        self, authority: Authority, tmp_path: Path, token: Path
    ) -> None:
        access = Access(tmp_path / "tokens", TlsFiles(*authority.issue("agent", "127.0.0.1", "localhost")))
        async with serving(access) as address:
            url = f"https://{address}"
            assert (await ask(Target(url, token, authority.path)))["role"] == OPERATE
            assert "a token is needed" in await refusal(Target(url, None, authority.path))
            assert "give --ca-file" in await refusal(Target(url, token))
            assert "is it https://?" in await refusal(Target(f"http://{address}", token))
        async with serving() as plain:
            assert "is it http://?" in await refusal(Target(f"https://{plain}", token, authority.path))

    @pytest.mark.parametrize(
        ("names", "lasts", "problem"),
        [
            (("127.0.0.1",), -DAY, "the agent's certificate has expired"),
            (("b.example", "127.0.0.2"), DAY, "the agent's certificate is for other names than 127.0.0.1"),
        ],
    )
    async def test_a_certificate_that_is_no_good(
        self,
        authority: Authority,
        tmp_path: Path,
        token: Path,
        names: tuple[str, ...],
        lasts: Any,
        problem: str,
    ) -> None:
        access = Access(tmp_path / "tokens", TlsFiles(*authority.issue("bad", *names, lasts=lasts)))
        async with serving(access) as address:
            assert problem in await refusal(Target(f"https://{address}", token, authority.path))

    async def test_where_clients_need_a_certificate_nobody_else_is_heard(
        self, authority: Authority, tmp_path: Path, token: Path
    ) -> None:
        stranger = Authority(tmp_path, "stranger")
        files = TlsFiles(*authority.issue("agent", "127.0.0.1"), authority.path)
        async with serving(Access(tmp_path / "tokens", files)) as address:
            target = Target(f"https://{address}", token, authority.path)
            assert "give --certificate FILE" in await refusal(target)
            mine, theirs = authority.issue("alice")[0], stranger.issue("eve")[0]
            assert (await ask(Target(target.api, token, authority.path, mine)))["role"] == OPERATE
            assert "give --certificate FILE" in await refusal(
                Target(target.api, token, authority.path, theirs)
            )

    async def test_certificate_and_tokens_are_read_again_and_what_is_no_good_is_not_taken(
        self, authority: Authority, tmp_path: Path, token: Path
    ) -> None:
        files = TlsFiles(*authority.issue("renewed", "b.example"))
        access = Access(tmp_path / "tokens", files)
        async with serving(access) as address:
            target = Target(f"https://{address}", token, authority.path)
            assert "other names" in await refusal(target)
            before = access.gauges()["certificate_expiry_timestamp_seconds"]
            authority.issue("renewed", "127.0.0.1", lasts=12 * DAY)
            await reload_access(access)
            after = access.gauges()["certificate_expiry_timestamp_seconds"]
            assert after is not None
            assert before is not None
            assert after - before == pytest.approx(3 * 86400, abs=60)
            assert (await ask(target))["role"] == OPERATE
            files.certificate.write_text("nonsense")
            write_tokens(tmp_path / "tokens", [])
            await reload_access(access)
            assert (await ask(target))["role"] == OPERATE, "all of it or nothing"
            authority.issue("renewed", "127.0.0.1")
            await reload_access(access)
            assert "this token is not known here" in await refusal(target)

    def test_files_that_are_no_good_are_one_line(self, authority: Authority, tmp_path: Path) -> None:
        certificate, key = authority.issue("checked", "127.0.0.1")
        other = authority.issue("other", "127.0.0.1")[1]
        nameless = authority.issue("nameless")
        for files, problem in (
            (TlsFiles(tmp_path / "none", key), "none: No such file"),
            (TlsFiles(certificate, other), "are no certificate and its key"),
            (TlsFiles(key, key), "are no certificate and its key"),
            (TlsFiles(*nameless), "names no host"),
            (TlsFiles(certificate, key, key), "no certificate in PEM is in it"),
        ):
            with pytest.raises(SettingsError, match=problem):
                Access(None, files)
        key.chmod(0o644)
        with pytest.raises(SettingsError, match="everybody can reach"):
            Access(None, TlsFiles(certificate, key))


class TestTheUnixSocket:
    async def test_its_user_needs_no_token(self, authority: Authority, tmp_path: Path, token: Path) -> None:
        access = Access(tmp_path / "tokens", TlsFiles(*authority.issue("agent", "127.0.0.1")))
        path = tmp_path / "socket"
        async with serving(access, path):
            assert path.stat().st_mode & 0o777 == 0o600
            assert (await ask(f"unix:{path}"))["role"] == OPERATE
            assert (await ask(f"unix:{path}"))["name"]
        assert not path.exists()

    async def test_one_left_behind_is_replaced_and_one_in_use_is_not(self, tmp_path: Path) -> None:
        path = tmp_path / "socket"
        async with serving(socket=path):
            with pytest.RaisesGroup(
                pytest.RaisesExc(AgentError, match="another process answers there"), flatten_subgroups=True
            ):
                async with serving(socket=path):
                    raise AssertionError("not reached")
            assert (await ask(f"unix:{path}"))["role"] == OPERATE
            os.link(path, tmp_path / "left")
        os.rename(tmp_path / "left", path)
        async with serving(socket=path):
            assert (await ask(f"unix:{path}"))["role"] == OPERATE

    async def test_a_file_of_somebody_else_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "socket"
        path.write_text("precious")
        with refused("no socket"):
            async with serving(socket=path):
                raise AssertionError("not reached")
        assert path.read_text() == "precious"


class TestHostileClients:
    async def test_mutated_requests_are_answered_or_closed_and_never_a_failure(
        self, tmp_path: Path, token: Path
    ) -> None:
        access = Access(tmp_path / "tokens")
        async with serving(access) as address:
            seen = await hostile_http.attack("127.0.0.1", address.port, iter(range(300)), None, b"rota_b")
            await until(lambda: access.open_connections() == 0)
        assert seen["silent"] == seen["500"] == access.counters["http.connections_failed"] == 0
        assert {"200", "400", "401", "403", "404", "415", "421"} <= seen.keys(), "the mutants get everywhere"

    async def test_connections_are_bounded_and_a_newcomer_gets_in(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_server, "CONNECTIONS", 20)
        access = Access()
        async with serving(access) as address:
            silent = [await trio.open_tcp_stream(*address) for _ in range(100)]
            await until(lambda: access.counters["http.connections_closed_for_others"] == 80)
            assert access.gauges()["http_open_connections"] == 20
            assert (await ask(str(address)))["role"] == OPERATE
            for stream in silent:
                await trio.aclose_forcefully(stream)
            await until(lambda: access.open_connections() == 0)

    async def test_a_head_that_does_not_come_to_an_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_server, "HEAD_PATIENCE", 0.2)
        async with serving() as address, await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(HEAD)
            assert await closed(stream) == b""

    async def test_a_handshake_that_does_not_come_to_an_end(
        self, monkeypatch: pytest.MonkeyPatch, authority: Authority, tmp_path: Path, token: Path
    ) -> None:
        monkeypatch.setattr(http_server, "HANDSHAKE_PATIENCE", 0.2)
        access = Access(tmp_path / "tokens", TlsFiles(*authority.issue("agent", "127.0.0.1")))
        async with serving(access) as address, await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(b"\x16\x03\x01")
            await closed(stream)
            assert access.counters["http.handshakes_failed"] == 1

    async def test_a_body_that_does_not_come_to_an_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_requests, "BODY_PATIENCE", 0.2)
        async with serving() as address, await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(
                b"POST /v1/tags HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 9\r\n\r\n{"
            )
            assert b" 408 " in await closed(stream)

    async def test_a_reader_who_does_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_server, "SEND_PATIENCE", 0.2)
        access = Access()
        async with serving(access) as address, await trio.open_tcp_stream(*address) as stream:
            # More answers than the buffers of both systems hold.
            with trio.fail_after(20), suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(
                        b"GET /console/timeline.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
                    )
            await until(lambda: access.open_connections() == 0)

    @pytest.mark.parametrize("path", ["/v1/tags", "/v1/pause", "/v1/nothing", "/v1/log/words"])
    @pytest.mark.parametrize("announced", [True, False])
    async def test_a_body_of_gigabytes_is_refused_before_it_has_come(
        self, path: str, announced: bool
    ) -> None:
        length = b"Content-Length: 9000000000" if announced else b"Transfer-Encoding: chunked"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
        chunk = b"x" * 65536 if announced else b"10000\r\n" + b"x" * 65536 + b"\r\n"
        async with serving() as address, await trio.open_tcp_stream(*address) as stream:
            sent = 0
            with trio.fail_after(20), suppress(trio.BrokenResourceError):
                await stream.send_all(head + length + b"\r\n\r\n")
                while True:
                    await stream.send_all(chunk)
                    sent += len(chunk)
            assert sent < 32 << 20, "most of that is in the buffers of both systems"
            assert (await ask(str(address)))["role"] == OPERATE

    @pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
    async def test_there_is_no_way_out_of_http_1(self, upgrade: bytes) -> None:
        async with serving() as address, await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(
                HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: " + upgrade
                + b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )  # fmt: skip
            assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 200 ")

    async def test_the_end_does_not_wait_for_clients(self) -> None:
        async with serving() as address:
            stream = await trio.open_tcp_stream(*address)
            await stream.send_all(HEAD)
        with trio.fail_after(5):
            assert await closed(stream) == b""
        await stream.aclose()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_connections_that_have_ended_wait_for_no_garbage_collection(
    authority: Authority, tmp_path: Path, token: Path, encrypted: bool
) -> None:
    """A full one stops the agent for as long as it takes, and it takes long where many are to be collected."""
    files = TlsFiles(*authority.issue("agent", "127.0.0.1"))
    access = Access(tmp_path / "tokens", files) if encrypted else Access()
    trusting = ssl.create_default_context(cafile=authority.path)
    gc.collect()
    gc.disable()
    try:
        async with serving(access) as address:
            for sent in (b"", HEAD, HEAD + b"\r\n"):
                stream: trio.abc.Stream = await trio.open_tcp_stream(*address)
                if encrypted:
                    stream = trio.SSLStream(stream, trusting, server_hostname="127.0.0.1")
                await stream.send_all(sent)
                await trio.aclose_forcefully(stream)
            await until(lambda: access.statistics().get("http.connections") == 3)
            await until(lambda: access.open_connections() == 0)
            await until(lambda: not any(type(each) is h11.Connection for each in gc.get_objects()))
    finally:
        gc.enable()
