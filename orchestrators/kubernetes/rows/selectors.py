"""Label selectors, evaluated for all objects at once.

A set of objects is an integer with a bit for each: "the nodes whose ``disk`` is ``ssd``" is looked up, "and", "or" and
"not" are one operation each, whatever the number of objects.  What a requirement selects is worked out once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrators.kubernetes.rows.manifests import (
    LabelRequirement,
    LabelSelector,
    NodeRequirement,
    NodeSelector,
    NodeTerm,
    UnreadableError,
)

Members = int
"""A set of objects: a bit for each, by its number."""

_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_NUMBER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


def members(numbers: Iterable[int]) -> Members:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def numbers(of: Members) -> Iterator[int]:
    """The numbers of a set's objects, in order."""
    while of:
        lowest = of & -of
        yield lowest.bit_length() - 1
        of ^= lowest


class LabelIndex:
    """Which of some objects have which labels."""

    def __init__(self, labels: Sequence[Mapping[str, str]]) -> None:
        self.everything: Members = (1 << len(labels)) - 1
        self._having: dict[str, dict[str, Members]] = {}
        self._known: dict[NodeRequirement | LabelRequirement, Members] = {}
        for number, own in enumerate(labels):
            for key, value in own.items():
                values = self._having.setdefault(key, {})
                values[value] = values.get(value, 0) | 1 << number

    def having(self, key: str) -> Members:
        """Those with a label of this key."""
        found = 0
        for each in self._having.get(key, {}).values():
            found |= each
        return found

    def domains(self, key: str) -> Mapping[str, Members]:
        """Those with each value of the label."""
        return self._having.get(key, {})

    def matching(self, requirement: NodeRequirement | LabelRequirement) -> Members:
        """Those that meet a requirement of their labels."""
        found = self._known.get(requirement)
        if found is None:
            found = self._known[requirement] = self._matching(requirement)
        return found

    def _matching(self, requirement: NodeRequirement | LabelRequirement) -> Members:
        key, operator, values = requirement.key, requirement.operator, requirement.values or ()
        _check(requirement)
        if operator in ("Exists", "DoesNotExist"):
            having = self.having(key)
            return having if operator == "Exists" else self.everything & ~having
        if operator in ("In", "NotIn"):
            own, listed = self.domains(key), 0
            for value in values:
                listed |= own.get(value, 0)
            return listed if operator == "In" else self.everything & ~listed
        bound, found = int(values[0]), 0
        for value, those in self.domains(key).items():
            if is_number(value) and (int(value) > bound if operator == "Gt" else int(value) < bound):
                found |= those
        return found

    def matching_all(self, requirements: Iterable[NodeRequirement | LabelRequirement]) -> Members:
        found = self.everything
        for requirement in requirements:
            found &= self.matching(requirement)
        return found

    def labelled(self, labels: Mapping[str, str]) -> Members:
        """Those with all of these labels."""
        found = self.everything
        for key, value in labels.items():
            found &= self.domains(key).get(value, 0)
        return found

    def selected(self, selector: LabelSelector | None) -> Members:
        """No selector selects nothing, an empty one everything."""
        if selector is None:
            return 0
        return self.labelled(selector.match_labels or {}) & self.matching_all(
            selector.match_expressions or ()
        )


class NodeIndex(LabelIndex):
    """Nodes by their labels and their names."""

    def __init__(self, names: Sequence[str], labels: Sequence[Mapping[str, str]]) -> None:
        super().__init__(labels)
        self._fields = LabelIndex([{"metadata.name": name} for name in names])

    def term(self, term: NodeTerm) -> Members:
        """Those that meet all of a term.  An empty term is met by none."""
        fields = term.match_fields or ()
        for field in fields:
            if (
                field.key != "metadata.name"
                or field.operator not in ("In", "NotIn")
                or len(field.values or ()) != 1
            ):
                raise UnreadableError(
                    "matchFields can only ask whether metadata.name is In or NotIn a list of one name"
                )
        if not fields and not term.match_expressions:
            return 0
        return self.matching_all(term.match_expressions or ()) & self._fields.matching_all(fields)

    def any_term(self, selector: NodeSelector) -> Members:
        found = 0
        for term in selector.node_selector_terms:
            found |= self.term(term)
        return found


def is_number(text: str) -> bool:
    """Whether it is a whole number of 64 bits, as Gt and Lt compare them."""
    return _NUMBER.fullmatch(text) is not None and -(1 << 63) <= int(text) < 1 << 63


def check_selector(selector: LabelSelector | None) -> None:
    """Refuse a selector that is malformed."""
    for requirement in (selector.match_expressions or ()) if selector is not None else ():
        _check(requirement)


def _check(requirement: NodeRequirement | LabelRequirement) -> None:
    values, operator = requirement.values or (), requirement.operator
    if operator in ("Exists", "DoesNotExist"):
        well = not values
    elif operator in ("Gt", "Lt"):
        well = len(values) == 1 and is_number(values[0])
    else:
        well = bool(values)
    if not well:
        raise UnreadableError(
            f"{requirement.key} {operator} {list(values)[:3]}: not what {operator} compares with"
        )
    if requirement.key != "metadata.name" and operator in ("In", "NotIn"):
        for value in values:
            if _VALUE.fullmatch(value) is None:
                raise UnreadableError(
                    f"{requirement.key} {operator} {value[:70]!r}: no label has such a value"
                )
