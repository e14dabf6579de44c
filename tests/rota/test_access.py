"""Tokens, roles, sessions and names: the rules of an interface that can be reached from elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rota.access.host_names import HostNames
from rota.access.roles import OPERATE, PUBLIC, READ, suffices
from rota.access.sessions import LIFETIME, Sessions
from rota.access.tokens import (
    Token,
    TokenError,
    Tokens,
    digest_of,
    new_token,
    parse_tokens,
    read_tokens,
    write_tokens,
)
from rota.agent.settings import load
from rota.errors import SettingsError
from tests.rota.test_command_line import run

ALICE, BOB = Token("alice", OPERATE, digest_of("a")), Token("bob", READ, digest_of("b"))
HASH = hashlib.sha256(b"a").hexdigest()


class TestTokens:
    def test_who_has_one_is_found_by_it_and_by_nothing_else(self) -> None:
        tokens = Tokens([ALICE, BOB])
        assert tokens.find("a") is ALICE
        assert tokens.find("b") is BOB
        assert [tokens.find(text) for text in ("", "A", "a ", "\ud800", ALICE.digest.hex())] == [None] * 5

    def test_a_file_holds_hashes_and_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        path, text = tmp_path / "tokens", new_token()
        write_tokens(path, [Token("alice", OPERATE, digest_of(text)), BOB])
        assert path.stat().st_mode & 0o777 == 0o600
        assert text not in path.read_text()
        found = Tokens(read_tokens(path)).find(text)
        assert found is not None
        assert (found.name, found.role) == ("alice", OPERATE)

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            (f"alice {HASH}", "a line is NAME ROLE sha256:HEX"),
            (f"alice operate {HASH}", "a line is NAME ROLE sha256:HEX"),
            (f"alice root sha256:{HASH}", "'root' is not a role; choose read or operate"),
            (f"al/ice read sha256:{HASH}", "is not a name"),
            (f"alice read sha256:{HASH[:-1]}", "no SHA-256"),
            (f"alice read sha256:{HASH}00", "no SHA-256"),
            (f"bob read sha256:{HASH}", "bob is there already"),
        ],
    )
    def test_a_line_that_is_no_good_is_named(self, line: str, problem: str) -> None:
        with pytest.raises(TokenError, match=f"^tokens:3: .*{problem}"):
            parse_tokens(f"# remark\nbob read sha256:{HASH}\n{line}\n", "tokens")

    def test_a_file_that_others_can_change_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "tokens"
        write_tokens(path, [ALICE])
        path.chmod(0o664)
        with pytest.raises(TokenError, match="others than its owner can change this file"):
            read_tokens(path)

    def test_the_commands_make_list_and_remove_them(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file, output = ("--file", str(tmp_path / "tokens")), tmp_path / "alice.token"
        assert (
            run(capsys, "tokens", "add", "alice", "--role", "operate", *file, "--output", str(output))[0] == 0
        )
        status, printed, _ = run(capsys, "tokens", "add", "bob", "--role", "read", *file)
        assert status == 0
        tokens = Tokens(read_tokens(tmp_path / "tokens"))
        names = [
            token and token.name for token in map(tokens.find, (output.read_text().strip(), printed.strip()))
        ]
        assert names == ["alice", "bob"]
        assert output.stat().st_mode & 0o777 == 0o600
        assert "alice is there already" in run(capsys, "tokens", "add", "alice", "--role", "read", *file)[2]
        assert run(capsys, "tokens", "remove", "alice", *file)[0] == 0
        listed = run(capsys, "tokens", "list", *file)[1]
        assert "bob" in listed
        assert "alice" not in listed


@pytest.mark.parametrize(
    ("role", "needed", "enough"),
    [(READ, READ, True), (READ, OPERATE, False), (OPERATE, READ, True), (OPERATE, OPERATE, True), ("", PUBLIC, True),
     ("", READ, False), (PUBLIC, READ, False)],
)  # fmt: skip
def test_who_may_operate_may_read_and_not_the_other_way_round(role: str, needed: str, enough: bool) -> None:
    assert suffices(role, needed) is enough


class TestSessions:
    def setup_method(self) -> None:
        self.now = 0.0
        self.sessions = Sessions(clock=lambda: self.now, kept=3)
        self.tokens = Tokens([ALICE, BOB])

    def test_a_session_stands_for_its_token_until_it_is_closed(self) -> None:
        number, other = self.sessions.open(ALICE), self.sessions.open(BOB)
        assert self.sessions.find(number, self.tokens) is ALICE
        self.sessions.close(number)
        assert self.sessions.find(number, self.tokens) is None
        assert self.sessions.find(other, self.tokens) is BOB

    def test_it_ends_after_its_lifetime(self) -> None:
        number = self.sessions.open(ALICE)
        self.now = LIFETIME - 1
        assert self.sessions.find(number, self.tokens) is ALICE
        self.now = LIFETIME
        assert self.sessions.find(number, self.tokens) is None

    def test_it_ends_when_the_token_is_taken_away_or_made_anew(self) -> None:
        number = self.sessions.open(ALICE)
        assert self.sessions.find(number, Tokens([Token("alice", OPERATE, digest_of("new")), BOB])) is None
        assert len(self.sessions) == 0

    def test_there_are_never_more_than_are_kept(self) -> None:
        first, *others = [self.sessions.open(ALICE) for _ in range(4)]
        assert self.sessions.find(first, self.tokens) is None
        assert all(self.sessions.find(number, self.tokens) is ALICE for number in others)

    @pytest.mark.parametrize("number", ["", "x", "x" * 10_000])
    def test_what_is_no_session_is_none(self, number: str) -> None:
        assert self.sessions.find(number, self.tokens) is None


class TestNames:
    NAMES = HostNames(["a.example", "*.b.example", "10.0.0.5", "fd00::5"])

    @pytest.mark.parametrize(
        "host",
        [
            "a.example",
            "A.example:7947",
            "x.b.example:1",
            "10.0.0.5:7947",
            "[fd00::5]:1",
            "[fd00:0::5]",
            "127.0.0.1:1",
        ],
    )
    def test_those_of_the_certificate_and_loopback(self, host: str) -> None:
        assert self.NAMES.allows(host)

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "b.example",
            "x.y.b.example",
            ".b.example",
            "a.example.evil",
            "10.0.0.6",
            "fd00::5",
            "",
            "*",
        ],
    )
    def test_and_no_others(self, host: str) -> None:
        assert not self.NAMES.allows(host)


REMOTE = {"api": "0.0.0.0:7947", "api_certificate": "c", "api_key": "k", "api_tokens": "t"}


class TestSettings:
    def test_another_address_than_loopback_needs_tls_and_tokens(self) -> None:
        assert load(None, REMOTE).api.host == "0.0.0.0"
        for missing in ("api_certificate", "api_key", "api_tokens"):
            some = {key: value for key, value in REMOTE.items() if key != missing}
            with pytest.raises(
                SettingsError, match=f"needs TLS and tokens; give {missing}, or use 127.0.0.1"
            ):
                load(None, some)

    def test_on_loopback_both_or_neither(self) -> None:
        load(None, {**REMOTE, "api": "127.0.0.1:7947"})
        with pytest.raises(SettingsError, match="api_certificate: TLS and tokens go together"):
            load(None, {"api_tokens": "t"})
        with pytest.raises(SettingsError, match="api_tokens: TLS and tokens go together"):
            load(None, {"api_certificate": "c", "api_key": "k"})

    def test_what_would_do_nothing_is_refused(self) -> None:
        with pytest.raises(SettingsError, match="api_client_ca: means nothing"):
            load(None, {"api_client_ca": "c"})
        with pytest.raises(SettingsError, match="api_socket_group: means nothing"):
            load(None, {"api_socket_group": "operators"})
