"""One interface to datastores, and the engines behind it.

`interface` (what the management plane knows of any engine), `log` (the embedded replicated log: `LogThread` is what
an agent runs, `LogClient` what an application embeds, `LogAdapter` what the control loop steers it by), `exports` (a
placement as systems read it that rota does not steer).

The heavy parts are imported when first used, so that the management plane can import `interface` alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from datastore_adapter.log.errors import (
    BootstrapRefusedError,
    CallError,
    CallTimeoutError,
    EpochSealedError,
    ExtentAwayError,
    InvalidEntryError,
    InvalidStreamError,
    LayoutError,
    LayoutUnavailableError,
    LayoutVersionError,
    LogClientError,
    LogError,
    LogSettingsError,
    LogUnavailableError,
    MapError,
    MapFullError,
    MapVersionError,
    NoLayoutError,
    NotCopiedError,
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
    from datastore_adapter.log.adapter.log_adapter import LogAdapter
    from datastore_adapter.log.client.log_client import LogClient
    from datastore_adapter.log.client.record import Record
    from datastore_adapter.log.client.retention import Retention
    from datastore_adapter.log.host.log_thread import LogThread
    from datastore_adapter.log.host.server import LogServer
    from datastore_adapter.log.host.simulated import SimulatedCluster, SimulatedRuntime
    from datastore_adapter.log.layout.document import EpochDocument, Extent, Layout, Segment
    from datastore_adapter.log.maps.replicated_dict import ReplicatedDict
    from datastore_adapter.log.maps.settings import MapSettings
    from datastore_adapter.log.reconfiguration.reconfiguration import Reopening
    from datastore_adapter.log.runtime.runtime import Runtime
    from datastore_adapter.log.runtime.trio_runtime import TrioRuntime
    from datastore_adapter.log.settings import LogSettings

_MODULES = {
    "EpochDocument": "log.layout.document",
    "Extent": "log.layout.document",
    "Layout": "log.layout.document",
    "LogAdapter": "log.adapter.log_adapter",
    "LogClient": "log.client.log_client",
    "LogServer": "log.host.server",
    "LogThread": "log.host.log_thread",
    "LogSettings": "log.settings",
    "MapSettings": "log.maps.settings",
    "Record": "log.client.record",
    "Reopening": "log.reconfiguration.reconfiguration",
    "ReplicatedDict": "log.maps.replicated_dict",
    "Retention": "log.client.retention",
    "Runtime": "log.runtime.runtime",
    "Segment": "log.layout.document",
    "SimulatedCluster": "log.host.simulated",
    "SimulatedRuntime": "log.host.simulated",
    "TrioRuntime": "log.runtime.trio_runtime",
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
    "LayoutVersionError",
    "LogAdapter",
    "LogClient",
    "LogClientError",
    "LogError",
    "LogServer",
    "LogSettings",
    "LogSettingsError",
    "LogThread",
    "LogUnavailableError",
    "MapError",
    "MapFullError",
    "MapSettings",
    "MapVersionError",
    "NoLayoutError",
    "NotCopiedError",
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
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
