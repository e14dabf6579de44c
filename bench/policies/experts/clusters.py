"""Licences by node, services that wait for each other, leaders, hosts that may fail, and replicas in racks."""

from __future__ import annotations

from random import Random
from typing import Any

from ortools.sat.python import cp_model

from bench.policies.experts.problem import (
    Handwritten,
    Instance,
    Plan,
    Problem,
    Spellings,
    chosen,
    names,
    one_of_each,
    plan_of,
    require,
    scaled,
    text,
    totals,
)


def _licences(draw: Random, size: float) -> Instance:
    pods, nodes = names("p", scaled(60, size, 8)), names("n", scaled(10, size, 3))
    software = names("s", scaled(12, size, 3))
    runs = [draw.choice(software) for _ in pods]
    cpu = [draw.randint(2, 12) for _ in pods]
    room = sum(cpu) * 12 // (10 * len(nodes)) + 6

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on = one_of_each(model, len(pods), len(nodes))
        has = {(node, each): model.new_bool_var("") for node in range(len(nodes)) for each in software}
        for node in range(len(nodes)):
            model.add(sum(amount * row[node] for amount, row in zip(cpu, on, strict=True)) <= room)
            for each, row in zip(runs, on, strict=True):
                model.add_implication(row[node], has[node, each])

        return Handwritten(model, [sum(has.values())], plan_of("pod", "variable__node", pods, nodes, on))

    def check(plan: Plan) -> list[int]:
        place = [text(plan["pod", "variable__node"][pod,]) for pod in pods]
        require(max(totals(zip(place, cpu, strict=True)).values()) <= room, "no node is overfull")
        return [len(set(zip(place, runs, strict=True)))]

    return Instance(
        {
            "node": [{"name": node, "cpu": room} for node in nodes],
            "pod": [
                {"name": pod, "software": each, "cpu": amount}
                for pod, each, amount in zip(pods, runs, cpu, strict=True)
            ],
        },
        expert,
        check,
    )


_CAPACITY = """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu
CHECK sum(pod.cpu) <= node.cpu;
"""

LICENCES = Problem(
    "licences",
    "60 pods of 12 programs on 10 nodes, each of which needs a licence for each program it runs: fewest licences",
    """
CREATE TABLE node (name TEXT PRIMARY KEY, cpu INTEGER NOT NULL);
CREATE TABLE pod (
    name TEXT PRIMARY KEY, software TEXT NOT NULL, cpu INTEGER NOT NULL,
    variable__node TEXT NOT NULL REFERENCES node (name)
);
""",
    Spellings(
        _CAPACITY
        + """
CREATE VIEW licences AS
SELECT node.name, count(DISTINCT pod.software) AS number
FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name;

CREATE CONSTRAINT few AS
SELECT name FROM licences
MINIMIZE sum(number);
""",
        """
CREATE CONSTRAINT capacity AS
SELECT name FROM node
CHECK (SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name) <= cpu;

CREATE CONSTRAINT few AS
SELECT name FROM node
MINIMIZE sum((SELECT count(DISTINCT pod.software) FROM pod WHERE pod.variable__node = node.name));
""",
        _CAPACITY
        + """
CREATE VIEW program AS SELECT DISTINCT software FROM pod;

CREATE VIEW installed AS
SELECT node.name, program.software, count(*) AS pods
FROM pod JOIN node ON pod.variable__node = node.name JOIN program ON program.software = pod.software
GROUP BY node.name, program.software;

CREATE CONSTRAINT few AS
SELECT name, software FROM installed WHERE pods > 0
MINIMIZE count(*);
""",
    ),
    _licences,
)


def _latency(draw: Random, size: float) -> Instance:
    services, sites = names("s", scaled(25, size, 6)), names("w", scaled(8, size, 3))
    room = -(-len(services) // len(sites)) + 1
    where = [(draw.randrange(100), draw.randrange(100)) for _ in sites]
    wait = [[abs(a[0] - b[0]) + abs(a[1] - b[1]) for b in where] for a in where]
    calls: dict[tuple[int, int], int] = {}
    for _ in range(2 * len(services)):
        one, other = draw.sample(range(len(services)), 2)
        calls[min(one, other), max(one, other)] = draw.randint(1, 20)
    fixed = {place: draw.randrange(len(sites)) for place in range(0, len(services), 5)}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = one_of_each(model, len(services), len(sites))
        for service, site in fixed.items():
            model.add(at[service][site] == 1)
        for site in range(len(sites)):
            model.add(sum(row[site] for row in at) <= room)
        total: Any = 0
        for (one, other), rate in calls.items():
            both = [[model.new_bool_var("") for _ in sites] for _ in sites]
            for site in range(len(sites)):
                model.add(sum(both[site]) == at[one][site])
                model.add(sum(row[site] for row in both) == at[other][site])
            total += rate * sum(wait[a][b] * both[a][b] for a in range(len(sites)) for b in range(len(sites)))

        return Handwritten(model, [total], plan_of("service", "variable__site", services, sites, at))

    def check(plan: Plan) -> list[int]:
        at = [sites.index(text(plan["service", "variable__site"][service,])) for service in services]
        require(max(totals((site, 1) for site in at).values()) <= room, "no site is overfull")
        require(all(at[service] == site for service, site in fixed.items()), "what is fixed stays")
        return [sum(rate * wait[at[one]][at[other]] for (one, other), rate in calls.items())]

    return Instance(
        {
            "site": [{"name": site, "room": room} for site in sites],
            "service": [
                {"name": name, "home": sites[fixed[place]] if place in fixed else None}
                for place, name in enumerate(services)
            ],
            "calls": [
                {"one": services[one], "other": services[other], "rate": rate}
                for (one, other), rate in calls.items()
            ],
            "latency": [
                {"one": a, "other": b, "ms": wait[i][j]}
                for i, a in enumerate(sites)
                for j, b in enumerate(sites)
            ],
        },
        expert,
        check,
    )


_STAYS = """
CREATE CONSTRAINT what_is_fixed_stays AS
SELECT name FROM service WHERE home IS NOT NULL
CHECK variable__site = home;
"""

LATENCY = Problem(
    "latency",
    "25 services at 8 sites, 50 pairs that call each other, a table of latencies: least waiting",
    """
CREATE TABLE site (name TEXT PRIMARY KEY, room INTEGER NOT NULL);
CREATE TABLE service (name TEXT PRIMARY KEY, home TEXT, variable__site TEXT NOT NULL REFERENCES site (name));
CREATE TABLE calls (one TEXT NOT NULL, other TEXT NOT NULL, rate INTEGER NOT NULL, PRIMARY KEY (one, other));
CREATE TABLE latency (one TEXT NOT NULL, other TEXT NOT NULL, ms INTEGER NOT NULL, PRIMARY KEY (one, other));
""",
    Spellings(
        _STAYS
        + """
CREATE CONSTRAINT room AS
SELECT site.name FROM service JOIN site ON service.variable__site = site.name
GROUP BY site.name, site.room
CHECK count(*) <= site.room;

CREATE CONSTRAINT waiting AS
SELECT calls.one, calls.other
FROM calls JOIN service AS a ON a.name = calls.one JOIN service AS b ON b.name = calls.other
JOIN latency ON latency.one = a.variable__site AND latency.other = b.variable__site
MINIMIZE sum(calls.rate * latency.ms);
""",
        _STAYS
        + """
CREATE CONSTRAINT room AS
SELECT name FROM site
CHECK (SELECT count(*) FROM service WHERE service.variable__site = site.name) <= room;

CREATE CONSTRAINT waiting AS
SELECT calls.one, calls.other
FROM calls JOIN service AS a ON a.name = calls.one JOIN service AS b ON b.name = calls.other
MINIMIZE sum(calls.rate * (
    SELECT ms FROM latency WHERE latency.one = a.variable__site AND latency.other = b.variable__site
));
""",
        _STAYS
        + """
CREATE VIEW guests AS
SELECT site.name, site.room, count(*) AS services
FROM service JOIN site ON service.variable__site = site.name
GROUP BY site.name, site.room;

CREATE CONSTRAINT room AS
SELECT name FROM guests
CHECK services <= room;

CREATE VIEW link AS
SELECT calls.one, calls.other, calls.rate, a.variable__site AS here, b.variable__site AS there
FROM calls JOIN service AS a ON a.name = calls.one JOIN service AS b ON b.name = calls.other;

CREATE VIEW wait AS
SELECT link.one, link.other, link.rate * latency.ms AS ms
FROM link JOIN latency ON latency.one = link.here AND latency.other = link.there;

CREATE CONSTRAINT waiting AS
SELECT one, other FROM wait
MINIMIZE sum(ms);
""",
    ),
    _latency,
)


def _leaders(draw: Random, size: float) -> Instance:
    hosts, partitions = names("h", scaled(12, size, 4)), names("p", scaled(120, size, 10))
    writes = [draw.randint(10, 300) for _ in partitions]
    replicas = [draw.sample(range(len(hosts)), 3) for _ in partitions]
    today = [draw.choice(each) for each in replicas]

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        leads = [{host: model.new_bool_var("") for host in each} for each in replicas]
        highest = model.new_int_var(0, sum(writes), "")
        for row in leads:
            model.add_exactly_one(row.values())
        for host in range(len(hosts)):
            load = [each * row[host] for each, row in zip(writes, leads, strict=True) if host in row]
            model.add(sum(load) <= highest)
        moves = sum(1 - row[host] for row, host in zip(leads, today, strict=True))

        def plan(solver: cp_model.CpSolver) -> Plan:
            found = {
                (name,): next(hosts[host] for host, each in row.items() if solver.boolean_value(each))
                for name, row in zip(partitions, leads, strict=True)
            }
            return {("partition", "variable__leader"): found}

        return Handwritten(model, [highest, moves], plan)

    def check(plan: Plan) -> list[int]:
        leader = [hosts.index(text(plan["partition", "variable__leader"][name,])) for name in partitions]
        require(all(host in each for host, each in zip(leader, replicas, strict=True)), "leaders have data")
        return [
            max(totals(zip(leader, writes, strict=True)).values()),
            sum(a != b for a, b in zip(leader, today, strict=True)),
        ]

    return Instance(
        {
            "host": [{"name": host} for host in hosts],
            "partition": [
                {"name": name, "writes": each, "leader": hosts[host]}
                for name, each, host in zip(partitions, writes, today, strict=True)
            ],
            "replica": [
                {"partition": name, "host": hosts[host]}
                for name, each in zip(partitions, replicas, strict=True)
                for host in each
            ],
        },
        expert,
        check,
    )


LEADERS = Problem(
    "leaders",
    "120 partitions of three replicas on 12 hosts: the busiest leader as idle as can be, then fewest moves",
    """
CREATE TABLE host (name TEXT PRIMARY KEY);
CREATE TABLE partition (
    name TEXT PRIMARY KEY, writes INTEGER NOT NULL, leader TEXT NOT NULL,
    variable__leader TEXT NOT NULL REFERENCES host (name)
);
CREATE TABLE replica (
    partition TEXT NOT NULL REFERENCES partition (name), host TEXT NOT NULL REFERENCES host (name),
    PRIMARY KEY (partition, host)
);
""",
    Spellings(
        """
CREATE CONSTRAINT has_the_data AS
SELECT partition.name
FROM partition JOIN replica ON replica.partition = partition.name AND replica.host = partition.variable__leader
GROUP BY partition.name
CHECK count(*) = 1;

CREATE VIEW load AS
SELECT host.name, sum(partition.writes) AS writes
FROM partition JOIN host ON partition.variable__leader = host.name
GROUP BY host.name;

CREATE CONSTRAINT busiest AS
SELECT name FROM load
MINIMIZE max(writes) TIER 1;

CREATE CONSTRAINT moves AS
SELECT name FROM partition WHERE variable__leader <> leader
MINIMIZE count(*) TIER 2;
""",
        """
CREATE CONSTRAINT has_the_data AS
SELECT name FROM partition
CHECK variable__leader IN (SELECT host FROM replica WHERE replica.partition = partition.name);

CREATE CONSTRAINT busiest AS
SELECT host.name FROM host
MINIMIZE max((SELECT sum(writes) FROM partition WHERE partition.variable__leader = host.name)) TIER 1;

CREATE CONSTRAINT moves AS
SELECT name FROM partition
MINIMIZE sum(CASE WHEN variable__leader = leader THEN 0 ELSE 1 END) TIER 2;
""",
        """
CREATE VIEW leads AS
SELECT replica.host, partition.name, partition.writes
FROM replica JOIN partition ON replica.partition = partition.name
WHERE partition.variable__leader = replica.host;

CREATE CONSTRAINT has_the_data AS
SELECT name FROM partition
CHECK EXISTS (SELECT 1 FROM leads WHERE leads.name = partition.name);

CREATE VIEW load AS
SELECT host, sum(writes) AS writes FROM leads GROUP BY host;

CREATE VIEW peak AS
SELECT max(writes) AS writes FROM load;

CREATE CONSTRAINT busiest AS
SELECT writes FROM peak
MINIMIZE sum(writes) TIER 1;

CREATE VIEW moved AS
SELECT name FROM partition WHERE variable__leader <> leader;

CREATE CONSTRAINT moves AS
SELECT name FROM moved
MINIMIZE count(*) TIER 2;
""",
    ),
    _leaders,
)


def _headroom(draw: Random, size: float) -> Instance:
    hosts, machines = names("h", scaled(6, size, 3)), names("v", scaled(30, size, 6))
    memory = [draw.randint(2, 16) for _ in machines]
    room = sum(memory) * 17 // (10 * len(hosts)) + 8
    every = range(len(hosts))

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        home, spare = (one_of_each(model, len(machines), len(hosts)) for _ in range(2))
        highest = model.new_int_var(0, room, "")
        moved = {}
        for machine in range(len(machines)):
            for lost in every:
                model.add_at_most_one(home[machine][lost], spare[machine][lost])
                for host in every:
                    both = moved[machine, lost, host] = model.new_bool_var("")
                    model.add_bool_or(both, ~home[machine][lost], ~spare[machine][host])
        for host in every:
            load = sum(each * row[host] for each, row in zip(memory, home, strict=True))
            model.add(load <= highest)
            for lost in every:
                if lost != host:
                    more = sum(each * moved[m, lost, host] for m, each in enumerate(memory))
                    model.add(load + more <= room)

        def plan(solver: cp_model.CpSolver) -> Plan:
            columns = {"variable__host": home, "variable__spare": spare}
            return {
                ("machine", column): {
                    (name,): hosts[chosen(solver, row) or 0] for name, row in zip(machines, rows, strict=True)
                }
                for column, rows in columns.items()
            }

        return Handwritten(model, [highest], plan)

    def check(plan: Plan) -> list[int]:
        home, spare = (
            [text(plan["machine", column][name,]) for name in machines]
            for column in ("variable__host", "variable__spare")
        )
        require(all(a != b for a, b in zip(home, spare, strict=True)), "another host is the spare one")
        held = totals(zip(home, memory, strict=True))
        for lost in hosts:
            more = totals((b, each) for a, b, each in zip(home, spare, memory, strict=True) if a == lost)
            for host in hosts:
                require(
                    host == lost or held.get(host, 0) + more.get(host, 0) <= room,
                    f"{host} has room without {lost}",
                )
        return [max(held.values())]

    return Instance(
        {
            "host": [{"name": host, "memory": room} for host in hosts],
            "machine": [{"name": name, "memory": each} for name, each in zip(machines, memory, strict=True)],
        },
        expert,
        check,
    )


_ELSEWHERE = """
CREATE CONSTRAINT elsewhere AS
SELECT name FROM machine
CHECK variable__spare <> variable__host;
"""

HEADROOM = Problem(
    "headroom",
    "30 machines on 6 hosts, each with a spare host, any host may fail: the fullest host as empty as can be",
    """
CREATE TABLE host (name TEXT PRIMARY KEY, memory INTEGER NOT NULL);
CREATE TABLE machine (
    name TEXT PRIMARY KEY, memory INTEGER NOT NULL,
    variable__host TEXT NOT NULL REFERENCES host (name),
    variable__spare TEXT NOT NULL REFERENCES host (name)
);
""",
    Spellings(
        _ELSEWHERE
        + """
CREATE CONSTRAINT room_without_any_host AS
SELECT host.name, lost.name
FROM host JOIN host AS lost ON lost.name <> host.name CROSS JOIN machine
WHERE machine.variable__host = host.name OR machine.variable__host = lost.name AND machine.variable__spare = host.name
GROUP BY host.name, host.memory, lost.name
CHECK sum(machine.memory) <= host.memory;

CREATE VIEW load AS
SELECT host.name, sum(machine.memory) AS memory
FROM machine JOIN host ON machine.variable__host = host.name
GROUP BY host.name;

CREATE CONSTRAINT fullest AS
SELECT name FROM load
MINIMIZE max(memory);
""",
        _ELSEWHERE
        + """
CREATE CONSTRAINT room_without_any_host AS
SELECT host.name, lost.name FROM host JOIN host AS lost ON lost.name <> host.name
CHECK (SELECT sum(memory) FROM machine WHERE machine.variable__host = host.name)
    + (SELECT sum(memory) FROM machine WHERE machine.variable__host = lost.name AND machine.variable__spare = host.name)
    <= host.memory;

CREATE CONSTRAINT fullest AS
SELECT host.name FROM host
MINIMIZE max((SELECT sum(memory) FROM machine WHERE machine.variable__host = host.name));
""",
        """
CREATE VIEW held AS
SELECT host.name, sum(machine.memory) AS memory
FROM machine JOIN host ON machine.variable__host = host.name
GROUP BY host.name;

CREATE VIEW moving AS
SELECT lost.name AS lost, host.name, sum(machine.memory) AS memory
FROM machine JOIN host AS lost ON machine.variable__host = lost.name JOIN host ON machine.variable__spare = host.name
GROUP BY lost.name, host.name;

CREATE CONSTRAINT elsewhere AS
SELECT name FROM machine WHERE variable__spare = variable__host
CHECK FALSE;

CREATE CONSTRAINT room_without_any_host AS
SELECT host.name, moving.lost
FROM host JOIN held ON held.name = host.name JOIN moving ON moving.name = host.name
WHERE moving.lost <> host.name
CHECK held.memory + moving.memory <= host.memory;

CREATE CONSTRAINT fullest AS
SELECT name FROM held
MINIMIZE max(memory);
""",
    ),
    _headroom,
)


def _replicas(draw: Random, size: float) -> Instance:
    racks, machines = names("r", scaled(8, size, 3)), names("m", scaled(40, size, 6))
    rack = {machine: racks[place % len(racks)] for place, machine in enumerate(machines)}
    wanted = 321 if size == 1 else scaled(160, size, 12)
    services: dict[str, tuple[int, int]] = {}
    while (left := wanted - sum(number for number, _ in services.values())) > 0:
        services[f"s{len(services):03}"] = min(left, draw.randint(2, 5)), draw.randint(1, 14)
    replicas = {f"{name}r{n}": name for name, (number, _) in services.items() for n in range(number)}
    cpu = {replica: services[name][1] for replica, name in replicas.items()}
    room = {m: sum(cpu.values()) * draw.randint(12, 18) // (10 * len(machines)) + 14 for m in machines}
    today = {replica: draw.choice(machines) for replica in replicas}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on = dict(zip(replicas, one_of_each(model, len(replicas), len(machines)), strict=True))
        highest = model.new_int_var(0, max(room.values()), "")
        for place, machine in enumerate(machines):
            load = sum(cpu[replica] * row[place] for replica, row in on.items())
            model.add(load <= room[machine])
            model.add(load <= highest)
        for service, (number, _) in services.items():
            rows = [on[replica] for replica, name in replicas.items() if name == service]
            for place in range(len(machines)):
                model.add_at_most_one(row[place] for row in rows)
            for each in racks:
                here = [row[m] for row in rows for m, name in enumerate(machines) if rack[name] == each]
                model.add(sum(here) <= -(-number // min(3, len(racks))))
        moves = sum(1 - row[machines.index(today[replica])] for replica, row in on.items())

        plan = plan_of("replica", "variable__machine", [*replicas], machines, [*on.values()])
        return Handwritten(model, [highest, moves], plan)

    def check(plan: Plan) -> list[int]:
        at = {replica: text(plan["replica", "variable__machine"][replica,]) for replica in replicas}
        held = totals((machine, cpu[replica]) for replica, machine in at.items())
        require(all(held[machine] <= room[machine] for machine in held), "no machine is overfull")
        on = totals(((replicas[replica], machine), 1) for replica, machine in at.items())
        require(max(on.values()) == 1, "replicas are on machines of their own")
        for (service, _), number in totals(
            ((replicas[replica], rack[machine]), 1) for replica, machine in at.items()
        ).items():
            require(
                number <= -(-services[service][0] // min(3, len(racks))), f"{service} is in several racks"
            )
        return [max(held.values()), sum(at[replica] != today[replica] for replica in replicas)]

    return Instance(
        {
            "rack": [{"name": each} for each in racks],
            "machine": [{"name": m, "rack": rack[m], "cpu": room[m]} for m in machines],
            "service": [
                {"name": name, "in_a_rack": -(-number // min(3, len(racks)))}
                for name, (number, _) in services.items()
            ],
            "replica": [
                {"name": replica, "service": name, "cpu": cpu[replica], "machine": today[replica]}
                for replica, name in replicas.items()
            ],
        },
        expert,
        check,
    )


REPLICAS = Problem(
    "replicas",
    "321 replicas on 40 machines in 8 racks, spread over both: the fullest as empty as can be, then fewest moves",
    """
CREATE TABLE rack (name TEXT PRIMARY KEY);
CREATE TABLE machine (name TEXT PRIMARY KEY, rack TEXT NOT NULL REFERENCES rack (name), cpu INTEGER NOT NULL);
CREATE TABLE service (name TEXT PRIMARY KEY, in_a_rack INTEGER NOT NULL);
CREATE TABLE replica (
    name TEXT PRIMARY KEY, service TEXT NOT NULL REFERENCES service (name), cpu INTEGER NOT NULL, machine TEXT NOT NULL,
    variable__machine TEXT NOT NULL REFERENCES machine (name)
);
""",
    Spellings(
        """
CREATE CONSTRAINT capacity AS
SELECT machine.name FROM replica JOIN machine ON replica.variable__machine = machine.name
GROUP BY machine.name, machine.cpu
CHECK sum(replica.cpu) <= machine.cpu;

CREATE CONSTRAINT apart AS
SELECT a.name, b.name FROM replica AS a JOIN replica AS b ON a.service = b.service AND a.name < b.name
CHECK a.variable__machine <> b.variable__machine;

CREATE CONSTRAINT racks AS
SELECT service.name, rack.name
FROM replica JOIN service ON service.name = replica.service
JOIN machine ON machine.name = replica.variable__machine JOIN rack ON rack.name = machine.rack
GROUP BY service.name, service.in_a_rack, rack.name
CHECK count(*) <= service.in_a_rack;

CREATE VIEW load AS
SELECT machine.name, sum(replica.cpu) AS cpu
FROM replica JOIN machine ON replica.variable__machine = machine.name
GROUP BY machine.name;

CREATE CONSTRAINT fullest AS
SELECT name FROM load
MINIMIZE max(cpu) TIER 1;

CREATE CONSTRAINT moves AS
SELECT name FROM replica WHERE variable__machine <> machine
MINIMIZE count(*) TIER 2;
""",
        """
CREATE CONSTRAINT capacity AS
SELECT name FROM machine
CHECK (SELECT sum(replica.cpu) FROM replica WHERE replica.variable__machine = machine.name) <= cpu;

CREATE CONSTRAINT apart AS
SELECT a.name FROM replica AS a
CHECK NOT EXISTS (
    SELECT 1 FROM replica AS b
    WHERE b.service = a.service AND b.name > a.name AND b.variable__machine = a.variable__machine
);

CREATE CONSTRAINT racks AS
SELECT service.name, rack.name FROM service CROSS JOIN rack
CHECK service.in_a_rack >= (
    SELECT count(*) FROM replica JOIN machine ON machine.name = replica.variable__machine
    WHERE replica.service = service.name AND machine.rack = rack.name
);

CREATE CONSTRAINT fullest AS
SELECT machine.name FROM machine
MINIMIZE max((SELECT sum(cpu) FROM replica WHERE replica.variable__machine = machine.name)) TIER 1;

CREATE CONSTRAINT moves AS
SELECT name FROM replica
MINIMIZE sum(CASE WHEN variable__machine = machine THEN 0 ELSE 1 END) TIER 2;
""",
        """
CREATE VIEW placed AS
SELECT replica.name, replica.service, replica.cpu, replica.machine AS was, machine.name AS machine, machine.rack,
    machine.cpu AS room
FROM replica JOIN machine ON replica.variable__machine = machine.name;

CREATE VIEW load AS
SELECT machine, room, sum(cpu) AS cpu FROM placed GROUP BY machine, room;

CREATE CONSTRAINT capacity AS
SELECT machine FROM load
CHECK cpu <= room;

CREATE CONSTRAINT apart AS
SELECT service FROM replica
GROUP BY service
CHECK all_different(variable__machine);

CREATE VIEW spread AS
SELECT service, rack, count(*) AS replicas FROM placed GROUP BY service, rack;

CREATE CONSTRAINT racks AS
SELECT service.name, spread.rack FROM spread JOIN service ON service.name = spread.service
CHECK spread.replicas <= service.in_a_rack;

CREATE CONSTRAINT fullest AS
SELECT machine FROM load
MINIMIZE max(cpu) TIER 1;

CREATE CONSTRAINT moves AS
SELECT name FROM placed WHERE machine <> was
MINIMIZE count(*) TIER 2;
""",
    ),
    _replicas,
)
