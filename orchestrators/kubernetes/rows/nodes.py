"""Nodes: what they are, what they hold, and sets of them by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrators.kubernetes.rows.manifests import Node, Taint, Toleration, UnreadableError, read
from orchestrators.kubernetes.rows.quantities import LARGEST, amount
from orchestrators.kubernetes.rows.selectors import Members, NodeIndex, members, numbers

Row = dict[str, Any]
CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
COLUMNS: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral_storage", "pods": "pods"}
"""Resources that have a column of their own in the pack's tables."""
_SMALL_IMAGE: Final = 23 << 20
_LARGE_IMAGE: Final = 1000 << 20
"""Of one container, in bytes: what is smaller or larger makes no difference."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node that was read."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    images: Mapping[str, int]
    """Bytes by name."""


class Nodes:
    """All nodes, by name, and the sets of them that rules speak of."""

    def __init__(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        self.unreadable: list[tuple[str, str]] = []
        found: dict[str, Machine] = {}
        for manifest in manifests:
            try:
                machine = _machine(read(manifest, Node))
            except UnreadableError as error:
                metadata = manifest.get("metadata")
                name = metadata.get("name") if isinstance(metadata, Mapping) else None
                self.unreadable.append((str(name or "?"), str(error)))
            else:
                found[machine.name] = machine
        self.machines = [found[name] for name in sorted(found)]
        self.number = {machine.name: number for number, machine in enumerate(self.machines)}
        self.index = NodeIndex([each.name for each in self.machines], [each.labels for each in self.machines])
        self._sets: dict[Members, str] = {}
        self._having_image: dict[str, dict[int, Members]] = {}
        self._tainted: dict[tuple[str, str, str], Members] = {}
        for number, machine in enumerate(self.machines):
            for taint in machine.taints:
                key = (taint.key, taint.value or "", taint.effect)
                self._tainted[key] = self._tainted.get(key, 0) | 1 << number
            for image, size in machine.images.items():
                sizes = self._having_image.setdefault(image, {})
                sizes[size] = sizes.get(size, 0) | 1 << number

    def untolerated(self, tolerations: Iterable[Toleration], *effects: str) -> list[Members]:
        """For each taint of these effects that is not tolerated the nodes that have it."""
        tolerations = tuple(tolerations)
        return [
            those
            for (key, value, effect), those in self._tainted.items()
            if effect in effects and not any(_tolerates(each, key, value, effect) for each in tolerations)
        ]

    def offering(self, resource: str) -> Members:
        return members(number for number, each in enumerate(self.machines) if resource in each.allocatable)

    def images(self, wanted: Sequence[str]) -> list[tuple[Members, int]]:
        """Nodes that have some of these images, and how much of the wish that meets, in percent.

        A larger image counts more, and one that few nodes have counts less, lest all pods go there.
        """
        least, most = _SMALL_IMAGE, _LARGE_IMAGE * len(wanted)
        value: dict[int, Members] = {0: self.index.everything}
        for name in map(_tagged, wanted):
            for size, having in self._having_image.get(name, {}).items():
                value = _raised(value, having, size * self._spread_of(name) // len(self.machines))
        percents: dict[int, Members] = {}
        for each, those in value.items():
            percent = 100 * (min(max(each, least), most) - least) // (most - least)
            percents[percent] = percents.get(percent, 0) | those
        return [(those, percent) for percent, those in percents.items() if percent]

    def _spread_of(self, image: str) -> int:
        return sum(having.bit_count() for having in self._having_image[image].values())

    def name_set(self, those: Members) -> tuple[str, bool]:
        """A name for the smaller one of a set and its complement, and whether it is the set itself."""
        rest = self.index.everything & ~those
        itself = those.bit_count() <= rest.bit_count()
        smaller = those if itself else rest
        return self._sets.setdefault(smaller, f"s{len(self._sets)}"), itself

    def rows(self) -> dict[str, list[Row]]:
        """Their tables, with all sets that have been named."""
        return {
            "node": [
                {
                    "name": each.name,
                    **{column: each.allocatable.get(resource, 0) for resource, column in COLUMNS.items()},
                }
                for each in self.machines
            ],
            "node_label": [
                {"node": each.name, "key": key, "value": value}
                for each in self.machines
                for key, value in each.labels.items()
            ],
            "node_taint": [
                {"node": each.name, "key": key, "effect": effect, "value": value}
                for each in self.machines
                for (key, effect), value in {(t.key, t.effect): t.value or "" for t in each.taints}.items()
            ],
            "node_set": [
                {"name": name, "node": self.machines[number].name}
                for those, name in self._sets.items()
                for number in numbers(those)
            ],
        }


def _machine(node: Node) -> Machine:
    taints = node.spec.taints or ()
    if node.spec.unschedulable and not any(
        (each.key, each.effect) == (CORDONED.key, CORDONED.effect) for each in taints
    ):
        taints = (*taints, CORDONED)
    allocatable = {
        resource: min(amount(resource, value), LARGEST)
        for resource, value in (node.status.allocatable or {}).items()
    }
    images = {name: image.size_bytes or 0 for image in node.status.images or () for name in image.names or ()}
    return Machine(node.metadata.name, node.metadata.labels or {}, taints, allocatable, images)


def _tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    if toleration.effect not in (None, "", effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in (None, "", key)
    return toleration.key == key and (toleration.value or "") == value


def _tagged(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _raised(value: dict[int, Members], those: Members, by: int) -> dict[int, Members]:
    """The same values, more for some."""
    found: dict[int, Members] = {}
    for each, having in value.items():
        for worth, part in ((each, having & ~those), (each + by, having & those)):
            if part:
                found[worth] = found.get(worth, 0) | part
    return found
