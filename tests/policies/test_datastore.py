"""The datastore pack: a test for each rule, and for how the rules play together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

import mgmt
from datastore_adapter.interface import layout_servers_wanted
from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.language.policy_packs import load_pack, pack_names
from mgmt.solution import Solution, SolveStatus
from tests.budget import budgeted

PACK = load_pack("datastore")


@cache
def compiled() -> Model:
    """The pack, compiled once for the states of all tests."""
    database = mgmt.Database()
    database.load_schema(PACK.schema)
    return Model.build(database, PACK)


class Cluster:
    """A state database of the pack with a compiled model, and short ways to change and read it."""

    def __init__(
        self, hosts: int = 6, racks: int = 3, segments: int = 12, copies: int = 3, capacity: int = 10**12
    ) -> None:
        self.database = mgmt.Database()
        self.database.load_schema(PACK.schema)
        for number in range(hosts):
            self.add_host(f"n{number + 1}", f"rack-{number % racks + 1}", capacity=capacity)
        self.database.insert(
            "segment",
            [{"key": f"s{n:02}", "bytes": 1000, "replication_factor": copies} for n in range(segments)],
        )
        self.database.insert(
            "replica",
            [
                {"segment": f"s{n:02}", "slot": slot, "host": None, "is_primary": False}
                for n in range(segments)
                for slot in range(copies)
            ],
        )
        self.model = compiled().revised(database=self.database)

    def add_host(self, name: str, rack: str, capacity: int = 10**12) -> None:
        flags = dict.fromkeys(("drained", "layout_server", "sequencer"), False)
        row = {"name": name, "rack": rack, "zone": "z", "capacity_bytes": capacity, "alive": True, **flags}
        self.database.insert("host", [row])

    def set(self, host: str, column: str, value: Any) -> None:
        self.database.execute(f"UPDATE host SET {column} = ? WHERE name = ?", (value, host))

    def solve(self) -> Solution:
        return self.model.solve(budget=30)

    def settle(self) -> Solution:
        """Solve, apply, and see that nothing is left to do."""
        solution = self.solve()
        assert solution.status is not SolveStatus.FEASIBLE
        self.database.apply(solution)
        again = self.solve()
        assert (again.status, again.deltas) == (SolveStatus.UNCHANGED, ())
        return solution

    def clash(self) -> set[str]:
        with pytest.raises(InfeasibleError) as caught:
            self.solve()
        assert caught.value.minimal
        return set(caught.value.constraints)

    def placement(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for segment, host in self.database.execute(
            "SELECT segment, host FROM replica ORDER BY segment, slot"
        ):
            found.setdefault(segment, []).append(host)
        return found

    def load(self) -> dict[str, int]:
        return dict(
            self.database.execute(
                "SELECT name, (SELECT count(*) FROM replica WHERE host = name) FROM host ORDER BY name"
            )
        )

    def primaries(self) -> dict[str, str]:
        return dict(self.database.execute("SELECT segment, host FROM replica WHERE is_primary"))

    def with_role(self, role: str) -> list[str]:
        return [
            name for (name,) in self.database.execute(f"SELECT name FROM host WHERE {role} ORDER BY name")
        ]

    def racks(self, hosts: Iterable[str]) -> list[str]:
        known = dict(self.database.execute("SELECT name, rack FROM host"))
        return [known[host] for host in hosts]


def moves(solution: Solution) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    return {d.primary_key: (d.old, d.new) for d in solution.deltas if d.column == "host"}


def after(solution: Solution) -> Mapping[str, int]:
    return {objective.name: objective.after for objective in solution.objectives}


@pytest.fixture
def settled() -> Cluster:
    cluster = Cluster()
    cluster.settle()
    return cluster


# ---- rules, one by one --------------------------------------------------------------------------------


def test_the_first_placement_follows_every_rule_and_is_even(settled: Cluster) -> None:
    for segment, hosts in settled.placement().items():
        assert None not in hosts
        assert len(hosts) == len(set(hosts)) == 3, segment
        assert sorted(settled.racks(hosts)) == ["rack-1", "rack-2", "rack-3"]
    assert set(settled.load().values()) == {6}
    assert set(Counter(settled.primaries().values()).values()) == {2}
    assert len(settled.primaries()) == 12
    assert sorted(Counter(settled.racks(settled.with_role("layout_server"))).values()) == [1, 2, 2]
    assert len(settled.with_role("sequencer")) == 1


def test_replication_factor() -> None:
    cluster = Cluster()
    cluster.database.execute("DELETE FROM replica WHERE segment = 's03' AND slot = 1")
    assert cluster.clash() == {"replication_factor"}
    cluster.database.execute("DELETE FROM replica WHERE segment = 's03'")
    with pytest.raises(InfeasibleError) as caught:
        cluster.solve()
    (member,) = caught.value.core
    assert [row["key"] for row in member.rows] == ["s03"], "a segment without any row is missed too"


def test_replicas_on_distinct_hosts() -> None:
    cluster = Cluster(hosts=2, racks=2, segments=2)
    assert cluster.clash() == {"replicas_on_distinct_hosts"}


def test_one_replica_per_rack_is_hard_and_named(settled: Cluster) -> None:
    for host in ("n1", "n4"):
        settled.set(host, "drained", True)
    assert settled.clash() == {"drained_hosts_are_empty", "one_replica_per_rack"}


@pytest.mark.parametrize(("racks", "copies", "shares"), [(2, 3, [1, 2]), (1, 3, [3]), (3, 4, [1, 1, 2])])
def test_with_fewer_racks_than_copies_they_are_as_even_as_possible(
    racks: int, copies: int, shares: list[int]
) -> None:
    cluster = Cluster(hosts=6, racks=racks, segments=6, copies=copies)
    cluster.settle()
    for hosts in cluster.placement().values():
        assert len(set(hosts)) == copies
        assert sorted(Counter(cluster.racks(hosts)).values()) == shares


def test_racks_hold_even_shares() -> None:
    """Four copies in two racks: a rack with one host can not hold two of them, and three in the other are not even."""
    cluster = Cluster(hosts=5, racks=2, segments=2, copies=4)
    for host in ("n2", "n4"):
        cluster.set(host, "rack", "rack-1")
    cluster.add_host("n6", "rack-2")
    assert "replicas_on_distinct_hosts" in cluster.clash()
    cluster.add_host("n7", "rack-2")
    cluster.settle()
    for hosts in cluster.placement().values():
        assert sorted(Counter(cluster.racks(hosts)).values()) == [2, 2]


def test_zone_rules() -> None:
    cluster = Cluster(hosts=6, racks=6, segments=4)
    for host in ("n5", "n6"):
        cluster.set(host, "zone", "far")
    cluster.database.insert("zone_rule", [{"segment": "s01", "zone": "far", "least": 2, "most": 2}])
    cluster.database.insert("zone_rule", [{"segment": "s02", "zone": "far", "least": 0, "most": 0}])
    cluster.settle()
    zones = {
        segment: [host in {"n5", "n6"} for host in hosts] for segment, hosts in cluster.placement().items()
    }
    assert sum(zones["s01"]) == 2
    assert sum(zones["s02"]) == 0
    cluster.database.execute("UPDATE zone_rule SET least = 3, most = 3 WHERE segment = 's01'")
    assert "zone_rules" in cluster.clash()


def distributions(copies: int, racks: int) -> list[tuple[int, ...]]:
    """All ways to divide copies among racks."""
    if racks == 1:
        return [(copies,)]
    return [
        (first, *rest) for first in range(copies + 1) for rest in distributions(copies - first, racks - 1)
    ]


@pytest.mark.parametrize("seed", budgeted(range(12), 2, in_test=4))
def test_racks_share_what_zones_hold_as_evenly_as_their_rules_let_them(seed: int) -> None:
    """Compared with all distributions over racks that the rules for zones allow."""
    random = Random(seed)
    zones = [f"z{random.randrange(3)}" for _ in range(random.randint(2, 4))]  # of each rack
    copies = random.randint(2, 4)
    cluster = Cluster(hosts=len(zones) * copies, racks=len(zones), segments=1, copies=copies)
    rules = {}
    for zone in sorted(set(zones)):
        if random.random() < 0.7:
            least = random.randint(0, copies)
            rules[zone] = (least, random.randint(least, copies))
    for number in range(len(zones) * copies):
        cluster.set(f"n{number + 1}", "zone", zones[number % len(zones)])
    cluster.database.insert(
        "zone_rule",
        [{"segment": "s00", "zone": zone, "least": low, "most": high} for zone, (low, high) in rules.items()],
    )
    allowed = [
        counts
        for counts in distributions(copies, len(zones))
        if all(
            low <= sum(count for count, of in zip(counts, zones, strict=True) if of == zone) <= high
            for zone, (low, high) in rules.items()
        )
    ]
    if not allowed:
        assert cluster.clash() & {"zone_rules", "replication_factor"}
        return
    cluster.settle()
    found = Counter(cluster.racks(cluster.placement()["s00"]))
    assert tuple(found[f"rack-{number + 1}"] for number in range(len(zones))) in allowed
    assert max(found.values()) == min(map(max, allowed))


def test_label_rules() -> None:
    cluster = Cluster(hosts=6, racks=6, segments=4)
    rules = [("s01", 2, 2), ("s02", 0, 0)]
    cluster.database.insert(
        "label_rule",
        [{"segment": s, "key": "disk", "value": "ssd", "least": low, "most": high} for s, low, high in rules],
    )
    assert cluster.clash() == {"labels_have_hosts"}
    cluster.database.insert(
        "host_label",
        [{"host": host, "key": "disk", "value": "ssd"} for host in ("n5", "n6")]
        + [{"host": host, "key": "disk", "value": "hdd"} for host in ("n1", "n2")],
    )
    cluster.settle()
    ssds = {segment: len({"n5", "n6"} & set(hosts)) for segment, hosts in cluster.placement().items()}
    assert (ssds["s01"], ssds["s02"]) == (2, 0)
    cluster.set("n6", "alive", False)
    assert cluster.clash() == {"label_rules", "replicas_on_live_hosts", "replicas_on_distinct_hosts"}


def test_a_rule_for_a_zone_without_hosts_is_not_read_over(settled: Cluster) -> None:
    settled.database.insert("zone_rule", [{"segment": "s01", "zone": "moon", "least": 1, "most": 3}])
    assert settled.clash() == {"zones_have_hosts"}
    settled.database.execute("UPDATE zone_rule SET least = 0")
    assert settled.solve().status is SolveStatus.UNCHANGED


@pytest.mark.parametrize(("zones", "most"), [(2, 2), (3, 1)])
def test_zones_share_copies(zones: int, most: int) -> None:
    """Two racks in three are of one zone; of each segment a copy is elsewhere all the same."""
    cluster = Cluster(hosts=12, racks=6, segments=6)
    for number in range(12):
        cluster.set(
            f"n{number + 1}",
            "zone",
            f"z{min(number % 6 // 2, zones - 1)}" if zones == 3 else f"z{number % 6 // 4}",
        )
    cluster.settle()
    of = dict(cluster.database.execute("SELECT name, zone FROM host"))
    for hosts in cluster.placement().values():
        assert max(Counter(of[host] for host in hosts).values()) == most


def test_load_is_balanced_without_slots() -> None:
    cluster = Cluster(hosts=4, racks=4, segments=8)
    cluster.database.execute("UPDATE segment SET load = 1000 WHERE key < 's04'")
    solution = cluster.settle()
    assert after(solution)["balance_load"] == 0
    leads = Counter(host for segment, host in cluster.primaries().items() if segment < "s04")
    assert max(leads.values()) == 1


def test_pinned_copies_stay(settled: Cluster) -> None:
    (slot,) = settled.database.execute(
        "SELECT slot FROM replica WHERE segment = 's03' AND host IN ('n1', 'n4')"
    )[0]
    settled.database.insert("pin", [{"segment": "s03", "slot": slot, "host": "n4"}])
    settled.settle()
    assert settled.placement()["s03"][slot] == "n4"
    settled.set("n4", "drained", True)
    assert settled.clash() == {"pinned_copies", "drained_hosts_are_empty"}


def test_a_host_in_maintenance_keeps_its_copies_and_gets_none(settled: Cluster) -> None:
    before = settled.placement()
    settled.database.insert("maintenance", [{"host": "n1"}])
    solution = settled.settle()
    assert moves(solution) == {}, "what is there stays"
    assert "n1" not in settled.primaries().values()
    assert after(solution)["primaries_leave_maintenance"] == 0
    settled.set("n4", "alive", False)
    assert "no_new_copies_in_maintenance" in settled.clash(), "the rack has no other host"
    settled.add_host("n7", "rack-1")
    settled.settle()
    assert settled.load()["n1"] == sum(hosts.count("n1") for hosts in before.values())


def test_larger_hosts_hold_more() -> None:
    cluster = Cluster(hosts=6, racks=3, segments=24, capacity=10**12)
    for host in ("n4", "n5", "n6"):
        cluster.set(host, "capacity_bytes", 2 * 10**12)
    cluster.settle()
    assert [cluster.load()[host] for host in ("n1", "n2", "n3")] == [8, 8, 8]
    assert [cluster.load()[host] for host in ("n4", "n5", "n6")] == [16, 16, 16]
    counts = Counter(cluster.primaries().values())
    assert all(counts[host] in {2, 3} for host in ("n1", "n2", "n3"))
    assert all(counts[host] in {5, 6} for host in ("n4", "n5", "n6"))


def test_hot_segments_are_apart() -> None:
    cluster = Cluster(hosts=9, racks=3, segments=9)
    cluster.database.insert("hot_segment", [{"segment": f"s{n:02}"} for n in (0, 3, 6)])
    cluster.settle()
    hot = [
        host
        for segment, hosts in cluster.placement().items()
        if segment in {"s00", "s03", "s06"}
        for host in hosts
    ]
    assert set(Counter(hot).values()) == {1}, "nine hot copies on nine hosts"


def test_moves_that_a_rule_requires_are_told_apart(settled: Cluster) -> None:
    settled.add_host("n7", "rack-1")
    settled.set("n2", "drained", True)
    solution = settled.solve()
    pack = "\n".join(text.text for text in PACK.policies)
    view = next(part for part in pack.split(";") if "CREATE VIEW required_move" in part)
    usable = next(part for part in pack.split(";") if "CREATE VIEW usable_host" in part)
    for statement in (usable, view):
        settled.database.execute(statement[statement.index("CREATE VIEW") :])
    required = set(settled.database.execute("SELECT segment, slot FROM required_move"))
    assert len(required) == 6
    assert required <= set(moves(solution))
    optional = set(moves(solution)) - required
    targets = Counter(new for _, new in moves(solution).values())
    assert targets == {"n5": 6, "n7": len(optional)}, "the others are for balance alone"


def test_host_capacity_in_bytes() -> None:
    cluster = Cluster(hosts=6, racks=3, segments=4, capacity=3000)
    cluster.set("n1", "capacity_bytes", 1000)
    cluster.settle()
    assert cluster.load()["n1"] == 1
    assert cluster.load()["n4"] == 3
    cluster.set("n1", "capacity_bytes", 0)
    assert "host_capacity" in cluster.clash()


def test_replicas_only_on_live_hosts(settled: Cluster) -> None:
    for host in ("n1", "n4", "n3", "n6"):
        settled.set(host, "alive", False)
    assert "replicas_on_live_hosts" in settled.clash(), "three copies and two hosts"


def test_a_lost_rack_is_made_up_for_by_the_others_and_spread_to_again_when_it_is_back(
    settled: Cluster,
) -> None:
    """Its hosts are known as long as copies name them: that must not keep the lost copies from being made."""
    for host in ("n1", "n4"):
        settled.set(host, "alive", False)
    solution = settled.settle()
    assert {old for old, _ in moves(solution).values()} == {"n1", "n4"}
    assert {len(set(hosts)) for hosts in settled.placement().values()} == {3}
    for host in ("n1", "n4"):
        settled.set(host, "alive", True)
    settled.settle()
    racks = {"n1": 1, "n2": 2, "n3": 3, "n4": 1, "n5": 2, "n6": 3}
    assert all({racks[host] for host in hosts} == {1, 2, 3} for hosts in settled.placement().values())


def test_drained_hosts_are_emptied(settled: Cluster) -> None:
    settled.set("n2", "drained", True)
    solution = settled.settle()
    assert settled.load()["n2"] == 0
    assert len(moves(solution)) == 6
    assert {old for old, _ in moves(solution).values()} == {"n2"}
    assert "n2" not in [*settled.with_role("layout_server"), *settled.with_role("sequencer")]


def test_draining_too_many_hosts_is_refused_with_the_rules_that_clash(settled: Cluster) -> None:
    for host in ("n1", "n4"):
        settled.set(host, "drained", True)
    assert settled.clash() == {"drained_hosts_are_empty", "one_replica_per_rack"}


def test_one_primary_per_segment_and_never_on_a_dead_host(settled: Cluster) -> None:
    settled.set("n3", "alive", False)
    settled.settle()
    assert len(settled.primaries()) == 12
    assert "n3" not in settled.primaries().values()
    counts = Counter(settled.primaries().values())
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.slow("the pack is solved at each step")
def test_layout_servers_are_as_many_as_the_interface_says_in_as_many_racks_as_there_are() -> None:
    """Grown by a host at a time, and shrunk again; the hosts that hold the layout keep it as long as they may."""
    cluster = Cluster(hosts=0, racks=3, segments=0)
    grown = [f"n{number + 1}" for number in range(7)]
    for live, host in enumerate(grown, 1):
        before = set(cluster.with_role("layout_server"))
        cluster.add_host(host, f"rack-{live % 3}")
        cluster.settle()
        assert before <= set(cluster.with_role("layout_server"))
        check_layout_servers(cluster, live)
    for left, host in enumerate(reversed(grown[1:]), 1):
        cluster.set(host, "drained" if left % 2 else "alive", left % 2)
        cluster.settle()
        check_layout_servers(cluster, len(grown) - left)


def check_layout_servers(cluster: Cluster, usable: int) -> None:
    servers = cluster.with_role("layout_server")
    assert len(servers) == layout_servers_wanted(usable)
    if usable >= 3:
        assert max(Counter(cluster.racks(servers)).values()) <= len(servers) // 2, "no rack holds a majority"


def test_layout_servers_are_three_or_all_there_are() -> None:
    cluster = Cluster(hosts=2, racks=2, segments=2, copies=2)
    cluster.settle()
    assert len(cluster.with_role("layout_server")) == 2
    cluster.add_host("n3", "rack-1")
    cluster.add_host("n4", "rack-3")
    cluster.settle()
    servers = cluster.with_role("layout_server")
    assert len(servers) == 3
    assert len(set(cluster.racks(servers))) == 3, "in distinct racks where that is possible"


def test_roles_leave_dead_hosts_and_stay_elsewhere(settled: Cluster) -> None:
    servers = settled.with_role("layout_server")
    (sequencer,) = settled.with_role("sequencer")
    settled.set(sequencer, "alive", False)
    settled.settle()
    (successor,) = settled.with_role("sequencer")
    assert successor != sequencer
    kept = set(servers) - {sequencer}
    assert kept <= set(settled.with_role("layout_server"))
    assert len(settled.with_role("layout_server")) == 5


# ---- how they play together ---------------------------------------------------------------------------


def test_a_cluster_in_order_is_not_touched(settled: Cluster) -> None:
    solution = settled.solve()
    assert (solution.status, solution.deltas) == (SolveStatus.UNCHANGED, ())
    assert solution.statistics["solver_calls"] == 0


@pytest.mark.parametrize("host", ["n1", "n2", "n3", "n4", "n5", "n6"])
def test_when_a_host_dies_exactly_the_lost_replicas_move(settled: Cluster, host: str) -> None:
    lost = {
        (segment, slot)
        for segment, hosts in settled.placement().items()
        for slot, h in enumerate(hosts)
        if h == host
    }
    settled.set(host, "alive", False)
    solution = settled.settle()
    assert set(moves(solution)) == lost
    assert after(solution)["fewest_moves"] == len(lost) == 6


def test_it_is_the_same_when_the_lost_copies_no_longer_name_their_host(settled: Cluster) -> None:
    lost = set(settled.database.execute("SELECT segment, slot FROM replica WHERE host = 'n5'"))
    settled.database.execute("UPDATE replica SET host = NULL, is_primary = FALSE WHERE host = 'n5'")
    settled.set("n5", "alive", False)
    assert set(moves(settled.settle())) == lost


def test_a_host_that_comes_back_empty_gets_its_share(settled: Cluster) -> None:
    settled.set("n1", "alive", False)
    settled.settle()
    settled.set("n1", "alive", True)
    solution = settled.settle()
    assert len(moves(solution)) == 6
    assert set(settled.load().values()) == {6}


def test_a_seventh_host_gets_its_share_and_no_more_moves_than_that(settled: Cluster) -> None:
    settled.add_host("n7", "rack-1")
    solution = settled.settle()
    assert {new for _, new in moves(solution).values()} == {"n7"}
    assert len(moves(solution)) == settled.load()["n7"] >= 4


def test_within_a_tenth_of_the_even_share_nothing_moves_for_balance() -> None:
    cluster = Cluster(hosts=6, racks=3, segments=22)
    cluster.settle()
    assert set(cluster.load().values()) == {11}
    (segment, slot) = cluster.database.execute(
        "SELECT segment, slot FROM replica r WHERE host = 'n1' AND NOT is_primary ORDER BY 1, 2 LIMIT 1"
    )[0]
    cluster.database.execute("UPDATE replica SET host = 'n4' WHERE segment = ? AND slot = ?", (segment, slot))
    assert moves(cluster.solve()) == {}, "10 and 12 are near enough to 11"


def test_a_dead_rack_of_four_is_spread_over_the_others() -> None:
    cluster = Cluster(hosts=8, racks=4, segments=12)
    cluster.settle()
    lost = sum(count for host, count in cluster.load().items() if host in {"n1", "n5"})
    for host in ("n1", "n5"):
        cluster.set(host, "alive", False)
    solution = cluster.settle()
    assert len(moves(solution)) == lost, "as few as were lost"
    assert all(len(set(cluster.racks(hosts))) == 3 for hosts in cluster.placement().values())


def test_primaries_move_off_a_fresh_copy_only_for_balance(settled: Cluster) -> None:
    settled.set("n1", "alive", False)
    solution = settled.settle()
    fresh = set(moves(solution))
    primaries = set(settled.database.execute("SELECT segment, slot FROM replica WHERE is_primary"))
    assert not fresh & primaries
    assert after(solution)["balance_primaries"] == 0


def test_an_empty_cluster_and_one_without_data() -> None:
    assert Cluster(hosts=0, segments=0).solve().deltas == ()
    cluster = Cluster(hosts=3, racks=3, segments=0)
    cluster.settle()
    assert len(cluster.with_role("layout_server")) == 3


def test_segments_without_any_host_are_an_error_not_a_plan() -> None:
    with pytest.raises(mgmt.EmptyDomainError):
        Cluster(hosts=0, segments=2).solve()


@pytest.mark.parametrize("seed", budgeted(range(8), 2, in_test=2))
def test_random_lives_keep_the_rules(seed: int) -> None:
    """Hosts die, return, drain and join; whenever a placement exists it is found, kept, and stable."""
    random = Random(seed)
    cluster = Cluster(
        hosts=random.randint(4, 8),
        racks=random.randint(3, 4),
        segments=random.randint(1, 9),
        copies=random.randint(1, 3),
    )
    names = [name for (name,) in cluster.database.execute("SELECT name FROM host")]
    for _ in range(5):
        host, column = random.choice(names), random.choice(["alive", "alive", "drained"])
        cluster.set(host, column, random.random() < 0.5)
        usable = cluster.database.execute("SELECT name, rack FROM host WHERE alive AND NOT drained")
        copies = cluster.database.execute("SELECT max(replication_factor) FROM segment")[0][0]
        if len({rack for _, rack in usable}) < copies:
            # With two hosts for three copies either of these is enough for a minimal core.
            either = {"one_replica_per_rack", "replicas_on_distinct_hosts"}
            assert cluster.clash() & either or not usable
            cluster.set(host, "alive", True)
            cluster.set(host, "drained", False)
            continue
        cluster.settle()
        good = {name for name, _ in usable}
        for hosts in cluster.placement().values():
            assert set(hosts) <= good
            assert len(set(cluster.racks(hosts))) == len(hosts)
        assert set(cluster.with_role("layout_server")) | set(cluster.with_role("sequencer")) <= good


# ---- the pack itself ----------------------------------------------------------------------------------


def test_packs_are_found_by_name() -> None:
    assert "datastore" in pack_names()
    assert PACK.policies[0].name.startswith("datastore/")
    with pytest.raises(mgmt.PolicyError, match=r"installed: .*datastore"):
        load_pack("no such pack")


def test_every_rule_is_explained_in_the_readme_and_short() -> None:
    for name in compiled().constraints:
        assert f"`{name}`" in PACK.readme, name
    for text in PACK.policies:
        for statement in text.text.split(";"):
            assert len(statement.strip().splitlines()) < 20


def test_a_typo_in_the_pack_has_line_and_column() -> None:
    text = PACK.policies[0].text.replace("CHECK count(*) <= rack_share", "CHECK cuont(*) <= rack_share")
    database = mgmt.Database()
    database.load_schema(PACK.schema)
    line = next(n for n, content in enumerate(text.splitlines(), 1) if "cuont" in content)
    with pytest.raises(mgmt.PolicyError) as caught:
        Model.build(database, mgmt.SourceText("mine.sql", text))
    assert str(caught.value).startswith(f"mine.sql:{line}:7: ")
