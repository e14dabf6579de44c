"""``python console_pictures.py URL TOKEN_FILE FOLDER``: log in to a console as a person would, and take its picture."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.console.conftest import Page, browser


def main(url: str, token: str, folder: Path) -> None:
    with TemporaryDirectory() as profile, browser(Path(profile)) as driver:
        take(Page(driver), url, token, folder)


def take(page: Page, url: str, token: str, folder: Path) -> None:
    page.open(url)
    page.until(lambda: page.run("return !document.getElementById('login').hidden"), "no login appears")
    page.run(
        "document.getElementById('token').value = arguments[0]; document.getElementById('enter').click()",
        token,
    )
    page.until_text("#who", "alice (operate)")
    page.until_text("#headline", "in place")
    assert len(page.texts(".host")) == 3
    for scheme in ("light", "dark"):
        for width, height in ((1280, 1400), (360, 1400)):
            page.look(width, height, scheme)
            wide = page.run("return document.documentElement.scrollWidth")
            assert wide <= width, f"{wide} pixels on a page of {width}"
            page.driver.save_screenshot(str(folder / f"console-{scheme}-{width}.png"))
    unexpected = [error for error in page.errors() if "401" not in error]  # that it is asked for a token
    assert unexpected == []


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).read_text().strip(), Path(sys.argv[3]))
