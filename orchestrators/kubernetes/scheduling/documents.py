"""What is sent to the API server: bindings, evictions, events, conditions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from orchestrators.kubernetes.scheduling.effects import Bind, Evict, Mark, Report
from orchestrators.kubernetes.scheduling.election import micro_time

CONTROLLER: Final = "rota.kubernetes"
LONGEST_NOTE: Final = 1024
"""Bytes of an event's text, by the API's rule."""


def binding(effect: Bind) -> dict[str, Any]:
    namespace, name = effect.pod
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": namespace, "name": name, "uid": effect.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": effect.node},
    }


def chosen_node(node: str) -> dict[str, Any]:
    """A merge patch of a claim that waits for its first consumer: whoever makes volumes makes it there."""
    return {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}}


def eviction(effect: Evict) -> dict[str, Any]:
    namespace, name = effect.pod
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": effect.uid}},
    }


def event(effect: Report, instance: str, moment: datetime) -> dict[str, Any]:
    namespace, name = effect.subject
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "generateName": f"{name[:40].rstrip('.-')}-"},
        "regarding": {
            "apiVersion": "v1", "kind": effect.kind, "namespace": namespace, "name": name, "uid": effect.uid,
        },
        "eventTime": micro_time(moment),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "type": "Warning" if effect.warning else "Normal",
        "reason": effect.reason,
        "action": effect.action,
        "note": shortened(effect.message),
    }  # fmt: skip


def condition(effect: Mark, moment: datetime) -> dict[str, Any]:
    """A strategic merge patch of a pod's status; of another pod of the name it is refused."""
    return {
        "metadata": {"uid": effect.uid},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": effect.reason,
                    "message": effect.message,
                    "lastTransitionTime": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
            ],
            "nominatedNodeName": effect.nominated,
        },
    }


def shortened(text: str) -> str:
    """What the API takes of a text."""
    data = text.encode()
    return text if len(data) <= LONGEST_NOTE else data[: LONGEST_NOTE - 3].decode(errors="ignore") + "..."
