"""The rows of the cases: pending pods on nodes that are partly full, and the datastore pack with a lost host.

The nodes and pods are of the kind of DCM's node-scaling benchmark, but no two nodes are alike: cpu, memory and the
number of pods are drawn one by one.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

from bench.policies.amounts import Amounts
from mgmt.compiler.model import Model
from mgmt.language.policy_packs import PolicyPack, load_pack
from mgmt.state.database import Database

Tables: TypeAlias = dict[str, list[dict[str, Any]]]

PODS_SCHEMA = """
CREATE TABLE node (
  name TEXT PRIMARY KEY, rack TEXT NOT NULL, zone TEXT NOT NULL, price INTEGER NOT NULL,
  cpu_cap BIGINT NOT NULL, memory_cap BIGINT NOT NULL, pods_cap INTEGER NOT NULL
);
CREATE TABLE app (name TEXT PRIMARY KEY);
CREATE TABLE pod (
  name TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, app TEXT NOT NULL REFERENCES app (name),
  cpu BIGINT NOT NULL, memory BIGINT NOT NULL,
  node TEXT, variable__node TEXT NOT NULL REFERENCES node (name)
);
CREATE TABLE demand (pod TEXT NOT NULL, resource TEXT NOT NULL, amount BIGINT NOT NULL, PRIMARY KEY (pod, resource));
CREATE TABLE spare (
  node TEXT NOT NULL, resource TEXT NOT NULL, capacity BIGINT NOT NULL, PRIMARY KEY (node, resource)
);
CREATE TABLE node_label (node TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (node, key));
CREATE TABLE selector (app TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (app, key));
CREATE TABLE taint (node TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (node, name));
CREATE TABLE toleration (app TEXT NOT NULL, taint TEXT NOT NULL, PRIMARY KEY (app, taint));
"""

TENANTS_SCHEMA = """
CREATE TABLE tenant (segment TEXT PRIMARY KEY REFERENCES segment (key), name TEXT NOT NULL);
"""


def pods_on_nodes(nodes: int, pods: int, seed: int, amounts: Amounts = Amounts.UNITS) -> Tables:
    """Racks of 25 nodes in at most five zones; apps of five pods."""
    draw, rest = Random(seed), Random(seed)
    racks, apps = max(4, nodes // 25), max(1, pods // 5)
    node = [
        {
            "name": f"n{n:05}",
            "rack": f"r{n % racks:03}",
            "zone": f"z{n % racks % 5}",
            "price": draw.randrange(1, 100),
            "cpu_cap": amounts.of(draw.randrange(15, 100), rest),
            "memory_cap": amounts.of(draw.randrange(15, 100), rest),
            "pods_cap": draw.randrange(3, 110),
        }
        for n in range(nodes)
    ]
    pod = [
        {
            "name": f"p{n:04}",
            "number": n,
            "app": f"a{n % apps:03}",
            "cpu": amounts.of(draw.randrange(5, 15), rest),
            "memory": amounts.of(draw.randrange(5, 15), rest),
            "node": None,
        }
        for n in range(pods)
    ]
    app = [{"name": f"a{n:03}"} for n in range(apps)]
    return {
        "node": node,
        "app": app,
        "pod": pod,
        "demand": [
            {"pod": row["name"], "resource": resource, "amount": row[resource] if resource != "pods" else 1}
            for row in pod
            for resource in ("cpu", "memory", "pods")
        ],
        "spare": [
            {"node": row["name"], "resource": resource, "capacity": row[f"{resource}_cap"]}
            for row in node
            for resource in ("cpu", "memory", "pods")
        ],
        "node_label": [
            {"node": row["name"], "key": "disk", "value": draw.choice(("ssd", "hdd"))} for row in node
        ],
        "selector": [{"app": row["name"], "key": "disk", "value": "ssd"} for row in app[::2]],
        "taint": [{"node": row["name"], "name": "gpu"} for row in node if draw.random() < 0.25],
        "toleration": [{"app": row["name"], "taint": "gpu"} for row in app[::3]],
    }


def pods_database(
    nodes: int, pods: int, seed: int, amounts: Amounts = Amounts.UNITS
) -> tuple[Database, Tables]:
    """The pods and nodes in a state database."""
    tables = pods_on_nodes(nodes, pods, seed, amounts)
    database = Database()
    database.load_schema(PODS_SCHEMA)
    database.replace_rows(tables)
    return database, tables


def datastore_database(segments: int, hosts: int, seed: int) -> tuple[Database, Tables, PolicyPack]:
    """The pack's cluster of six racks in three zones, settled by its own rules, and then a host is lost."""
    draw = Random(seed)
    pack = load_pack("datastore")
    flags = dict.fromkeys(("drained", "layout_server", "sequencer"), False)
    tables: Tables = {
        "host": [
            {
                "name": f"h{n:05}",
                "rack": f"r{n % 6:03}",
                "zone": f"z{n % 3}",
                "capacity_bytes": 10**15,
                "alive": True,
                **flags,
            }
            for n in range(hosts)
        ],
        "segment": [
            {"key": f"s{n:06}", "bytes": draw.randrange(100, 2000) * 10**6, "replication_factor": 3}
            for n in range(segments)
        ],
        "replica": [
            {"segment": f"s{n:06}", "slot": slot, "host": None, "is_primary": False}
            for n in range(segments)
            for slot in range(3)
        ],
        "tenant": [{"segment": f"s{n:06}", "name": f"t{n % 20:02}"} for n in range(segments)],
    }
    database = Database()
    database.load_schema(pack.schema + TENANTS_SCHEMA)
    for table, rows in tables.items():
        database.insert(table, rows)
    database.apply(Model.build(database, pack).solve(60.0))
    database.execute("UPDATE host SET alive = FALSE WHERE name = 'h00000'")
    tables["host"][0]["alive"] = False
    return database, tables, pack
