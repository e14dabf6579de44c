"""From the API's objects to rows of the pack ``kubernetes``: nodes, their taints and labels, and pods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]

_SUFFIXES: Final = {
    **{f"{letter}i": Decimal(1024) ** n for n, letter in enumerate("KMGTPE", 1)},
    **{letter: Decimal(1000) ** n for n, letter in enumerate("kMGTPE", 1)},
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
}  # fmt: skip
_NOT_READ: Final = {
    "affinity", "topologySpreadConstraints", "initContainers", "overhead", "schedulingGates", "resourceClaims",
    "volumes", "hostNetwork", "resources",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    nodes: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    namespaces: Sequence[Json] = ()
    disruption_budgets: Sequence[Json] = ()
    priority_classes: Sequence[Json] = ()
    persistent_volumes: Sequence[Json] = ()
    persistent_volume_claims: Sequence[Json] = ()
    storage_classes: Sequence[Json] = ()
    csi_nodes: Sequence[Json] = ()
    volume_attachments: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rows:
    tables: Mapping[str, list[dict[str, Any]]]
    refused: tuple[Refused, ...] = ()


def quantity(text: object, unit: Decimal = Decimal(1)) -> int:
    text = str(text)
    for suffix in (text[-2:], text[-1:]):
        if suffix in _SUFFIXES:
            return int(
                (Decimal(text[: -len(suffix)]) * _SUFFIXES[suffix] / unit).to_integral_value(ROUND_CEILING)
            )
    return int((Decimal(text) / unit).to_integral_value(ROUND_CEILING))


def rows_of(objects: ClusterObjects, scheduler_name: str, now: datetime, *, preempting: bool = False) -> Rows:
    tables: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in (
            "node", "node_label", "node_taint", "template", "template_label", "node_selector", "toleration",
            "running_pod", "pod",
        )
    }  # fmt: skip
    milli = Decimal("0.001")
    names = {node["metadata"]["name"] for node in objects.nodes}
    for node in objects.nodes:
        name, allocatable = node["metadata"]["name"], node["status"]["allocatable"]
        conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
        tables["node"].append(
            {
                "name": name,
                "ready": conditions.get("Ready") == "True",
                "unschedulable": bool(node["spec"].get("unschedulable")),
                "cpu": quantity(allocatable["cpu"], milli),
                "memory": quantity(allocatable["memory"]),
                "pods": int(allocatable["pods"]),
            }
        )
        for key, value in (node["metadata"].get("labels") or {}).items():
            tables["node_label"].append({"node": name, "key": key, "value": value})
        for taint in node["spec"].get("taints") or ():
            tables["node_taint"].append(
                {
                    "node": name,
                    "key": taint["key"],
                    "value": taint.get("value", ""),
                    "effect": taint["effect"],
                }
            )
    templates: dict[str, str] = {}
    refused = []
    for pod in objects.pods:
        spec, metadata = pod["spec"], pod["metadata"]
        if not spec.get("nodeName") and (fields := sorted(_NOT_READ & {key for key in spec if spec[key]})):
            refused.append(
                Refused(metadata["namespace"], metadata["name"], f"{', '.join(fields)} is not covered")
            )
            continue
        try:
            requests = [each.get("resources", {}).get("requests", {}) for each in spec["containers"]]
            cpu = sum(quantity(each.get("cpu", 0), milli) for each in requests)
            memory = sum(quantity(each.get("memory", 0)) for each in requests)
        except (InvalidOperation, ValueError) as error:
            refused.append(Refused(metadata["namespace"], metadata["name"], f"requests: {error}"))
            continue
        parts = (metadata.get("labels") or {}, spec.get("nodeSelector") or {}, spec.get("tolerations") or [])
        text = json.dumps(parts, sort_keys=True)
        template = templates.get(text)
        if template is None:
            template = templates[text] = f"t{len(templates)}"
            tables["template"].append({"name": template})
            for key, value in parts[0].items():
                tables["template_label"].append({"template": template, "key": key, "value": value})
            for key, value in parts[1].items():
                tables["node_selector"].append({"template": template, "key": key, "value": value})
            for each in {json.dumps(each, sort_keys=True): each for each in parts[2]}.values():
                fields = {key: each.get(key) or "" for key in ("key", "value", "effect")}
                tables["toleration"].append(
                    {"template": template, "operator": each.get("operator") or "Equal", **fields}
                )
        row = {
            "name": f"{metadata['namespace']}/{metadata['name']}",
            "template": template,
            "cpu": cpu,
            "memory": memory,
        }
        if spec.get("nodeName"):
            if spec["nodeName"] not in names:
                continue
            tables["running_pod"].append({**row, "node": spec["nodeName"]})
        elif spec.get("schedulerName") == scheduler_name:
            tables["pod"].append({**row, "priority": spec.get("priority") or 0})
    return Rows(tables, tuple(refused))  # nobody is offered yet
