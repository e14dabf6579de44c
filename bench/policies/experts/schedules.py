"""What runs when: a job shop, projects that share people, ships at berths, and the order of cars on a line."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

from ortools.sat.python import cp_model

from bench.policies.experts.problem import (
    Handwritten,
    Instance,
    Plan,
    Problem,
    Spellings,
    cells_of,
    chosen,
    names,
    one_of_each,
    require,
    scaled,
    text,
    totals,
    whole,
)

_HORIZON = 999


def _jobs(draw: Random, size: float) -> Instance:
    jobs, machines = names("j", scaled(10, size, 3)), names("m", scaled(8, size, 3))
    steps = {}
    for job in jobs:
        for step, machine in enumerate(draw.sample(machines, len(machines))):
            steps[f"{job}s{step}"] = (job, step, machine, draw.randint(5, 40))

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        start = {name: model.new_int_var(0, _HORIZON, "") for name in steps}
        intervals = {
            name: model.new_fixed_size_interval_var(start[name], row[3], "") for name, row in steps.items()
        }
        for machine in machines:
            model.add_no_overlap(intervals[name] for name, row in steps.items() if row[2] == machine)
        for (one, before), (other, after) in pairwise(steps.items()):
            if before[0] == after[0]:
                model.add(start[other] >= start[one] + before[3])
        end = model.new_int_var(0, 2 * _HORIZON, "")
        model.add_max_equality(end, [start[name] + row[3] for name, row in steps.items()])

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {("step", "variable__start"): cells_of(solver, start, start.values())}

        return Handwritten(model, [end], plan)

    def check(plan: Plan) -> list[int]:
        start = {name: whole(plan["step", "variable__start"][name,]) for name in steps}
        for (one, a), (other, b) in combinations(steps.items(), 2):
            if a[0] == b[0]:
                require(start[other] >= start[one] + a[3], f"{other} after {one}")
            if a[2] == b[2]:
                apart = start[other] >= start[one] + a[3] or start[one] >= start[other] + b[3]
                require(apart, f"{one} and {other} are not at once")
        return [max(start[name] + row[3] for name, row in steps.items())]

    return Instance(
        {
            "step": [
                {"name": name, "job": job, "number": number, "machine": machine, "length": length}
                for name, (job, number, machine, length) in steps.items()
            ]
        },
        expert,
        check,
    )


JOBS = Problem(
    "jobs",
    "a job shop of 10 jobs on 8 machines: the last is done as early as can be",
    f"""
CREATE TABLE step (
    name TEXT PRIMARY KEY, job TEXT NOT NULL, number INTEGER NOT NULL, machine TEXT NOT NULL, length INTEGER NOT NULL,
    variable__start INTEGER NOT NULL CHECK (variable__start BETWEEN 0 AND {_HORIZON})
);
""",
    Spellings(
        """
CREATE CONSTRAINT in_order AS
SELECT a.name FROM step AS a JOIN step AS b ON b.job = a.job AND b.number = a.number + 1
CHECK b.variable__start >= a.variable__start + a.length;

CREATE CONSTRAINT one_at_a_time AS
SELECT a.name, b.name FROM step AS a JOIN step AS b ON b.machine = a.machine AND a.name < b.name
CHECK a.variable__start + a.length <= b.variable__start OR b.variable__start + b.length <= a.variable__start;

CREATE CONSTRAINT soon AS
SELECT name FROM step
MINIMIZE max(variable__start + length);
""",
        """
CREATE CONSTRAINT in_order AS
SELECT b.name FROM step AS b
WHERE b.number > 0
CHECK b.variable__start >= (
    SELECT a.variable__start + a.length FROM step AS a WHERE a.job = b.job AND a.number = b.number - 1
);

CREATE CONSTRAINT one_at_a_time AS
SELECT a.name FROM step AS a
CHECK NOT EXISTS (
    SELECT 1 FROM step AS b
    WHERE b.machine = a.machine AND b.name > a.name
    AND b.variable__start < a.variable__start + a.length AND a.variable__start < b.variable__start + b.length
);

CREATE CONSTRAINT soon AS
SELECT 1 AS everything
MINIMIZE (SELECT max(variable__start + length) FROM step);
""",
        """
CREATE VIEW span AS
SELECT name, job, number, machine, variable__start AS begins, variable__start + length AS ends FROM step;

CREATE CONSTRAINT in_order AS
SELECT a.name FROM span AS a JOIN span AS b ON b.job = a.job AND b.number = a.number + 1
CHECK a.ends <= b.begins;

CREATE CONSTRAINT one_at_a_time AS
SELECT a.name, b.name FROM span AS a JOIN span AS b ON b.machine = a.machine AND a.name < b.name
WHERE a.begins < b.ends AND b.begins < a.ends
CHECK FALSE;

CREATE VIEW done AS
SELECT job, max(ends) AS at FROM span GROUP BY job;

CREATE CONSTRAINT soon AS
SELECT job FROM done
MINIMIZE max(at);
""",
    ),
    _jobs,
)


def _projects(draw: Random, size: float) -> Instance:
    tasks = names("t", scaled(30, size, 6))
    people = {"fitters": 8, "welders": 5}
    length = [draw.randint(2, 9) for _ in tasks]
    needs = [{"fitters": draw.randint(1, 5), "welders": draw.randint(0, 3)} for _ in tasks]
    pairs = [pair for pair in combinations(range(len(tasks)), 2) if pair[1] - pair[0] < 8]
    after = sorted(draw.sample(pairs, len(tasks)))
    horizon = range(100)

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        start = [model.new_int_var(0, horizon[-1], "") for _ in tasks]
        intervals = [
            model.new_fixed_size_interval_var(begin, each, "")
            for begin, each in zip(start, length, strict=True)
        ]
        for kind, number in people.items():
            model.add_cumulative(intervals, [need[kind] for need in needs], number)
        for one, other in after:
            model.add(start[other] >= start[one] + length[one])
        end = model.new_int_var(0, 2 * len(horizon), "")
        model.add_max_equality(end, [begin + each for begin, each in zip(start, length, strict=True)])

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {("task", "variable__start"): cells_of(solver, tasks, start)}

        return Handwritten(model, [end], plan)

    def check(plan: Plan) -> list[int]:
        start = [whole(plan["task", "variable__start"][task,]) for task in tasks]
        end = [begin + each for begin, each in zip(start, length, strict=True)]
        for one, other in after:
            require(start[other] >= end[one], f"{tasks[other]} after {tasks[one]}")
        for kind, number in people.items():
            for moment in start:
                busy = sum(
                    need[kind]
                    for need, begin, done in zip(needs, start, end, strict=True)
                    if begin <= moment < done
                )
                require(busy <= number, f"there are so many {kind}")
        return [max(end)]

    return Instance(
        {
            "hour": [{"number": hour} for hour in horizon],
            "crew": [{"kind": kind, "people": number} for kind, number in people.items()],
            "task": [{"name": task, "length": each} for task, each in zip(tasks, length, strict=True)],
            "need": [
                {"task": task, "kind": kind, "people": number}
                for task, need in zip(tasks, needs, strict=True)
                for kind, number in need.items()
                if number
            ],
            "follows": [{"one": tasks[one], "other": tasks[other]} for one, other in after],
        },
        expert,
        check,
    )


PROJECTS = Problem(
    "projects",
    "30 tasks in order that share fitters and welders: the last is done as early as can be",
    """
CREATE TABLE hour (number INTEGER PRIMARY KEY);
CREATE TABLE crew (kind TEXT PRIMARY KEY, people INTEGER NOT NULL);
CREATE TABLE task (
    name TEXT PRIMARY KEY, length INTEGER NOT NULL,
    variable__start INTEGER NOT NULL CHECK (variable__start BETWEEN 0 AND 99)
);
CREATE TABLE need (task TEXT NOT NULL, kind TEXT NOT NULL, people INTEGER NOT NULL, PRIMARY KEY (task, kind));
CREATE TABLE follows (one TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (one, other));
""",
    Spellings(
        """
CREATE CONSTRAINT in_order AS
SELECT a.name FROM follows JOIN task AS a ON a.name = follows.one JOIN task AS b ON b.name = follows.other
CHECK a.variable__start + a.length <= b.variable__start;

CREATE CONSTRAINT enough_people AS
SELECT crew.kind, hour.number
FROM crew CROSS JOIN hour JOIN need ON need.kind = crew.kind JOIN task ON task.name = need.task
AND task.variable__start <= hour.number AND hour.number < task.variable__start + task.length
GROUP BY crew.kind, crew.people, hour.number
CHECK sum(need.people) <= crew.people;

CREATE CONSTRAINT soon AS
SELECT name FROM task
MINIMIZE max(variable__start + length);
""",
        """
CREATE CONSTRAINT in_order AS
SELECT a.name FROM task AS a
CHECK NOT EXISTS (
    SELECT 1 FROM follows JOIN task AS b ON b.name = follows.other
    WHERE follows.one = a.name AND b.variable__start < a.variable__start + a.length
);

CREATE CONSTRAINT enough_people AS
SELECT crew.kind, a.name FROM crew CROSS JOIN task AS a
CHECK (
    SELECT sum(need.people) FROM need JOIN task AS b ON b.name = need.task
    WHERE need.kind = crew.kind
    AND b.variable__start <= a.variable__start AND a.variable__start < b.variable__start + b.length
) <= crew.people;

CREATE CONSTRAINT soon AS
SELECT 1 AS everything
MINIMIZE (SELECT max(variable__start + length) FROM task);
""",
        """
CREATE VIEW span AS
SELECT name, variable__start AS begins, variable__start + length AS ends FROM task;

CREATE CONSTRAINT in_order AS
SELECT follows.one FROM follows JOIN span AS a ON a.name = follows.one JOIN span AS b ON b.name = follows.other
CHECK a.ends <= b.begins;

CREATE VIEW busy AS
SELECT hour.number, need.kind,
    sum(CASE WHEN hour.number >= begins AND hour.number < ends THEN people ELSE 0 END) AS people
FROM hour CROSS JOIN span JOIN need ON need.task = span.name
GROUP BY hour.number, need.kind;

CREATE CONSTRAINT enough_people AS
SELECT busy.number, busy.kind FROM busy JOIN crew ON crew.kind = busy.kind
CHECK busy.people <= crew.people;

CREATE CONSTRAINT soon AS
SELECT name FROM span
MINIMIZE max(ends);
""",
    ),
    _projects,
)


def _berths(draw: Random, size: float) -> Instance:
    ships, quays = names("s", scaled(18, size, 5)), names("q", 3 if size > 0.5 else 2)
    arrives = [draw.randint(0, 60) for _ in ships]
    length = [draw.randint(4, 16) for _ in ships]
    price = [draw.randint(1, 9) for _ in ships]

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = one_of_each(model, len(ships), len(quays))
        start = [model.new_int_var(arrival, _HORIZON, "") for arrival in arrives]
        for quay in range(len(quays)):
            model.add_no_overlap(
                model.new_optional_fixed_size_interval_var(start[ship], length[ship], at[ship][quay], "")
                for ship in range(len(ships))
            )
        waiting = sum(price[ship] * (start[ship] - arrives[ship]) for ship in range(len(ships)))

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {
                ("ship", "variable__quay"): {
                    (ship,): quays[chosen(solver, row) or 0] for ship, row in zip(ships, at, strict=True)
                },
                ("ship", "variable__start"): cells_of(solver, ships, start),
            }

        return Handwritten(model, [waiting], plan)

    def check(plan: Plan) -> list[int]:
        quay = [text(plan["ship", "variable__quay"][ship,]) for ship in ships]
        start = [whole(plan["ship", "variable__start"][ship,]) for ship in ships]
        for one, other in combinations(range(len(ships)), 2):
            apart = start[one] + length[one] <= start[other] or start[other] + length[other] <= start[one]
            require(apart or quay[one] != quay[other], f"{ships[one]} and {ships[other]} are not at once")
        require(
            all(a <= b for a, b in zip(arrives, start, strict=True)), "nothing is unloaded before it arrives"
        )
        return [sum(p * (b - a) for p, a, b in zip(price, arrives, start, strict=True))]

    return Instance(
        {
            "quay": [{"name": quay} for quay in quays],
            "ship": [
                {"name": ship, "arrives": arrives[number], "length": length[number], "price": price[number]}
                for number, ship in enumerate(ships)
            ],
        },
        expert,
        check,
    )


BERTHS = Problem(
    "berths",
    "18 ships at 3 quays: what their waiting costs as little as can be",
    f"""
CREATE TABLE quay (name TEXT PRIMARY KEY);
CREATE TABLE ship (
    name TEXT PRIMARY KEY, arrives INTEGER NOT NULL, length INTEGER NOT NULL, price INTEGER NOT NULL,
    variable__quay TEXT NOT NULL REFERENCES quay (name),
    variable__start INTEGER NOT NULL CHECK (variable__start BETWEEN 0 AND {_HORIZON})
);
""",
    Spellings(
        """
CREATE CONSTRAINT not_before_it_arrives AS
SELECT name FROM ship
CHECK variable__start >= arrives;

CREATE CONSTRAINT one_at_a_time AS
SELECT a.name, b.name FROM ship AS a JOIN ship AS b ON a.name < b.name AND a.variable__quay = b.variable__quay
CHECK a.variable__start + a.length <= b.variable__start OR b.variable__start + b.length <= a.variable__start;

CREATE CONSTRAINT waiting AS
SELECT name FROM ship
MINIMIZE sum(price * (variable__start - arrives));
""",
        """
CREATE CONSTRAINT not_before_it_arrives AS
SELECT name FROM ship
CHECK variable__start - arrives >= 0;

CREATE CONSTRAINT one_at_a_time AS
SELECT a.name FROM ship AS a
CHECK NOT EXISTS (
    SELECT 1 FROM ship AS b
    WHERE b.name > a.name AND b.variable__quay = a.variable__quay
    AND b.variable__start < a.variable__start + a.length AND a.variable__start < b.variable__start + b.length
);

CREATE CONSTRAINT waiting AS
SELECT 1 AS everything
MINIMIZE (SELECT sum(price * (variable__start - arrives)) FROM ship);
""",
        """
CREATE VIEW stay AS
SELECT name, variable__quay AS quay, arrives, price, variable__start AS begins, variable__start + length AS ends,
    variable__start - arrives AS waits
FROM ship;

CREATE CONSTRAINT not_before_it_arrives AS
SELECT name FROM stay
CHECK waits >= 0;

CREATE CONSTRAINT one_at_a_time AS
SELECT a.name, b.name FROM stay AS a JOIN stay AS b ON a.name < b.name
WHERE a.quay = b.quay AND a.begins < b.ends AND b.begins < a.ends
CHECK FALSE;

CREATE CONSTRAINT waiting AS
SELECT name FROM stay
MINIMIZE sum(price * waits);
""",
    ),
    _berths,
)


def _line(draw: Random, size: float) -> Instance:
    count = scaled(30, size, 8)
    models = {
        name: (draw.choice(("red", "blue", "white", "black")), place % 3 == 0)
        for place, name in enumerate(names("m", 8))
    }
    wanted = totals((draw.choice([*models]), 1) for _ in range(count))
    roofs = sum(number for name, number in wanted.items() if models[name][1])
    window = max(2, count // max(1, roofs))  # so many in a row have at most one roof to open

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = one_of_each(model, count, len(models))
        for place, name in enumerate(models):
            model.add(sum(row[place] for row in at) == wanted.get(name, 0))
        for first in range(count - window + 1):
            row = [at[each][place] for each in range(first, first + window) for place in range(len(models))]
            has = [models[name][1] for _ in range(window) for name in models]
            model.add_at_most_one(literal for literal, roof in zip(row, has, strict=True) if roof)
        changes = []
        for one, other in pairwise(at):
            change = model.new_bool_var("")
            for colour in sorted({row[0] for row in models.values()}):
                same = [place for place, row in enumerate(models.values()) if row[0] == colour]
                model.add(sum(one[place] for place in same) - sum(other[place] for place in same) <= change)
            changes.append(change)

        def plan(solver: cp_model.CpSolver) -> Plan:
            found = {(n,): [*models][chosen(solver, row) or 0] for n, row in enumerate(at)}
            return {("slot", "variable__model"): found}

        return Handwritten(model, [sum(changes)], plan)

    def check(plan: Plan) -> list[int]:
        order = [text(plan["slot", "variable__model"][number,]) for number in range(count)]
        built = totals((name, 1) for name in order)
        require(
            all(built.get(name, 0) == wanted.get(name, 0) for name in models),
            "as many as are ordered are built",
        )
        for first in range(count - window + 1):
            some = order[first : first + window]
            require(sum(models[name][1] for name in some) <= 1, "roofs are apart")
        return [sum(models[one][0] != models[other][0] for one, other in pairwise(order))]

    return Instance(
        {
            "model": [
                {"name": name, "colour": colour, "roof": int(roof), "ordered": wanted.get(name, 0)}
                for name, (colour, roof) in models.items()
            ],
            "slot": [{"number": number} for number in range(count)],
            "span": [{"first": first, "last": first + window - 1} for first in range(count - window + 1)],
        },
        expert,
        check,
    )


LINE = Problem(
    "line",
    "30 cars of 8 models on a line, of which few in a row may have a sunroof: fewest changes of colour",
    """
CREATE TABLE model (name TEXT PRIMARY KEY, colour TEXT NOT NULL, roof INTEGER NOT NULL, ordered INTEGER NOT NULL);
CREATE TABLE slot (number INTEGER PRIMARY KEY, variable__model TEXT NOT NULL REFERENCES model (name));
CREATE TABLE span (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
""",
    Spellings(
        """
CREATE CONSTRAINT as_ordered AS
SELECT model.name FROM slot JOIN model ON slot.variable__model = model.name
GROUP BY model.name, model.ordered
CHECK count(*) = model.ordered;

CREATE CONSTRAINT roofs AS
SELECT span.first
FROM span JOIN slot ON slot.number BETWEEN span.first AND span.last
JOIN model ON model.name = slot.variable__model AND model.roof = 1
GROUP BY span.first
CHECK count(*) <= 1;

CREATE CONSTRAINT changes AS
SELECT a.number
FROM slot AS a JOIN slot AS b ON b.number = a.number + 1
JOIN model AS one ON one.name = a.variable__model JOIN model AS other ON other.name = b.variable__model
WHERE one.colour <> other.colour
MINIMIZE count(*);
""",
        """
CREATE CONSTRAINT as_ordered AS
SELECT name FROM model
CHECK (SELECT count(*) FROM slot WHERE slot.variable__model = model.name) = model.ordered;

CREATE CONSTRAINT roofs AS
SELECT span.first FROM span
CHECK (
    SELECT sum(model.roof) FROM slot JOIN model ON model.name = slot.variable__model
    WHERE slot.number BETWEEN span.first AND span.last
) <= 1;

CREATE CONSTRAINT changes AS
SELECT a.number FROM slot AS a
WHERE (SELECT colour FROM model WHERE model.name = a.variable__model) <> (
    SELECT colour FROM slot AS b JOIN model ON model.name = b.variable__model WHERE b.number = a.number + 1
)
MINIMIZE count(*);
""",
        """
CREATE VIEW car AS
SELECT slot.number, model.name, model.colour, model.roof FROM slot JOIN model ON model.name = slot.variable__model;

CREATE VIEW built AS
SELECT model.name, model.ordered, count(*) AS cars
FROM slot JOIN model ON slot.variable__model = model.name
GROUP BY model.name, model.ordered;

CREATE CONSTRAINT as_ordered AS
SELECT name FROM built
CHECK cars = ordered;

CREATE CONSTRAINT roofs AS
SELECT span.first FROM span JOIN car ON car.number BETWEEN span.first AND span.last
GROUP BY span.first
CHECK sum(car.roof) <= 1;

CREATE CONSTRAINT changes AS
SELECT a.number FROM car AS a JOIN car AS b ON b.number = a.number + 1
MINIMIZE sum(CASE WHEN a.colour = b.colour THEN 0 ELSE 1 END);
""",
    ),
    _line,
)
