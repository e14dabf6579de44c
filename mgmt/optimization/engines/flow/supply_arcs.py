"""The arcs out of the bundles: through their branches into pools, and from the pools to values.

A pool is a class of rows with the values that all branches treat alike (a rack).  A bundle's unit in a pool may
take any of its values, so one arc from bundle to pool does for all of them; ``decode`` hands the values out.  Where
rows are rather to go has arcs of its own, and the pools are for what is cheaper still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Assignment, Indices, Mask, Pairs
from mgmt.optimization.dense_ranks import alike_rows, firsts, joint_ranks
from mgmt.optimization.engines.flow.arcs import CountedArcs, Marginal, links
from mgmt.optimization.engines.flow.counts import NotAFlowError, Steps
from mgmt.optimization.engines.flow.decode import Stays, Units
from mgmt.optimization.engines.flow.network import Network
from mgmt.optimization.engines.flow.structure import Level, NetworkStructure

MOST_BRANCHES = 1 << 23
_SAMPLED = 16
"""One of so many bundles that may stay as they are has all its arcs from the beginning."""


@dataclass(slots=True, eq=False)
class Source:
    """What the arcs out of the bundles are made of."""

    assignment: Assignment
    structure: NetworkStructure
    network: Network
    take: Callable[[int], int]
    """Hands out that many node numbers."""
    steps: Callable[[Level], Steps | None]
    roots: int
    sink: int
    leaf: Amounts
    """(classes, values) where a unit arrives."""
    prices: Amounts
    """(tiers, classes, values + 1)."""
    savings: Amounts
    """(tiers, rows)."""
    expanded: bool
    """Without pools: an arc for each bundle and value."""
    preferred: Pairs | None = None
    """Where rows move to if that costs no more than moving elsewhere."""


class Branches:
    """Adds the arcs; what is then asked of it is which of them carry units."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._structure = source.structure
        self._values = source.assignment.values
        self._allowed = source.structure.allowed
        self._sizes = np.bincount(self._structure.bundle, minlength=self._structure.bundles).astype(np.int64)
        self.possible = True
        self.beyond: list[Amounts] = []
        self.counted_arcs: list[CountedArcs] = []
        self._pool, self._pools = self._pools_of_values()
        self._stays = self._find_stays()
        self._at_rest = self._bundles_at_rest()
        self._reach = self._reachable()
        if self._structure.bundles * self._pools > MOST_BRANCHES:
            raise NotAFlowError("too many groups of rows and parts of values")
        classes = len(self._structure.representative)
        self._pool_node = source.take(classes * self._pools) + np.arange(classes * self._pools).reshape(
            classes, -1
        )
        # The node from which a bundle reaches a pool; NONE once an arc leads into the pool itself.
        self._attach = np.repeat(
            (source.roots + np.arange(self._structure.bundles))[:, None], self._pools, axis=1
        )
        self._into_pool: list[tuple[slice, Amounts, Amounts]] = []
        for level in self._structure.levels:
            self._add_level(level)
        self._add_stays()
        self._direct: tuple[slice, Amounts, Amounts, Amounts] | None = None
        self._from_pool: tuple[slice, Amounts, Amounts] | None = None
        if source.expanded:
            bundle, value = np.nonzero(self._allowed[self._structure.class_])
            self._add_direct(bundle, value, np.full(len(bundle), NONE))
        else:
            preferred = self._preferred()
            if preferred is not None:
                source.network.sparing = True
                self._add_direct(*preferred)
            self._add_pools(spare=preferred is not None)
        self.constant = np.zeros(source.network.tiers, np.int64)
        self.cluster_roots = source.take(self._structure.clusters)
        self.cluster_units = np.zeros(self._structure.clusters, np.int64)
        """What sets out from each."""
        self._add_clusters()
        self._add_unplaced()

    # ---- pools --------------------------------------------------------------------------------------

    def _pools_of_values(self) -> tuple[Amounts, int]:
        joint = np.zeros(self._values, np.int64)
        for level in self._structure.levels:
            _, joint = np.unique(
                joint * (level.count.buckets + 1) + level.count.bucket + 1, return_inverse=True
            )
        return joint, int(joint.max(initial=0)) + 1

    def _reachable(self) -> Mask:
        """(classes, pools) whether a row of the class may have some value of the pool."""
        reach = np.zeros((len(self._allowed), self._pools), np.bool_)
        class_, value = np.nonzero(self._allowed)
        reach[class_, self._pool[value]] = True
        reach[self._structure.class_[self._stays.bundle], self._pool[self._stays.value]] = True
        return reach

    def _pool_of_buckets(self, level: Level) -> tuple[Amounts, Amounts]:
        """(pools,) the bucket of each, and (buckets,) how many pools each has."""
        bucket = np.full(self._pools, NONE, np.int64)
        bucket[self._pool] = level.count.bucket
        return bucket, np.bincount(bucket[bucket >= 0], minlength=level.count.buckets)

    # ---- branches -----------------------------------------------------------------------------------

    def _add_level(self, level: Level) -> None:
        structure, network = self._structure, self._source.network
        bucket_of, pools_in = self._pool_of_buckets(level)
        some_pool = np.zeros(level.count.buckets, np.int64)
        inside = np.flatnonzero(bucket_of >= 0)
        some_pool[bucket_of[inside]] = inside
        reach = np.zeros((len(self._reach), level.count.buckets), np.bool_)
        class_, pool = np.nonzero(self._reach[:, inside])
        reach[class_, bucket_of[inside][pool]] = True
        reached = reach[structure.class_]
        if bool((level.count.lower > 0).any()):
            bundle, bucket = np.nonzero(~reached)
            self.possible = self.possible and not bool((level.limits(bundle, bucket)[0] > 0).any())
        bundle, bucket = np.nonzero(reached)
        lower, upper = level.limits(bundle, bucket)
        upper = np.minimum(upper, self._sizes[bundle])
        self.possible = self.possible and not bool((lower > upper).any())
        own = self._needs_node(level, bucket_of, pools_in)[bundle, bucket]
        heads = self._pool_node[structure.class_[bundle], some_pool[bucket]]
        nodes = self._source.take(int(own.sum()))
        heads[own] = nodes + np.arange(int(own.sum()))
        tails = self._attach[bundle, some_pool[bucket]]
        marginal = self._marginal(level, bundle, bucket)
        link, low, high, costs, beyond = links(lower, upper, marginal)
        shortcut = ~own[link]
        spare = shortcut & self._at_rest[bundle[link]]
        added = network.add(tails[link], heads[link], high, low, costs, spare)
        self.beyond.append(np.arange(added.start, added.stop)[beyond])
        self.counted_arcs.append(
            CountedArcs(level.count, level.group[bundle[link]], bucket[link], added.start)
        )
        place = np.flatnonzero(shortcut)
        self._into_pool.append((added, np.where(shortcut, bundle[link], NONE), place))
        new = np.full((structure.bundles, level.count.buckets), NONE, np.int64)
        new[bundle[own], bucket[own]] = heads[own]
        self._attach[:, inside] = new[:, bucket_of[inside]]

    def _marginal(self, level: Level, bundle: Amounts, bucket: Amounts) -> Marginal | None:
        steps = self._source.steps(level)
        if steps is None:
            return None
        group = level.group[bundle].astype(np.int64)
        place = np.maximum(group, 0) * level.count.buckets + bucket
        return Marginal(np.where(group >= 0, steps.marginal[:, :, place], 0), steps.known[place])

    def _needs_node(self, level: Level, bucket_of: Amounts, pools_in: Amounts) -> Mask:
        """(bundles, buckets) where more than one thing hangs on a branch."""
        own = np.zeros((self._structure.bundles, level.count.buckets), np.bool_)
        if self._source.expanded:
            own[:] = True
            return own
        own[:, pools_in > 1] = True
        later = self._structure.levels[self._structure.levels.index(level) + 1 :]
        for other in later:
            both = (level.count.bucket >= 0) & (other.count.bucket >= 0)
            own[:, level.count.bucket[both]] = True
        bucket = bucket_of[self._pool[self._stays.value]]
        own[self._stays.bundle[bucket >= 0], bucket[bucket >= 0]] = True
        return own

    # ---- rows that stay -----------------------------------------------------------------------------

    def _find_stays(self) -> Stays:
        """Rows that may stay as they are, as many of a bundle and value as there is room for."""
        structure = self._structure
        rows, bundle, value = self._standing()
        order = np.lexsort([*-self._source.savings[::-1, rows], value, bundle])
        rows, bundle, value = rows[order], bundle[order], value[order]
        fresh = np.append(True, (bundle[1:] != bundle[:-1]) | (value[1:] != value[:-1]))[: len(rows)]
        starts = np.flatnonzero(fresh)
        rank = np.arange(len(rows)) - starts[np.cumsum(fresh) - 1] if len(rows) else rows
        kept = rank < structure.room(bundle, value)
        return Stays.of(rows[kept], bundle[kept], value[kept], self._source.savings[:, rows[kept]])

    def _bundles_at_rest(self) -> Mask:
        """(bundles,) whose rows may all stay as they are, but for a sample of these."""
        staying = np.bincount(self._stays.bundle, self._stays.count, self._structure.bundles)
        sample = np.arange(self._structure.bundles) % _SAMPLED == 0
        return np.asarray((staying == self._sizes) & ~sample)

    def _standing(self) -> tuple[Amounts, Amounts, Amounts]:
        """Rows that are where they may be, with their bundles and values."""
        assignment = self._source.assignment
        current = assignment.current.astype(np.int64)
        may = assignment.allowed[assignment.row_class, np.maximum(current, 0)]
        rows = np.flatnonzero((current >= 0) & may)
        return rows, self._structure.bundle[rows].astype(np.int64), current[rows]

    def _add_stays(self) -> None:
        stays, source = self._stays, self._source
        class_ = self._structure.class_[stays.bundle]
        tails = self._attach[stays.bundle, self._pool[stays.value]]
        costs = source.prices[:, class_, stays.value] - stays.saving
        self._stay_arcs = source.network.add(
            tails, source.leaf[class_, stays.value], stays.count, None, costs
        )

    # ---- and those that do not ----------------------------------------------------------------------

    def _preferred(self) -> tuple[Amounts, Amounts, Amounts] | None:
        """Bundles and values that are rather to come together, with a row for each pair."""
        preferred, structure = self._source.preferred, self._structure
        if preferred is None or structure.levels or structure.each:
            return None
        bundle = structure.bundle[preferred.row].astype(np.int64)
        some = np.flatnonzero(self._allowed[structure.class_[bundle], preferred.value])
        pair, first = np.unique(bundle[some] * self._values + preferred.value[some], return_index=True)
        return pair // self._values, pair % self._values, preferred.row[some[first]].astype(np.int64)

    def _add_pools(self, *, spare: bool) -> None:
        source, structure = self._source, self._structure
        bundle, pool = np.nonzero((self._attach >= 0) & self._reach[structure.class_])
        heads = self._pool_node[structure.class_[bundle], pool]
        added = source.network.add(
            self._attach[bundle, pool], heads, self._sizes[bundle], spare=self._at_rest[bundle] | spare
        )
        self._into_pool.append((added, bundle, np.arange(len(bundle))))
        class_, value = np.nonzero(self._allowed)
        tails = self._pool_node[class_, self._pool[value]]
        most = np.bincount(structure.class_, self._sizes, len(structure.representative)).astype(np.int64)
        added = source.network.add(
            tails, source.leaf[class_, value], most[class_], None, source.prices[:, class_, value]
        )
        self._from_pool = (added, tails, value)

    def _add_direct(self, bundle: Amounts, value: Amounts, row: Amounts) -> None:
        """Arcs for pairs of a bundle and a value, in order; ``row`` is one of the bundle for it, or NONE."""
        source, structure, stays = self._source, self._structure, self._stays
        pair, stay = bundle * self._values + value, stays.bundle * self._values + stays.value
        place = np.minimum(np.searchsorted(pair, stay), max(len(pair) - 1, 0))
        known = pair[place] == stay if len(pair) else np.zeros(len(stay), np.bool_)
        staying = np.zeros(len(pair), np.int64)
        np.add.at(staying, place[known], stays.count[known])
        room = np.minimum(structure.room(bundle, value), self._sizes[bundle]) - staying
        some = room > 0
        bundle, value, room, row = bundle[some], value[some], room[some], row[some]
        class_ = structure.class_[bundle]
        added = source.network.add(
            self._attach[bundle, self._pool[value]],
            source.leaf[class_, value],
            room,
            None,
            source.prices[:, class_, value],
        )
        self._direct = (added, bundle, value, row)

    def _add_unplaced(self) -> None:
        source, structure = self._source, self._structure
        bundle = np.flatnonzero(~self._required() & (structure.cluster < 0))
        costs = source.prices[:, structure.class_[bundle], self._values]
        sinks = np.full(len(bundle), source.sink, np.int64)
        source.network.add(source.roots + bundle, sinks, self._sizes[bundle], None, costs)

    def _required(self) -> Mask:
        """(bundles,) whether its rows must have a value."""
        required: Mask = self._source.assignment.required[self._structure.representative][
            self._structure.class_
        ]
        return required

    def _add_clusters(self) -> None:
        """Bundles counted together: their units come out of one root, and pass the count before they part.

        Which units have no value is decided before a bundle is known, so what its rows pay for that is a constant
        and taken off again for those that have one.
        """
        source, structure = self._source, self._structure
        if not structure.over:
            return
        (level,) = structure.over
        network, roots = source.network, self.cluster_roots
        inner = source.take(structure.clusters)
        bundle = np.flatnonzero(structure.cluster >= 0)
        cluster, required = structure.cluster[bundle].astype(np.int64), self._required()[bundle]
        sizes = self._sizes[bundle]
        free = np.bincount(cluster, np.where(required, 0, sizes), structure.clusters).astype(np.int64)
        every = np.arange(structure.clusters)
        total = np.bincount(cluster, sizes, structure.clusters).astype(np.int64)
        # All values are in one bucket; without any usable value there is none.
        used = level.count.bucket[level.count.bucket >= 0]
        bucket = np.full(structure.clusters, int(used[0]) if len(used) else NONE)
        lower, upper = level.limits(every, bucket)
        upper = np.minimum(upper, total)
        self.possible = self.possible and not bool((lower > upper).any())
        # Where their number is settled, only so many units set out at all.
        settled = (lower == upper) & (total - free <= lower)
        self.cluster_units = np.where(settled, lower, total)
        network.add(
            roots + every, np.full(structure.clusters, source.sink, np.int64), np.where(settled, 0, free)
        )
        link, low, high, costs, beyond = links(lower, upper, self._marginal(level, every, bucket))
        added = network.add(roots + link, inner + link, high, low, costs)
        self.beyond.append(np.arange(added.start, added.stop)[beyond])
        self.counted_arcs.append(CountedArcs(level.count, level.group[link], bucket[link], added.start))
        unplaced = np.where(required, 0, source.prices[:, structure.class_[bundle], self._values])
        self.constant += unplaced @ sizes
        low = np.where(required, sizes, 0)
        network.add(inner + cluster, source.roots + bundle, sizes, low, -unplaced)

    # ---- what flows can do --------------------------------------------------------------------------

    def possible_values(self, heads: Amounts, least: Amounts, most: Amounts) -> tuple[Indices, Mask]:
        """Classes of rows (R,), and (C, V) false where no cheapest flow gives such a row that value.

        ``least`` and ``most`` is what these flows have on each arc.
        """
        structure, stays = self._structure, self._stays
        possible = np.zeros((structure.bundles, self._values), np.bool_)
        if self._direct is not None:
            arcs, bundle, value, _ = self._direct
            possible[bundle[most[arcs] > 0], value[most[arcs] > 0]] = True
        if self._from_pool is not None:
            into = np.zeros((structure.bundles, self._pools), np.bool_)
            first = int(self._pool_node.flat[0])
            for arcs, bundle, chosen in self._into_pool:
                used = chosen[most[arcs][chosen] > 0]
                into[bundle[used], (heads[arcs][used] - first) % self._pools] = True
            arcs, pool, value = self._from_pool
            out = np.zeros((len(self._allowed), self._values), np.bool_)
            used = np.flatnonzero(most[arcs] > 0)
            out[(pool[used] - first) // self._pools, value[used]] = True
            possible |= into[:, self._pool] & out[structure.class_]
        # An arc of rows that stay, where staying saves nothing, may carry any other row of the bundle as well.
        alike = ~(stays.saving != 0).any(axis=0) & self._allowed[structure.class_[stays.bundle], stays.value]
        used = alike & (most[self._stay_arcs] > 0)
        possible[stays.bundle[used], stays.value[used]] = True
        rows, bundle, value = self._standing()
        _, pair = np.unique(bundle * self._values + value, return_inverse=True)
        pairs = int(pair.max(initial=-1)) + 1
        # Of the rows of a bundle that are at one value, any may be among those that stay there.
        order = np.argsort(rows)
        of_arc = pair[order[np.searchsorted(rows, stays.rows[stays.start], sorter=order)]]
        may, stay = np.zeros(pairs, np.bool_), np.zeros(pairs, np.int64)
        may[of_arc[most[self._stay_arcs] > 0]] = True
        np.add.at(stay, of_arc, np.where(alike, 0, least[self._stay_arcs]))
        must = (stay >= np.bincount(pair, minlength=pairs))[pair]
        # Besides the values of its bundle a row may have today's, or that one only.
        patterns, nothing = alike_rows(possible)
        pattern, home = patterns[structure.bundle], np.full(structure.bundle.shape, NONE, np.int64)
        pattern[rows[must]] = nothing
        home[rows[may[pair]]] = value[may[pair]]
        row_class, number = joint_ranks([pattern, home], len(home))
        example = firsts(row_class, number)
        allowed = possible[structure.bundle[example]] & (pattern[example] != nothing)[:, None]
        at_home = np.flatnonzero(home[example] >= 0)
        allowed[at_home, home[example[at_home]]] = True
        return row_class.astype(np.int32), allowed

    # ---- what a flow says ---------------------------------------------------------------------------

    def units(self, flow: Amounts, heads: Amounts) -> Units:
        """Which units a flow moves where."""
        own_bundle, own_value, own_row = [np.zeros(0, np.int64)] * 3
        if self._direct is not None:
            arcs, bundle, value, row = self._direct
            own_bundle, own_value, own_row = (np.repeat(each, flow[arcs]) for each in (bundle, value, row))
        into_bundle, into_pool = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        token_pool, token_value = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self._from_pool is not None:
            for arcs, bundle, chosen in self._into_pool:
                number = flow[arcs][chosen]
                into_bundle.append(np.repeat(bundle[chosen], number))
                into_pool.append(np.repeat(heads[arcs][chosen], number))
            arcs, pool, value = self._from_pool
            token_pool, token_value = np.repeat(pool, flow[arcs]), np.repeat(value, flow[arcs])
        return Units(
            self._stays,
            flow[self._stay_arcs],
            own_bundle,
            own_value,
            own_row,
            np.concatenate(into_bundle),
            np.concatenate(into_pool),
            token_pool,
            token_value,
        )
