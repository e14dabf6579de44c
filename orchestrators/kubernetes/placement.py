"""Where pods go: one solve of the pack ``kubernetes`` over the objects of a cluster, and a second where some must make
way.  Pure and blocking; the same objects and seed give the same placement.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, TypeAlias

from mgmt import Database, Model, PolicyError, Solution, SourceText, load_pack
from orchestrators.kubernetes.rows import ClusterObjects, rows_of

Json: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]

log = logging.getLogger("rota.kubernetes")

TABLE: Final = "pod"
VARIABLE: Final = "controllable__node"
ONE_BY_ONE: Final = ("least_requested", "not_all_on_one_node")
"""Objectives of the pack that weigh each pod alone: of a batch they leave the fullest node half as full again."""


def own_text(name: str) -> SourceText:
    """SQL of this package."""
    return SourceText(name, (files(__package__) / name).read_text(encoding="utf-8"))


EVENNESS: Final = own_text("evenness.sql")
BUDGETS: Final = SourceText(
    "budgets.sql",
    "CREATE CONSTRAINT budgets_are_kept AS SELECT budget, allowed FROM disruption CHECK pods <= allowed;",
)
"""Of the pack an objective; the server refuses an eviction beyond a budget, and the others would be for nothing."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """The node that is cleared for a pod, and who must leave it."""

    node: str
    victims: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """``refused``: pods that the pack cannot judge, each with the reason; ``left_out``: those without a place.

    ``awaiting``: claims of pods that are bound to a volume once a node is chosen.
    """

    bound: Mapping[Key, str]
    left_out: tuple[Key, ...] = ()
    refused: Mapping[Key, str] = field(default_factory=dict)
    preemptions: Mapping[Key, Preemption] = field(default_factory=dict)
    solution: Solution | None = None
    awaiting: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)


class Placer:
    """The compiled pack with the user's own rules.  Not thread-safe: one call at a time."""

    def __init__(self, scheduler_name: str = "rota", policies: Sequence[SourceText] = ()) -> None:
        pack = load_pack("kubernetes")
        self.scheduler_name = scheduler_name
        self._pack = pack
        self._own = tuple(policies)
        self._database = Database()
        self._database.load_schema(pack.schema)
        self._empty: dict[str, list[dict[str, Any]]] = {
            table.name: [] for table in self._database.schema.tables
        }
        self._homes: dict[Key, str] = {}  # of the running pods that are offered
        self._awaiting: dict[Key, tuple[str, ...]] = {}
        self.model = self._built(())

    def use(self, policies: Sequence[SourceText]) -> None:
        """Take these rules beside the pack's and those given at the beginning.

        Raises a PolicyError, and stays with those it had.
        """
        self.model = self._built(policies)

    def _built(self, policies: Sequence[SourceText]) -> Model:
        model = Model.build(self._database, [self._pack, EVENNESS, BUDGETS, *self._own, *policies])
        return model.revised(lambda query: None if query.name in ONE_BY_ONE else query)

    def place(
        self,
        objects: ClusterObjects,
        *,
        budget: float = 2.0,
        seed: int = 0,
        now: datetime | None = None,
    ) -> Placement:
        """Place what waits for this scheduler, and say who makes way for pods without a place.

        Raises InfeasibleError where rules contradict each other, SolveTimeout, DataError.
        """
        now = now or datetime.now(UTC)
        refused = self.load(objects, now)
        solution = self.model.solve(budget, seed, now=now)
        decided = {_key(name): node for (name,), node in solution.assignments[TABLE, VARIABLE].items()}
        bound = {key: str(node) for key, node in decided.items() if node is not None}
        left_out = tuple(key for key, node in decided.items() if node is None)
        placement = Placement(bound, left_out, refused, solution=solution, awaiting=self._awaiting)
        if not left_out:
            return placement
        try:
            preemptions = self._preemptions(after(objects, bound), left_out, budget, seed, now)
        except PolicyError as error:  # such as running pods that break their own rules
            log.warning("nobody makes way for %d pods: %s", len(left_out), error)
            return placement
        return replace(placement, preemptions=preemptions)

    def load(self, objects: ClusterObjects, now: datetime, *, preempting: bool = False) -> dict[Key, str]:
        """Put the objects into the model's database; the pods that the pack cannot judge, each with the reason.

        When ``preempting``, running pods are among those to decide on where one of a higher priority waits.
        """
        rows = rows_of(objects, self.scheduler_name, now, preempting=preempting)
        self._homes = {
            _key(row["name"]): row["node"]
            for row in rows.tables.get(TABLE, ())
            if row.get("node") is not None
        }
        self._awaiting = {_key(name): claims for name, claims in rows.awaiting.items()}
        self._database.replace_rows({**self._empty, **rows.tables})
        return {(each.namespace, each.name): each.reason for each in rows.refused}

    def _preemptions(
        self, objects: ClusterObjects, waiting: Sequence[Key], budget: float, seed: int, now: datetime
    ) -> dict[Key, Preemption]:
        """Who makes way for those that wait, given everybody else; several may come to one node.

        Pods that are being deleted make way already.
        """
        pods = tuple(
            pod
            for pod in objects.pods
            if _key_of(pod) in waiting
            or (pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"))
        )
        self.load(replace(objects, pods=pods), now, preempting=True)
        homes = self._homes
        if not homes:
            return {}
        values = self.model.solve(budget, seed, now=now).assignments[TABLE, VARIABLE]
        decided = {_key(name): node for (name,), node in values.items()}
        leaving: dict[str, list[Key]] = {}
        for key, home in homes.items():
            if decided[key] != home:
                leaving.setdefault(home, []).append(key)
        return {
            key: Preemption(str(node), tuple(sorted(leaving.get(str(node), ()))))
            for key in waiting
            if (node := decided.get(key)) is not None
        }


def after(objects: ClusterObjects, bound: Mapping[Key, str]) -> ClusterObjects:
    """The same cluster when these pods are where they are to go."""
    return replace(objects, pods=tuple(_placed(pod, bound.get(_key_of(pod))) for pod in objects.pods))


def _placed(pod: Json, node: str | None) -> Json:
    return pod if node is None else {**pod, "spec": {**pod["spec"], "nodeName": node}}


def _key_of(pod: Json) -> Key:
    return str(pod["metadata"].get("namespace") or ""), str(pod["metadata"]["name"])


def _key(name: object) -> Key:
    namespace, _, rest = str(name).partition("/")
    return namespace, rest
