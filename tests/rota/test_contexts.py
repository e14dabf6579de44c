"""Which agent a command talks to: options, environment, contexts; and that tokens go nowhere else."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rota.client.api_client import ApiClient
from rota.client.contexts import forget_local, remember_local
from rota.client.target import DEFAULT_URL, Target
from rota.commands.options import api_option, target_options
from rota.errors import ApiError, UsageProblem
from rota.local.up import _are_asked_by_default, _where_it_is
from tests.rota.test_command_line import run

ALICE = "https://a.example:7947"


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ROTA_API", "ROTA_TOKEN_FILE", "ROTA_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "rota/contexts.toml"


def chosen(*arguments: str, **environment: str) -> Target:
    """What a command gets that is called like this."""
    seen: list[Target] = []

    @click.group()
    @target_options
    def rota(**_: Any) -> None: ...

    @rota.command()
    @api_option
    def ask(api: Target) -> None:
        seen.append(api)

    result = CliRunner().invoke(rota, arguments, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return seen[0]


def test_this_machine_where_nothing_is_said() -> None:
    assert chosen("ask") == Target(DEFAULT_URL)


def test_options_before_and_after_the_command_then_the_environment_then_the_context(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    token = tmp_path / "t"
    assert run(capsys, "context", "set", "a", "--api", ALICE, "--token-file", str(token))[0] == 0
    assert chosen("ask") == Target(ALICE, token)
    assert chosen("ask", ROTA_API="b:1", ROTA_TOKEN_FILE="e") == Target("b:1", Path("e"))
    assert chosen("--api", "c:1", "ask", ROTA_API="b:1") == Target("c:1")
    assert chosen("--api", "c:1", "--token-file", "t", "ask", "--api", "d:1") == Target("d:1", Path("t"))


def test_a_contexts_token_is_sent_to_no_other_agent(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "context", "set", "a", "--api", ALICE, "--token-file", "/t", "--ca-file", "/ca")
    assert chosen("ask", "--api", "https://evil.example") == Target("https://evil.example")
    assert chosen("ask", ROTA_API="https://evil.example") == Target("https://evil.example")
    assert chosen("ask", "--token-file", "/mine") == Target(ALICE, Path("/mine"), Path("/ca"))


def test_contexts_are_set_used_listed_and_removed(
    capsys: pytest.CaptureFixture[str], configuration: Path
) -> None:
    run(capsys, "context", "set", "a", "--api", ALICE, "--ca-file", "ca.pem")
    run(capsys, "context", "set", "b", "--api", "unix:/run/rota")
    assert configuration.stat().st_mode & 0o777 == 0o600
    assert chosen("ask").api == ALICE
    assert chosen("--context", "b", "ask", ROTA_API="x:1").api == "unix:/run/rota"
    assert run(capsys, "context", "use", "b")[0] == 0
    assert chosen("ask").api == "unix:/run/rota"
    listed = json.loads(run(capsys, "context", "list", "--json")[1])
    assert (listed["current"], sorted(listed["contexts"])) == ("b", ["a", "b"])
    assert listed["contexts"]["a"]["ca_file"] == str(Path.cwd() / "ca.pem")
    run(capsys, "context", "remove", "b")
    assert chosen("ask").api == DEFAULT_URL
    status, _, error = run(capsys, "context", "use", "b")
    assert (status, error) == (
        2,
        "rota: there is no context 'b'; known: a; `rota context set b --api URL` makes it\n",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "not valid TOML"),
        ("current = 'x'", "there is no context 'x'"),
        ("[contexts.a]\napii = 'x'", "a context is a table with at least"),
        ("[contexts.a]\napi = 'x'\ntoken = 'x'", "unknown key 'token'"),
        ("[contexts.'a b']\napi = 'x'", "is not a name"),
        ("contexts = 3", "contexts.toml: "),
    ],
)
def test_a_file_that_is_no_good_is_one_line(text: str, problem: str, configuration: Path) -> None:
    configuration.parent.mkdir()
    configuration.write_text(text)
    with pytest.raises(UsageProblem, match=problem):
        chosen("ask")


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "http://", "http://a:x", "https://user@a", "unix:relative", "http://[::1"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageProblem, match="is not the address of an agent"):
        Target(url).where()


def test_a_token_is_sent_over_tls_or_on_this_machine_only(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("rota_x\n")
    with pytest.raises(UsageProblem, match="over TLS only; write https://"):
        Target("http://a.example:7947", file).token()
    assert [Target(url, file).token() for url in (ALICE, DEFAULT_URL, "unix:/s")] == ["rota_x"] * 3


@pytest.mark.parametrize("content", ["", "two words", "line\nline", "\u20ac"])
def test_a_file_without_a_token(tmp_path: Path, content: str) -> None:
    file = tmp_path / "t"
    file.write_text(content)
    with pytest.raises(UsageProblem, match="there is no token in it"):
        Target(ALICE, file).token()


class Answering(http.server.BaseHTTPRequestHandler):
    body = b"it is me"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.socket
def test_of_several_agents_the_first_that_answers_is_asked(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            alive = f"http://127.0.0.1:{server.server_port}"
            client = ApiClient(Target(f"unix:{tmp_path}/gone, {alive},unix:{tmp_path}/never"))
            assert client.fetch("/v1/status") == Answering.body
            assert client.url == alive
        finally:
            server.shutdown()


def test_where_none_answers_all_are_named(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match=r"no agent answers at unix:.*/a \(No such file.*/b \(No such file"):
        ApiClient(Target(f"unix:{tmp_path}/a,unix:{tmp_path}/b")).get("/v1/status")


def test_every_address_is_checked_and_none_gets_a_token_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="ftp://b"):
        Target("a:1,ftp://b:2").where()
    (tmp_path / "token").write_text("secret")
    with pytest.raises(UsageProblem, match="http://b:2: a token is sent over TLS only"):
        Target("https://a:1,http://b:2", tmp_path / "token").token()


def test_the_agents_of_the_local_cluster_are_asked_where_nothing_is_said() -> None:
    agents = ["http://127.0.0.2:7947", "http://127.0.0.3:7947"]
    remember_local(agents)
    assert chosen("ask") == Target(",".join([*agents, DEFAULT_URL])), (
        "one may be there that `rota up` has not started"
    )
    assert chosen("ask", ROTA_API="b:1") == Target("b:1")
    forget_local()
    assert chosen("ask") == Target(DEFAULT_URL)


@pytest.mark.parametrize(
    ("there", "theirs"),
    [
        (None, False),
        (ApiError("your token is not known", status=401), False),
        (ApiError("no agent answers", code="unreachable"), True),
        (ApiError("answers, but is not a rota agent"), True),
    ],
    ids=["an agent", "an agent that wants a token", "nobody", "another program"],
)
def test_commands_ask_a_new_local_cluster_unless_they_ask_another_agent(
    there: ApiError | None, theirs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(client: ApiClient, path: str) -> dict[str, Any]:
        assert (client.url, path) == (DEFAULT_URL, "/v1/status")
        if there is not None:
            raise there
        return {}

    monkeypatch.setattr(ApiClient, "get", answer)
    new = ["http://127.0.0.2:7947", "http://127.0.0.3:7947"]
    assert _are_asked_by_default(new) is theirs
    assert (chosen("ask") == Target(",".join([*new, DEFAULT_URL]))) is theirs


def test_where_a_cluster_is_reached_is_said_only_to_whom_it_is_news() -> None:
    assert not [*_where_it_is(DEFAULT_URL, DEFAULT_URL, True)]
    taken, asked = _where_it_is("http://127.0.0.1:40000", DEFAULT_URL, False)
    assert taken == f"{DEFAULT_URL} is taken: n1 serves HTTP at http://127.0.0.1:40000 instead"
    assert asked.endswith("type  export ROTA_API=http://127.0.0.1:40000")
