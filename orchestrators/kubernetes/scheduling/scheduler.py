"""The scheduler's state machine: which pods are to be placed, when, and what follows from a placement.

News come in, effects go out; time is an argument.  Between a decision and the moment when the watch shows it, a pod is
*assumed* to be on its node, so that the next placement counts it there.  The API server is the only truth: a binding
names the pod's uid, is refused for a pod that has a node, and whatever its answer, the watch says what came of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from orchestrators.kubernetes.placement import Placement
from orchestrators.kubernetes.rows import ClusterObjects
from orchestrators.kubernetes.scheduling.effects import Bind, Effect, Evict, Mark, Report
from orchestrators.kubernetes.scheduling.object_cache import (
    Key,
    ObjectCache,
    is_ending,
    is_finished,
    key_of,
    node_of,
    priority_of,
    uid_of,
)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
REGULARLY: Final = 60.0
"""Seconds after which pods that wait are tried again though nothing was heard."""


class Outcome(Enum):
    """What became of a request."""

    DONE = auto()
    CONFLICT = auto()
    """The pod has a node already, or is another one by now."""
    GONE = auto()
    UNKNOWN = auto()
    """No answer: it may have been done."""
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """``name``: pods with this ``schedulerName`` are placed.

    ``gather``: seconds from the first news to a solve, so that pods that are created together are placed together.
    ``batch``: pods per solve at most, those of higher priority first, then the oldest.
    """

    name: str = "rota"
    gather: float = 0.05
    batch: int = 2000


@dataclass(frozen=True, slots=True)
class Batch:
    """What one solve is about: the cluster with what is assumed, and the pods to place by key."""

    objects: ClusterObjects
    pending: Mapping[Key, Mapping[str, Any]]
    more: bool = False
    """Whether others wait for the next one."""


@dataclass(slots=True)
class _Assumed:
    pod: Key
    node: str
    sent: float
    unsure: bool = False
    """Whether a request was not answered, and may have been carried out."""


@dataclass(slots=True)
class _Nomination:
    """A pod that others make way for: until they are gone it holds its place on the node, and is not tried."""

    node: str
    victims: set[str]


@dataclass(slots=True)
class Statistics:
    """Counters, from the start on."""

    bound: int = 0
    conflicts: int = 0
    unknown: int = 0
    refused: int = 0
    evicted: int = 0
    solves: int = 0
    stale: int = 0
    """Decisions that were dropped, because pod or node had changed while they were made."""
    waits: list[float] = field(default_factory=list)
    """Seconds from first seeing a pod to its binding, since they were last taken."""


class Scheduler:
    """Drive it: ``listed``, ``changed``, ``leads``; then ``batch``, ``placed``, ``explained``; then ``bound``,
    ``evicted``.  ``fields``: what is watched, by the names of ``ClusterObjects``."""

    def __init__(self, fields: Iterable[str], settings: SchedulingSettings | None = None) -> None:
        self.settings = settings or SchedulingSettings()
        self.caches = {name: ObjectCache(name) for name in fields}
        self.statistics = Statistics()
        self._pods, self._nodes = self.caches["pods"], self.caches["nodes"]
        self._leads_until = float("-inf")
        self._solving = False
        self._due: float | None = None
        self._assumed: dict[str, _Assumed] = {}
        self._nominated: dict[str, _Nomination] = {}
        self._paused: dict[str, float] = {}  # by uid: until when it is not tried
        self._pauses: dict[str, float] = {}  # and how long the last pause was
        self._passed: set[str] = set()  # left out, while others wait for their first turn
        self._retry = FIRST_PAUSE  # after a solve that could not prove that there is no place
        self._told: dict[str, tuple[str, str | None]] = {}
        self._first_seen: dict[str, float] = {}

    # News

    def listed(self, name: str, items: Iterable[dict[str, Any]], now: float) -> None:
        before = {uid_of(pod) for pod in self._pods} if name == "pods" else set()
        if self.caches[name].replace(items):
            self._wake(now + self.settings.gather)
        if name == "pods":
            present = {uid_of(pod): pod for pod in self._pods}
            for uid in before | present.keys():
                self._settle(uid, present.get(uid), now)

    def changed(self, name: str, item: dict[str, Any], now: float, *, deleted: bool = False) -> None:
        former = self.caches[name].get(key_of(item))
        assumed = self._assumed.get(uid_of(item)) if name == "pods" and not deleted else None
        is_known = assumed is not None and node_of(item) == assumed.node
        if self.caches[name].change(item, deleted=deleted) and not is_known:
            self._wake(now + self.settings.gather)
        if name == "pods":
            self._settle(uid_of(item), None if deleted else item, now)
            if former is not None and uid_of(former) != uid_of(item):
                self._settle(uid_of(former), None, now)

    def leads(self, now: float) -> bool:
        """Whether this process may schedule."""
        return now < self._leads_until

    def lead(self, until: float, now: float) -> None:
        """It may until then, unless it hears more.  A new leader decides anew, from what the server says."""
        if not self.leads(now):
            self._wake(now)
        self._leads_until = until

    def _wake(self, at: float) -> None:
        self._due = at if self._due is None else min(self._due, at)

    def _settle(self, uid: str, pod: Mapping[str, Any] | None, now: float) -> None:
        """What the server says of a pod confirms or refutes what was assumed of it."""
        if pod is not None and self._is_ours(pod):
            self._first_seen.setdefault(uid, now)
            return
        if pod is None:
            for waiting, nomination in list(self._nominated.items()):
                nomination.victims.discard(uid)
                if not nomination.victims:
                    del self._nominated[waiting]
        by_uid: tuple[dict[str, Any], ...] = (
            self._assumed, self._nominated, self._paused, self._pauses, self._told, self._first_seen,
        )  # fmt: skip
        for table in by_uid:
            table.pop(uid, None)
        self._passed.discard(uid)

    def _is_ours(self, pod: Mapping[str, Any]) -> bool:
        """Whether it waits for a node from this scheduler."""
        return (
            node_of(pod) is None
            and pod["spec"].get("schedulerName") == self.settings.name
            and not is_ending(pod)
            and not is_finished(pod)
            and not pod["spec"].get("schedulingGates")
        )

    # Solving

    @property
    def is_ready(self) -> bool:
        """Whether everything has been listed."""
        return all(cache.is_listed for cache in self.caches.values())

    def wake_at(self) -> float | None:
        """When ``batch`` may have something, if nothing happens before."""
        if self._solving or not self.is_ready:
            return None
        times = [*self._paused.values(), *([] if self._due is None else [self._due])]
        return min(times, default=None)

    def batch(self, now: float) -> Batch | None:
        """The next placement to make, if it is time for one."""
        at = self.wake_at()
        if at is None or at > now or not self.leads(now):
            return None
        self._due = None
        for uid in [uid for uid, until in self._paused.items() if until <= now]:
            del self._paused[uid]
        held = self._held()
        waiting = sorted(
            (pod for pod in self._pods if self._is_to_place(pod) and uid_of(pod) not in held),
            key=lambda pod: (
                uid_of(pod) in self._passed,
                -priority_of(pod),
                str(pod["metadata"].get("creationTimestamp")),
                key_of(pod),
            ),
        )
        if all(uid_of(pod) in self._passed for pod in waiting):
            self._passed.clear()
        chosen = waiting[: self.settings.batch]
        if not chosen:
            return None
        self._solving = True
        self.statistics.solves += 1
        objects = {name: tuple(cache) for name, cache in self.caches.items() if name != "pods"}
        pods = (*self._placed_pods(held), *chosen)
        return Batch(
            ClusterObjects(**objects, pods=pods),
            {key_of(pod): pod for pod in chosen},
            more=len(waiting) > len(chosen),
        )

    def _is_to_place(self, pod: Mapping[str, Any]) -> bool:
        uid = uid_of(pod)
        return self._is_ours(pod) and uid not in self._assumed and uid not in self._paused

    def _held(self) -> dict[str, str]:
        """The nodes of waiting pods that others are making way for."""
        nodes = {key_of(node)[1] for node in self._nodes}
        return {uid: each.node for uid, each in self._nominated.items() if each.node in nodes}

    def _placed_pods(self, held: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Those that take something, with those that are assumed to, or for which room is made."""
        for pod in self._pods:
            if node_of(pod) is not None:
                if not is_finished(pod):
                    yield pod
                continue
            assumed = self._assumed.get(uid_of(pod))
            node = held.get(uid_of(pod)) if assumed is None else assumed.node
            if node is not None:
                yield {**pod, "spec": {**pod["spec"], "nodeName": node}}

    def reconsider(self, now: float) -> None:
        """The rules are others: decide anew."""
        self._wake(now)

    def failed(self, now: float) -> None:
        """Nothing was found, for a reason that the shell reports; try again in a while."""
        self._solving = False
        self._wake(now + FIRST_PAUSE)

    def placed(self, batch: Batch, placement: Placement, now: float) -> list[Bind | Evict]:
        """What a placement means by now: pods and nodes may be others than those it was made for."""
        effects: list[Bind | Evict] = []
        if placement.left_out:
            self._wake(now + self._patience(placement))
        nodes = {key_of(node)[1]: uid_of(node) for node in self._nodes}
        then = {key_of(node)[1]: uid_of(node) for node in batch.objects.nodes}
        for key, node in placement.bound.items():
            pod = self._as_it_was(key, batch, now)
            if pod is None or nodes.get(node) != then.get(node):
                self.statistics.stale += 1
                self._wake(now)
                continue
            self._assumed[uid_of(pod)] = _Assumed(key, node, now)
            effects.append(Bind(key, uid_of(pod), node, placement.awaiting.get(key, ())))
        if batch.more and placement.bound:
            self._wake(now)
        for key, preemption in placement.preemptions.items():
            pod = self._as_it_was(key, batch, now)
            if pod is None:
                continue
            victims = {uid_of(each): key_of(each) for each in self._alive(preemption.victims)}
            if not victims:
                continue
            self._nominated[uid_of(pod)] = _Nomination(preemption.node, set(victims))
            effects += [Evict(name, victim, key) for victim, name in victims.items()]
        return effects

    def explained(self, batch: Batch, reasons: Mapping[Key, str], now: float) -> list[Effect]:
        """Why pods were left out, and with that the end of a batch; nobody is told the same twice."""
        self._solving = False
        if batch.more:
            self._wake(now + FIRST_PAUSE)
            waiting = {uid_of(pod) for pod in batch.pending.values()}
            self._passed |= waiting - self._assumed.keys()
        effects: list[Effect] = []
        for key, message in reasons.items():
            pod = self._as_it_was(key, batch, now)
            if pod is None or uid_of(pod) in self._assumed:
                continue
            uid = uid_of(pod)
            nomination = self._nominated.get(uid)
            news = message, None if nomination is None else nomination.node
            if self._told.get(uid) != news:
                self._told[uid] = news
                effects.append(Report(key, uid, "FailedScheduling", message, warning=True))
                effects.append(Mark(key, uid, "Unschedulable", *news))
        return effects

    def _patience(self, placement: Placement) -> float:
        """Seconds until pods that were left out are tried again: soon where it is not proven that they must be."""
        values = placement.solution.objectives if placement.solution is not None else ()
        if all(each.proven for each in values if each.name == "pods_left_out"):
            self._retry = FIRST_PAUSE
            return REGULARLY
        pause, self._retry = self._retry, min(2 * self._retry, LONGEST_PAUSE)
        return pause

    def _as_it_was(self, key: Key, batch: Batch, now: float) -> dict[str, Any] | None:
        """A pod of the batch, if it is still the same and still waits, and this process may decide."""
        pod = self._pods.get(key)
        if pod is None or uid_of(pod) != uid_of(batch.pending[key]) or not self._is_ours(pod):
            return None
        return pod if self.leads(now) else None

    def _alive(self, keys: Iterable[Key]) -> Iterator[dict[str, Any]]:
        for key in keys:
            pod = self._pods.get(key)
            if pod is not None and node_of(pod) is not None and not is_ending(pod) and not is_finished(pod):
                yield pod

    # What became of it

    def bound(self, effect: Bind, outcome: Outcome, now: float, message: str = "") -> list[Effect]:
        """The answer to a binding."""
        statistics, assumed = self.statistics, self._assumed.get(effect.uid)
        if outcome is Outcome.DONE:
            statistics.bound += 1
            if (seen := self._first_seen.get(effect.uid)) is not None:
                statistics.waits.append(now - seen)
            name = "/".join(effect.pod)
            text = f"Successfully assigned {name} to {effect.node}"
            return [Report(effect.pod, effect.uid, "Scheduled", text, action="Binding")]
        if outcome is Outcome.UNKNOWN:  # it is asked for again, and refused if it was done
            statistics.unknown += 1
            if assumed is not None:
                assumed.unsure = True
            return []
        if outcome is Outcome.CONFLICT and assumed is not None and assumed.unsure:
            statistics.conflicts += 1  # most likely with itself: the watch will say
            return []
        self._assumed.pop(effect.uid, None)
        if outcome is Outcome.GONE:
            self._wake(now)  # the place is free again
            return []
        self._pause(effect.uid, now)
        if outcome is Outcome.CONFLICT:
            statistics.conflicts += 1
            return []
        statistics.refused += 1
        text = f"Binding to {effect.node} was refused: {message}"
        return [Report(effect.pod, effect.uid, "FailedBinding", text, warning=True, action="Binding")]

    def abandoned(self, effect: Bind) -> None:
        """A binding that nobody will ask for again: another process leads."""
        self._assumed.pop(effect.uid, None)

    def evicted(self, effect: Evict, outcome: Outcome, now: float, message: str = "") -> list[Effect]:
        """The answer to an eviction.  Without it there is no room: the preemptor is decided on anew, later."""
        if outcome in (Outcome.DONE, Outcome.GONE):
            self.statistics.evicted += outcome is Outcome.DONE
            text = f"Preempted by {'/'.join(effect.preemptor)}"
            return [Report(effect.pod, effect.uid, "Preempted", text, action="Preempting")]
        pod = self._pods.get(effect.preemptor)
        if pod is not None:
            self._nominated.pop(uid_of(pod), None)
            self._pause(uid_of(pod), now)
        text = f"Not evicted for {'/'.join(effect.preemptor)}: {message or outcome.name.lower()}"
        return [Report(effect.pod, effect.uid, "EvictionRefused", text, warning=True, action="Preempting")]

    def _pause(self, uid: str, now: float) -> None:
        self._pauses[uid] = pause = min(2 * self._pauses.get(uid, FIRST_PAUSE / 2), LONGEST_PAUSE)
        self._paused[uid] = now + pause
