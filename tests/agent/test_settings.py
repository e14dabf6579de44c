"""Settings: the file, the command line, and every way to get them wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import SettingsError
from agent.settings import AgentSettings, load, parse_size, parse_tag
from membership import Address


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
        ("expect = 0", "expect: 0 is not a whole number from 1 to 10000"),
        ('capacity = "many"', "capacity: 'many' is not a size"),
        ('tags = "rack"', "tags are a table"),
        ("name = 3", "name: 3 is not text"),
        ("listen = ", "not valid TOML"),
        ('api = "0.0.0.0:80"', "not a loopback address"),
        ('listen = "0.0.0.0:80"', "nothing is encrypted; give --key-file"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write(tmp_path, text), {})
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


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
