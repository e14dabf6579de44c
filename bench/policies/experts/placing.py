"""Gangs in racks, pods on the fewest nodes, services in zones, shares of hosts, and who gives way to whom."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

from ortools.sat.python import cp_model

from bench.policies.experts.problem import (
    Handwritten,
    Instance,
    Plan,
    Problem,
    Spellings,
    names,
    one_of_each,
    plan_of,
    require,
    scaled,
    text,
    totals,
)

_GPUS = 8
_HOSTS_OF_A_RACK = 8


def _gangs(draw: Random, size: float) -> Instance:
    hosts = {
        f"r{rack}h{number}": f"r{rack}"
        for rack in range(scaled(8, size, 2))
        for number in range(_HOSTS_OF_A_RACK)
    }
    racks = sorted(set(hosts.values()))
    gangs = names("g", scaled(40, size, 12))
    workers = {gang: [f"{gang}w{number}" for number in range(draw.randint(4, 8))] for gang in gangs}
    gpus = {gang: draw.choice((1, 2, 4, 4)) for gang in gangs}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        in_rack = {(gang, rack): model.new_bool_var("") for gang in gangs for rack in racks}
        # Workers of a gang are alike: how many of them a host has is all that counts.
        on_host = {
            (gang, host): model.new_int_var(0, min(_GPUS // gpus[gang], len(workers[gang])), "")
            for gang in gangs
            for host in hosts
        }
        for gang in gangs:
            model.add_at_most_one(in_rack[gang, rack] for rack in racks)
            for rack in racks:
                here = sum(on_host[gang, host] for host, home in hosts.items() if home == rack)
                model.add(here == len(workers[gang]) * in_rack[gang, rack])
        for host in hosts:
            model.add(sum(gpus[gang] * on_host[gang, host] for gang in gangs) <= _GPUS)
        for rack in racks:
            used = sum(gpus[gang] * len(workers[gang]) * in_rack[gang, rack] for gang in gangs)
            model.add(used <= _GPUS * _HOSTS_OF_A_RACK)
        left_out = sum(
            len(workers[gang]) * (1 - sum(in_rack[gang, rack] for rack in racks)) for gang in gangs
        )

        def plan(solver: cp_model.CpSolver) -> Plan:
            places: dict[Any, Any] = {(worker,): None for group in workers.values() for worker in group}
            for gang in gangs:
                taken = [host for host in hosts for _ in range(solver.value(on_host[gang, host]))]
                places |= {(worker,): host for worker, host in zip(workers[gang], taken, strict=False)}
            return {("worker", "variable__host"): places}

        return Handwritten(model, [left_out], plan)

    def check(plan: Plan) -> list[int]:
        placed = {
            key[0]: str(host) for key, host in plan["worker", "variable__host"].items() if host is not None
        }
        used = totals((placed[w], gpus[gang]) for gang in gangs for w in workers[gang] if w in placed)
        require(max(used.values(), default=0) <= _GPUS, "a host has as many GPUs as are used")
        for gang in gangs:
            places = [placed[worker] for worker in workers[gang] if worker in placed]
            require(len(places) in {0, len(workers[gang])}, f"all of {gang} or none of it")
            require(len({hosts[place] for place in places}) <= 1, f"{gang} is in one rack")
        return [sum(map(len, workers.values())) - len(placed)]

    return Instance(
        {
            "host": [{"name": host, "rack": rack, "gpus": _GPUS} for host, rack in hosts.items()],
            "gang": [{"name": gang, "workers": len(workers[gang])} for gang in gangs],
            "worker": [
                {"name": worker, "gang": gang, "gpus": gpus[gang]}
                for gang in gangs
                for worker in workers[gang]
            ],
        },
        expert,
        check,
    )


GANGS = Problem(
    "gangs",
    "40 gangs of 4 to 8 workers on 64 hosts of 8 GPUs, each gang in one rack, all or none of it: fewest left out",
    """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, gpus INTEGER NOT NULL);
CREATE TABLE gang (name TEXT PRIMARY KEY, workers INTEGER NOT NULL);
CREATE TABLE worker (
    name TEXT PRIMARY KEY,
    gang TEXT NOT NULL REFERENCES gang (name),
    gpus INTEGER NOT NULL,
    variable__host TEXT REFERENCES host (name)
);
""",
    Spellings(
        """
CREATE CONSTRAINT gpus AS
SELECT host.name
FROM worker JOIN host ON worker.variable__host = host.name
GROUP BY host.name, host.gpus
CHECK sum(worker.gpus) <= host.gpus;

CREATE CONSTRAINT all_or_none AS
SELECT gang.name
FROM worker JOIN gang ON worker.gang = gang.name
WHERE worker.variable__host IS NOT NULL
GROUP BY gang.name, gang.workers
CHECK count(*) = 0 OR count(*) = gang.workers;

CREATE CONSTRAINT one_rack AS
SELECT worker.gang
FROM worker JOIN host ON worker.variable__host = host.name
GROUP BY worker.gang
CHECK count(DISTINCT host.rack) <= 1;

CREATE CONSTRAINT left_out AS
SELECT name FROM worker WHERE variable__host IS NULL
MINIMIZE count(*);
""",
        """
CREATE CONSTRAINT gpus AS
SELECT name FROM host
CHECK (SELECT sum(worker.gpus) FROM worker WHERE worker.variable__host = host.name) <= gpus;

CREATE CONSTRAINT all_or_none AS
SELECT a.name FROM worker AS a
WHERE a.variable__host IS NOT NULL
CHECK NOT EXISTS (SELECT 1 FROM worker AS b WHERE b.gang = a.gang AND b.variable__host IS NULL);

CREATE CONSTRAINT one_rack AS
SELECT a.name FROM worker AS a
CHECK NOT EXISTS (
    SELECT 1 FROM worker AS b JOIN host AS there ON there.name = b.variable__host
    JOIN host AS here ON here.name = a.variable__host
    WHERE b.gang = a.gang AND there.rack <> here.rack
);

CREATE CONSTRAINT left_out AS
SELECT 1 AS everything
MINIMIZE (SELECT count(*) FROM worker WHERE variable__host IS NULL);
""",
        """
CREATE VIEW used AS
SELECT host.name, host.gpus, sum(worker.gpus) AS taken
FROM worker JOIN host ON worker.variable__host = host.name
GROUP BY host.name, host.gpus;

CREATE CONSTRAINT gpus AS
SELECT name FROM used
CHECK taken <= gpus;

CREATE VIEW placed AS
SELECT worker.name, worker.gang, host.rack FROM worker JOIN host ON worker.variable__host = host.name;

CREATE VIEW size AS
SELECT gang.name, gang.workers, count(*) AS placed
FROM gang JOIN placed ON placed.gang = gang.name
GROUP BY gang.name, gang.workers;

CREATE CONSTRAINT all_or_none AS
SELECT name FROM size
CHECK placed IN (0, workers);

CREATE CONSTRAINT one_rack AS
SELECT a.gang FROM placed AS a JOIN placed AS b ON b.gang = a.gang AND a.name < b.name
CHECK a.rack = b.rack;

CREATE CONSTRAINT left_out AS
SELECT name FROM size
MINIMIZE sum(workers - placed);
""",
    ),
    _gangs,
)


def _packing(draw: Random, size: float) -> Instance:
    pods = names("p", scaled(90, size, 8))
    nodes = names("n", len(pods) * 5 // 9 + 1)
    sizes = [(draw.randint(10, 60), draw.randint(10, 60)) for _ in pods]

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on = one_of_each(model, len(pods), len(nodes))
        used = [model.new_bool_var("") for _ in nodes]
        for node in range(len(nodes)):
            for resource in range(2):
                load = sum(sizes[pod][resource] * on[pod][node] for pod in range(len(pods)))
                model.add(load <= 100 * used[node])
        for node in range(len(nodes) - 1):  # nodes are alike
            model.add_implication(used[node + 1], used[node])
        model.add(sum(used) >= max(-(-sum(column) // 100) for column in zip(*sizes, strict=True)))

        return Handwritten(model, [sum(used)], plan_of("pod", "variable__node", pods, nodes, on))

    def check(plan: Plan) -> list[int]:
        place = [text(plan["pod", "variable__node"][pod,]) for pod in pods]
        for resource in range(2):
            loads = totals((node, amount[resource]) for node, amount in zip(place, sizes, strict=True))
            require(max(loads.values()) <= 100, "no node is overfull")
        return [len(set(place))]

    return Instance(
        {
            "node": [{"name": node, "cpu": 100, "memory": 100} for node in nodes],
            "pod": [
                {"name": pod, "cpu": cpu, "memory": memory}
                for pod, (cpu, memory) in zip(pods, sizes, strict=True)
            ],
        },
        expert,
        check,
    )


PACKING = Problem(
    "packing",
    "90 pods of two resources on at most 51 nodes: fewest nodes used",
    """
CREATE TABLE node (name TEXT PRIMARY KEY, cpu INTEGER NOT NULL, memory INTEGER NOT NULL);
CREATE TABLE pod (
    name TEXT PRIMARY KEY, cpu INTEGER NOT NULL, memory INTEGER NOT NULL,
    variable__node TEXT NOT NULL REFERENCES node (name)
);
""",
    Spellings(
        """
CREATE CONSTRAINT capacity AS
SELECT node.name
FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu, node.memory
CHECK sum(pod.cpu) <= node.cpu AND sum(pod.memory) <= node.memory;

CREATE CONSTRAINT fewest_nodes AS
SELECT name FROM pod
MINIMIZE count(DISTINCT variable__node);
""",
        """
CREATE CONSTRAINT capacity AS
SELECT name FROM node
CHECK (SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name) <= cpu
AND (SELECT sum(pod.memory) FROM pod WHERE pod.variable__node = node.name) <= memory;

CREATE CONSTRAINT fewest_nodes AS
SELECT name FROM node
WHERE EXISTS (SELECT 1 FROM pod WHERE pod.variable__node = node.name)
MINIMIZE count(*);
""",
        """
CREATE VIEW load AS
SELECT node.name, node.cpu AS most_cpu, node.memory AS most_memory, sum(pod.cpu) AS cpu, sum(pod.memory) AS memory,
    count(*) AS pods
FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu, node.memory;

CREATE CONSTRAINT capacity AS
SELECT name FROM load
CHECK cpu <= most_cpu AND memory <= most_memory;

CREATE CONSTRAINT fewest_nodes AS
SELECT name FROM load
MINIMIZE sum(CASE WHEN pods > 0 THEN 1 ELSE 0 END);
""",
    ),
    _packing,
)


def _chatty(draw: Random, size: float) -> Instance:
    services = names("s", scaled(60, size, 8))
    zones = names("z", 5 if size > 0.5 else 3)
    cpu = [draw.randint(1, 9) for _ in services]
    room = sum(cpu) * 12 // (10 * len(zones)) + 9
    rates: dict[tuple[int, int], int] = {}
    for _ in range(4 * len(services)):
        one = draw.randrange(len(services))
        # Three of four calls stay within a team of six.
        other = (
            min(one // 6 * 6 + draw.randrange(6), len(services) - 1)
            if draw.random() < 0.75
            else draw.randrange(len(services))
        )
        if one != other:
            rates[min(one, other), max(one, other)] = draw.randint(1, 100)

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = one_of_each(model, len(services), len(zones))
        for zone in range(len(zones)):
            model.add(sum(cpu[s] * at[s][zone] for s in range(len(services))) <= room)
        model.add(at[0][0] == 1)  # zones are alike
        cut = {pair: model.new_bool_var("") for pair in rates}
        for (one, other), apart in cut.items():
            for zone in range(len(zones)):
                model.add_bool_or(apart, ~at[one][zone], at[other][zone])
                model.add_bool_or(apart, at[one][zone], ~at[other][zone])

        return Handwritten(
            model,
            [sum(rate * cut[pair] for pair, rate in rates.items())],
            plan_of("service", "variable__zone", services, zones, at),
        )

    def check(plan: Plan) -> list[int]:
        zone = [text(plan["service", "variable__zone"][service,]) for service in services]
        require(max(totals(zip(zone, cpu, strict=True)).values()) <= room, "no zone is overfull")
        return [sum(rate for (one, other), rate in rates.items() if zone[one] != zone[other])]

    return Instance(
        {
            "zone": [{"name": zone, "cpu": room} for zone in zones],
            "service": [{"name": name, "cpu": amount} for name, amount in zip(services, cpu, strict=True)],
            "traffic": [
                {"caller": services[one], "callee": services[other], "rate": rate}
                for (one, other), rate in rates.items()
            ],
        },
        expert,
        check,
    )


CHATTY = Problem(
    "chatty",
    "60 services in 5 zones of limited cpu: least traffic between zones",
    """
CREATE TABLE zone (name TEXT PRIMARY KEY, cpu INTEGER NOT NULL);
CREATE TABLE service (
    name TEXT PRIMARY KEY, cpu INTEGER NOT NULL,
    variable__zone TEXT NOT NULL REFERENCES zone (name)
);
CREATE TABLE traffic (
    caller TEXT NOT NULL REFERENCES service (name),
    callee TEXT NOT NULL REFERENCES service (name),
    rate INTEGER NOT NULL,
    PRIMARY KEY (caller, callee)
);
""",
    Spellings(
        """
CREATE CONSTRAINT capacity AS
SELECT zone.name
FROM service JOIN zone ON service.variable__zone = zone.name
GROUP BY zone.name, zone.cpu
CHECK sum(service.cpu) <= zone.cpu;

CREATE CONSTRAINT between_zones AS
SELECT traffic.caller, traffic.callee
FROM traffic
JOIN service AS a ON a.name = traffic.caller
JOIN service AS b ON b.name = traffic.callee
WHERE a.variable__zone <> b.variable__zone
MINIMIZE sum(traffic.rate);
""",
        """
CREATE CONSTRAINT capacity AS
SELECT name FROM zone
CHECK (SELECT sum(service.cpu) FROM service WHERE service.variable__zone = zone.name) <= cpu;

CREATE CONSTRAINT between_zones AS
SELECT caller, callee FROM traffic
WHERE (SELECT variable__zone FROM service WHERE name = traffic.caller)
    <> (SELECT variable__zone FROM service WHERE name = traffic.callee)
MINIMIZE sum(rate);
""",
        """
CREATE VIEW load AS
SELECT zone.name, zone.cpu AS most, sum(service.cpu) AS cpu
FROM service JOIN zone ON service.variable__zone = zone.name
GROUP BY zone.name, zone.cpu;

CREATE CONSTRAINT capacity AS
SELECT name FROM load
CHECK cpu <= most;

CREATE VIEW call AS
SELECT traffic.caller, traffic.callee, traffic.rate, a.variable__zone AS here, b.variable__zone AS there
FROM traffic JOIN service AS a ON a.name = traffic.caller JOIN service AS b ON b.name = traffic.callee;

CREATE CONSTRAINT between_zones AS
SELECT caller FROM call
MINIMIZE sum(CASE WHEN here = there THEN 0 ELSE rate END);
""",
    ),
    _chatty,
)


def _shares(draw: Random, size: float) -> Instance:
    jobs = names("j", scaled(150, size, 10))
    hosts = names("h", scaled(20, size, 3))
    needs = [(draw.randint(1, 12), draw.randint(1, 16)) for _ in jobs]
    wanted = [sum(column) for column in zip(*needs, strict=True)]
    parts = [draw.choice((2, 3, 4, 6, 8)) for _ in hosts]
    cpu = [part * wanted[0] * 3 // (2 * sum(parts)) + 1 for part in parts]
    memory = [part * wanted[1] * 5 // (4 * sum(parts)) + 16 for part in parts]

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on = one_of_each(model, len(jobs), len(hosts))
        highest, lowest = model.new_int_var(0, 100_000, ""), model.new_int_var(0, 100_000, "")
        for host in range(len(hosts)):
            model.add(sum(needs[job][1] * on[job][host] for job in range(len(jobs))) <= memory[host])
            load = sum(1000 * needs[job][0] * on[job][host] for job in range(len(jobs)))
            # Shares are whole numbers, rounded down.
            model.add(load <= cpu[host] * highest + cpu[host] - 1)
            model.add(load >= cpu[host] * lowest)

        return Handwritten(model, [highest - lowest], plan_of("job", "variable__host", jobs, hosts, on))

    def check(plan: Plan) -> list[int]:
        place = [text(plan["job", "variable__host"][job,]) for job in jobs]
        held = [
            totals((host, need[column]) for host, need in zip(place, needs, strict=True)) for column in (0, 1)
        ]
        for number, host in enumerate(hosts):
            require(held[1][host] <= memory[number], f"{host} has memory for all")
        shares = [held[0][host] * 1000 // cpu[number] for number, host in enumerate(hosts)]
        return [max(shares) - min(shares)]

    return Instance(
        {
            "host": [
                {"name": host, "cpu": cpu[number], "memory": memory[number]}
                for number, host in enumerate(hosts)
            ],
            "job": [
                {"name": job, "cpu": need[0], "memory": need[1]}
                for job, need in zip(jobs, needs, strict=True)
            ],
        },
        expert,
        check,
    )


SHARES = Problem(
    "shares",
    "150 jobs on 20 unequal hosts: the highest and the lowest share of their cpu as near as can be",
    """
CREATE TABLE host (name TEXT PRIMARY KEY, cpu INTEGER NOT NULL, memory INTEGER NOT NULL);
CREATE TABLE job (
    name TEXT PRIMARY KEY, cpu INTEGER NOT NULL, memory INTEGER NOT NULL,
    variable__host TEXT NOT NULL REFERENCES host (name)
);
""",
    Spellings(
        """
CREATE CONSTRAINT memory AS
SELECT host.name
FROM job JOIN host ON job.variable__host = host.name
GROUP BY host.name, host.memory
CHECK sum(job.memory) <= host.memory;

CREATE VIEW share AS
SELECT host.name, sum(job.cpu) * 1000 / host.cpu AS permille
FROM job JOIN host ON job.variable__host = host.name
GROUP BY host.name, host.cpu;

CREATE CONSTRAINT level AS
SELECT name FROM share
MINIMIZE max(permille) - min(permille);
""",
        """
CREATE CONSTRAINT memory AS
SELECT name FROM host
CHECK (SELECT sum(job.memory) FROM job WHERE job.variable__host = host.name) <= memory;

CREATE CONSTRAINT apart AS
SELECT host.name FROM host
MINIMIZE max((SELECT sum(job.cpu) FROM job WHERE job.variable__host = host.name) * 1000 / cpu)
    - min((SELECT sum(job.cpu) FROM job WHERE job.variable__host = host.name) * 1000 / cpu);
""",
        """
CREATE VIEW load AS
SELECT host.name, host.cpu AS most_cpu, host.memory AS most_memory, sum(job.cpu) AS cpu, sum(job.memory) AS memory
FROM job JOIN host ON job.variable__host = host.name
GROUP BY host.name, host.cpu, host.memory;

CREATE CONSTRAINT memory AS
SELECT name FROM load
CHECK memory <= most_memory;

CREATE VIEW share AS
SELECT name, 1000 * cpu / most_cpu AS share FROM load;

CREATE VIEW extremes AS
SELECT max(share) AS highest, min(share) AS lowest FROM share;

CREATE CONSTRAINT apart AS
SELECT highest FROM extremes
MINIMIZE sum(highest - lowest);
""",
    ),
    _shares,
)


def _preemption(draw: Random, size: float) -> Instance:
    nodes = names("n", scaled(30, size, 4))
    pods: dict[str, tuple[int, int, int, str | None]] = {}  # priority, cpu, memory, and where it runs
    for node in nodes:
        room = [100, 100]
        while min(room) >= 15:
            need = [draw.randint(8, 30), draw.randint(8, 30)]
            if need[0] > room[0] or need[1] > room[1]:
                break
            room = [have - want for have, want in zip(room, need, strict=True)]
            pods[f"p{len(pods):03}"] = draw.choice((1, 1, 2)), need[0], need[1], node
    for priority, count in ((3, len(nodes)), (2, len(nodes) // 2)):
        for _ in range(count):
            pods[f"p{len(pods):03}"] = priority, draw.randint(20, 60), draw.randint(20, 60), None

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on: dict[str, dict[str, Any]] = {}
        for pod, (_, _, _, home) in pods.items():
            on[pod] = {node: model.new_bool_var("") for node in (nodes if home is None else [home])}
            model.add_at_most_one(on[pod].values())
        for node in nodes:
            for resource in (1, 2):
                here = [(pods[pod][resource], places[node]) for pod, places in on.items() if node in places]
                model.add(sum(int(str(amount)) * literal for amount, literal in here) <= 100)
        tiers = [
            sum(1 - sum(on[pod].values()) for pod, row in pods.items() if row[0] == priority)
            for priority in (3, 2, 1)
        ]

        def plan(solver: cp_model.CpSolver) -> Plan:
            places = {
                (pod,): next(
                    (node for node, literal in literals.items() if solver.boolean_value(literal)), None
                )
                for pod, literals in on.items()
            }
            return {("pod", "variable__node"): places}

        return Handwritten(model, tiers, plan)

    def check(plan: Plan) -> list[int]:
        places = {key[0]: node for key, node in plan["pod", "variable__node"].items()}
        loads: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
        for pod, (_, cpu, memory, home) in pods.items():
            if places[pod] is not None:
                require(home is None or places[pod] == home, f"{pod} is not moved")
                loads[places[pod]][0] += cpu
                loads[places[pod]][1] += memory
        require(all(max(load) <= 100 for load in loads.values()), "no node is overfull")
        return [sum(places[pod] is None for pod, row in pods.items() if row[0] == n) for n in (3, 2, 1)]

    return Instance(
        {
            "node": [{"name": node, "cpu": 100, "memory": 100} for node in nodes],
            "pod": [
                {"name": pod, "priority": priority, "cpu": cpu, "memory": memory, "node": home}
                for pod, (priority, cpu, memory, home) in pods.items()
            ],
        },
        expert,
        check,
    )


PREEMPTION = Problem(
    "preemption",
    "30 full nodes, 45 further pods of higher priorities: as few as can be lose or lack a place, the highest first",
    """
CREATE TABLE node (name TEXT PRIMARY KEY, cpu INTEGER NOT NULL, memory INTEGER NOT NULL);
CREATE TABLE pod (
    name TEXT PRIMARY KEY, priority INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL,
    node TEXT,
    variable__node TEXT REFERENCES node (name)
);
""",
    Spellings(
        """
CREATE CONSTRAINT capacity AS
SELECT node.name
FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu, node.memory
CHECK sum(pod.cpu) <= node.cpu AND sum(pod.memory) <= node.memory;

CREATE CONSTRAINT stay_or_go AS
SELECT name FROM pod WHERE node IS NOT NULL
CHECK variable__node = node OR variable__node IS NULL;

CREATE CONSTRAINT high_without_a_place AS
SELECT name FROM pod WHERE priority = 3 AND variable__node IS NULL
MINIMIZE count(*) TIER 1;

CREATE CONSTRAINT middle_without_a_place AS
SELECT name FROM pod WHERE priority = 2 AND variable__node IS NULL
MINIMIZE count(*) TIER 2;

CREATE CONSTRAINT low_without_a_place AS
SELECT name FROM pod WHERE priority = 1 AND variable__node IS NULL
MINIMIZE count(*) TIER 3;
""",
        """
CREATE CONSTRAINT capacity AS
SELECT name FROM node
CHECK (SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name) <= cpu
AND (SELECT sum(pod.memory) FROM pod WHERE pod.variable__node = node.name) <= memory;

CREATE CONSTRAINT stay_or_go AS
SELECT name FROM pod WHERE node IS NOT NULL
CHECK coalesce(variable__node, node) = node;

CREATE CONSTRAINT high_without_a_place AS
SELECT 1 AS everything
MINIMIZE (SELECT count(*) FROM pod WHERE priority = 3 AND variable__node IS NULL) TIER 1;

CREATE CONSTRAINT middle_without_a_place AS
SELECT 1 AS everything
MINIMIZE (SELECT count(*) FROM pod WHERE priority = 2 AND variable__node IS NULL) TIER 2;

CREATE CONSTRAINT low_without_a_place AS
SELECT 1 AS everything
MINIMIZE (SELECT count(*) FROM pod WHERE priority = 1 AND variable__node IS NULL) TIER 3;
""",
        """
CREATE VIEW load AS
SELECT node.name, node.cpu AS most_cpu, node.memory AS most_memory, sum(pod.cpu) AS cpu, sum(pod.memory) AS memory
FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu, node.memory;

CREATE CONSTRAINT capacity AS
SELECT name FROM load
CHECK cpu <= most_cpu AND memory <= most_memory;

CREATE CONSTRAINT stay_or_go AS
SELECT name FROM pod WHERE node IS NOT NULL AND variable__node <> node
CHECK FALSE;

CREATE VIEW homeless AS
SELECT name, priority FROM pod WHERE variable__node IS NULL;

CREATE CONSTRAINT high_without_a_place AS
SELECT name FROM homeless WHERE priority = 3
MINIMIZE count(*) TIER 1;

CREATE CONSTRAINT middle_without_a_place AS
SELECT name FROM homeless WHERE priority = 2
MINIMIZE count(*) TIER 2;

CREATE CONSTRAINT low_without_a_place AS
SELECT name FROM homeless WHERE priority = 1
MINIMIZE count(*) TIER 3;
""",
    ),
    _preemption,
)
