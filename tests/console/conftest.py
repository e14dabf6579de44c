"""A real Chromium, started once for all tests of the console."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.own_addresses import reserved_port

PATIENCE = 60.0
"""Seconds until a condition counts as never met, on the busiest machine."""


class Page:
    """The browser, with what the tests ask of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """The rendered text of the first match; empty if there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
        return list(self.run(script, selector))

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.wait import WebDriverWait

        try:
            return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.1).until(lambda _: condition())
        except TimeoutException:
            body = self.text("body")
            raise AssertionError(f"{what} within {PATIENCE:.0f} s; the page says:\n{body[:3000]}") from None

    def until_text(self, selector: str, wanted: str) -> None:
        self.until(lambda: wanted in self.text(selector), f"{wanted!r} in {selector} does not appear")

    def command(self, name: str, parameters: dict[str, Any]) -> Any:
        """A command of the browser's own protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def look(
        self, width: int = 1280, height: int = 900, scheme: str = "light", motion: str = "no-preference"
    ) -> None:
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", screen)
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        media = [{"name": name, "value": value} for name, value in features.items()]
        self.command("Emulation.setEmulatedMedia", {"features": media})

    def errors(self) -> list[str]:
        """What the browser has complained about since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """A Chromium without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
        "--no-first-run", "--window-size=1280,900", f"--user-data-dir={profile}",
        # A name that leads to this machine, as one of an attacker would.
        "--host-resolver-rules=MAP rebound.example 127.0.0.1",
    ):  # fmt: skip
        options.add_argument(argument)
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with reserved_port() as port:
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"), port))
        try:
            yield driver
        finally:
            driver.quit()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def page(chromium: Any) -> Iterator[Page]:
    found = Page(chromium)
    found.look()
    yield found
    chromium.get("about:blank")
    chromium.get_log("browser")
