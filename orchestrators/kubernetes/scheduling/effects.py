"""What a scheduler wants done: values that the shell carries out, each within its own time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrators.kubernetes.scheduling.object_cache import Key


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a pod its node.  The server refuses it where the pod is another one by now, or has a node already.

    ``claims``: of its namespace, to be told the node first, so that their volumes are made there.
    """

    pod: Key
    uid: str
    node: str
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """An event on a pod, for people; ``warning``: something is in the way.  ``kind``: of what it is about instead."""

    subject: Key
    uid: str
    reason: str
    message: str
    warning: bool = False
    action: str = "Scheduling"
    kind: str = "Pod"


@dataclass(frozen=True, slots=True)
class Mark:
    """The condition ``PodScheduled`` of a pod that has no node, and the node that is being cleared for it."""

    pod: Key
    uid: str
    reason: str
    message: str
    nominated: str | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask a running pod to make way; the server refuses it where a disruption budget is used up."""

    pod: Key
    uid: str
    preemptor: Key


Effect: TypeAlias = Bind | Report | Mark | Evict
