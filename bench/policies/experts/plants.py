"""Paper to cut, lots to make, lorries to send, stations to open, proposals to pay for, and a tour."""

from __future__ import annotations

from itertools import accumulate
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
    require,
    scaled,
    text,
    whole,
)

_ROLL = 100


def _cutting(draw: Random, size: float) -> Instance:
    widths = sorted(draw.sample(range(12, 62), scaled(8, size, 3)))
    demand = {width: draw.randint(3, 9) for width in widths}
    rolls = names("r", sum(width * number for width, number in demand.items()) * 14 // (10 * _ROLL) + 2)

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        pieces = {
            (roll, width): model.new_int_var(0, _ROLL // width, "") for roll in rolls for width in widths
        }
        used = {roll: model.new_bool_var("") for roll in rolls}
        for roll in rolls:
            model.add(sum(width * pieces[roll, width] for width in widths) <= _ROLL * used[roll])
        for width, number in demand.items():
            model.add(sum(pieces[roll, width] for roll in rolls) >= number)

        def plan(solver: cp_model.CpSolver) -> Plan:
            found = {key: solver.value(number) for key, number in pieces.items()}
            return {("cut", "variable__pieces"): found}

        return Handwritten(model, [sum(used.values())], plan)

    def check(plan: Plan) -> list[int]:
        pieces = {(r, w): whole(plan["cut", "variable__pieces"][r, w]) for r in rolls for w in widths}
        for roll in rolls:
            require(sum(width * pieces[roll, width] for width in widths) <= _ROLL, f"{roll} is long enough")
        for width, number in demand.items():
            require(sum(pieces[roll, width] for roll in rolls) >= number, f"enough of {width}")
        return [sum(any(pieces[roll, width] for width in widths) for roll in rolls)]

    return Instance(
        {
            "roll": [{"name": roll, "length": _ROLL} for roll in rolls],
            "demand": [{"width": width, "pieces": number} for width, number in demand.items()],
            "cut": [{"roll": roll, "width": width} for roll in rolls for width in widths],
        },
        expert,
        check,
    )


CUTTING = Problem(
    "cutting",
    "pieces of 8 widths from rolls of 100: fewest rolls",
    """
CREATE TABLE roll (name TEXT PRIMARY KEY, length INTEGER NOT NULL);
CREATE TABLE demand (width INTEGER PRIMARY KEY, pieces INTEGER NOT NULL);
CREATE TABLE cut (
    roll TEXT NOT NULL REFERENCES roll (name), width INTEGER NOT NULL REFERENCES demand (width),
    variable__pieces INTEGER NOT NULL CHECK (variable__pieces BETWEEN 0 AND 8),
    PRIMARY KEY (roll, width)
);
""",
    Spellings(
        """
CREATE CONSTRAINT long_enough AS
SELECT roll.name FROM cut JOIN roll ON cut.roll = roll.name
GROUP BY roll.name, roll.length
CHECK sum(cut.width * cut.variable__pieces) <= roll.length;

CREATE CONSTRAINT enough AS
SELECT demand.width FROM cut JOIN demand ON cut.width = demand.width
GROUP BY demand.width, demand.pieces
CHECK sum(cut.variable__pieces) >= demand.pieces;

CREATE CONSTRAINT few AS
SELECT roll FROM cut WHERE variable__pieces > 0
MINIMIZE count(DISTINCT roll);
""",
        """
CREATE CONSTRAINT long_enough AS
SELECT name FROM roll
CHECK (SELECT sum(width * variable__pieces) FROM cut WHERE cut.roll = roll.name) <= length;

CREATE CONSTRAINT enough AS
SELECT width FROM demand
CHECK pieces <= (SELECT sum(variable__pieces) FROM cut WHERE cut.width = demand.width);

CREATE CONSTRAINT few AS
SELECT name FROM roll
WHERE EXISTS (SELECT 1 FROM cut WHERE cut.roll = roll.name AND variable__pieces >= 1)
MINIMIZE count(*);
""",
        """
CREATE VIEW made AS
SELECT roll, sum(variable__pieces) AS pieces, sum(width * variable__pieces) AS length FROM cut GROUP BY roll;

CREATE CONSTRAINT long_enough AS
SELECT roll.name FROM made JOIN roll ON made.roll = roll.name
CHECK made.length <= roll.length;

CREATE VIEW have AS
SELECT width, sum(variable__pieces) AS pieces FROM cut GROUP BY width;

CREATE CONSTRAINT enough AS
SELECT demand.width FROM demand JOIN have ON have.width = demand.width
CHECK have.pieces >= demand.pieces;

CREATE CONSTRAINT few AS
SELECT roll FROM made
MINIMIZE sum(CASE WHEN pieces > 0 THEN 1 ELSE 0 END);
""",
    ),
    _cutting,
)


def _lots(draw: Random, size: float) -> Instance:
    items, weeks = names("i", scaled(6, size, 2)), range(1, scaled(10, size, 4) + 1)
    demand = {(item, week): draw.choice((0, 10, 20, 30, 40)) for item in items for week in weeks}
    setup = {item: draw.randint(60, 200) for item in items}
    store = {item: draw.randint(1, 4) for item in items}
    capacity = (
        max(-(-sum(each for (_, w), each in demand.items() if w <= week) // week) for week in weeks) + 25
    )  # so much a week is enough for what has been asked for until then

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        made = {key: model.new_int_var(0, capacity, "") for key in demand}
        runs = {key: model.new_bool_var("") for key in demand}
        cost = sum(setup[item] * each for (item, _), each in runs.items())
        for key in demand:
            model.add(made[key] <= capacity * runs[key])
        for week in weeks:
            model.add(sum(made[item, week] for item in items) <= capacity)
        for item in items:
            stock: Any = 0
            for week in weeks:
                left = model.new_int_var(0, 1000, "")
                model.add(left == stock + made[item, week] - demand[item, week])
                cost += store[item] * left
                stock = left

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {("lot", "variable__made"): {key: solver.value(each) for key, each in made.items()}}

        return Handwritten(model, [cost], plan)

    def check(plan: Plan) -> list[int]:
        made = {key: whole(plan["lot", "variable__made"][key]) for key in demand}
        for week in weeks:
            require(sum(made[item, week] for item in items) <= capacity, "no week is too long")
        cost = sum(setup[item] for (item, _), each in made.items() if each)
        for item in items:
            for left in accumulate(made[item, week] - demand[item, week] for week in weeks):
                require(left >= 0, f"there is enough of {item}")
                cost += store[item] * left
        return [cost]

    asked = {item: list(accumulate(demand[item, week] for week in weeks)) for item in items}
    return Instance(
        {
            "item": [{"name": item, "setup": setup[item], "store": store[item]} for item in items],
            "week": [{"number": week, "capacity": capacity} for week in weeks],
            "lot": [
                {"item": item, "week": week, "demand": each, "asked": asked[item][week - 1]}
                for (item, week), each in demand.items()
            ],
        },
        expert,
        check,
    )


LOTS = Problem(
    "lots",
    "6 items made in 10 weeks: setting up and storing as cheap as can be",
    """
CREATE TABLE item (name TEXT PRIMARY KEY, setup INTEGER NOT NULL, store INTEGER NOT NULL);
CREATE TABLE week (number INTEGER PRIMARY KEY, capacity INTEGER NOT NULL);
-- asked: the demand of all weeks until this one
CREATE TABLE lot (
    item TEXT NOT NULL REFERENCES item (name), week INTEGER NOT NULL REFERENCES week (number),
    demand INTEGER NOT NULL, asked INTEGER NOT NULL,
    variable__made INTEGER NOT NULL CHECK (variable__made BETWEEN 0 AND 500),
    PRIMARY KEY (item, week)
);
""",
    Spellings(
        """
CREATE CONSTRAINT no_week_is_too_long AS
SELECT week.number FROM lot JOIN week ON week.number = lot.week
GROUP BY week.number, week.capacity
CHECK sum(lot.variable__made) <= week.capacity;

CREATE CONSTRAINT enough AS
SELECT lot.item, lot.week
FROM lot JOIN lot AS earlier ON earlier.item = lot.item AND earlier.week <= lot.week
GROUP BY lot.item, lot.week, lot.asked
CHECK sum(earlier.variable__made) >= lot.asked;

CREATE CONSTRAINT setting_up AS
SELECT lot.item, lot.week FROM lot JOIN item ON item.name = lot.item
WHERE lot.variable__made > 0
MINIMIZE sum(item.setup);

CREATE CONSTRAINT storing AS
SELECT lot.item, lot.week
FROM lot JOIN lot AS earlier ON earlier.item = lot.item AND earlier.week <= lot.week
JOIN item ON item.name = lot.item
MINIMIZE sum(item.store * (earlier.variable__made - earlier.demand));
""",
        """
CREATE CONSTRAINT no_week_is_too_long AS
SELECT number FROM week
CHECK (SELECT sum(variable__made) FROM lot WHERE lot.week = week.number) <= capacity;

CREATE CONSTRAINT enough AS
SELECT item, week FROM lot
CHECK (
    SELECT sum(earlier.variable__made) FROM lot AS earlier
    WHERE earlier.item = lot.item AND earlier.week <= lot.week
) >= asked;

CREATE CONSTRAINT setting_up AS
SELECT item, week FROM lot
MINIMIZE sum(CASE WHEN variable__made > 0 THEN (SELECT setup FROM item WHERE name = lot.item) ELSE 0 END);

CREATE CONSTRAINT storing AS
SELECT lot.item, lot.week FROM lot JOIN item ON item.name = lot.item
MINIMIZE sum(item.store * ((
    SELECT sum(earlier.variable__made) FROM lot AS earlier
    WHERE earlier.item = lot.item AND earlier.week <= lot.week
) - lot.asked));
""",
        """
CREATE VIEW load AS
SELECT week, sum(variable__made) AS made FROM lot GROUP BY week;

CREATE CONSTRAINT no_week_is_too_long AS
SELECT week.number FROM week JOIN load ON load.week = week.number
CHECK made <= capacity;

CREATE VIEW stock AS
SELECT lot.item, lot.week, sum(earlier.variable__made) - lot.asked AS left_over
FROM lot JOIN lot AS earlier ON earlier.item = lot.item AND earlier.week <= lot.week
GROUP BY lot.item, lot.week, lot.asked;

CREATE CONSTRAINT enough AS
SELECT item, week FROM stock
CHECK left_over >= 0;

CREATE VIEW run AS
SELECT lot.item, lot.week, item.setup FROM lot JOIN item ON item.name = lot.item WHERE lot.variable__made <> 0;

CREATE CONSTRAINT setting_up AS
SELECT item FROM run
MINIMIZE sum(setup);

CREATE CONSTRAINT storing AS
SELECT stock.item FROM stock JOIN item ON item.name = stock.item
MINIMIZE sum(item.store * stock.left_over);
""",
    ),
    _lots,
)


def _lorries(draw: Random, size: float) -> Instance:
    plants, shops = names("p", scaled(6, size, 2)), names("s", scaled(14, size, 3))
    demand = {shop: draw.randint(20, 60) for shop in shops}
    stock = {plant: sum(demand.values()) * 13 // (10 * len(plants)) + 20 for plant in plants}
    lanes = {(p, s): (draw.randint(100, 400), draw.randint(1, 15)) for p in plants for s in shops}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        sent = {lane: model.new_int_var(0, min(stock[lane[0]], demand[lane[1]]), "") for lane in lanes}
        runs = {lane: model.new_bool_var("") for lane in lanes}
        for lane in lanes:
            model.add(sent[lane] <= demand[lane[1]] * runs[lane])
        for plant in plants:
            model.add(sum(sent[plant, shop] for shop in shops) <= stock[plant])
        for shop in shops:
            model.add(sum(sent[plant, shop] for plant in plants) == demand[shop])
        cost = sum(fixed * runs[lane] + each * sent[lane] for lane, (fixed, each) in lanes.items())

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {("lane", "variable__sent"): {lane: solver.value(each) for lane, each in sent.items()}}

        return Handwritten(model, [cost], plan)

    def check(plan: Plan) -> list[int]:
        sent = {lane: whole(plan["lane", "variable__sent"][lane]) for lane in lanes}
        for plant in plants:
            require(sum(sent[plant, shop] for shop in shops) <= stock[plant], f"{plant} has so much")
        for shop in shops:
            require(sum(sent[plant, shop] for plant in plants) == demand[shop], f"{shop} gets what it wants")
        return [sum((fixed + each * sent[lane]) * (sent[lane] > 0) for lane, (fixed, each) in lanes.items())]

    return Instance(
        {
            "plant": [{"name": plant, "stock": each} for plant, each in stock.items()],
            "shop": [{"name": shop, "demand": each} for shop, each in demand.items()],
            "lane": [
                {"plant": plant, "shop": shop, "opening": fixed, "price": each}
                for (plant, shop), (fixed, each) in lanes.items()
            ],
        },
        expert,
        check,
    )


LORRIES = Problem(
    "lorries",
    "6 plants, 14 shops, lanes that cost something to run and something a piece: all demands at the least cost",
    """
CREATE TABLE plant (name TEXT PRIMARY KEY, stock INTEGER NOT NULL);
CREATE TABLE shop (name TEXT PRIMARY KEY, demand INTEGER NOT NULL);
CREATE TABLE lane (
    plant TEXT NOT NULL REFERENCES plant (name), shop TEXT NOT NULL REFERENCES shop (name),
    opening INTEGER NOT NULL, price INTEGER NOT NULL,
    variable__sent INTEGER NOT NULL CHECK (variable__sent BETWEEN 0 AND 200),
    PRIMARY KEY (plant, shop)
);
""",
    Spellings(
        """
CREATE CONSTRAINT in_stock AS
SELECT plant.name FROM lane JOIN plant ON plant.name = lane.plant
GROUP BY plant.name, plant.stock
CHECK sum(lane.variable__sent) <= plant.stock;

CREATE CONSTRAINT wanted AS
SELECT shop.name FROM lane JOIN shop ON shop.name = lane.shop
GROUP BY shop.name, shop.demand
CHECK sum(lane.variable__sent) = shop.demand;

CREATE CONSTRAINT running AS
SELECT plant, shop FROM lane WHERE variable__sent > 0
MINIMIZE sum(opening);

CREATE CONSTRAINT pieces AS
SELECT plant, shop FROM lane
MINIMIZE sum(price * variable__sent);
""",
        """
CREATE CONSTRAINT in_stock AS
SELECT name FROM plant
CHECK (SELECT sum(variable__sent) FROM lane WHERE lane.plant = plant.name) <= stock;

CREATE CONSTRAINT wanted AS
SELECT name FROM shop
CHECK demand = (SELECT sum(variable__sent) FROM lane WHERE lane.shop = shop.name);

CREATE CONSTRAINT cost AS
SELECT 1 AS everything
MINIMIZE (SELECT sum(CASE WHEN variable__sent = 0 THEN 0 ELSE opening + price * variable__sent END) FROM lane);
""",
        """
CREATE VIEW sent AS
SELECT plant, shop, opening, price, variable__sent AS pieces, variable__sent > 0 AS runs FROM lane;

CREATE VIEW out AS SELECT plant, sum(pieces) AS pieces FROM sent GROUP BY plant;
CREATE VIEW arriving AS SELECT shop, sum(pieces) AS pieces FROM sent GROUP BY shop;

CREATE CONSTRAINT in_stock AS
SELECT plant.name FROM plant JOIN out ON out.plant = plant.name
CHECK pieces <= stock;

CREATE CONSTRAINT wanted AS
SELECT shop.name FROM shop JOIN arriving ON arriving.shop = shop.name
CHECK pieces = demand;

CREATE CONSTRAINT running AS
SELECT plant FROM sent WHERE runs
MINIMIZE sum(opening);

CREATE CONSTRAINT paid AS
SELECT plant FROM sent
MINIMIZE sum(pieces * price);
""",
    ),
    _lorries,
)


def _stations(draw: Random, size: float) -> Instance:
    sites, areas = names("s", scaled(60, size, 8)), names("a", scaled(150, size, 15))
    price = {site: draw.randint(10, 60) for site in sites}
    reaches = {area: draw.sample(sites, draw.randint(3, 6)) for area in areas}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        opened = {site: model.new_bool_var("") for site in sites}
        for near in reaches.values():
            model.add_bool_or(opened[site] for site in near)

        def plan(solver: cp_model.CpSolver) -> Plan:
            found = {(site,): solver.boolean_value(each) for site, each in opened.items()}
            return {("site", "variable__open"): found}

        return Handwritten(model, [sum(price[site] * each for site, each in opened.items())], plan)

    def check(plan: Plan) -> list[int]:
        opened = {site for site in sites if plan["site", "variable__open"][site,]}
        require(all(opened & {*near} for near in reaches.values()), "every area is reached")
        return [sum(price[site] for site in opened)]

    return Instance(
        {
            "site": [{"name": site, "price": each} for site, each in price.items()],
            "area": [{"name": area} for area in areas],
            "reach": [{"site": site, "area": area} for area, near in reaches.items() for site in near],
        },
        expert,
        check,
    )


STATIONS = Problem(
    "stations",
    "60 sites for ambulances, 150 areas that one of them must reach: the cheapest sites",
    """
CREATE TABLE site (name TEXT PRIMARY KEY, price INTEGER NOT NULL, variable__open BOOLEAN NOT NULL);
CREATE TABLE area (name TEXT PRIMARY KEY);
CREATE TABLE reach (site TEXT NOT NULL, area TEXT NOT NULL, PRIMARY KEY (site, area));
""",
    Spellings(
        """
CREATE CONSTRAINT reached AS
SELECT reach.area FROM reach JOIN site ON site.name = reach.site
WHERE site.variable__open
GROUP BY reach.area
CHECK count(*) >= 1;

CREATE CONSTRAINT price AS
SELECT name FROM site WHERE variable__open
MINIMIZE sum(price);
""",
        """
CREATE CONSTRAINT reached AS
SELECT area.name FROM area
CHECK EXISTS (
    SELECT 1 FROM reach JOIN site ON site.name = reach.site WHERE reach.area = area.name AND site.variable__open
);

CREATE CONSTRAINT price AS
SELECT 1 AS everything
MINIMIZE (SELECT sum(price) FROM site WHERE variable__open);
""",
        """
CREATE VIEW opened AS
SELECT name, price FROM site WHERE variable__open;

CREATE CONSTRAINT reached AS
SELECT name FROM area
CHECK name IN (SELECT reach.area FROM reach JOIN opened ON opened.name = reach.site);

CREATE CONSTRAINT price AS
SELECT name FROM opened
MINIMIZE sum(price);
""",
    ),
    _stations,
)


def _proposals(draw: Random, size: float) -> Instance:
    proposals, years = names("p", scaled(60, size, 8)), range(1, 4)
    value = [draw.randint(20, 100) for _ in proposals]
    cost = [[draw.randint(2, 20) + worth // 8 for _ in years] for worth in value]
    budget = [sum(row[year - 1] for row in cost) * 4 // 10 for year in years]
    needs = sorted({tuple(sorted(draw.sample(range(len(proposals)), 2))) for _ in range(len(proposals) // 3)})
    against = sorted(
        {tuple(sorted(draw.sample(range(len(proposals)), 2))) for _ in range(len(proposals) // 4)}
    )

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        taken = [model.new_bool_var("") for _ in proposals]
        for place, most in enumerate(budget):
            model.add(sum(row[place] * each for row, each in zip(cost, taken, strict=True)) <= most)
        for one, other in needs:
            model.add_implication(taken[other], taken[one])
        for one, other in against:
            model.add_at_most_one(taken[one], taken[other])
        forgone = sum(worth * (1 - each) for worth, each in zip(value, taken, strict=True))

        def plan(solver: cp_model.CpSolver) -> Plan:
            found = {(p,): solver.boolean_value(each) for p, each in zip(proposals, taken, strict=True)}
            return {("proposal", "variable__taken"): found}

        return Handwritten(model, [forgone], plan)

    def check(plan: Plan) -> list[int]:
        taken = [bool(plan["proposal", "variable__taken"][name,]) for name in proposals]
        for place, most in enumerate(budget):
            paid = sum(row[place] for row, each in zip(cost, taken, strict=True) if each)
            require(paid <= most, f"year {place + 1} is paid for")
        require(all(taken[one] or not taken[other] for one, other in needs), "what is needed is taken, too")
        require(not any(taken[one] and taken[other] for one, other in against), "nothing excludes another")
        return [sum(worth for worth, each in zip(value, taken, strict=True) if not each)]

    return Instance(
        {
            "proposal": [{"name": name, "value": each} for name, each in zip(proposals, value, strict=True)],
            "year": [{"number": number, "budget": each} for number, each in zip(years, budget, strict=True)],
            "cost": [
                {"proposal": name, "year": year, "amount": row[year - 1]}
                for name, row in zip(proposals, cost, strict=True)
                for year in years
            ],
            "needs": [{"one": proposals[one], "other": proposals[other]} for one, other in needs],
            "excludes": [{"one": proposals[one], "other": proposals[other]} for one, other in against],
        },
        expert,
        check,
    )


PROPOSALS = Problem(
    "proposals",
    "60 proposals that need or exclude each other, three years' budgets: least value forgone",
    """
CREATE TABLE proposal (name TEXT PRIMARY KEY, value INTEGER NOT NULL, variable__taken BOOLEAN NOT NULL);
CREATE TABLE year (number INTEGER PRIMARY KEY, budget INTEGER NOT NULL);
CREATE TABLE cost (
    proposal TEXT NOT NULL, year INTEGER NOT NULL, amount INTEGER NOT NULL,
    PRIMARY KEY (proposal, year)
);
CREATE TABLE needs (one TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (one, other));
CREATE TABLE excludes (one TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (one, other));
""",
    Spellings(
        """
CREATE CONSTRAINT budgets AS
SELECT year.number
FROM year JOIN cost ON cost.year = year.number JOIN proposal ON proposal.name = cost.proposal
WHERE proposal.variable__taken
GROUP BY year.number, year.budget
CHECK sum(cost.amount) <= year.budget;

CREATE CONSTRAINT needed AS
SELECT needs.one FROM needs JOIN proposal AS a ON a.name = needs.one JOIN proposal AS b ON b.name = needs.other
WHERE b.variable__taken
CHECK a.variable__taken;

CREATE CONSTRAINT excluded AS
SELECT excludes.one
FROM excludes JOIN proposal AS a ON a.name = excludes.one JOIN proposal AS b ON b.name = excludes.other
CHECK NOT (a.variable__taken AND b.variable__taken);

CREATE CONSTRAINT forgone AS
SELECT name FROM proposal WHERE NOT variable__taken
MINIMIZE sum(value);
""",
        """
CREATE CONSTRAINT budgets AS
SELECT number FROM year
CHECK (
    SELECT sum(amount) FROM cost
    WHERE cost.year = year.number AND cost.proposal IN (SELECT name FROM proposal WHERE variable__taken)
) <= budget;

CREATE CONSTRAINT needed AS
SELECT b.name FROM proposal AS b
CHECK NOT b.variable__taken OR NOT EXISTS (
    SELECT 1 FROM needs JOIN proposal AS a ON a.name = needs.one
    WHERE needs.other = b.name AND NOT a.variable__taken
);

CREATE CONSTRAINT excluded AS
SELECT a.name FROM proposal AS a
WHERE a.variable__taken
CHECK NOT EXISTS (
    SELECT 1 FROM excludes JOIN proposal AS b ON b.name = excludes.other
    WHERE excludes.one = a.name AND b.variable__taken
);

CREATE CONSTRAINT forgone AS
SELECT 1 AS everything
MINIMIZE (SELECT sum(CASE WHEN variable__taken THEN 0 ELSE value END) FROM proposal);
""",
        """
CREATE VIEW taken AS
SELECT name FROM proposal WHERE variable__taken;

CREATE VIEW paid AS
SELECT cost.year, sum(cost.amount) AS amount FROM cost JOIN taken ON taken.name = cost.proposal GROUP BY cost.year;

CREATE CONSTRAINT budgets AS
SELECT year.number FROM year JOIN paid ON paid.year = year.number
CHECK paid.amount <= year.budget;

CREATE CONSTRAINT needed AS
SELECT needs.one FROM needs JOIN taken ON taken.name = needs.other
CHECK needs.one IN (SELECT name FROM taken);

CREATE CONSTRAINT excluded AS
SELECT excludes.one
FROM excludes JOIN taken AS a ON a.name = excludes.one JOIN taken AS b ON b.name = excludes.other
CHECK FALSE;

CREATE CONSTRAINT forgone AS
SELECT name FROM proposal
MINIMIZE sum(value * (1 - CAST(variable__taken AS INTEGER)));
""",
    ),
    _proposals,
)


def _tours(draw: Random, size: float) -> Instance:
    cities = names("c", scaled(16, size, 5))
    where = {city: (draw.randrange(100), draw.randrange(100)) for city in cities}
    far = {
        (a, b): int(((where[a][0] - where[b][0]) ** 2 + (where[a][1] - where[b][1]) ** 2) ** 0.5)
        for a in cities
        for b in cities
        if a != b
    }

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        number = {city: place for place, city in enumerate(cities)}
        ways = {pair: model.new_bool_var("") for pair in far}
        model.add_circuit([(number[a], number[b], way) for (a, b), way in ways.items()])

        def plan(solver: cp_model.CpSolver) -> Plan:
            after = {a: b for (a, b), way in ways.items() if solver.boolean_value(way)}
            position, city = {}, cities[0]
            for place in range(len(cities)):
                position[city] = place
                city = after[city]
            return {
                ("city", "variable__next"): {(a,): b for a, b in after.items()},
                ("city", "variable__position"): {(a,): place for a, place in position.items()},
            }

        return Handwritten(model, [sum(far[pair] * way for pair, way in ways.items())], plan)

    def check(plan: Plan) -> list[int]:
        after = {city: text(plan["city", "variable__next"][city,]) for city in cities}
        position = {city: whole(plan["city", "variable__position"][city,]) for city in cities}
        require(sorted(after.values()) == cities, "every city comes after one")
        for a, b in after.items():
            require(b == cities[0] or position[b] == position[a] + 1, "the tour is one")
        return [sum(far[a, b] for a, b in after.items())]

    return Instance(
        {
            "city": [{"name": city, "home": city == cities[0]} for city in cities],
            "road": [{"one": a, "other": b, "length": each} for (a, b), each in far.items()],
        },
        expert,
        check,
    )


TOURS = Problem(
    "tours",
    "16 cities: the shortest tour, by what comes after each",
    """
CREATE TABLE city (
    name TEXT PRIMARY KEY, home BOOLEAN NOT NULL,
    variable__next TEXT NOT NULL REFERENCES city (name),
    variable__position INTEGER NOT NULL CHECK (variable__position BETWEEN 0 AND 30)
);
CREATE TABLE road (one TEXT NOT NULL, other TEXT NOT NULL, length INTEGER NOT NULL, PRIMARY KEY (one, other));
""",
    Spellings(
        """
CREATE CONSTRAINT once AS
SELECT a.name, b.name FROM city AS a JOIN city AS b ON a.name < b.name
CHECK a.variable__next <> b.variable__next;

CREATE CONSTRAINT not_itself AS
SELECT name FROM city
CHECK variable__next <> name;

CREATE CONSTRAINT one_after_the_other AS
SELECT a.name FROM city AS a JOIN city AS b ON a.variable__next = b.name
WHERE NOT b.home
CHECK b.variable__position = a.variable__position + 1;

CREATE CONSTRAINT length AS
SELECT city.name FROM city JOIN road ON road.one = city.name AND road.other = city.variable__next
MINIMIZE sum(road.length);
""",
        """
CREATE CONSTRAINT once AS
SELECT name FROM city
CHECK (SELECT count(*) FROM city AS before WHERE before.variable__next = city.name) = 1;

CREATE CONSTRAINT not_itself AS
SELECT name FROM city
CHECK NOT variable__next = name;

CREATE CONSTRAINT one_after_the_other AS
SELECT b.name FROM city AS b
WHERE NOT b.home
CHECK b.variable__position = (SELECT a.variable__position + 1 FROM city AS a WHERE a.variable__next = b.name);

CREATE CONSTRAINT length AS
SELECT name FROM city
MINIMIZE sum((SELECT length FROM road WHERE one = city.name AND other = city.variable__next));
""",
        """
CREATE VIEW hop AS
SELECT a.name AS one, b.name AS other, b.home, a.variable__position AS leaves, b.variable__position AS arrives
FROM city AS a JOIN city AS b ON a.variable__next = b.name;

CREATE CONSTRAINT once AS
SELECT other FROM hop
GROUP BY other
CHECK count(*) = 1;

CREATE CONSTRAINT not_itself AS
SELECT one FROM hop WHERE one = other
CHECK FALSE;

CREATE CONSTRAINT one_after_the_other AS
SELECT one FROM hop WHERE NOT home
CHECK arrives - leaves = 1;

CREATE CONSTRAINT length AS
SELECT hop.one FROM hop JOIN road ON road.one = hop.one AND road.other = hop.other
MINIMIZE sum(road.length);
""",
    ),
    _tours,
)
