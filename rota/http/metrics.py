"""What Prometheus reads: ``/metrics``, what ``/v1/status`` counts, and ``/v1/sd/prometheus``, where the agents are.

Functions of the status and of the view, so agents and ensemble members show the same under the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from rota.access.host_names import is_loopback
from rota.http.answers import Members, ScrapeTargets

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
ANY_ADDRESS = ("0.0.0.0", "::")

GAUGES = {
    "ready": "Whether this agent can be relied on: it is in, and a majority is within reach.",
    "quorum": "Whether a majority is within reach.",
    "view_epoch": "The epoch of the latest view.",
    "view_members": "The members of the latest view.",
    "layout_epoch": "The epoch of the layout.",
    "open_moves": "Moves that the plan has still to do.",
    "rack_violations": "At the controller: segments with more copies in a rack than the rules allow.",
    "under_replicated": "At the controller: segments with fewer copies than the rules want.",
    "questions": "At the controller: repairs that operators have to see to.",
    "controller": "Whether this agent is the controller.",
    "infeasible": "At the controller: whether the rules cannot all hold, so that nothing is placed.",
    "full_disks": "At the controller: hosts that get no copies because their disks are full.",
    "failed_disks": "At the controller: hosts whose disks have failed lately.",
    "slow_disks": "At the controller: hosts whose disks are far slower than those of the others.",
    "disk_failed": "Whether the disk of this host's log has failed lately.",
    "disk_full": "Whether the disk of this host's log takes no more records.",
    "disk_sync_seconds": "What it takes of late to make a record durable on the disk of this host's log.",
    "engine_servers": "Servers of Valkey or Redis on this host.",
    "engine_servers_running": "Those of them that run; of adopted ones that is not known here.",
    "http_open_connections": "Connections to this HTTP interface, with those of the Unix socket.",
    "certificate_expiry_timestamp_seconds": "When the certificate of this HTTP interface expires, in Unix seconds.",
}
OF_SHARDS = {
    "slots": ("shard_slots", "At the controller: slots that the shard holds."),
    "bytes": ("shard_bytes", "At the controller: bytes of memory that the shard's data take."),
    "load": (
        "shard_operations_per_second",
        "At the controller: operations that its primary does in a second, lately.",
    ),
    "in_sync": (
        "shard_copies_in_sync",
        "At the controller: complete copies of the shard, its primary included.",
    ),
}


def exposition(
    status: Mapping[str, Any], *, ready: bool, interface: Mapping[str, int | None] | None = None
) -> str:
    """The metrics of an agent with this status, and of its HTTP interface (`Access.gauges`).

    What it does not know at present is left out.
    """
    gauges = {
        **(interface or {}),
        "ready": ready,
        "quorum": status["quorum"],
        "view_epoch": status["epoch"],
        "view_members": status["size"],
        "layout_epoch": status.get("layout_epoch"),
        "open_moves": status.get("open_moves"),
    }
    counters = dict(status["statistics"])
    shards: Sequence[Mapping[str, Any]] = ()
    if control := status.get("control"):
        counters |= {f"control.{name}": count for name, count in control["statistics"].items()}
        leads = control["controller"] == status["name"]
        gauges["controller"] = leads
        # Another agent looks at the engine now and then, and would go on to tell of what is long repaired.
        if leads:
            gauges |= {
                "rack_violations": control["rack_violations"],
                "under_replicated": control["under_replicated"],
                "questions": len(control["asks"]),
                "infeasible": control["solve_status"] == "infeasible",
                "full_disks": len(control["full"]),
                **{f"{state}_disks": _disks(control["disks"], state) for state in ("failed", "slow")},
            }
            shards = control["shards"]
    if disk := status.get("disk"):
        gauges |= {
            "disk_failed": disk["state"] == "failed",
            "disk_full": disk["state"] == "full",
            "disk_sync_seconds": disk["sync_seconds"],
        }
    if engine := status.get("engine"):
        counters["engine.restarts"] = engine["restarts"]
        gauges |= {"engine_servers": len(engine["servers"]), "engine_servers_running": engine["running"]}
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(gauges, counters, shards))
    return generate_latest(registry).decode()


def _disks(disks: Sequence[Mapping[str, Any]], state: str) -> int:
    return sum(disk["state"] == state for disk in disks)


class _Status(Collector):
    """One status, as metrics."""

    def __init__(
        self, gauges: Mapping[str, Any], counters: Mapping[str, int], shards: Sequence[Mapping[str, Any]]
    ) -> None:
        self._gauges = gauges
        self._counters = counters
        self._shards = shards

    def collect(self) -> Iterator[Metric]:
        for name, value in self._gauges.items():
            if value is not None:
                yield GaugeMetricFamily(f"rota_{name}", GAUGES[name], value=float(value))
        for key, (name, help_text) in OF_SHARDS.items() if self._shards else ():
            family = GaugeMetricFamily(f"rota_{name}", help_text, labels=("shard",))
            for shard in self._shards:
                family.add_metric((shard["key"],), shard[key])
            yield family
        for name, count in sorted(self._counters.items()):
            words = re.sub("(?<=[a-z])(?=[A-Z])", "_", name)  # the log's requests are counted by their types
            metric = re.sub("[^a-z0-9_]", "_", words.lower())
            yield CounterMetricFamily(f"rota_{metric}", f"{name}, since the start.", value=count)


def scrape_targets(members: Members) -> list[ScrapeTargets]:
    """The members' agents as `http_sd_configs` reads them; a version before 0.2 does not say where it answers."""
    return [
        {
            "targets": [target],
            "labels": {"__scheme__": scheme, "member": member["name"], **_rack(member["tags"])},
        }
        for member in members["members"]
        for scheme, target in _reached_at(member["http"] or "", member["address"])
    ]


def _reached_at(http: str, address: str) -> Iterator[tuple[str, str]]:
    """Where it listens; for every address of its host, the one that the other members use.

    Nothing where only its own host reaches it: on another one that address is another agent's.
    """
    try:
        url = urlsplit(http)
        listens_on, port = url.hostname, url.port
    except ValueError:  # a member may say anything
        return
    host = address.rpartition(":")[0]
    if not listens_on or port is None or (is_loopback(listens_on) and not is_loopback(host.strip("[]"))):
        return
    yield url.scheme, f"{host}:{port}" if listens_on in ANY_ADDRESS else url.netloc


def _rack(tags: Mapping[str, str]) -> dict[str, str]:
    return {"rack": tags["rack"]} if "rack" in tags else {}
