"""What Prometheus reads of a scheduler."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics"]

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)


class Metrics:
    """Of one scheduler, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.leads = Gauge("rota_kube_leader", "Whether this replica schedules.", registry=registry)
        self.pending = Gauge(
            "rota_kube_pending_pods", "Pods of the last solve without a node.", registry=registry
        )
        self.attempts = Counter(
            "rota_kube_requests", "Bindings and evictions, by what came of them.", ["what", "outcome"],
            registry=registry,
        )  # fmt: skip
        self.solves = Histogram(
            "rota_kube_solve_seconds", "A placement of all pending pods.", buckets=_SECONDS, registry=registry
        )
        self.waits = Histogram(
            "rota_kube_pod_seconds",
            "From first seeing a pod to its binding.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.failures = Counter(
            "rota_kube_failed_solves", "Placements that were not found.", registry=registry
        )
        self.dropped = Counter(
            "rota_kube_dropped_reports", "Events and conditions that were not sent.", registry=registry
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)
