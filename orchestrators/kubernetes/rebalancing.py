"""Which few evictions would mend what is preferred and even out load; nothing is touched.

Pods that a controller would make again elsewhere may move: those of Deployments, StatefulSets and the like, not of
DaemonSets or Jobs, none that is critical or without a controller.  They are decided on together, each beginning at its
node, by the pack's rules and ``rebalancing.sql``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from mgmt import Database, Model, ObjectiveValue, SourceText, load_pack
from orchestrators.kubernetes.placement import EVENNESS, ONE_BY_ONE, TABLE, VARIABLE, Key, own_text
from orchestrators.kubernetes.rows import ClusterObjects, rows_of
from orchestrators.kubernetes.rows.budgets import budget_rows
from orchestrators.kubernetes.rows.manifests import Pod, read

NAME: Final = "rota-rebalance"
"""The scheduler that movable pods are said to wait for."""
NOT_MOVED: Final = ("DaemonSet", "Node", "Job")
CRITICAL: Final = 2_000_000_000
"""The priority from which pods are of the system."""
OF_PENDING_PODS: Final = frozenset(
    ("only_lower_bands_move", "bands_can_be_weighed", "pods_left_out", "least_harm", *ONE_BY_ONE)
)
"""The pack's rules and objectives that are about pods without a node."""


@dataclass(frozen=True, slots=True)
class Eviction:
    pod: Key
    node: str
    to: str


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """``movable``: pods that were decided on; ``objectives``: before and after."""

    evictions: tuple[Eviction, ...]
    movable: int
    objectives: tuple[ObjectiveValue, ...]
    proven: bool


def rebalancing(
    objects: ClusterObjects,
    policies: Iterable[SourceText] = (),
    *,
    evictions: int,
    budget: float,
    seed: int = 0,
) -> Rebalancing:
    """At most so many evictions, within ``budget`` seconds.  Raises as ``Model.solve``."""
    pack = load_pack("kubernetes")
    database = Database()
    database.load_schema(pack.schema)
    own = own_text("rebalancing.sql")
    limited = SourceText(own.name, own.text.replace("{evictions}", str(evictions)))
    model = Model.build(database, [pack, EVENNESS, *policies, limited]).revised(
        lambda query: None if query.name in OF_PENDING_PODS else query
    )
    homes = _load(database, objects)
    solution = model.solve(budget, seed)
    decided = solution.assignments[TABLE, VARIABLE]
    found = tuple(
        Eviction(key, home, str(decided[("/".join(key),)]))
        for key, home in sorted(homes.items())
        if decided[("/".join(key),)] != home
    )
    return Rebalancing(found, len(homes), solution.objectives, solution.status != "feasible")


def _load(database: Database, objects: ClusterObjects) -> dict[Key, str]:
    """Put the cluster into the database, with movable pods among those to decide on; their nodes."""
    known = {node["metadata"]["name"] for node in objects.nodes}
    movable = {
        _key(pod): pod for pod in objects.pods if _is_movable(pod) and pod["spec"]["nodeName"] in known
    }
    now = datetime.now(UTC)
    rows = rows_of(_waiting(objects, movable), NAME, now)
    for refused in rows.refused:  # they stay where they are
        movable.pop((refused.namespace, refused.name), None)
    if rows.refused:
        rows = rows_of(_waiting(objects, movable), NAME, now)
    homes = {key: str(pod["spec"]["nodeName"]) for key, pod in movable.items()}
    tables: dict[str, list[dict[str, Any]]] = {table.name: [] for table in database.schema.tables} | dict(
        rows.tables
    )
    tables[TABLE] = [{**row, "node": homes[_named(row["name"])]} for row in tables[TABLE]]
    tables |= budget_rows(objects.disruption_budgets, [read(pod, Pod) for pod in movable.values()])
    database.replace_rows(tables)
    return homes


def _waiting(objects: ClusterObjects, movable: Mapping[Key, Mapping[str, Any]]) -> ClusterObjects:
    """The cluster as if those that may move had no node yet, and nobody else waited."""

    def pods() -> Iterator[Mapping[str, Any]]:
        for pod in objects.pods:
            if _key(pod) in movable:
                spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
                yield {**pod, "spec": {**spec, "schedulerName": NAME}}
            elif pod["spec"].get("nodeName"):
                yield pod

    return replace(objects, pods=tuple(pods()))


def _is_movable(pod: Mapping[str, Any]) -> bool:
    metadata, spec = pod["metadata"], pod["spec"]
    controllers = [
        each.get("kind") for each in metadata.get("ownerReferences") or () if each.get("controller")
    ]
    return (
        bool(spec.get("nodeName"))
        and bool(controllers)
        and not any(kind in NOT_MOVED for kind in controllers)
        and not metadata.get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        and int(spec.get("priority") or 0) < CRITICAL
    )


def _key(pod: Mapping[str, Any]) -> Key:
    return str(pod["metadata"].get("namespace") or ""), str(pod["metadata"]["name"])


def _named(name: str) -> Key:
    namespace, _, rest = name.partition("/")
    return namespace, rest
