"""States of the policy packs to measure on: what the papers measured, drawn anew from a seed.

Each function returns rows by table, to be given to ``Database.replace_rows``.  The same arguments give the same rows.
What a paper does not say (sizes of machines and pods, how many nodes) is chosen here, and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from bench.policies.amounts import Amounts
from mgmt.solution import Value

Row = dict[str, Value]
Tables = dict[str, list[Row]]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node_scaling(
    nodes: int, pods: int, least_load: int, seed: int, amounts: Amounts = Amounts.UNITS
) -> Tables:
    """DCM's node-scaling benchmark (OSDI 2020, Figures 13 and 15) for the pack ``kubernetes``.

    Every node has 100 cpu, 100 memory and room for 110 pods, and runs one pod of ``least_load`` to 99 percent of both;
    the pending pods want 5 to 14 percent each.
    """
    draw, rest = Random(seed), Random(seed)
    loads = [draw.randrange(least_load, 100) * amounts.unit for _ in range(nodes)]
    sizes = [amounts.of(draw.randrange(5, 15), rest) for _ in range(pods)]
    full = 100 * amounts.unit
    return {
        "node": [
            {"name": f"n{number:05}", "cpu": full, "memory": full, "pods": 110} for number in range(nodes)
        ],
        "template": [{"name": "plain"}],
        "running_pod": [
            {
                "name": f"r{number:05}",
                "node": f"n{number:05}",
                "template": "plain",
                "cpu": load,
                "memory": load,
            }
            for number, load in enumerate(loads)
        ],
        "pod": [
            {"name": f"p{number:05}", "template": "plain", "cpu": size, "memory": size}
            for number, size in enumerate(sizes)
        ],
    }


def many_pods(seed: int, pods: int = 400, nodes: int = 50, amounts: Amounts = Amounts.UNITS) -> Tables:
    """The workload of HotOS 2019 for the pack ``kubernetes``: empty nodes of 1000 cpu and memory in five zones.

    Applications have ten pods each, which want 5 to 75 of cpu and of memory, in steps of five.  A fifth of the
    applications must be in one of the zones, and a third have an anti-affinity of their pods to each other.
    """
    draw, rest = Random(seed), Random(seed)
    tables: Tables = {name: [] for name in ("template", "template_label", "node_selector", "pod")}
    tables.update({"affinity": [], "affinity_label": []})
    for number in range(pods // 10):
        app = f"app{number:02}"
        _add_template(tables, app)
        kind = draw.random()
        if kind < 0.2:
            tables["node_selector"].append({"template": app, "key": ZONE, "value": f"z{draw.randrange(5)}"})
        elif kind < 0.5:
            _add_affinity(tables, f"{app}-apart", app, app, anti=True)
        cpu, memory = (amounts.of(5 * draw.randrange(1, 16), rest) for _ in range(2))
        tables["pod"].extend(
            {"name": f"{app}-{pod}", "template": app, "cpu": cpu, "memory": memory} for pod in range(10)
        )
    names, full = [f"n{number:02}" for number in range(nodes)], 1000 * amounts.unit
    tables["node"] = [{"name": name, "cpu": full, "memory": full} for name in names]
    tables["node_label"] = [
        {"node": name, "key": ZONE, "value": f"z{number % 5}"} for number, name in enumerate(names)
    ]
    return tables


def apps(seed: int, count: int = 30, pods: int = 10, nodes: int = 40) -> Tables:
    """Applications with affinity and anti-affinity (OSDI 2020) for the pack ``kubernetes``.

    The pods of an application must be together in one of eight zones of five nodes, on different nodes or not, and
    half of them must not share a node with another one.  Pods want 4 to 16 hundredths of a node, so that the cluster
    is about three quarters full.
    """
    draw = Random(seed)
    tables: Tables = {
        name: [] for name in ("template", "template_label", "affinity", "affinity_label", "pod")
    }
    names = [f"app{number:02}" for number in range(count)]
    for number, app in enumerate(names):
        _add_template(tables, app)
        _add_affinity(tables, f"{app}-zone", app, app, topology=ZONE)
        if number and draw.random() < 0.5:
            other = draw.choice(names[:number])
            _add_affinity(tables, f"{app}-not-{other}", app, other, anti=True)
        size = draw.randrange(4, 17)
        tables["pod"].extend(
            {"name": f"{app}-{pod}", "template": app, "cpu": size, "memory": size} for pod in range(pods)
        )
    hosts = [f"n{number:02}" for number in range(nodes)]
    tables["node"] = [{"name": name, "cpu": 100, "memory": 100} for name in hosts]
    tables["node_label"] = [
        {"node": name, "key": ZONE, "value": f"z{number // 5}"} for number, name in enumerate(hosts)
    ]
    return tables


def preemption(seed: int, nodes: int = 100, pending: int = 60) -> Tables:
    """Three sets of priorities (OSDI 2020) for the pack ``kubernetes``: a cluster that is full of the two lower ones.

    Each node has 100 cpu and memory and runs four pods of 25, of which two or three are of the lowest priority (1) and
    the others of the middle one (2); all are offered.  Pending are pods of the highest priority (3) of the same size.
    """
    draw = Random(seed)
    names = [f"n{number:03}" for number in range(nodes)]
    pods: list[Row] = []
    for name in names:
        low = draw.choice((2, 3))
        pods.extend(
            _pod(f"{name}-{number}", 25, priority=1 if number < low else 2, node=name) for number in range(4)
        )
    pods.extend(_pod(f"high-{number:03}", 25, priority=3) for number in range(pending))
    return {
        "node": [{"name": name, "cpu": 100, "memory": 100} for name in names],
        "template": [{"name": "plain"}],
        "pod": pods,
    }


def virtual_machines(seed: int, hosts: int = 16, machines: int = 524, migrations: int = 20) -> Tables:
    """The cluster of OSDI 2020 for the pack ``vm_balance``: hosts that are used between 39 and 85 percent.

    The paper gives the numbers of hosts and machines and the range; here the hosts lie evenly in it, the sizes of
    machines are log-normal, ten pairs are kept apart and ten together, and memory is used to about two thirds.
    """
    draw = Random(seed)
    names = [f"host{number:02}" for number in range(hosts)]
    owners = [names[number % hosts] for number in range(machines)]
    raw = [draw.lognormvariate(0, 0.8) for _ in owners]
    rows: list[Row] = []
    for place, name in enumerate(names):
        mine = [number for number, owner in enumerate(owners) if owner == name]
        target = 100_000 * (39 + 46 * place // max(1, hosts - 1)) // 100
        shares = _shares([raw[number] for number in mine], target)
        memory = _shares([draw.lognormvariate(0, 0.5) for _ in mine], draw.randrange(60_000, 72_000))
        rows.extend(
            {"name": f"vm{number:03}", "cpu": cpu, "memory": size, "host": name}
            for number, cpu, size in zip(mine, shares, memory, strict=True)
        )
    by_host = {name: [str(row["name"]) for row in rows if row["host"] == name] for name in names}
    together = [draw.sample(by_host[draw.choice(names)], 2) for _ in range(10)]
    apart = [[draw.choice(by_host[name]) for name in draw.sample(names, 2)] for _ in range(10)]
    return {
        "host": [{"name": name, "cpu": 100_000, "memory": 100_000} for name in names],
        "vm": rows,
        "together": [{"rule": f"t{n}", "vm": vm} for n, pair in enumerate(together) for vm in pair],
        "apart": [{"rule": f"a{n}", "vm": vm} for n, pair in enumerate(apart) for vm in pair],
        "migration_limit": [{"migrations": migrations}],
    }


def _shares(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers in the ratio of the weights whose sum is exactly ``total``."""
    whole = sum(weights)
    edges, reached = [0], 0.0
    for weight in weights:
        reached += weight
        edges.append(round(total * reached / whole))
    return [after - before for before, after in pairwise(edges)]


def _pod(name: str, size: int, **more: Value) -> Row:
    return {"name": name, "template": "plain", "cpu": size, "memory": size, **more}


def _add_template(tables: Tables, app: str) -> None:
    tables["template"].append({"name": app})
    tables["template_label"].append({"template": app, "key": "app", "value": app})


def _add_affinity(
    tables: Tables, name: str, template: str, other: str, *, topology: str = HOSTNAME, anti: bool = False
) -> None:
    tables["affinity"].append({"id": name, "template": template, "topology": topology, "apart": anti})
    tables["affinity_label"].append({"affinity": name, "key": "app", "value": other})
