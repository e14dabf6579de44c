"""The console's files: all there, also in a wheel; served as what they are; nothing from elsewhere in them."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from rota.http.api import build_application
from rota.http.console import page_wanted, static_files
from tests.rota.test_api import FakeNode

ROOT = Path(__file__).parents[2]
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=build_application(FakeNode()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7947") as client:
        yield client


async def test_a_browser_gets_the_page_and_a_program_the_list(client: httpx.AsyncClient) -> None:
    page = await client.get("/", headers=HTML)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>rota</title>" in page.text
    listing = await client.get("/")
    assert listing.headers["content-type"].startswith("text/plain")
    assert "GET  /v1/status" in listing.text
    assert page.headers["vary"] == listing.headers["vary"] == "accept"


def test_who_wants_a_page() -> None:
    assert page_wanted(HTML["accept"])
    assert not page_wanted("*/*")
    assert not page_wanted("application/json")


async def test_every_file_the_page_names_is_served(client: httpx.AsyncClient) -> None:
    page = (await client.get("/", headers=HTML)).text
    named = set(re.findall(r'(?:src|href)="(/[^"]*)"', page))
    assert named >= {"/console/main.js", "/console/console.css"}
    imported = {
        posixpath.normpath(f"/console/{posixpath.dirname(name)}/{imported}")
        for name, file in static_files().items()
        if name.endswith(".js")
        for imported in re.findall(r'from "(\.[^"]+)"', file.content.decode())
    }
    assert {f"/console/{name}" for name in static_files() if name.endswith(".js")} == imported | {
        "/console/main.js"
    }
    for path in named | imported:
        answer = await client.get(path)
        assert answer.status_code == 200, path
        kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}[path.rpartition(".")[2]]
        assert answer.headers["content-type"].startswith(kind)


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2Ffiles.py", "%2e%2e/files.py", "files.py", "index.html%00", ""]
)
async def test_a_name_that_is_no_file_of_the_console(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.get(f"/console/{name}")).status_code == 404


async def test_what_is_known_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/console/console.css")
    again = await client.get("/console/console.css", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", sorted(static_files()))
def test_nothing_comes_from_elsewhere_and_no_text_becomes_markup(name: str) -> None:
    text = static_files()[name].content.decode()
    addresses = set(re.findall(r"https?://[^\s\"')]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses
    assert "@import" not in text
    assert "url(" not in text
    if name.endswith(".js"):
        ways_to_markup = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(",
                          "createContextualFragment", "new Function", ".srcdoc", "setHTML")  # fmt: skip
        assert [way for way in ways_to_markup if way in text] == []
    if name.endswith(".html"):
        assert "<style" not in text
        assert not re.search(r"<script(?![^>]*src=)", text)
        assert not re.search(r"\son\w+=|\sstyle=", text)


def test_the_modules_stay_small() -> None:
    for name, file in static_files().items():
        assert file.content.count(b"\n") <= 400, name


def test_a_wheel_holds_them(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        held = {
            name.removeprefix("rota/http/console/static/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith("rota/http/console/static/") and not name.endswith("/")
        }
    assert held == {name: file.content for name, file in static_files().items()}
