"""Disruption budgets: how many of which pods may lose their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrators.kubernetes.rows.manifests import DisruptionBudget, Pod, UnreadableError, read
from orchestrators.kubernetes.rows.selectors import LabelIndex, numbers

Row = dict[str, Any]


def budget_rows(manifests: Iterable[Mapping[str, Any]], pods: Sequence[Pod]) -> dict[str, list[Row]]:
    """The budgets that concern these pods."""
    budgets: list[Row] = []
    covered: list[Row] = []
    index = LabelIndex([pod.metadata.labels or {} for pod in pods])
    for manifest in manifests:
        try:
            budget = read(manifest, DisruptionBudget)
            selected = index.selected(budget.spec.selector)
        except UnreadableError:
            continue
        name = f"{budget.metadata.namespace}/{budget.metadata.name}"
        exempt = budget.status.disrupted_pods or {}
        own = [
            each.metadata
            for each in (pods[number] for number in numbers(selected))
            if each.metadata.namespace == budget.metadata.namespace and each.metadata.name not in exempt
        ]
        if own:
            budgets.append({"name": name, "allowed": max(budget.status.disruptions_allowed, 0)})
            covered += [{"budget": name, "pod": f"{each.namespace}/{each.name}"} for each in own]
    return {"disruption_budget": budgets, "budget_pod": covered}
