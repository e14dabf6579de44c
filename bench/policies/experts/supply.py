"""Streams on brokers, machines bought by number, jobs for agents, customers of sites."""

from __future__ import annotations

from random import Random

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
    whole,
)


def _brokers(draw: Random, size: float) -> Instance:
    brokers = names("b", scaled(12, size, 3))
    streams = names("s", 20 * len(brokers))
    rates = [min(400, int(10 * draw.paretovariate(0.9))) for _ in streams]
    homes = draw.sample([*range(len(brokers))] * 20, len(streams))
    most_streams, most_moves = 24, len(streams) // 8

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on = one_of_each(model, len(streams), len(brokers))
        peak = model.new_int_var(max(max(rates), -(-sum(rates) // len(brokers))), sum(rates), "")
        for broker in range(len(brokers)):
            model.add(sum(rate * row[broker] for rate, row in zip(rates, on, strict=True)) <= peak)
            model.add(sum(row[broker] for row in on) <= most_streams)
        model.add(sum(1 - row[home] for home, row in zip(homes, on, strict=True)) <= most_moves)
        for home, row in zip(homes, on, strict=True):
            for broker, literal in enumerate(row):
                model.add_hint(literal, broker == home)

        return Handwritten(model, [peak], plan_of("stream", "variable__broker", streams, brokers, on))

    def check(plan: Plan) -> list[int]:
        place = [text(plan["stream", "variable__broker"][stream,]) for stream in streams]
        require(max(totals((broker, 1) for broker in place).values()) <= most_streams, "not too many streams")
        moved = sum(broker != brokers[home] for broker, home in zip(place, homes, strict=True))
        require(moved <= most_moves, "not too many moves")
        return [max(totals(zip(place, rates, strict=True)).values())]

    return Instance(
        {
            "broker": [{"name": broker, "streams": most_streams} for broker in brokers],
            "stream": [
                {"name": stream, "rate": rate, "broker": brokers[home]}
                for stream, rate, home in zip(streams, rates, homes, strict=True)
            ],
            "limits": [{"moves": most_moves}],
        },
        expert,
        check,
    )


BROKERS = Problem(
    "brokers",
    "240 streams on 12 brokers, at most 30 moves: the busiest broker's rate as low as can be",
    """
CREATE TABLE broker (name TEXT PRIMARY KEY, streams INTEGER NOT NULL);
CREATE TABLE stream (
    name TEXT PRIMARY KEY, rate INTEGER NOT NULL, broker TEXT NOT NULL,
    variable__broker TEXT NOT NULL REFERENCES broker (name)
);
CREATE TABLE limits (moves INTEGER PRIMARY KEY);
""",
    Spellings(
        """
CREATE CONSTRAINT not_too_many_streams AS
SELECT broker.name
FROM stream JOIN broker ON stream.variable__broker = broker.name
GROUP BY broker.name, broker.streams
CHECK count(*) <= broker.streams;

CREATE CONSTRAINT not_too_many_moves AS
SELECT limits.moves
FROM stream CROSS JOIN limits
WHERE stream.variable__broker <> stream.broker
GROUP BY limits.moves
CHECK count(*) <= limits.moves;

CREATE VIEW throughput AS
SELECT broker.name, sum(stream.rate) AS rate
FROM stream JOIN broker ON stream.variable__broker = broker.name
GROUP BY broker.name;

CREATE CONSTRAINT busiest AS
SELECT name FROM throughput
MINIMIZE max(rate);
""",
        """
CREATE CONSTRAINT not_too_many_streams AS
SELECT name FROM broker
CHECK (SELECT count(*) FROM stream WHERE stream.variable__broker = broker.name) <= streams;

CREATE CONSTRAINT not_too_many_moves AS
SELECT moves FROM limits
CHECK (SELECT count(*) FROM stream WHERE variable__broker <> broker) <= moves;

CREATE CONSTRAINT busiest AS
SELECT broker.name FROM broker
MINIMIZE max((SELECT sum(rate) FROM stream WHERE stream.variable__broker = broker.name));
""",
        """
CREATE VIEW load AS
SELECT broker.name, broker.streams AS most, count(*) AS streams, sum(stream.rate) AS rate
FROM stream JOIN broker ON stream.variable__broker = broker.name
GROUP BY broker.name, broker.streams;

CREATE CONSTRAINT not_too_many_streams AS
SELECT name FROM load
CHECK streams <= most;

CREATE VIEW moved AS
SELECT count(*) AS streams FROM stream WHERE variable__broker <> broker;

CREATE CONSTRAINT not_too_many_moves AS
SELECT limits.moves FROM limits CROSS JOIN moved
CHECK moved.streams <= limits.moves;

CREATE VIEW peak AS
SELECT max(rate) AS rate FROM load;

CREATE CONSTRAINT busiest AS
SELECT rate FROM peak
MINIMIZE sum(rate);
""",
    ),
    _brokers,
)

_RESOURCES = ("cpu", "memory", "gpu", "disk")


def _fleets(draw: Random, size: float) -> Instance:
    regions = names("r", scaled(6, size, 2))
    types = names("t", scaled(20, size, 5))
    gives = {
        (kind, resource): draw.choice((0, 1, 2, 4, 8) if resource == "gpu" else (8, 16, 24, 48, 96))
        for kind in types
        for resource in _RESOURCES
    }
    gives[types[0], "gpu"] = 4  # one type has everything, and there is enough of it
    stock = {kind: draw.randint(50, 600) for kind in types} | {types[0]: 100_000}
    price = {
        (region, kind): 20
        + sum(gives[kind, r] * (30 if r == "gpu" else 1) for r in _RESOURCES)
        + draw.randint(0, 90)
        for region in regions
        for kind in types
    }
    demand = {
        (region, resource): draw.randint(500, 3000) if resource == "gpu" else draw.randint(8000, 40_000)
        for region in regions
        for resource in _RESOURCES
    }

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        bought = {
            (region, kind): model.new_int_var(0, stock[kind], "") for region in regions for kind in types
        }
        for (region, resource), amount in demand.items():
            model.add(sum(gives[kind, resource] * bought[region, kind] for kind in types) >= amount)
        for kind in types:
            model.add(sum(bought[region, kind] for region in regions) <= stock[kind])
        cost = sum(price[key] * number for key, number in bought.items())

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {
                ("offer", "variable__bought"): {key: solver.value(number) for key, number in bought.items()}
            }

        return Handwritten(model, [cost], plan)

    def check(plan: Plan) -> list[int]:
        bought = {key: whole(plan["offer", "variable__bought"][key]) for key in price}
        require(min(bought.values()) >= 0, "nothing is sold")
        for (region, resource), amount in demand.items():
            have = sum(gives[kind, resource] * bought[region, kind] for kind in types)
            require(have >= amount, f"{region} has enough {resource}")
        for kind in types:
            require(
                sum(bought[region, kind] for region in regions) <= stock[kind], f"there are so many {kind}"
            )
        return [sum(price[key] * number for key, number in bought.items())]

    return Instance(
        {
            "machine_type": [{"name": kind, "stock": stock[kind]} for kind in types],
            "provides": [
                {"type": kind, "resource": resource, "amount": amount}
                for (kind, resource), amount in gives.items()
            ],
            "demand": [
                {"region": region, "resource": resource, "amount": amount}
                for (region, resource), amount in demand.items()
            ],
            "offer": [
                {"region": region, "type": kind, "price": cost} for (region, kind), cost in price.items()
            ],
        },
        expert,
        check,
    )


FLEETS = Problem(
    "fleets",
    "20 types of machines for 6 regions, bought by number: all demands at the least cost",
    """
CREATE TABLE machine_type (name TEXT PRIMARY KEY, stock INTEGER NOT NULL);
CREATE TABLE provides (
    type TEXT NOT NULL REFERENCES machine_type (name), resource TEXT NOT NULL, amount INTEGER NOT NULL,
    PRIMARY KEY (type, resource)
);
CREATE TABLE demand (
    region TEXT NOT NULL, resource TEXT NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (region, resource)
);
CREATE TABLE offer (
    region TEXT NOT NULL,
    type TEXT NOT NULL REFERENCES machine_type (name),
    price INTEGER NOT NULL,
    variable__bought INTEGER NOT NULL CHECK (variable__bought BETWEEN 0 AND 1000000),
    PRIMARY KEY (region, type)
);
""",
    Spellings(
        """
CREATE CONSTRAINT demands_are_met AS
SELECT demand.region, demand.resource
FROM offer
JOIN provides ON provides.type = offer.type
JOIN demand ON demand.region = offer.region AND demand.resource = provides.resource
GROUP BY demand.region, demand.resource, demand.amount
CHECK sum(offer.variable__bought * provides.amount) >= demand.amount;

CREATE CONSTRAINT in_stock AS
SELECT machine_type.name
FROM offer JOIN machine_type ON offer.type = machine_type.name
GROUP BY machine_type.name, machine_type.stock
CHECK sum(offer.variable__bought) <= machine_type.stock;

CREATE CONSTRAINT cost AS
SELECT region, type FROM offer
MINIMIZE sum(price * variable__bought);
""",
        """
CREATE CONSTRAINT demands_are_met AS
SELECT region, resource FROM demand
CHECK (
    SELECT sum(offer.variable__bought * provides.amount)
    FROM offer JOIN provides ON provides.type = offer.type
    WHERE offer.region = demand.region AND provides.resource = demand.resource
) >= amount;

CREATE CONSTRAINT in_stock AS
SELECT name FROM machine_type
CHECK (SELECT sum(variable__bought) FROM offer WHERE offer.type = machine_type.name) <= stock;

CREATE CONSTRAINT cost AS
SELECT 1 AS everything
MINIMIZE (SELECT sum(price * variable__bought) FROM offer);
""",
        """
CREATE VIEW supply AS
SELECT offer.region, provides.resource, sum(offer.variable__bought * provides.amount) AS amount
FROM offer JOIN provides ON provides.type = offer.type
GROUP BY offer.region, provides.resource;

CREATE CONSTRAINT demands_are_met AS
SELECT demand.region, demand.resource
FROM demand JOIN supply ON supply.region = demand.region AND supply.resource = demand.resource
CHECK supply.amount >= demand.amount;

CREATE VIEW bought AS
SELECT type, sum(variable__bought) AS machines FROM offer GROUP BY type;

CREATE CONSTRAINT in_stock AS
SELECT machine_type.name FROM machine_type JOIN bought ON bought.type = machine_type.name
CHECK machines <= stock;

CREATE VIEW bill AS
SELECT region, sum(price * variable__bought) AS amount FROM offer GROUP BY region;

CREATE CONSTRAINT cost AS
SELECT region FROM bill
MINIMIZE sum(amount);
""",
    ),
    _fleets,
)


def _assignment(draw: Random, size: float) -> Instance:
    jobs = names("j", scaled(60, size, 10))
    agents = names("a", scaled(10, size, 3))
    # Type D of the literature, the hard one: what takes long is cheap.
    hours = [[draw.randint(1, 100) for _ in agents] for _ in jobs]
    price = [[111 - time + draw.randint(-10, 10) for time in row] for row in hours]
    room = [sum(row[agent] for row in hours) * 8 // (10 * len(agents)) + 5 for agent in range(len(agents))]

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on = one_of_each(model, len(jobs), len(agents))
        for agent in range(len(agents)):
            model.add(sum(hours[job][agent] * on[job][agent] for job in range(len(jobs))) <= room[agent])
        cost = sum(
            price[job][agent] * on[job][agent] for job in range(len(jobs)) for agent in range(len(agents))
        )

        return Handwritten(model, [cost], plan_of("job", "variable__agent", jobs, agents, on))

    def check(plan: Plan) -> list[int]:
        place = [agents.index(text(plan["job", "variable__agent"][job,])) for job in jobs]
        used = totals((agent, hours[job][agent]) for job, agent in enumerate(place))
        require(all(used[agent] <= room[agent] for agent in used), "no agent works longer than it can")
        return [sum(price[job][agent] for job, agent in enumerate(place))]

    return Instance(
        {
            "agent": [{"name": agent, "hours": room[number]} for number, agent in enumerate(agents)],
            "job": [{"name": job} for job in jobs],
            "offer": [
                {"job": job, "agent": agent, "hours": hours[row][column], "price": price[row][column]}
                for row, job in enumerate(jobs)
                for column, agent in enumerate(agents)
            ],
        },
        expert,
        check,
    )


ASSIGNMENT = Problem(
    "assignment",
    "60 jobs for 10 agents, whose hours and prices differ from job to job: least cost",
    """
CREATE TABLE agent (name TEXT PRIMARY KEY, hours INTEGER NOT NULL);
CREATE TABLE job (name TEXT PRIMARY KEY, variable__agent TEXT NOT NULL REFERENCES agent (name));
CREATE TABLE offer (
    job TEXT NOT NULL REFERENCES job (name),
    agent TEXT NOT NULL REFERENCES agent (name),
    hours INTEGER NOT NULL,
    price INTEGER NOT NULL,
    PRIMARY KEY (job, agent)
);
""",
    Spellings(
        """
CREATE CONSTRAINT hours AS
SELECT agent.name
FROM job
JOIN agent ON job.variable__agent = agent.name
JOIN offer ON offer.job = job.name AND offer.agent = agent.name
GROUP BY agent.name, agent.hours
CHECK sum(offer.hours) <= agent.hours;

CREATE CONSTRAINT cost AS
SELECT job.name
FROM job JOIN offer ON offer.job = job.name AND offer.agent = job.variable__agent
MINIMIZE sum(offer.price);
""",
        """
CREATE CONSTRAINT hours AS
SELECT name FROM agent
CHECK (
    SELECT sum(offer.hours) FROM job JOIN offer ON offer.job = job.name AND offer.agent = job.variable__agent
    WHERE job.variable__agent = agent.name
) <= hours;

CREATE CONSTRAINT cost AS
SELECT job.name FROM job
MINIMIZE sum((SELECT price FROM offer WHERE offer.job = job.name AND offer.agent = job.variable__agent));
""",
        """
CREATE VIEW taken AS
SELECT job.name, offer.agent, offer.hours, offer.price
FROM job JOIN offer ON offer.job = job.name
WHERE offer.agent = job.variable__agent;

CREATE VIEW week AS
SELECT agent.name, agent.hours AS most, sum(taken.hours) AS hours
FROM taken JOIN agent ON taken.agent = agent.name
GROUP BY agent.name, agent.hours;

CREATE CONSTRAINT hours AS
SELECT name FROM week
CHECK hours <= most;

CREATE CONSTRAINT cost AS
SELECT name FROM taken
MINIMIZE sum(price);
""",
    ),
    _assignment,
)


def _facilities(draw: Random, size: float) -> Instance:
    sites = names("s", scaled(25, size, 4))
    customers = names("c", scaled(80, size, 10))
    where = {name: (draw.randrange(1000), draw.randrange(1000)) for name in (*sites, *customers)}
    demand = [draw.randint(5, 35) for _ in customers]
    opening = [draw.randint(1500, 3000) for _ in sites]
    room = [sum(demand) * draw.randint(4, 10) // (2 * len(sites)) + 35 for _ in sites]
    distance = [
        [int(((where[c][0] - where[s][0]) ** 2 + (where[c][1] - where[s][1]) ** 2) ** 0.5) for s in sites]
        for c in customers
    ]

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = one_of_each(model, len(customers), len(sites))
        opened = [model.new_bool_var("") for _ in sites]
        for site in range(len(sites)):
            held = sum(amount * row[site] for amount, row in zip(demand, at, strict=True))
            model.add(held <= room[site] * opened[site])
            for row in at:
                model.add_implication(row[site], opened[site])
        model.add(sum(size * site for size, site in zip(room, opened, strict=True)) >= sum(demand))
        cost = sum(price * site for price, site in zip(opening, opened, strict=True))
        cost += sum(distance[c][s] * at[c][s] for c in range(len(customers)) for s in range(len(sites)))

        served = plan_of("customer", "variable__site", customers, sites, at)

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {
                **served(solver),
                ("site", "variable__open"): {
                    (s,): solver.boolean_value(literal) for s, literal in zip(sites, opened, strict=True)
                },
            }

        return Handwritten(model, [cost], plan)

    def check(plan: Plan) -> list[int]:
        place = [sites.index(text(plan["customer", "variable__site"][customer,])) for customer in customers]
        opened = [bool(plan["site", "variable__open"][site,]) for site in sites]
        require(all(opened[site] for site in place), "customers are served by sites that are open")
        held = totals(zip(place, demand, strict=True))
        require(all(held[site] <= room[site] for site in held), "no site serves more than it can")
        far = sum(distance[customer][site] for customer, site in enumerate(place))
        return [far + sum(price for price, is_open in zip(opening, opened, strict=True) if is_open)]

    return Instance(
        {
            "site": [
                {"name": site, "opening": opening[number], "room": room[number]}
                for number, site in enumerate(sites)
            ],
            "customer": [
                {"name": name, "demand": amount} for name, amount in zip(customers, demand, strict=True)
            ],
            "distance": [
                {"customer": customer, "site": site, "length": distance[row][column]}
                for row, customer in enumerate(customers)
                for column, site in enumerate(sites)
            ],
        },
        expert,
        check,
    )


FACILITIES = Problem(
    "facilities",
    "80 customers, 25 sites that cost something to open and serve so much: opening and ways together",
    """
CREATE TABLE site (
    name TEXT PRIMARY KEY, opening INTEGER NOT NULL, room INTEGER NOT NULL,
    variable__open BOOLEAN NOT NULL
);
CREATE TABLE customer (
    name TEXT PRIMARY KEY, demand INTEGER NOT NULL,
    variable__site TEXT NOT NULL REFERENCES site (name)
);
CREATE TABLE distance (
    customer TEXT NOT NULL REFERENCES customer (name),
    site TEXT NOT NULL REFERENCES site (name),
    length INTEGER NOT NULL,
    PRIMARY KEY (customer, site)
);
""",
    Spellings(
        """
CREATE CONSTRAINT only_open_sites AS
SELECT customer.name
FROM customer JOIN site ON customer.variable__site = site.name
CHECK site.variable__open;

CREATE CONSTRAINT room AS
SELECT site.name
FROM customer JOIN site ON customer.variable__site = site.name
GROUP BY site.name, site.room
CHECK sum(customer.demand) <= site.room;

CREATE CONSTRAINT opening AS
SELECT name FROM site WHERE variable__open
MINIMIZE sum(opening);

CREATE CONSTRAINT ways AS
SELECT customer.name
FROM customer JOIN distance ON distance.customer = customer.name AND distance.site = customer.variable__site
MINIMIZE sum(distance.length);
""",
        """
CREATE CONSTRAINT only_open_sites AS
SELECT name FROM customer
CHECK variable__site IN (SELECT name FROM site WHERE variable__open);

CREATE CONSTRAINT room AS
SELECT name FROM site
CHECK (SELECT sum(demand) FROM customer WHERE customer.variable__site = site.name) <= room;

CREATE CONSTRAINT opening AS
SELECT name FROM site
MINIMIZE sum(CASE WHEN variable__open THEN opening ELSE 0 END);

CREATE CONSTRAINT ways AS
SELECT name FROM customer
MINIMIZE sum((
    SELECT length FROM distance WHERE distance.customer = customer.name AND distance.site = customer.variable__site
));
""",
        """
CREATE VIEW opened AS
SELECT name, opening FROM site WHERE variable__open;

CREATE CONSTRAINT only_open_sites AS
SELECT site.name FROM customer JOIN site ON customer.variable__site = site.name
WHERE NOT site.variable__open
CHECK FALSE;

CREATE VIEW served AS
SELECT site.name, site.room, sum(customer.demand) AS demand
FROM customer JOIN site ON customer.variable__site = site.name
GROUP BY site.name, site.room;

CREATE CONSTRAINT room AS
SELECT name FROM served
CHECK demand <= room;

CREATE CONSTRAINT opening AS
SELECT name FROM opened
MINIMIZE sum(opening);

CREATE VIEW way AS
SELECT customer.name, distance.length
FROM customer JOIN distance ON distance.customer = customer.name AND distance.site = customer.variable__site;

CREATE CONSTRAINT ways AS
SELECT name FROM way
MINIMIZE sum(length);
""",
    ),
    _facilities,
)
