"""The log of an agent: lines for people or JSON, at a level that can be changed while it runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest

from rota.agent import logs
from rota.agent.process import _reload_level
from rota.agent.settings import AgentSettings, load
from rota.errors import SettingsError

log = logging.getLogger("rota")


@pytest.fixture(autouse=True)
def _other_tests_keep_their_logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_is_an_object_a_line_whatever_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "info")
    log.info("view %d\nof «%s»", 7, "n1")
    try:
        raise ValueError("a defect")
    except ValueError:
        log.exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(first.pop("time")).utcoffset() is not None
    assert first == {"level": "info", "logger": "rota", "message": "view 7\nof «n1»"}
    assert second["message"] == "it failed"
    assert "ValueError: a defect" in second["traceback"]


def test_text_is_a_line_with_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text", "info")
    log.warning("drift")
    assert capsys.readouterr().err.split()[1:] == ["WARNING", "drift"]


def test_the_level_is_read_again_and_stays_where_the_settings_are_no_good(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("text", "info")
    _reload_level(lambda: AgentSettings(log_level="debug"))
    log.debug("first")
    _reload_level(lambda: load(None, {"log_level": "loud"}))
    log.debug("second")
    written = capsys.readouterr().err
    assert [line.split()[1] for line in written.splitlines()] == ["DEBUG", "WARNING", "DEBUG"]
    assert "'loud' is no level; choose one of debug, info, warning, error" in written


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="'xml' is no format of the log; choose one of text, json"):
        load(None, {"log_format": "xml"})
