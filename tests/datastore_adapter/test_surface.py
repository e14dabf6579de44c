"""What the package offers, and its settings."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

import datastore_adapter
from datastore_adapter import LogError, LogSettings, LogSettingsError
from datastore_adapter.interface import AdapterError


def test_every_public_name_is_there() -> None:
    for name in datastore_adapter.__all__:
        assert getattr(datastore_adapter, name) is not None
    assert sorted(datastore_adapter.__all__) == datastore_adapter.__all__
    assert set(datastore_adapter.__all__) <= set(dir(datastore_adapter))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        datastore_adapter.Nonsense  # noqa: B018  # the access is the test


def test_the_interface_alone_needs_none_of_the_heavy_parts() -> None:
    code = "import sys, datastore_adapter.interface; print('trio' in sys.modules or 'msgspec' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_every_error_is_one_family_and_says_what_to_do() -> None:
    for name in datastore_adapter.__all__:
        value = getattr(datastore_adapter, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, LogError)
            assert issubclass(value, AdapterError)
            assert value.__doc__


def test_presets_and_bounds() -> None:
    assert LogSettings.lan() == LogSettings()
    assert LogSettings.local().call_timeout < LogSettings.lan().call_timeout < LogSettings.wan().call_timeout
    for field, value in (
        ("call_timeout", 0),
        ("back_pointers", 65),
        ("max_payload", 1 << 30),
        ("transfer_bytes_per_second", -1),
        ("in_flight", 0),
    ):
        with pytest.raises(LogSettingsError, match=field):
            dataclasses.replace(LogSettings(), **{field: value})  # type: ignore[arg-type]
