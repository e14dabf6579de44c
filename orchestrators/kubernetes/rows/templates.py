"""Templates: pods with equal labels and equal wishes are one class, about which each question is asked once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from orchestrators.kubernetes.rows.manifests import (
    Affinity,
    Container,
    LabelSelector,
    NodeSelector,
    Pod,
    PodAffinity,
    PodTerm,
    Port,
    SpreadConstraint,
    Toleration,
)

PER_POD = frozenset(
    (
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    )
)
"""Labels by which controllers tell their pods apart.  They make no templates unless a selector asks for them."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What pods that need a place ask for, beside cpu, memory and the like."""

    node_selector: Mapping[str, str]
    affinity: Affinity
    tolerations: tuple[Toleration, ...]
    spreads: tuple[SpreadConstraint, ...]
    resources: Mapping[str, int]
    """Extended resources.  Nodes that have none of them will not do."""
    attachments: Mapping[str, int]
    """Volumes by driver.  Nodes that say nothing of a driver take any number of them."""
    volumes: tuple[NodeSelector, ...]
    """Where the volumes can be reached from."""
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A class of pods.  Those that run have no wishes any more, but keep others off."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    ports: tuple[tuple[int, str, str], ...]
    """Port, protocol and address."""
    apart: tuple[PodTerm, ...]
    """Required anti-affinity: it holds in both directions."""
    preferred: tuple[tuple[int, PodTerm], ...]
    """Preferred affinity, or with a negative weight anti-affinity.  It counts in both directions, too."""
    wishes: Wishes | None


@dataclass(slots=True)
class Templates:
    """Those that there are, in the order in which they were met."""

    mentioned: frozenset[str]
    """Keys of labels that selectors ask for."""
    found: dict[bytes, Template] = field(default_factory=dict)

    def of(self, name: str, pod: Pod, wishes: Wishes | None) -> Template:
        """The template of a pod; a new one is called as its first pod."""
        metadata, spec = pod.metadata, pod.spec
        labels = {
            key: value
            for key, value in (metadata.labels or {}).items()
            if key not in PER_POD or key in self.mentioned
        }
        affinity = spec.affinity or Affinity()
        template = Template(
            name,
            metadata.namespace,
            labels,
            _ports(
                (
                    *(each for each in spec.init_containers or () if each.restart_policy == "Always"),
                    *spec.containers,
                )
            ),
            (affinity.pod_anti_affinity or PodAffinity()).required_during_scheduling_ignored_during_execution
            or (),
            (*_preferred(affinity.pod_affinity, 1), *_preferred(affinity.pod_anti_affinity, -1)),
            wishes,
        )
        return self.found.setdefault(_key(template), template)


_ENCODER = msgspec.json.Encoder(order="deterministic")


def _key(template: Template) -> bytes:
    parts: Any = (
        template.namespace,
        template.labels,
        template.ports,
        template.apart,
        template.preferred,
        template.wishes,
    )
    return _ENCODER.encode(parts)


def _ports(containers: Iterable[Container]) -> tuple[tuple[int, str, str], ...]:
    wanted: list[Port] = [port for each in containers for port in each.ports or () if port.host_port]
    return tuple(
        sorted({(port.host_port or 0, port.protocol or "TCP", port.host_ip or "0.0.0.0") for port in wanted})
    )


def _preferred(affinity: PodAffinity | None, sign: int) -> Iterable[tuple[int, PodTerm]]:
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else None
    return [(sign * each.weight, each.pod_affinity_term) for each in terms or ()]


def mentioned_keys(pod: Pod) -> set[str]:
    """Keys of labels that a pod's selectors of pods ask for."""
    affinity = pod.spec.affinity or Affinity()
    terms: list[PodTerm | SpreadConstraint] = [*(pod.spec.topology_spread_constraints or ())]
    for each in (affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()):
        terms += each.required_during_scheduling_ignored_during_execution or ()
        terms += [
            some.pod_affinity_term for some in each.preferred_during_scheduling_ignored_during_execution or ()
        ]
    found: set[str] = set()
    for term in terms:
        found |= keys_of(term.label_selector) | set(term.match_label_keys or ())
        if isinstance(term, PodTerm):
            found |= set(term.mismatch_label_keys or ())
    return found


def keys_of(selector: LabelSelector | None) -> set[str]:
    if selector is None:
        return set()
    return {*(selector.match_labels or ()), *(each.key for each in selector.match_expressions or ())}
