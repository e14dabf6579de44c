"""One interface to a datastore, and the embedded replicated log behind it.

What it is: `interface` (what the management plane knows of any engine) and the log: `LogServer` is what an
agent runs, `LogClient` what an application embeds, `LogAdapter` what the control loop steers it by.
What it is not: the control loop, nor any policy of where data should be.

The heavy parts are imported when first used, so that the management plane can import `interface` alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from datastore_adapter.errors import (
    BootstrapRefusedError,
    CallError,
    CallTimeoutError,
    EpochSealedError,
    ExtentAwayError,
    InvalidEntryError,
    InvalidStreamError,
    LayoutError,
    LayoutUnavailableError,
    LogClientError,
    LogError,
    LogSettingsError,
    LogUnavailableError,
    MapError,
    MapFullError,
    MapVersionError,
    NoLayoutError,
    OutcomeUnknownError,
    PayloadTooLargeError,
    PeerUnreachableError,
    ProtocolError,
    RecordLostError,
    ReplicaUnavailableError,
    SnapshotDamagedError,
    StorageError,
    StorageFullError,
    SupersededError,
    TrimmedError,
    UnwrittenError,
)

if TYPE_CHECKING:
    from datastore_adapter.adapter import LogAdapter
    from datastore_adapter.client import LogClient
    from datastore_adapter.document import EpochDocument, Extent, Layout, Segment
    from datastore_adapter.map_settings import MapSettings
    from datastore_adapter.reconfigure import Reopening
    from datastore_adapter.record import Record
    from datastore_adapter.replicated_dict import ReplicatedDict
    from datastore_adapter.retention import Retention
    from datastore_adapter.runtime import Runtime
    from datastore_adapter.server import LogServer
    from datastore_adapter.settings import LogSettings
    from datastore_adapter.simulated import SimulatedCluster, SimulatedRuntime
    from datastore_adapter.trio_runtime import TrioRuntime

_MODULES = {
    "EpochDocument": "document",
    "Extent": "document",
    "Layout": "document",
    "LogAdapter": "adapter",
    "LogClient": "client",
    "LogServer": "server",
    "LogSettings": "settings",
    "MapSettings": "map_settings",
    "Record": "record",
    "Reopening": "reconfigure",
    "ReplicatedDict": "replicated_dict",
    "Retention": "retention",
    "Runtime": "runtime",
    "Segment": "document",
    "SimulatedCluster": "simulated",
    "SimulatedRuntime": "simulated",
    "TrioRuntime": "trio_runtime",
}

__all__ = [
    "BootstrapRefusedError",
    "CallError",
    "CallTimeoutError",
    "EpochDocument",
    "EpochSealedError",
    "Extent",
    "ExtentAwayError",
    "InvalidEntryError",
    "InvalidStreamError",
    "Layout",
    "LayoutError",
    "LayoutUnavailableError",
    "LogAdapter",
    "LogClient",
    "LogClientError",
    "LogError",
    "LogServer",
    "LogSettings",
    "LogSettingsError",
    "LogUnavailableError",
    "MapError",
    "MapFullError",
    "MapSettings",
    "MapVersionError",
    "NoLayoutError",
    "OutcomeUnknownError",
    "PayloadTooLargeError",
    "PeerUnreachableError",
    "ProtocolError",
    "Record",
    "RecordLostError",
    "Reopening",
    "ReplicaUnavailableError",
    "ReplicatedDict",
    "Retention",
    "Runtime",
    "Segment",
    "SimulatedCluster",
    "SimulatedRuntime",
    "SnapshotDamagedError",
    "StorageError",
    "StorageFullError",
    "SupersededError",
    "TrimmedError",
    "TrioRuntime",
    "UnwrittenError",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
