"""The network of an assignment: its nodes, and the arcs from where values arrive into the sink.

The arcs out of the bundles are ``supply_arcs``'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Assignment, Indices, Optima, Pairs
from mgmt.optimization.engines.flow.arcs import CountedArcs, Marginal, links
from mgmt.optimization.engines.flow.counts import Count, NotAFlowError, Steps, steps_of
from mgmt.optimization.engines.flow.decode import Units
from mgmt.optimization.engines.flow.network import Network
from mgmt.optimization.engines.flow.structure import NetworkStructure, maps, nested
from mgmt.optimization.engines.flow.supply_arcs import Branches, Source


@dataclass(slots=True)
class _Numbers:
    """Hands out node numbers."""

    next: int = 0

    def take(self, count: int) -> int:
        self.next += count
        return self.next - count


class NetworkBuilder:
    """The network of one assignment."""

    def __init__(
        self,
        assignment: Assignment,
        structure: NetworkStructure,
        tiers: int,
        known_rows: int,
        expanded: bool,
        preferred: Pairs | None = None,
    ) -> None:
        self._assignment = assignment
        self._structure = structure
        self._tiers = tiers
        self._known_rows = known_rows
        self._expanded = expanded
        self._rather = preferred
        self._numbers = _Numbers()
        self._constant = np.array([tier.constant for tier in assignment.tiers], np.int64)
        self._beyond: list[Amounts] = []
        self._counted_arcs: list[CountedArcs] = []
        self.network = Network(tiers)
        self.possible = True
        self._sizes = np.bincount(structure.bundle, minlength=structure.bundles).astype(np.int64)
        self._roots = self._numbers.take(structure.bundles)
        self._prices = self._row_prices()
        self._sink = self._numbers.take(1)
        self._leaf = self._add_sinks()
        self._branches = self._add_branches()
        self.network.depth = 5 + len(structure.levels) + len(structure.sinks)

    # ---- what is read afterwards --------------------------------------------------------------------

    @property
    def supply(self) -> Amounts:
        supply = np.zeros(self._numbers.next, np.int64)
        cluster = self._structure.cluster
        alone = cluster < 0
        supply[: self._structure.bundles][alone] = self._sizes[alone]
        units = self._branches.cluster_units
        supply[self._branches.cluster_roots + np.arange(len(units))] = units
        supply[self._sink] = -supply.sum()
        return supply

    @property
    def beyond(self) -> Amounts:
        return np.concatenate([*self._beyond, np.zeros(0, np.int64)]).astype(np.int64)

    def worth(self, flow: Amounts) -> tuple[int, ...]:
        """Per tier, what a flow costs."""
        return tuple(int(value) for value in self._constant + self.network.cost_of(flow))

    def units(self, flow: Amounts) -> Units:
        return self._branches.units(flow, self.network.heads)

    def optima(self) -> Optima:
        """What the cheapest flows have in common."""
        least, most = self.network.extremes()
        row_class, allowed = self._branches.possible_values(self.network.heads, least, most)
        limits = (
            counted.limit(least, most) for counted in (*self._counted_arcs, *self._branches.counted_arcs)
        )
        return Optima(row_class, allowed, tuple(limit for limit in limits if limit is not None))

    # ---- costs of rows ------------------------------------------------------------------------------

    def _row_prices(self) -> Amounts:
        """(tiers, classes, values + 1) what a row of a class pays for a value; the last is for none."""
        structure, values = self._structure, self._assignment.values
        prices = np.zeros((self._tiers, len(structure.representative), values + 1), np.int64)
        for price in structure.prices:
            row_class = price.row_class[structure.representative]
            prices[price.tier, :, :values] += price.cost[row_class]
            prices[price.tier, :, values] += price.unplaced[row_class]
        return prices

    def _savings(self) -> Amounts:
        """(tiers, rows) what a row saves by staying; what it would pay for moving is a constant."""
        savings = np.zeros((self._tiers, self._assignment.rows), np.int64)
        for price in self._structure.prices:
            if bool((price.moved < 0).any()):
                raise NotAFlowError("a row is paid for moving")
            savings[price.tier] += price.moved + price.discount
            self._constant[price.tier] += price.moved.sum()
        return savings

    # ---- the way out of the bundles -----------------------------------------------------------------

    def _add_branches(self) -> Branches:
        branches = Branches(
            Source(
                assignment=self._assignment,
                structure=self._structure,
                network=self.network,
                take=self._numbers.take,
                steps=lambda level: self._steps(level.count, self._most(level.count)),
                roots=self._roots,
                sink=self._sink,
                leaf=self._leaf,
                prices=self._prices,
                savings=self._savings(),
                expanded=self._expanded,
                preferred=self._rather,
            )
        )
        self.possible = self.possible and branches.possible
        self._beyond.extend(branches.beyond)
        self._constant += branches.constant
        return branches

    # ---- the way into the sink ----------------------------------------------------------------------

    def _add_sinks(self) -> Amounts:
        """Nodes and arcs of the counts; (classes, values) the node where a unit with a value arrives."""
        structure = self._structure
        first = [self._numbers.take(sink.groups * sink.buckets) for sink in structure.sinks]
        leaf = np.full((len(structure.representative), self._assignment.values), self._sink, np.int64)
        for sink, start in reversed(list(zip(structure.sinks, first, strict=True))):
            own = sink.group[structure.representative][:, None].astype(np.int64)
            inside = (own >= 0) & (sink.bucket >= 0)[None]
            leaf = np.where(inside, start + own * sink.buckets + sink.bucket[None], leaf)
        for place, (sink, start) in enumerate(zip(structure.sinks, first, strict=True)):
            parents = np.full((sink.groups, sink.buckets), self._sink, np.int64)
            for coarse, base in reversed(
                list(zip(structure.sinks[place + 1 :], first[place + 1 :], strict=True))
            ):
                if nested(sink, coarse):
                    group = _image(sink.group, coarse.group, sink.groups)[:, None]
                    bucket = _image(sink.bucket, coarse.bucket, sink.buckets)[None]
                    node = base + group * coarse.buckets + bucket
                    parents = np.where((group >= 0) & (bucket >= 0), node, parents)
            self._add_sink(sink, start, parents.ravel())
        return leaf

    def _add_sink(self, sink: Count, start: int, parents: Amounts) -> None:
        cells = (sink.groups, sink.buckets)
        lower = np.broadcast_to(np.maximum(sink.lower, 0), cells).ravel()
        upper = np.broadcast_to(np.minimum(sink.upper, sink.sizes[:, None]), cells).ravel()
        used = np.zeros(sink.buckets, np.bool_)
        used[sink.bucket[sink.bucket >= 0]] = True
        node = np.flatnonzero(((sink.sizes > 0)[:, None] & used[None]).ravel())
        rest = np.ones(len(lower), np.bool_)
        rest[node] = False
        self.possible = self.possible and not bool((lower[rest] > 0).any() or (lower > upper).any())
        most = self._most(sink)
        upper = np.minimum(upper, most)
        steps = self._steps(sink, min(most, int(upper.max(initial=0))))
        marginal = None if steps is None else Marginal(steps.marginal[:, :, node], steps.known[node])
        link, low, high, costs, beyond = links(lower[node], upper[node], marginal)
        added = self.network.add(start + node[link], parents[node[link]], high, low, costs)
        self._beyond.append(np.arange(added.start, added.stop)[beyond])
        self._counted_arcs.append(CountedArcs(sink, *np.divmod(node[link], sink.buckets), added.start))

    def _most(self, count: Count) -> int:
        """How many rows one place of a count can get, given what a bundle may give to it."""
        most = int(count.sizes.max(initial=0))
        for over in self._structure.over:
            given = np.broadcast_to(over.count.upper.max(axis=1), over.count.groups)
            inside = self._structure.cluster >= 0
            rows = np.bincount(self._structure.cluster[inside], self._sizes[inside], self._structure.clusters)
            least = np.minimum(given[over.group], rows.astype(np.int64)).sum() + self._sizes[~inside].sum()
            most = min(most, int(least))
        for level in (*self._structure.levels, *self._structure.each):
            limited = bool((level.count.bucket[count.bucket >= 0] >= 0).all())
            if limited and maps(count.bucket, level.count.bucket):
                given = np.broadcast_to(level.count.upper.max(axis=1), level.count.groups)
                each = np.where(level.group >= 0, given[level.group], self._sizes)
                most = min(most, int(np.minimum(each, self._sizes).sum()))
        return most

    def _steps(self, count: Count, largest: int) -> Steps | None:
        if not count.costs:
            return None
        # Some more than twice the even share of a place: hardly ever does one get more, and then more are known.
        places = len(np.unique(count.bucket)) * int((count.sizes > 0).sum())
        rows = self._known_rows * (16 + 2 * self._assignment.rows // max(1, places))
        steps = steps_of(count, self._tiers, largest, rows)
        self._constant += steps.empty
        return steps


def _image(fine: Indices, coarse: Indices, number: int) -> Amounts:
    """For each of the fine ones the coarse one it is in, or NONE."""
    image = np.full(number, NONE, np.int64)
    image[fine[fine >= 0]] = coarse[fine >= 0]
    return image
