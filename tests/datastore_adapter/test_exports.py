"""Exports: every placement comes out whole, in the format that the other system documents, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.exports import (
    CopiesError,
    ExportError,
    HostTagError,
    KeyType,
    NothingPlacedError,
    SegmentNameError,
    placed_segments,
    reassignment,
    rule_bundles,
    zone_configurations,
)
from tests.datastore_adapter.exported_formats import (
    CockroachStatement,
    WrongDocument,
    kafka_partitions,
    pd_rules,
)

Hosts = Mapping[str, Sequence[str]]
Tags = Mapping[str, Mapping[str, str]]

TAGS = {f"n{number}": {"broker": str(number), "rack": f"r{number % 3}", "zone": "z"} for number in range(6)}
ANYTHING = st.text(max_size=12) | st.text(alphabet="\"'\\;,=.@ \n\x00-{}[]é漢😀\u202e\ud800", max_size=12)


@dataclass(frozen=True)
class Random:
    segments: dict[str, tuple[str, ...]]
    tags: dict[str, dict[str, str]]


@st.composite
def placements(draw: st.DrawFn, copies: tuple[int, ...] = (1, 2, 3, 4, 5)) -> Random:
    """Segments ``s0``, ``s1`` ... of any number of copies, in any order, on hosts in three racks and two zones."""
    hosts = [f"n{number}" for number in range(draw(st.integers(5, 8)))]
    brokers = draw(st.lists(st.integers(0, 2**31 - 1), min_size=8, max_size=8, unique=True))
    tags = {
        host: {
            "broker": str(broker),
            "rack": f"r{draw(st.integers(1, 3))}",
            "zone": draw(st.sampled_from("ab")),
        }
        for host, broker in zip(hosts, brokers, strict=False)
    }
    chains = draw(
        st.lists(st.tuples(st.permutations(hosts), st.sampled_from(copies)), min_size=1, max_size=6)
    )
    return Random({f"s{n}": tuple(chain[:most]) for n, (chain, most) in enumerate(chains)}, tags)


def kafka(segments: Hosts, tags: Tags = TAGS, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    return reassignment(placed_segments(segments, tags, names))


def cockroachdb(
    segments: Hosts,
    tags: Tags = TAGS,
    names: Mapping[str, str] | None = None,
    tiers: Sequence[str] = ("rack",),
) -> tuple[str, ...]:
    return zone_configurations(placed_segments(segments, tags, names), tiers)


def pd(
    segments: Hosts, tags: Tags = TAGS, names: Mapping[str, str] | None = None, **more: Any
) -> list[dict[str, Any]]:
    return rule_bundles(placed_segments(segments, tags, names), **more)


def encoded(key: bytes) -> str:
    """A key as TiKV orders it: eight bytes at a time, each with what is left of 255 after its padding."""
    chunks = [key[start : start + 8] for start in range(0, len(key) + 1, 8)]
    return b"".join(chunk.ljust(8, b"\0") + bytes([255 - (8 - len(chunk))]) for chunk in chunks).hex()


def key_ranges(count: int) -> dict[str, str]:
    """Names for ``s0`` ... that divide all keys among them."""
    bounds = ["", *(encoded(f"t{number:03}".encode()) for number in range(1, count)), ""]
    return {f"s{number}": f"{bounds[number]}..{bounds[number + 1]}" for number in range(count)}


def refusal(export: Callable[[], object], expected: type[ExportError]) -> str | None:
    """In one line, why it exports nothing; None if it does."""
    try:
        export()
    except expected as error:
        text = str(error)
        return text if text.isprintable() else pytest.fail(f"not one line: {text!r}")
    return None


class TestKafka:
    @given(placements())
    def test_each_segment_is_one_partition_with_its_brokers_in_order(self, random: Random) -> None:
        names = {key: f"orders.v1-{key[1:]}" for key in random.segments}
        found = kafka_partitions(kafka(random.segments, random.tags, names))
        assert found == {
            ("orders.v1", int(key[1:])): [(int(random.tags[host]["broker"]), "any") for host in hosts]
            for key, hosts in random.segments.items()
        }

    @given(ANYTHING)
    def test_a_hostile_name_is_refused_or_right(self, name: str) -> None:
        if refusal(lambda: kafka({name: ["n1"]}), SegmentNameError):
            return
        ((topic, partition),) = kafka_partitions(kafka({name: ["n1"]}))
        assert name.rpartition("-")[0] == topic
        assert int(name.rpartition("-")[2]) == partition

    def test_log_dirs_are_there_when_a_host_has_one(self) -> None:
        tags = {**TAGS, "n2": {"broker": "2", "log_dir": "/data/b"}}
        found = kafka_partitions(kafka({"a-b-0": ["n1", "n2"], "a-b-1": ["n3"]}, tags))
        assert found == {("a-b", 0): [(1, "any"), (2, "/data/b")], ("a-b", 1): [(3, "any")]}
        assert "log_dirs" not in kafka({"a-0": ["n1"]})["partitions"][0]

    @pytest.mark.parametrize(
        "name", ["", "s00", "-1", "..-1", "t-2147483648", "t-٣", "t 1-0", "t" * 250 + "-0"]
    )
    def test_what_is_no_partition_is_refused(self, name: str) -> None:
        with pytest.raises(SegmentNameError, match=r"TOPIC-PARTITION.*--names"):
            kafka({name: ["n1"]})

    def test_a_partition_comes_once(self) -> None:
        with pytest.raises(SegmentNameError, match="so is another"):
            kafka({"t-1": ["n1"], "t-01": ["n2"]})

    @pytest.mark.parametrize(
        ("tags", "words"),
        [
            ({}, "no tag 'broker'"),
            ({"broker": ""}, "no tag 'broker'"),
            ({"broker": "-1"}, "is '-1'"),
            ({"broker": "1.5"}, "is '1.5'"),
            ({"broker": "2147483648"}, "2147483648"),
            ({"broker": "2"}, "'n1' and 'n2' both have broker id 2"),
            ({"broker": "1", "log_dir": "data"}, "absolute path"),
        ],
    )
    def test_a_host_that_is_no_broker_is_refused(self, tags: dict[str, str], words: str) -> None:
        with pytest.raises(HostTagError, match=words):
            kafka({"t-0": ["n1", "n2"]}, {**TAGS, "n1": tags})


class TestCockroachDB:
    @given(placements((1, 3, 4, 5)), st.sampled_from([("rack",), ("zone", "rack"), ("host",)]))
    def test_each_segment_has_its_copies_counted_by_locality(
        self, random: Random, tiers: tuple[str, ...]
    ) -> None:
        statements = [
            CockroachStatement(text) for text in cockroachdb(random.segments, random.tags, tiers=tiers)
        ]
        assert [statement.target for statement in statements] == [("TABLE", key) for key in random.segments]
        for statement, hosts in zip(statements, random.segments.values(), strict=True):
            places = [
                [f"+{tier}={({'host': host} | random.tags[host])[tier]}" for tier in tiers] for host in hosts
            ]
            expected = Counter(",".join(place) for place in places)
            preferred = [place for number, place in enumerate(places) if place not in places[:number]]
            assert statement.variables == {
                "num_replicas": len(hosts),
                "constraints": dict(expected),
                "lease_preferences": preferred,
            }

    @given(st.lists(ANYTHING.filter(bool), min_size=1, max_size=3))
    def test_a_hostile_name_in_double_quotes_stays_what_it_is(self, parts: list[str]) -> None:
        name = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
        refused = refusal(lambda: cockroachdb({name: ["n1"]}), SegmentNameError)
        assert bool(refused) == (not name.isprintable())
        if not refused:
            (text,) = cockroachdb({name: ["n1"]})
            assert CockroachStatement(text).target == ("TABLE", *parts)

    @given(ANYTHING)
    def test_a_hostile_bare_name_is_refused_or_right(self, name: str) -> None:
        if not refusal(lambda: cockroachdb({name: ["n1"]}), SegmentNameError):
            (text,) = cockroachdb({name: ["n1"]})
            CockroachStatement(text)

    @given(ANYTHING)
    def test_a_hostile_rack_is_refused_or_stays_what_it_is(self, rack: str) -> None:
        refused = refusal(lambda: cockroachdb({"t": ["n1"]}, {"n1": {"rack": rack}}), HostTagError)
        assert bool(refused) == (not rack or not rack.isprintable() or "," in rack or "=" in rack)
        if not refused:
            (text,) = cockroachdb({"t": ["n1"]}, {"n1": {"rack": rack}})
            assert CockroachStatement(text).variables["constraints"] == {f"+rack={rack}": 1}

    @pytest.mark.parametrize(
        ("name", "target"),
        [
            ("orders", ("TABLE", "orders")),
            ("shop.public.Orders", ("TABLE", "shop", "public", "Orders")),
            ("TABLE shop.public.orders", ("TABLE", "shop", "public", "orders")),
            ("DATABASE shop", ("DATABASE", "shop")),
            ("RANGE default", ("RANGE", "default")),
            ("INDEX shop.orders@by_day", ("INDEX", "shop", "orders", "@", "by_day")),
            ('PARTITION "far west" OF TABLE a', ("PARTITION", "far west", "TABLE", "a")),
            ("PARTITION w OF INDEX a.b.c@d", ("PARTITION", "w", "INDEX", "a", "b", "c", "@", "d")),
            ('"TABLE"', ("TABLE", "TABLE")),
            ("o'brien;--", ("TABLE", "o'brien;--")),
        ],
    )
    def test_whatever_has_a_zone(self, name: str, target: tuple[str, ...]) -> None:
        (text,) = cockroachdb({"s0": ["n0"]}, names={"s0": name})
        assert CockroachStatement(text).target == target

    @pytest.mark.parametrize(
        "name",
        ["", " ", "a..b", "a.b.c.d", "a b", 'a"b', '""', "a@b", "RANGE", "RANGE mine", "TABLE", "DATABASE a.b",
         "INDEX a", "PARTITION p OF a", "PARTITION a.b OF TABLE c", "TABLE a; DROP TABLE b"],
    )  # fmt: skip
    def test_what_has_no_zone_is_refused(self, name: str) -> None:
        with pytest.raises(SegmentNameError, match="--names"):
            cockroachdb({name: ["n1"]})

    def test_a_target_comes_once(self) -> None:
        with pytest.raises(SegmentNameError, match="so is another"):
            cockroachdb({"a": ["n1"], "TABLE a": ["n2"]})

    def test_two_copies_are_refused_as_the_database_does(self) -> None:
        with pytest.raises(CopiesError, match="1, or 3 and more"):
            cockroachdb({"a": ["n1", "n2"]})


class TestPD:
    @given(placements(), st.sampled_from([("rack",), ("zone", "rack"), ("host",)]))
    def test_each_segment_has_a_leader_and_the_other_copies_by_place(
        self, random: Random, labels: tuple[str, ...]
    ) -> None:
        names = key_ranges(len(random.segments))
        bundles = pd(random.segments, random.tags, names, labels=labels)
        rules = pd_rules(bundles)
        assert bundles[0]["group_override"]
        assert 80 < bundles[0]["group_index"] < 120  # of TiDB's policies for partitions, and of TiFlash
        for key, hosts in random.segments.items():
            leader, *others = [rule for rule in rules if rule["id"].rpartition("-")[0] == key]
            places = [[({"host": host} | random.tags[host])[label] for label in labels] for host in hosts]
            assert (leader["role"], place_of(leader, labels)) == ("leader", places[0])
            assert {rule["role"] for rule in others} <= {"voter"}
            held = Counter({tuple(place_of(rule, labels)): rule["count"] for rule in others})
            assert held == Counter(map(tuple, places[1:]))
            start, end = (bytes.fromhex(part) for part in names[key].split(".."))
            for number, rule in enumerate([leader, *others]):
                assert (rule["start_key"], rule["end_key"], rule["index"]) == (start, end, number)
                assert rule["location_labels"] == [*labels, *({"host"} - set(labels))]

    @given(ANYTHING, ANYTHING)
    def test_hostile_names_are_refused_or_stay_what_they_are(self, key: str, rack: str) -> None:
        refused = refusal(lambda: pd({key: ["n1"]}, {"n1": {"rack": rack}}, {key: ".."}), ExportError)
        assert bool(refused) == (not key or not rack or not (key + rack).isprintable())
        if not refused:
            (rule,) = pd_rules(pd({key: ["n1"]}, {"n1": {"rack": rack}}, {key: ".."}))
            assert rule["id"] == f"{key}-0"
            assert place_of(rule, ("rack",)) == [rack]

    @given(ANYTHING)
    def test_a_hostile_range_is_refused_or_right(self, name: str) -> None:
        if not refusal(lambda: pd({name: ["n1"]}, key_type=KeyType.RAW), SegmentNameError):
            pd_rules(pd({name: ["n1"]}, key_type=KeyType.RAW))

    @pytest.mark.parametrize("name", ["", "7480", "7480..748", "t..u", "7481..7480", "7480..7480", "..\n"])
    def test_what_is_no_range_is_refused(self, name: str) -> None:
        with pytest.raises(SegmentNameError, match="--names"):
            pd({name: ["n1"]}, key_type=KeyType.RAW)

    @given(st.binary(min_size=1, max_size=20))
    def test_every_encoded_key_is_taken(self, key: bytes) -> None:
        (rule,) = pd_rules(pd({"s0": ["n1"]}, names={"s0": f"{encoded(key)}.."}))
        assert rule["start_key"].hex() == encoded(key)

    @pytest.mark.parametrize(
        "key",
        ["7480", "7480000000000000ff", "7480000000000000ff2d", "7400000000000000f6", "7400000000000001f8"],
    )
    def test_keys_that_are_not_encoded_are_refused_unless_they_need_not_be(self, key: str) -> None:
        for key_type in (KeyType.TABLE, KeyType.TXN):
            with pytest.raises(SegmentNameError, match="not encoded"):
                pd({f"{key}..": ["n1"]}, key_type=key_type)
        pd_rules(pd({f"{key}..": ["n1"]}, key_type=KeyType.RAW))

    def test_the_keys_of_the_documentation_are_taken(self) -> None:
        table = "7480000000000000ff2d00000000000000f8..7480000000000000ff2e00000000000000f8"
        index = "7480000000000000ff2e5f698000000000ff0000010000000000fa..6e00000000000000f8"
        (rule,) = pd_rules(pd({table: ["n1"]}))
        assert rule["start_key"].hex() == table.split("..")[0]
        with pytest.raises(SegmentNameError, match="ends before"):
            pd({index: ["n1"]})

    @pytest.mark.parametrize(
        ("one", "other"), [("..", "01.."), ("01..03", "02..04"), ("01..", "02..03"), ("01..02", "01..02")]
    )
    def test_a_key_belongs_to_one_segment(self, one: str, other: str) -> None:
        for names in ({"a": one, "b": other}, {"a": other, "b": one}):
            with pytest.raises(SegmentNameError, match="shares keys"):
                pd({"a": ["n1"], "b": ["n2"]}, names=names, key_type=KeyType.RAW)

    def test_a_group_has_a_name(self) -> None:
        with pytest.raises(ExportError, match="group"):
            pd({"..": ["n1"]}, group="")


def place_of(rule: dict[str, Any], labels: Sequence[str]) -> list[str]:
    """Where a rule wants its copies: one value for each of the labels."""
    constraints = rule["label_constraints"]
    assert [(constraint["key"], constraint["op"]) for constraint in constraints] == [
        (label, "in") for label in labels
    ]
    return [value for constraint in constraints for value in constraint["values"]]


@pytest.mark.parametrize("export", [kafka, cockroachdb, pd])
class TestEveryExport:
    def test_nothing_placed(self, export: Callable[..., object]) -> None:
        with pytest.raises(NothingPlacedError):
            export({})

    def test_a_segment_without_a_copy_or_with_two_on_a_host(self, export: Callable[..., object]) -> None:
        with pytest.raises(CopiesError, match="no copy"):
            export({"s0": []})
        with pytest.raises(CopiesError, match="two copies on host 'n1'"):
            export({"s0": ["n1", "n2", "n1"]})

    def test_a_name_for_no_segment(self, export: Callable[..., object]) -> None:
        with pytest.raises(SegmentNameError, match="'s9'"):
            export({"s0": ["n1"]}, names={"s9": "t-0"})

    def test_a_host_without_its_tag(self, export: Callable[..., object]) -> None:
        name = {kafka: "t-0", cockroachdb: "t", pd: ".."}[export]  # type: ignore[index]
        with pytest.raises(HostTagError, match=r"'n1' has no tag '(broker|rack)'.*rota tag"):
            export({"s0": ["n1"]}, {}, {"s0": name})


def changed(document: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy of the document with another value at the path; with ``...`` the field is left out."""
    copy = deepcopy(document)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


KAFKA = kafka({"t-0": ["n1", "n2", "n3"]}, {**TAGS, "n1": {"broker": "1", "log_dir": "/d"}})
PD = pd({"s0": ["n0", "n1", "n2"]}, names={"s0": "01..02"}, key_type=KeyType.RAW)


class TestTheChecks:
    """They find what is wrong: a document that a test above accepts is not accepted because anything is."""

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (["version"], 2),
            (["version"], ...),
            (["partitions"], []),
            (["partitions", 0, "topic"], "a b"),
            (["partitions", 0, "partition"], "0"),
            (["partitions", 0, "replicas"], [1, 1, 2]),
            (["partitions", 0, "replicas"], []),
            (["partitions", 0, "replicas", 0], "1"),
            (["partitions", 0, "log_dirs"], ["any"]),
            (["partitions", 0, "log_dirs", 0], "d"),
            (["partitions", 0, "leader"], 1),
            (["partitions"], KAFKA["partitions"] * 2),
        ],
    )
    def test_kafka(self, path: list[Any], value: Any) -> None:
        kafka_partitions(KAFKA)
        with pytest.raises(WrongDocument):
            kafka_partitions(changed(KAFKA, path, value))

    @pytest.mark.parametrize(
        ("right", "wrong"),
        [
            ('"t"', '"t""'),
            ('"t"', "t"),
            ('"t"', '"a"."b"."c"."d"'),
            ("TABLE", "VIEW"),
            ("= 3", "= 2"),
            ("'{\"", "'{"),
            ("+rack", "rack"),
            ("=r1", "=r1=x"),
            ('": 1', '": 3'),
            ('[["+rack=r1"]', "[[]"),
            (";", ""),
            (";", "; DROP TABLE t;"),
        ],
    )
    def test_cockroachdb(self, right: str, wrong: str) -> None:
        (text,) = cockroachdb({"t": ["n1", "n2", "n3"]})
        CockroachStatement(text)
        assert right in text
        with pytest.raises((WrongDocument, ValueError)):
            CockroachStatement(text.replace(right, wrong))

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ([0, "group_id"], "other"),
            ([0, "group_override"], ...),
            ([0, "rules", 0, "role"], "primary"),
            ([0, "rules", 0, "count"], 2),
            ([0, "rules", 1, "count"], 0),
            ([0, "rules", 0, "start_key"], "0"),
            ([0, "rules", 0, "end_key"], "00"),
            ([0, "rules", 1, "id"], "s0-0"),
            ([0, "rules", 0, "id"], ""),
            ([0, "rules", 0, "label_constraints", 0, "op"], "="),
            ([0, "rules", 0, "hosts"], []),
        ],
    )
    def test_pd(self, path: list[Any], value: Any) -> None:
        pd_rules(PD)
        with pytest.raises(WrongDocument):
            pd_rules(changed(PD, path, value))
