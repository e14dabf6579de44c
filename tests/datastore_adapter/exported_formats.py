"""The formats of Kafka, CockroachDB and PD as their documentation has them, as checks that know nothing of the exports.

Each returns what the document says, in plain values, and raises :class:`WrongDocument` where the format is not kept.

- Kafka: "Basic Kafka Operations", and what ``kafka-reassign-partitions`` refuses.
- CockroachDB: "CONFIGURE ZONE", "Configure Replication Zones", "Keywords & Identifiers", and what
  its validation refuses.
- PD: "Placement Rules" (fields of rules and of groups; ``rule-bundle``), and what PD refuses.
"""

from __future__ import annotations

import json
import re
from typing import Any


class WrongDocument(Exception):  # noqa: N818 - what the checks find
    pass


def need(condition: object, what: str) -> None:
    if not condition:
        raise WrongDocument(what)


def need_keys(value: Any, required: set[str], optional: frozenset[str] = frozenset()) -> None:
    need(isinstance(value, dict), f"{value!r} is no object")
    need(required <= value.keys() <= required | optional, f"fields {sorted(value)}")


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def kafka_partitions(document: Any) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """By topic and partition the brokers, the preferred leader first, each with the directory of its copy."""
    need_keys(document, {"version", "partitions"})
    need(is_int(document["version"]) and document["version"] == 1, "version")
    need(isinstance(document["partitions"], list) and document["partitions"], "no partitions")
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for entry in document["partitions"]:
        need_keys(entry, {"topic", "partition", "replicas"}, frozenset({"log_dirs"}))
        topic, partition, replicas = entry["topic"], entry["partition"], entry["replicas"]
        need(re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) and topic not in (".", ".."), f"topic {topic!r}")
        need(is_int(partition) and 0 <= partition < 2**31, f"partition {partition!r}")
        need(isinstance(replicas, list) and replicas, "no replicas")
        need(all(is_int(broker) and 0 <= broker < 2**31 for broker in replicas), f"brokers {replicas!r}")
        need(len(set(replicas)) == len(replicas), f"a broker twice in {replicas!r}")
        directories = entry.get("log_dirs", ["any"] * len(replicas))
        need(len(directories) == len(replicas), "as many log_dirs as replicas")
        need(all(name == "any" or name.startswith("/") for name in directories), f"log_dirs {directories!r}")
        need((topic, partition) not in found, f"{topic}-{partition} twice")
        found[topic, partition] = list(zip(replicas, directories, strict=True))
    return found


TOKEN = re.compile(r"""\s*(?:(?P<word>[A-Za-z_]\w*)|"(?P<name>(?:[^"]|"")+)"|'(?P<text>(?:[^']|'')*)'"""
                   r"|(?P<number>\d+)|(?P<sign>[.@=,;]))")  # fmt: skip
Tokens = list[tuple[str, str]]


def cockroach_tokens(statement: str) -> Tokens:
    tokens, position = [], 0
    while position < len(statement):
        match = TOKEN.match(statement, position)
        if match is None:
            raise WrongDocument(f"no token at {statement[position:]!r}")
        kind, quote = str(match.lastgroup), {"name": '"', "text": "'"}.get(str(match.lastgroup))
        value = match[kind]
        tokens.append((kind, value.replace(quote * 2, quote) if quote else value))
        position = match.end()
    return tokens


class CockroachStatement:
    """One ``ALTER ... CONFIGURE ZONE USING`` statement: ``target``, and the variables that it sets."""

    def __init__(self, statement: str) -> None:
        self._tokens = cockroach_tokens(statement)
        self._word("ALTER")
        self.target = self._target()
        for word in ("CONFIGURE", "ZONE", "USING"):
            self._word(word)
        self.variables: dict[str, Any] = {}
        while True:
            name = self._next("word")
            self._sign("=")
            need(name not in self.variables, f"{name} twice")
            self.variables[name] = self._value()
            if self._next("sign") == ";":
                break
        need(not self._tokens, "more after the semicolon")
        self._check()

    def _next(self, kind: str) -> str:
        need(self._tokens and self._tokens[0][0] == kind, f"{kind} wanted at {self._tokens[:3]}")
        return self._tokens.pop(0)[1]

    def _word(self, word: str) -> None:
        need(self._next("word") == word, f"{word} wanted")

    def _sign(self, sign: str) -> None:
        need(self._next("sign") == sign, f"{sign} wanted")

    def _dotted(self) -> tuple[str, ...]:
        names = [self._next("name")]
        while self._tokens and self._tokens[0] == ("sign", "."):
            self._sign(".")
            names.append(self._next("name"))
        need(len(names) <= 3, "more than database, schema and table")
        return tuple(names)

    def _index(self) -> tuple[str, ...]:
        table = self._dotted()
        self._sign("@")
        return (*table, "@", self._next("name"))

    def _target(self) -> tuple[str, ...]:
        match kind := self._next("word"):
            case "TABLE":
                return (kind, *self._dotted())
            case "DATABASE":
                return (kind, self._next("name"))
            case "INDEX":
                return (kind, *self._index())
            case "RANGE":
                return (kind, self._next("word"))
            case "PARTITION":
                partition = self._next("name")
                self._word("OF")
                of = self._next("word")
                need(of in ("TABLE", "INDEX"), f"a partition of {of}")
                return (kind, partition, of, *(self._dotted() if of == "TABLE" else self._index()))
        raise WrongDocument(f"ALTER {kind}")

    def _value(self) -> Any:
        kind, value = self._tokens.pop(0)
        # A literal holds YAML in flow style.  JSON is that, too, unless it writes one character as two surrogates.
        need(not re.search(r"\\u[dD][89a-fA-F]", value), f"surrogates in {value!r}")
        return int(value) if kind == "number" else json.loads(value)

    def _check(self) -> None:
        count: Any = self.variables.get("num_replicas")
        need(is_int(count) and count >= 1 and count != 2, f"num_replicas {count!r}")
        constraints: Any = self.variables.get("constraints")
        need(isinstance(constraints, dict) and constraints, "constraints")
        need(all(is_int(number) and number > 0 for number in constraints.values()), "copies per constraint")
        need(sum(constraints.values()) <= count, "more copies constrained than there are")
        preferences: Any = self.variables.get("lease_preferences")
        need(isinstance(preferences, list) and all(preferences), "lease_preferences")
        shorts = [short for key in constraints for short in key.split(",")]
        for short in (*shorts, *(short for preference in preferences for short in preference)):
            need(re.fullmatch(r"[+-][^=,]+=[^=,]+", short), f"constraint {short!r}")


def pd_rules(document: Any) -> list[dict[str, Any]]:
    """The rules of all groups; ``start_key`` and ``end_key`` as bytes."""
    need(isinstance(document, list), "no list of groups")
    found: list[dict[str, Any]] = []
    for bundle in document:
        need_keys(bundle, {"group_id", "group_index", "group_override", "rules"})
        need(isinstance(bundle["group_id"], str) and bundle["group_id"], "group_id")
        need(is_int(bundle["group_index"]), "group_index")
        need(isinstance(bundle["group_override"], bool), "group_override")
        found += [pd_rule(rule, bundle["group_id"]) for rule in bundle["rules"]]
    need(len({(rule["group_id"], rule["id"]) for rule in found}) == len(found), "two rules of one id")
    return found


def pd_rule(rule: Any, group: str) -> dict[str, Any]:
    optional = frozenset(
        {"index", "override", "label_constraints", "location_labels", "isolation_level", "is_witness"}
    )
    need_keys(rule, {"group_id", "id", "start_key", "end_key", "role", "count"}, optional)
    need(rule["group_id"] == group, "another group")
    need(isinstance(rule["id"], str) and rule["id"], "id")
    need(rule["role"] in ("voter", "leader", "follower", "learner"), f"role {rule['role']!r}")
    need(is_int(rule["count"]) and rule["count"] > 0, "count")
    need(rule["role"] != "leader" or rule["count"] == 1, "more than one leader")
    for constraint in rule.get("label_constraints", []):
        need_keys(constraint, {"key", "op", "values"})
        need(constraint["op"] in ("in", "notIn", "exists", "notExists"), f"op {constraint['op']!r}")
        need(all(isinstance(value, str) and value for value in constraint["values"]), "values")
    need(all(isinstance(label, str) for label in rule.get("location_labels", [])), "location_labels")
    for key in ("start_key", "end_key"):
        need(re.fullmatch(r"([0-9a-f]{2})*", rule[key], re.IGNORECASE), f"{key} {rule[key]!r}")
    start, end = bytes.fromhex(rule["start_key"]), bytes.fromhex(rule["end_key"])
    need(not end or start < end, "ends before it starts")
    return {**rule, "start_key": start, "end_key": end}
