"""The rows that say what templates ask for: nodes, neighbours, spreads and resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrators.kubernetes.rows.manifests import (
    LabelRequirement,
    LabelSelector,
    NodeAffinity,
    PodAffinity,
    PodTerm,
    SpreadConstraint,
)
from orchestrators.kubernetes.rows.nodes import Nodes
from orchestrators.kubernetes.rows.selectors import LabelIndex, Members, members, numbers
from orchestrators.kubernetes.rows.templates import Template, Wishes

Row = dict[str, Any]
Tables = dict[str, list[Row]]

TABLES = (
    "template",
    "template_label",
    "toleration",
    "host_port",
    "node_rule",
    "template_resource",
    "affinity",
    "affinity_to",
    "topology_spread",
    "spread_to",
    "node_preference",
    "preferred_affinity",
    "preferred_affinity_to",
)


FULL = 100
"""Points that make up the whole of one resource: a percent of cpu or memory in use is one."""
AFFINITY, TAINTS, IMAGES = 2 * FULL, -3 * FULL, FULL
"""What the best node is worth to a pod: the weights that kube-scheduler gives its plugins."""
ANYWAY = -20
"""For each pair of pods that share a domain although they would rather be spread."""


class Neighbours:
    """Which templates a selector of pods means."""

    def __init__(self, templates: Sequence[Template], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.templates = templates
        self._labels = LabelIndex([each.labels for each in templates])
        self._namespaces = sorted({*namespaces, *(each.namespace for each in templates)})
        self._namespace_labels = LabelIndex([namespaces.get(name, {}) for name in self._namespaces])
        self._inside: dict[str, Members] = {}
        for number, template in enumerate(templates):
            self._inside[template.namespace] = self._inside.get(template.namespace, 0) | 1 << number
        self.wishing = members(number for number, each in enumerate(templates) if each.wishes is not None)
        """Those whose pods need a place."""

    def meant(self, term: PodTerm, own: Template) -> Members:
        """The templates that a term of an affinity speaks of."""
        namespaces = set(term.namespaces or ())
        if term.namespace_selector is not None:
            namespaces |= {
                self._namespaces[each]
                for each in numbers(self._namespace_labels.selected(term.namespace_selector))
            }
        elif not namespaces:
            namespaces = {own.namespace}
        inside = 0
        for namespace in namespaces:
            inside |= self._inside.get(namespace, 0)
        found = inside & self._selected(term.label_selector, own, term.match_label_keys)
        for key in term.mismatch_label_keys or ():
            if key in own.labels:
                found &= self._labels.matching(LabelRequirement(key, "NotIn", (own.labels[key],)))
        return found

    def counted(self, spread: SpreadConstraint, own: Template) -> Members:
        """The templates whose pods a spread counts: none with a selector that is empty."""
        selector = spread.label_selector
        selects = selector is not None and (selector.match_labels or selector.match_expressions)
        added = any(key in own.labels for key in spread.match_label_keys or ())
        if selector is None or not (selects or added):
            return 0
        return self._inside.get(own.namespace, 0) & self._selected(selector, own, spread.match_label_keys)

    def _selected(self, selector: LabelSelector | None, own: Template, same: Iterable[str] | None) -> Members:
        if selector is None:
            return 0
        found = self._labels.selected(selector)
        return found & self._labels.labelled(
            {key: own.labels[key] for key in same or () if key in own.labels}
        )


def template_rows(neighbours: Neighbours, nodes: Nodes) -> Tables:
    """The tables about templates.  The sets of nodes that they speak of are named in ``nodes``."""
    tables: Tables = {name: [] for name in TABLES}
    for number, template in enumerate(neighbours.templates):
        name = template.name
        tables["template"].append({"name": name})
        tables["template_label"] += [
            {"template": name, "key": key, "value": value} for key, value in template.labels.items()
        ]
        tables["host_port"] += [
            {"template": name, "port": port, "protocol": protocol, "ip": ip}
            for port, protocol, ip in template.ports
        ]
        _apart(tables, template, neighbours)
        _preferred(tables, template, neighbours)
        if template.wishes is not None:
            _tolerations(tables, name, template.wishes)
            _nodes(tables, name, template.wishes, nodes)
            _resources(tables, name, template.wishes)
            _node_points(tables, name, template.wishes, nodes)
            _near(tables, template, template.wishes, neighbours)
            _spreads(tables, number, template, template.wishes, neighbours, nodes)
    return tables


def _apart(tables: Tables, template: Template, neighbours: Neighbours) -> None:
    for number, term in enumerate(template.apart):
        _affinity(
            tables,
            f"{template.name} apart {number}",
            template,
            term.topology_key,
            True,
            neighbours.meant(term, template),
            neighbours,
        )


def _near(tables: Tables, template: Template, wishes: Wishes, neighbours: Neighbours) -> None:
    """All terms mean the pods that every one of them means."""
    required = (
        wishes.affinity.pod_affinity or PodAffinity()
    ).required_during_scheduling_ignored_during_execution or ()
    if not required:
        return
    meant = -1
    for term in required:
        meant &= neighbours.meant(term, template)
    for topology in dict.fromkeys(term.topology_key for term in required):
        _affinity(tables, f"{template.name} near {topology}", template, topology, False, meant, neighbours)


def _affinity(
    tables: Tables,
    name: str,
    template: Template,
    topology: str,
    apart: bool,
    meant: Members,
    neighbours: Neighbours,
) -> None:
    tables["affinity"].append({"id": name, "template": template.name, "topology": topology, "apart": apart})
    tables["affinity_to"] += [
        {"affinity": name, "template": neighbours.templates[each].name} for each in numbers(meant)
    ]


def _tolerations(tables: Tables, name: str, wishes: Wishes) -> None:
    distinct = {
        (each.key or "", each.operator or "Equal", each.value or "", each.effect or "")
        for each in wishes.tolerations
    }
    tables["toleration"] += [
        {"template": name, "key": key, "operator": operator, "value": value, "effect": effect}
        for key, operator, value, effect in sorted(distinct)
    ]


def check_nodes(wishes: Wishes, nodes: Nodes) -> None:
    """Refuse selectors of nodes that are malformed."""
    node_rules(wishes, nodes)
    preferred = (
        wishes.affinity.node_affinity or NodeAffinity()
    ).preferred_during_scheduling_ignored_during_execution
    for each in preferred or ():
        nodes.index.term(each.preference)


def node_rules(wishes: Wishes, nodes: Nodes) -> dict[str, Members]:
    """Which nodes will do by each rule, as far as these are told apart by labels and names."""
    rules: list[tuple[str, Members]] = []
    if wishes.node_selector:
        rules.append(("node selector", nodes.index.labelled(wishes.node_selector)))
    required = (
        wishes.affinity.node_affinity or NodeAffinity()
    ).required_during_scheduling_ignored_during_execution
    if required is not None:
        rules.append(("node affinity", nodes.index.any_term(required)))
    rules += [("volume", nodes.index.any_term(volume)) for volume in wishes.volumes]
    rules += [(resource, nodes.offering(resource)) for resource in wishes.resources]
    found: dict[str, Members] = {}
    for rule, those in rules:
        found[rule] = found.get(rule, those) & those
    return found


def _nodes(tables: Tables, name: str, wishes: Wishes, nodes: Nodes) -> None:
    for rule, those in node_rules(wishes, nodes).items():
        if those != nodes.index.everything:
            node_set, inside = nodes.name_set(those)
            tables["node_rule"].append(
                {"template": name, "rule": rule, "node_set": node_set, "inside": inside}
            )


def _resources(tables: Tables, name: str, wishes: Wishes) -> None:
    tables["template_resource"] += [
        {"template": name, "resource": resource, "amount": amount}
        for resource, amount in {**wishes.resources, **wishes.attachments}.items()
    ]


def _spreads(
    tables: Tables, number: int, template: Template, wishes: Wishes, neighbours: Neighbours, nodes: Nodes
) -> None:
    hard = [each for each in wishes.spreads if each.when_unsatisfiable == "DoNotSchedule"]
    labelled = nodes.index.everything
    for spread in hard:
        labelled &= nodes.index.having(spread.topology_key)
    for spread in wishes.spreads:
        counted = neighbours.counted(spread, template)
        if spread.when_unsatisfiable != "DoNotSchedule":
            name = f"{template.name} over {spread.topology_key}"
            _preference(tables, name, template, spread.topology_key, ANYWAY, counted, neighbours)
            continue
        key = {"template": template.name, "topology": spread.topology_key}
        node_set, inside = nodes.name_set(labelled & _counting(spread, wishes, nodes))
        tables["topology_spread"].append(
            {
                **key,
                "max_skew": spread.max_skew,
                "min_domains": spread.min_domains or 1,
                "counts_itself": bool(counted >> number & 1),
                "node_set": node_set,
                "inside": inside,
            }
        )
        tables["spread_to"] += [
            {**key, "other": neighbours.templates[each].name}
            for each in numbers(counted & ~members([number]))
        ]


def _preferred(tables: Tables, template: Template, neighbours: Neighbours) -> None:
    """Preferred affinities.  One of pods that run counts only where one that needs a place is meant."""
    for number, (weight, term) in enumerate(template.preferred):
        meant = neighbours.meant(term, template)
        if template.wishes is None:
            meant &= neighbours.wishing
        points = AFFINITY * weight // FULL
        _preference(
            tables,
            f"{template.name} prefers {number}",
            template,
            term.topology_key,
            points,
            meant,
            neighbours,
        )


def _preference(
    tables: Tables,
    name: str,
    template: Template,
    topology: str,
    points: int,
    meant: Members,
    neighbours: Neighbours,
) -> None:
    if meant:
        tables["preferred_affinity"].append(
            {"id": name, "template": template.name, "topology": topology, "points": points}
        )
        tables["preferred_affinity_to"] += [
            {"affinity": name, "template": neighbours.templates[each].name} for each in numbers(meant)
        ]


def _node_points(tables: Tables, name: str, wishes: Wishes, nodes: Nodes) -> None:
    """What nodes are worth by themselves: for their labels, taints and images."""
    affinity = wishes.affinity.node_affinity or NodeAffinity()
    preferred = affinity.preferred_during_scheduling_ignored_during_execution or ()
    weights = sum(each.weight for each in preferred)
    found = [
        ("node affinity", nodes.index.term(each.preference), AFFINITY * each.weight // weights)
        for each in preferred
    ]
    avoided = nodes.untolerated(wishes.tolerations, "PreferNoSchedule")
    most = max(
        (sum(each >> number & 1 for each in avoided) for number in numbers(_union(avoided))), default=1
    )
    found += [("taint", those, TAINTS // most) for those in avoided]
    found += [("image", those, IMAGES * percent // FULL) for those, percent in nodes.images(wishes.images)]
    total: dict[tuple[str, str], int] = {}
    for reason, those, points in found:
        if those and those != nodes.index.everything and points:
            node_set, itself = nodes.name_set(those)
            total[reason, node_set] = total.get((reason, node_set), 0) + (points if itself else -points)
    tables["node_preference"] += [
        {"template": name, "reason": reason, "node_set": node_set, "points": points}
        for (reason, node_set), points in total.items()
    ]


def _union(sets: Iterable[Members]) -> Members:
    found = 0
    for each in sets:
        found |= each
    return found


def _counting(spread: SpreadConstraint, wishes: Wishes, nodes: Nodes) -> Members:
    """The nodes whose pods a spread counts, by its policies."""
    found = nodes.index.everything
    if spread.node_affinity_policy != "Ignore":
        rules = node_rules(wishes, nodes)
        found &= rules.get("node selector", found) & rules.get("node affinity", found)
    if spread.node_taints_policy == "Honor":
        found &= ~_union(nodes.untolerated(wishes.tolerations, "NoSchedule", "NoExecute"))
    return found
