"""The documentation builds as a site, strictly: every link leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from docs.site import sources
from mgmt.control import events
from rota.commands.command_line import rota

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"""<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]+""")


def commands(group: click.Group, path: str) -> set[str]:
    found = {f"{path} {name}" for name, command in group.commands.items() if not command.hidden}
    nested = {name: command for name, command in group.commands.items() if isinstance(command, click.Group)}
    return found.union(*(commands(command, f"{path} {name}") for name, command in nested.items()))


@pytest.mark.slow("the whole site is built")
def test_the_site_is_built_strictly_with_every_command_and_asks_nobody(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = {path.name: path.read_text() for path in tmp_path.rglob("*.html")}
    assert not {name: FETCHED.findall(text) for name, text in pages.items() if FETCHED.search(text)}
    titles = set(re.findall(r"<h\d id=[^>]*>(rota [^<]*)<", pages["commands.html"]))
    assert titles == commands(rota, "rota")
    assert "<!-- expect" not in pages["remote.html"]


def test_the_reference_has_all_kinds_of_events_and_the_codes_of_refusals() -> None:
    told = sources.events()
    text = Path(events.__file__ or "").read_text()
    documented = re.findall("``([a-z-]+)``", text[text.index("One of:") : text.index("text: str")])
    assert set(documented) <= set(told)
    assert told["drain"] == ["{host} is to be emptied"]
    assert sources.refusals()["no_token", "401"] == ["a token is needed here; give --token-file FILE"]
    counted = [name for names in sources.counters().values() for name in names]
    assert {"http.requests", "control.drifts", "views installed", "datagrams_sent"} <= set(counted)
