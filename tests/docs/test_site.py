"""The documentation builds as a site, strictly: every link leads somewhere, and nothing is fetched from elsewhere.

Every page has the code and the headings of its source: a fence that the site's markdown does not know, such as one with
two words behind it, would make paragraphs of what follows it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

from docs.site import reference, sources
from docs.site.hook import source_of
from mgmt.control import events
from rota.commands.command_line import rota

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"""<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]+""")
FENCE = re.compile(r"^( *)(```+)[^`\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """The headings and the preformatted texts of a page, and the rest of its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.code: list[str] = []
        self.prose = ""
        self._within: list[str] = []
        self.feed(text.partition("<article")[2].partition("</article>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a" and ("class", "headerlink") in attrs:
            tag = "link to itself"
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append("")
        if tag == "pre":
            self.code.append("")
        if tag not in ("br", "hr", "img", "input"):
            self._within.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """It holds no text."""

    def handle_endtag(self, tag: str) -> None:
        self._within.pop()

    def handle_data(self, data: str) -> None:
        if "pre" in self._within:
            self.code[-1] += data
        elif "link to itself" not in self._within:
            self.prose += data
            if any(re.fullmatch(r"h\d", tag) for tag in self._within):
                self.headings[-1] += data


def as_it_is_read(text: str) -> str:
    """Without the marks of links and code, and with single blanks."""
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("\\", "").split())


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
    compare_all(tmp_path)


def compare_all(site: Path) -> None:
    for path in site.rglob("*.html"):
        name = path.relative_to(site).with_suffix(".md").as_posix()
        kind = name.removeprefix("reference/").removesuffix(".md")
        if name.startswith("reference/"):
            compare(
                name,
                reference.PAGES[kind](),
                Page(path.read_text()),
                headings=kind not in ("errors", "python"),
            )
        elif (source := ROOT / source_of(name)).exists():
            compare(name, source.read_text(), Page(path.read_text()), headings=True)
        else:
            assert name == "404.md"


def compare(name: str, source: str, page: Page, *, headings: bool) -> None:
    """``headings``: whether all of them are in the source, none from docstrings."""
    assert "```" not in page.prose, name
    shown = {" ".join(text.split()) for text in page.code}
    missing = [
        text for _, _, text in FENCE.findall(source) if " ".join(textwrap.dedent(text).split()) not in shown
    ]
    assert not missing, f"{name} does not show as code: {missing[0]}"
    written = re.findall(r"^#+ +(.*)$", FENCE.sub("", source), re.MULTILINE)
    if headings:
        assert list(map(as_it_is_read, page.headings)) == list(map(as_it_is_read, written)), name


def test_a_fence_that_the_site_does_not_know_is_found() -> None:
    with pytest.raises(AssertionError, match=r"a\.md does not show as code: SELECT 1"):
        compare(
            "a.md",
            "```sql\nSELECT 1\n```\n",
            Page("<article><p><code>sql SELECT 1</code></p></article>"),
            headings=True,
        )
    compare(
        "a.md",
        "# A `b`\n```sql\n# no\n```\n",
        Page("<article><h1>A <code>b</code></h1><pre># no</pre></article>"),
        headings=True,
    )


def test_the_reference_has_all_kinds_of_events_and_the_codes_of_refusals() -> None:
    told = sources.events()
    text = Path(events.__file__ or "").read_text()
    documented = re.findall("``([a-z-]+)``", text[text.index("One of:") : text.index("text: str")])
    assert set(documented) <= set(told)
    assert told["drain"] == ["{host} is to be emptied"]
    assert sources.refusals()["no_token", "401"] == ["a token is needed here; give --token-file FILE"]
    counted = [name for names in sources.counters().values() for name in names]
    assert {"http.requests", "control.drifts", "views installed", "datagrams_sent"} <= set(counted)
