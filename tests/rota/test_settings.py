"""Settings: the file, the command line, and every way to get them wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from membership import Address
from mgmt.control.settings import ControlSettings
from rota.agent.settings import CONTROL_KEYS, AgentSettings, EngineUrl, load, parse_size, parse_tag
from rota.errors import SettingsError


def write(path: Path, text: str) -> Path:
    file = path / "agent.toml"
    file.write_text(text)
    return file


def test_defaults_found_a_cluster_on_loopback() -> None:
    settings = load(None, {})
    assert settings.listen == Address("127.0.0.1", 7946)
    assert settings.is_founder


def test_command_line_beats_file_and_tags_are_merged(tmp_path: Path) -> None:
    file = write(tmp_path, 'name = "n1"\nseeds = ["127.0.0.1:1"]\n[tags]\nrack = "r1"\nzone = "z1"\n')
    settings = load(file, {"name": "n2", "tags": {"rack": "r9"}})
    assert settings.name == "n2"
    assert settings.tags == {"rack": "r9", "zone": "z1"}
    assert not settings.is_founder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('lisen = "127.0.0.1:1"', "unknown key 'lisen'; did you mean 'listen'?"),
        ("listen = 7946", "listen: 7946 is not an address"),
        ('listen = "127.0.0.1"', "listen:"),
        ("loss = 1.5", "loss: 1.5 is not a share"),
        ("loss = true", "loss: True is not a share"),
        ('preset = "fast"', "preset: 'fast' is not a preset"),
        ('detector = "gut"', "detector: 'gut' is not a failure detector; choose one of windowed, phi"),
        ('broadcast = "smoke"', "broadcast: 'smoke' is no way to broadcast; choose one of epidemic, unicast"),
        ("expect = 0", "expect: 0 is not a whole number from 1 to 10000"),
        ('capacity = "many"', "capacity: 'many' is not a size"),
        ('solver_memory = "10M"', "solver_memory: '10M' is less than 64M"),
        ('tags = "rack"', "tags are a table"),
        ("name = 3", "name: 3 is not text"),
        ('store = "etcd"', "store: 'etcd' is not a store; choose one of log, valkey, redis, none"),
        ('engine = "http://a:1"', "engine: an engine is redis://[user:password@]host:port"),
        ('engine = ["redis://rota:secret@a"]', "engine: 'a' is not an address"),
        ("engine_servers = 17", "engine_servers: 17 is not a whole number from 1 to 16"),
        ("listen = ", "not valid TOML"),
        ('name = "n1"\nexpect = 0', "agent.toml:2: expect: 0 is not"),
        ("[control]\n\ntransfers = 0", "agent.toml:3: control: transfers: 0 is not a whole number from 1"),
        (
            '[tags]\nrack = "r1"\n[control]\nmoves_per_hosts = 3',
            "agent.toml:4: control: moves_per_hosts: unknown key",
        ),
        ("[control]\nmoves_per_hosts = 3", "did you mean 'moves_per_host'?"),
        (
            "[control]\nmoves_per_host = 9\nmoves_per_rack = 8",
            "agent.toml:3: control: moves_per_rack: 8 is less",
        ),
        (
            '[control]\nbytes_per_second = "fast"',
            "agent.toml:2: control: bytes_per_second: 'fast' is not a size",
        ),
        ("[control]\ncooldown = -1", "control: cooldown: -1 is not a number of seconds above 0"),
        ("control = 3", "agent.toml:1: control: control is a table"),
        ("control.transfers = 0", "agent.toml:1: control: transfers: 0"),
        ('api = "0.0.0.0:80"', "give api_certificate and api_key and api_tokens"),
        ('listen = "0.0.0.0:80"', "nothing is encrypted; give --key-file"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write(tmp_path, text), {})
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "agent.toml").write_text('name = "Köln\u2028"\n', encoding=encoding)
    assert load(tmp_path / "agent.toml", {}).name == "Köln\u2028"
    (tmp_path / "agent.toml").write_text('name = "Köln"\n', encoding="latin-1")
    with pytest.raises(SettingsError, match=r"agent.toml: .*line 1, column 10: byte f6 is no UTF-8"):
        load(tmp_path / "agent.toml", {})


def test_missing_file_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml: cannot be read"):
        load(tmp_path / "nowhere.toml", {})


def test_a_key_file_allows_other_addresses() -> None:
    assert load(None, {"listen": "10.0.0.5:7946", "key_file": "k"}).key_file == Path("k")


def test_insecure_allows_other_addresses() -> None:
    assert load(None, {"listen": "10.0.0.5:7946", "insecure": True}).listen.host == "10.0.0.5"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"listen": "0.0.0.0:7946", "insecure": True}, "listen: 0.0.0.0:7946"),
        ({"listen": "[::]:0", "key_file": "k"}, r"listen: \[::\]:0"),
        ({"advertise": "0.0.0.0:7946"}, "advertise: 0.0.0.0:7946"),
    ],
)
def test_an_address_nobody_can_send_to_is_not_advertised(values: dict[str, object], key: str) -> None:
    with pytest.raises(SettingsError, match=f"{key} means every interface .* give --advertise"):
        load(None, values)


def test_who_listens_on_every_interface_says_where_others_reach_it() -> None:
    both = {"listen": "0.0.0.0:7946", "advertise": "10.0.0.5:7946", "insecure": True}
    assert load(None, both).listen.host == "0.0.0.0"


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("10G", 10**10), ("2 TiB", 2 * 2**40), ("1.5k", 1500)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_tags() -> None:
    assert parse_tag("rack = r1") == ("rack", "r1")
    with pytest.raises(ValueError, match="write key=value"):
        parse_tag("rack")


def test_every_default_is_valid() -> None:
    AgentSettings().validate()


def test_the_control_table_says_how_much_moves_and_when(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        [control]
        moves_per_host = 4
        transfers = 2
        transfers_per_host = 1
        bytes_per_second = "10M"
        freeze_first = 1.5
        repairs_wait = 90
        min_gain = 7
        cooldown = 60
        """,
    )
    control = load(file, {}).control
    assert (control.waves.moves_per_host, control.waves.moves_per_cluster) == (4, 1024)
    assert (control.limits.transfers, control.limits.bytes_per_transfer) == (2, 5e6)
    assert (control.freezes.first, control.freezes.repairs_wait, control.freezes.longest) == (
        1.5,
        90.0,
        300.0,
    )
    assert (control.hysteresis.min_gain, control.hysteresis.cooldown) == (7, 60.0)
    assert load(None, {}).control == ControlSettings()


def test_every_limit_has_a_key() -> None:
    parts = ControlSettings()
    reached = {(key.part, key.field) for key in CONTROL_KEYS.values()}
    for part in ("waves", "freezes", "hysteresis"):
        assert {(part, field.name) for field in fields(getattr(parts, part))} <= reached


def test_the_page_for_people_names_every_key_of_the_control_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "limits.md").read_text()
    assert [name for name in CONTROL_KEYS if f"`{name}`" not in page] == []


def test_a_store_may_be_a_switch(tmp_path: Path) -> None:
    assert load(write(tmp_path, "store = false"), {}).store == "none"
    assert load(write(tmp_path, "store = true"), {}).store == "log"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"engine": "redis://127.0.0.1:1", "store": "valkey"}, "engine: .* leave --store out"),
        (
            {"engine": "redis://127.0.0.1:1", "listen": "10.0.0.1:1", "insecure": True},
            "other hosts cannot reach 127.0.0.1:1",
        ),
        ({"engine": ["redis://:a@127.0.0.1:1", "redis://:b@127.0.0.1:2"]}, "all servers are reached alike"),
        ({"engine_ca": "ca.pem"}, "engine_ca: means nothing here"),
        ({"tags": {"store": "valkey"}}, "tags: store is told by the agent itself"),
        ({"engine_config": "more.conf"}, "engine_config: means nothing here"),
    ],
)
def test_an_engine_that_cannot_be_meant(given: dict[str, object], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        load(None, given)


def test_an_engines_address_user_and_password() -> None:
    url = EngineUrl.parse("rediss://rota:a%40b@[::1]:6379")
    assert (url.address, url.user, url.password, url.is_tls) == (Address("::1", 6379), "rota", "a@b", True)
    assert "a@b" not in repr(url)
    assert EngineUrl.parse("valkey://h:1").access == ("", "", False)
