"""CHECKs that become conditions of an assignment: recognised, and worth what the constraint model says they are."""

from __future__ import annotations

from random import Random

import pytest

from mgmt.compiler.model import Model
from mgmt.state.database import Database
from tests.budget import budgeted
from tests.mgmt.assignments.both_ways import PLACED, by_engines, compared, makes_a_difference
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE place (host TEXT NOT NULL, topology TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (host, topology));
CREATE TABLE team (name TEXT PRIMARY KEY, topology TEXT NOT NULL, moves INTEGER NOT NULL);
CREATE TABLE standing (team TEXT NOT NULL, name TEXT NOT NULL, tasks INTEGER, PRIMARY KEY (team, name));
CREATE TABLE task (id INTEGER PRIMARY KEY, team TEXT NOT NULL, kind INTEGER NOT NULL, host TEXT,
  variable__host TEXT REFERENCES host (name));
"""
PLACES = "JOIN place ON place.topology = team.topology AND task.variable__host = place.host"
STANDING = "LEFT JOIN standing ON standing.team = task.team AND"
PAIR = "FROM task AS one JOIN task AS two ON one.team = two.team AND one.id < two.id"
PLACED_PAIR = (
    f"{PAIR} JOIN host AS x ON one.variable__host = x.name JOIN host AS y ON two.variable__host = y.name"
)
OTHERS = "FROM task AS two WHERE two.team = one.team AND two.id <> one.id"
PAIRS = {
    "pairs apart": f"SELECT one.id {PAIR} CHECK one.variable__host <> two.variable__host",
    "pairs not at one": f"SELECT one.id {PAIR} AND two.variable__host = one.variable__host CHECK one.kind > 1",
    "pairs apart or alike": f"""SELECT one.id {PAIR}
        CHECK one.kind > two.kind OR NOT one.variable__host = two.variable__host""",
    "pairs of a graph apart": """SELECT one.id FROM task AS one JOIN task AS two ON one.id + two.kind < two.id
        CHECK one.variable__host <> two.variable__host""",
    "pairs in different racks": f"SELECT one.id {PLACED_PAIR} CHECK x.rack <> y.rack",
    "pairs in one rack": f"SELECT one.id {PLACED_PAIR} CHECK x.rack = y.rack",
    "neighbours in one rack": f"SELECT one.id {PLACED_PAIR} WHERE two.id = one.id + 1 CHECK x.rack = y.rack",
    "pairs in one rack of large hosts": f"""SELECT one.id {PLACED_PAIR}
        WHERE x.size > 3 AND y.size > 3 CHECK x.rack = y.rack""",
    "pairs where both are": f"""SELECT one.id {PAIR}
        CHECK one.variable__host IS NULL OR two.variable__host IS NULL OR one.variable__host = two.variable__host""",
    "pairs both or neither": """SELECT one.id FROM task AS one JOIN task AS two ON two.id = one.id + 1
        CHECK one.variable__host IS NOT DISTINCT FROM two.variable__host""",
    "nobody else there": f"""SELECT one.id FROM task AS one
        WHERE EXISTS (SELECT 1 {OTHERS} AND two.variable__host = one.variable__host) CHECK FALSE""",
    "not another there": f"""SELECT one.id FROM task AS one
        CHECK one.kind = 0 OR NOT EXISTS (SELECT 1 {OTHERS} AND two.variable__host = one.variable__host)""",
    "not in where others are": f"""SELECT one.id FROM task AS one
        CHECK one.variable__host NOT IN (SELECT two.variable__host {OTHERS})""",
    "not in racks of others": """SELECT one.id FROM task AS one JOIN host AS x ON one.variable__host = x.name
        CHECK x.rack NOT IN (SELECT y.rack FROM task AS two JOIN host AS y ON two.variable__host = y.name
                             WHERE two.team = one.team AND two.id <> one.id)""",
    "in a rack of another is wrong": """SELECT one.id FROM task AS one JOIN host AS x ON one.variable__host = x.name
        WHERE x.rack IN (SELECT y.rack FROM task AS two JOIN host AS y ON two.variable__host = y.name
                         WHERE two.team = one.team AND two.id < one.id) CHECK one.kind = 1""",
}
TEAM = "SELECT task.team FROM task JOIN host ON task.variable__host = host.name GROUP BY task.team CHECK"
BESIDE = "SELECT host.rack FROM task CROSS JOIN host WHERE host.size > 2 GROUP BY host.rack CHECK"
COUNTS = {
    "any": f"{TEAM} any(host.size < 3)",
    "one where rows and values meet": f"{TEAM} count(*) FILTER (WHERE host.size > 4 * task.kind + 3) > 0",
    "any of some, and all": f"{TEAM} any(host.size > 2) FILTER (WHERE task.kind = 1) AND all(host.size < 9)",
    "not any": f"{TEAM} NOT any(host.size < 4) OR any(host.size > 8)",
    "not all": f"{TEAM} NOT all(host.size < 6)",
    "max": f"{TEAM} max(host.size * (task.kind + 1)) <= 5",
    "min and max": f"{TEAM} 2 < min(host.size) AND max(host.size) >= 6",
    "min is": f"{TEAM} min(host.size) = 4 OR count(*) < 2",
    "not all equal": f"{TEAM} NOT all_equal(host.rack)",
    "all equal": f"{TEAM} all_equal(host.size / 2)",
    "all or none in a rack": """SELECT task.team, host.rack
        FROM task JOIN host ON task.variable__host = host.name
        JOIN (SELECT team, count(*) AS tasks FROM task GROUP BY team) AS size ON size.team = task.team
        GROUP BY task.team, host.rack, size.tasks CHECK count(*) = 0 OR count(*) = size.tasks""",
    "least is greatest": f"{TEAM} min(host.size) = max(host.size)",
    "as many racks as tasks": f"{TEAM} count(DISTINCT host.rack) = count(*)",
    "more than so many racks": f"{TEAM} 3 < 2 * count(DISTINCT host.rack)",
    "at most so many racks": f"{TEAM} 5 - 3 * count(DISTINCT host.rack) > -1",
    "counts of what is there": f"{BESIDE} count(*) FILTER (WHERE variable__host = host.name AND kind = 1) <= 1",
    "sums of what is there": f"""{BESIDE} sum(CASE WHEN task.variable__host = host.name THEN kind + 1 ELSE 0 END) < 3
        OR count(*) FILTER (WHERE task.variable__host = host.name) > 2""",
    "one team on a host": """SELECT host.name FROM task JOIN host ON task.variable__host = host.name
        GROUP BY host.name CHECK all_equal(task.team)""",
    "least of loads": f"{TEAM} least(3 - count(*), 2 - sum(task.kind)) >= 0",
    "having": """SELECT host.rack FROM task JOIN host ON task.variable__host = host.name
        GROUP BY host.rack HAVING count(*) > 1 AND max(task.kind) > 0 CHECK count(*) > 2""",
}
ON_HOST = "FROM task WHERE task.variable__host = host.name"
STOOD = "FROM standing WHERE standing.team = task.team"
SUBQUERIES = {
    "in what holds some": """SELECT team.name FROM team CHECK team.moves < 1 OR 'x' IN (
        SELECT host.rack FROM task JOIN host ON task.variable__host = host.name WHERE task.team = team.name)""",
    "load of a host": f"SELECT host.name FROM host CHECK (SELECT count(*) {ON_HOST}) <= 1 + host.size / 6",
    "two loads of a host": f"""SELECT host.name FROM host
        CHECK (SELECT sum(task.kind + 1) {ON_HOST}) + (SELECT count(*) {ON_HOST}) <= host.size""",
    "both loads of a host": f"""SELECT host.name FROM host CHECK (SELECT count(*) {ON_HOST}) <= 2
        AND host.size > (SELECT sum(task.kind * 3) {ON_HOST} AND task.team = 's')""",
    "where hosts are full": f"SELECT host.name FROM host WHERE (SELECT count(*) {ON_HOST}) > 1 CHECK host.size > 4",
    "what a host has": "SELECT id FROM task CHECK (SELECT size FROM host WHERE host.name = task.variable__host) > 3",
    "in what is listed": f"SELECT id FROM task CHECK task.variable__host IN (SELECT standing.name {STOOD})",
    "not in what is listed": f"SELECT id FROM task CHECK task.variable__host NOT IN (SELECT standing.name {STOOD})",
    "listed": f"""SELECT id FROM task CHECK task.kind = 0
        OR EXISTS (SELECT 1 {STOOD} AND standing.name = task.variable__host AND standing.tasks > 0)""",
    "pair in what is listed": """SELECT id FROM task
        CHECK (task.team, task.variable__host) IN (SELECT standing.team, standing.name FROM standing)""",
}
ON_A_HOST = "FROM task AS one JOIN host AS x ON one.variable__host = x.name"
OTHERS_ON_HOSTS = "SELECT 1 FROM task AS two JOIN host AS y ON two.variable__host = y.name"
OWN_GROUPS = {
    "load of the own host": """SELECT one.id FROM task AS one JOIN host ON one.variable__host = host.name
        CHECK (SELECT sum(two.kind + 1) FROM task AS two WHERE two.variable__host = host.name) <= host.size / 3""",
    "of the own team there": f"""SELECT one.id {ON_A_HOST} CHECK (SELECT count(*) FROM task AS two
        WHERE two.team = one.team AND two.variable__host = one.variable__host) = 1""",
    "another of the team in the rack": f"""SELECT one.id {ON_A_HOST} CHECK EXISTS ({OTHERS_ON_HOSTS}
        WHERE two.team = one.team AND two.id <> one.id AND y.rack = x.rack)""",
    "some beside those of a kind": f"""SELECT one.id {ON_A_HOST} WHERE one.kind = 1
        CHECK EXISTS ({OTHERS_ON_HOSTS} WHERE two.kind = 0 AND y.rack = x.rack)""",
    "few beside those of a kind": f"""SELECT one.id {ON_A_HOST} WHERE one.kind = 1 AND x.size > 2
        CHECK (SELECT sum(two.kind + 1) FROM task AS two JOIN host AS y ON two.variable__host = y.name
               WHERE y.rack = x.rack) < 3""",
}
OUTER = "FROM host LEFT JOIN task ON task.variable__host = host.name"
RACKS = """(SELECT host.name, host.rack, sum(task.kind + 1) AS load
    FROM task JOIN host ON task.variable__host = host.name GROUP BY host.name, host.rack) AS loads"""
TEAM_RACKS = """(SELECT task.team, host.rack, count(*) AS tasks
    FROM task JOIN host ON task.variable__host = host.name GROUP BY task.team, host.rack) AS spread"""
GROUPS = {
    "capacity by kind": """SELECT load.host FROM (SELECT host.name AS host, task.team, sum(task.kind + 1) AS load
        FROM task JOIN host ON task.variable__host = host.name GROUP BY host.name, task.team) AS load
        JOIN standing ON standing.name = load.host AND standing.team = load.team CHECK load.load <= standing.tasks""",
    "hosts with and without tasks": f"""SELECT host.name {OUTER} GROUP BY host.name, host.size
        CHECK coalesce(sum(task.kind + 1), 0) * 2 <= host.size""",
    "no task or few": f"""SELECT host.name {OUTER} GROUP BY host.name, host.size
        CHECK sum(task.kind + 1) IS NULL OR sum(task.kind + 1) * 2 <= host.size""",
    "racks of groups": f"""SELECT team FROM {TEAM_RACKS} GROUP BY team
        CHECK sum(CASE WHEN tasks > 0 THEN 1 ELSE 0 END) <= 1""",
    "distinct racks": """SELECT team FROM (SELECT DISTINCT task.team, host.rack
        FROM task JOIN host ON task.variable__host = host.name) AS spots GROUP BY team CHECK count(*) <= 1""",
    "racks of groups, one by one": f"SELECT team FROM {TEAM_RACKS} GROUP BY team CHECK sum(least(tasks, 1)) <= 1",
    "racks that are there": f"SELECT team FROM {TEAM_RACKS} WHERE tasks > 0 GROUP BY team CHECK count(*) <= 1",
    "range of groups": f"SELECT team FROM {TEAM_RACKS} GROUP BY team CHECK max(tasks) - min(tasks) <= 1",
    "tasks of every host": f"SELECT host.name {OUTER} GROUP BY host.name HAVING count(task.id) < 1 CHECK FALSE",
    "greatest of groups": f"SELECT loads.rack FROM {RACKS} GROUP BY loads.rack CHECK max(loads.load) <= 2",
    "having of groups": f"""SELECT loads.rack FROM {RACKS} GROUP BY loads.rack
        HAVING sum(loads.load) > 3 CHECK FALSE""",
    "greatest of a view": f"SELECT 1 CHECK (SELECT max(loads.load) FROM {RACKS}) <= 2",
    "no group of a view": f"SELECT 1 CHECK NOT EXISTS (SELECT 1 FROM {RACKS} WHERE loads.load * 2 > 5)",
    "near the least": f"""SELECT loads.name FROM {RACKS}
        CHECK loads.load <= 1 + (SELECT min(loads.load) FROM {RACKS})""",
    "share of a rack": """SELECT loads.rack FROM (SELECT host.name, host.rack, host.size, count(*) AS tasks
        FROM task JOIN host ON task.variable__host = host.name GROUP BY host.name, host.rack, host.size) AS loads
        GROUP BY loads.rack CHECK sum(loads.tasks) * 6 <= sum(loads.size) AND sum(loads.tasks) < 1 + count(*)""",
    "sum of groups": f"""SELECT loads.rack FROM {RACKS} JOIN place ON place.host = loads.name
        WHERE place.topology = 'rack' GROUP BY loads.rack CHECK sum(loads.load) <= 3""",
}
CHECKS = (
    PAIRS
    | COUNTS
    | SUBQUERIES
    | OWN_GROUPS
    | GROUPS
    | {
        "few hosts, by EXISTS": """SELECT 1 AS one FROM host
        WHERE EXISTS (SELECT 1 FROM task WHERE task.variable__host = host.name) CHECK count(*) <= 2""",
        "few hosts, by IN": """SELECT 1 AS one FROM host
        CHECK count(*) FILTER (WHERE name IN (SELECT variable__host FROM task)) <= 2""",
        "some hosts of a size with a kind of tasks": """SELECT 1 AS one FROM host WHERE size > 1
        AND EXISTS (SELECT 1 FROM task WHERE task.variable__host = host.name AND task.kind = 1) CHECK count(*) >= 2""",
        "follows": f"""SELECT team.name, place.name FROM team JOIN task ON task.team = team.name {PLACES}
        {STANDING} place.name = standing.name GROUP BY team.name, place.name, standing.tasks, task.team
        CHECK count(*) FILTER (WHERE task.kind = 0) = 0
           OR count(*) FILTER (WHERE task.kind = 1) + coalesce(standing.tasks, 0) > 0""",
        "as many as stand": f"""SELECT task.team, host.rack FROM task JOIN host ON task.variable__host = host.name
        {STANDING} standing.name = host.rack GROUP BY task.team, host.rack, standing.tasks
        CHECK count(*) <= coalesce(standing.tasks, 1)""",
        "no more than stand": """SELECT task.team, host.rack FROM task JOIN host ON task.variable__host = host.name
        JOIN standing ON standing.team = task.team AND standing.name = host.rack
        GROUP BY standing.team, standing.name, standing.tasks, task.team, host.rack
        CHECK count(*) <= standing.tasks""",
        "no more than stand, told twice": """SELECT told.team, told.name
        FROM task JOIN host ON task.variable__host = host.name
        JOIN (SELECT team, name, tasks FROM standing UNION ALL SELECT team, name, 3 - tasks FROM standing) AS told
          ON told.team = task.team AND told.name = host.rack
        GROUP BY told.team, told.name, told.tasks CHECK count(*) <= told.tasks""",
        "follows one": """SELECT guest.id FROM task AS guest JOIN task AS one ON one.id = guest.kind
        WHERE guest.id > 1
        CHECK guest.variable__host IS NULL OR guest.variable__host IS NOT DISTINCT FROM one.variable__host""",
        "follows the one before": """SELECT guest.id FROM task AS guest JOIN task AS one
        ON one.id = guest.id - 1 AND one.team = guest.team
        CHECK one.variable__host IS NOT DISTINCT FROM guest.variable__host OR guest.variable__host IS NULL""",
        "where few stand": f"""SELECT task.id FROM task JOIN host ON task.variable__host = host.name
        {STANDING} standing.name = host.rack WHERE task.kind = 0 CHECK standing.tasks < 2""",
        "together": f"""SELECT team.name FROM team JOIN task ON task.team = team.name {PLACES}
        GROUP BY team.name CHECK count(DISTINCT place.name) <= 1""",
        "spread": f"""SELECT team.name, team.moves FROM team JOIN task ON task.team = team.name {PLACES}
        GROUP BY team.name, team.moves CHECK count(DISTINCT place.name) >= team.moves + 2""",
        "not both kinds": f"""SELECT team.name, place.name FROM team JOIN task ON task.team = team.name {PLACES}
        GROUP BY team.name, place.name
        CHECK count(*) FILTER (WHERE task.kind = 0) = 0 OR count(*) FILTER (WHERE task.kind = 1) = 0""",
        "none or two": """SELECT host.name FROM task JOIN host ON task.variable__host = host.name
        GROUP BY host.name CHECK count(*) = 0 OR sum(task.kind + 1) >= 3""",
        "moves": """SELECT team.name, team.moves FROM task JOIN team ON team.name = task.team
        WHERE task.host IS NOT NULL AND task.variable__host IS DISTINCT FROM task.host
        GROUP BY team.name, team.moves CHECK count(*) <= team.moves""",
        "makes room": """SELECT host.name FROM host JOIN task ON task.host = host.name OR task.host IS NULL
        GROUP BY host.name
        CHECK count(*) FILTER (WHERE task.host IS NOT NULL AND task.variable__host IS DISTINCT FROM task.host) = 0
           OR count(*) FILTER (WHERE task.host IS NULL AND task.variable__host = host.name) > 0""",
    }
)


def state(seed: int, schema: str = SCHEMA) -> Database:
    random = Random(seed)
    hosts = [f"h{number}" for number in range(4)]
    racks = {host: random.choice("xy") for host in hosts}
    teams = ["s", "t"]
    return database(
        schema,
        {
            "host": [{"name": host, "rack": racks[host], "size": random.randint(1, 9)} for host in hosts],
            "place": [
                *({"host": host, "topology": "host", "name": host} for host in hosts),
                *({"host": host, "topology": "rack", "name": racks[host]} for host in hosts[:3]),
            ],
            "team": [
                {"name": team, "topology": random.choice(("host", "rack")), "moves": random.randint(0, 2)}
                for team in teams
            ],
            "standing": [
                {"team": team, "name": name, "tasks": random.choice((0, 1, 1, 2, None))}
                for team in teams
                for name in (*hosts, "x", "y")
                if seed and random.random() < 0.5
            ],
            "task": [
                {
                    "id": number,
                    "team": random.choice("ssst"),
                    "kind": random.randrange(2),
                    "host": random.choice([*hosts, None, None]),
                }
                for number in range(5)
            ],
        },
    )


@pytest.mark.parametrize("states", budgeted((1, 2), 0, in_test=1))
@pytest.mark.parametrize("name", CHECKS)
def test_a_condition_is_recognised_and_means_what_the_constraint_model_says(name: str, states: int) -> None:
    """In so many states at least, and in further ones until the rule makes a difference."""
    policy = f"CREATE CONSTRAINT rule AS {CHECKS[name]}; {PLACED}"
    differs = False
    for seed in (2, 3, 4):
        rows = state(seed)
        solution = compared(rows, policy, f"seed {seed}")
        assert by_engines(solution), f"seed {seed}"
        differs = differs or makes_a_difference(rows, solution)
        if differs and seed > states:
            break
    assert differs, "the rule never makes a difference"


def test_where_every_row_has_a_value_any_is_one_count() -> None:
    """Otherwise it is two: that one is, or that there is none at all."""
    policy = f"CREATE CONSTRAINT rule AS {TEAM} any(host.size > 4 * task.kind + 3); {PLACED}"
    for seed in (2, 3, 4):
        rows = state(seed, SCHEMA.replace("TEXT REFERENCES", "TEXT NOT NULL REFERENCES"))
        assert by_engines(compared(rows, policy, f"seed {seed}"))


@pytest.mark.parametrize("says", ["CHECK FALSE", "MINIMIZE count(*) TIER 1"])
def test_having_around_a_subquery_is_not_lost(says: str) -> None:
    used = "SELECT 1 AS one FROM host WHERE EXISTS (SELECT 1 FROM task WHERE task.variable__host = host.name)"
    for seed in (2, 3):
        rows = state(seed)
        solution = compared(
            rows, f"CREATE CONSTRAINT rule AS {used} HAVING count(*) > 2 {says}; {PLACED}", f"seed {seed}"
        )
        assert solution is not None


@pytest.mark.parametrize(
    "name", ["racks of groups", "as many racks as tasks", "not in racks of others", "spread"]
)
def test_values_without_an_attribute_are_no_group_of_their_own(name: str) -> None:
    rows = state(3, SCHEMA.replace("rack TEXT NOT NULL", "rack TEXT"))
    rows.execute("UPDATE host SET rack = NULL WHERE name IN ('h1', 'h2')")
    compared(rows, f"CREATE CONSTRAINT rule AS {CHECKS[name]}; {PLACED}", name)


def test_another_row_on_another_host_is_not_just_another_row() -> None:
    """Also where the keys of both tables have one name."""
    rows = database(
        """CREATE TABLE node (name TEXT PRIMARY KEY, rack TEXT NOT NULL);
        CREATE TABLE pod (name TEXT PRIMARY KEY, variable__node TEXT NOT NULL REFERENCES node (name));""",
        {
            "node": [{"name": name, "rack": rack} for name, rack in (("n1", "x"), ("n2", "x"), ("n3", "y"))],
            "pod": [{"name": name} for name in ("p1", "p2")],
        },
    )
    rule = """CREATE CONSTRAINT rule AS SELECT a.name FROM pod AS a JOIN node AS x ON a.variable__node = x.name
        CHECK EXISTS (SELECT 1 FROM pod AS b JOIN node AS y ON b.variable__node = y.name
                      WHERE y.name <> x.name AND y.rack = x.rack);"""
    solution = Model.build(rows, rule).solve(budget=60)
    assert {delta.new for delta in solution.deltas} == {"n1", "n2"}


@pytest.mark.parametrize(
    "rule",
    [
        f"SELECT one.id {PLACED_PAIR} WHERE one.kind <> two.kind CHECK one.kind > 5",
        f"""SELECT one.id {PAIR} JOIN host AS x ON one.variable__host = x.name WHERE x.size > 4
            CHECK one.variable__host = two.variable__host""",
        f"""SELECT one.id {PLACED_PAIR} WHERE x.size > 3 AND y.size > 3
            MAXIMIZE sum(CASE WHEN x.rack = y.rack THEN 1 ELSE 3 END) TIER 2""",
    ],
    ids=["not both", "one is in what is joined", "apart at a cost"],
)
def test_pairs_that_are_there_only_where_rows_have_values(rule: str) -> None:
    """Whichever way they go: a row may be left without a value, or at one that the join leaves out."""
    policy = f"{PLACED} CREATE CONSTRAINT rule AS {rule};"
    for seed in (2, 3):
        assert compared(state(seed), policy, f"seed {seed}") is not None


@pytest.mark.parametrize("on", ["standing.team = task.team", "standing.tasks = task.kind"])
def test_what_an_outer_join_finds_for_rows_and_values_has_a_price(on: str) -> None:
    """Where it may find several rows, choices are counted several times."""
    price = f"""
        CREATE CONSTRAINT price AS SELECT task.id FROM task JOIN host ON task.variable__host = host.name
        LEFT JOIN standing ON {on} AND standing.name = host.rack
        MINIMIZE sum(10 * coalesce(standing.tasks, 3) + host.size) TIER 2;
    """
    for seed in range(8):
        solution = compared(state(seed), PLACED + price, f"seed {seed}")
        assert solution is not None
        assert by_engines(solution), f"seed {seed}"


@pytest.mark.parametrize(
    "price",
    [
        f"SELECT one.id {PLACED_PAIR} WHERE x.rack = y.rack MINIMIZE count(*) TIER 2",
        f"SELECT one.id {PLACED_PAIR} WHERE one.kind < two.kind + 1 AND x.rack = y.rack MAXIMIZE count(*) TIER 2",
        f"SELECT one.id {PAIR} CHECK one.variable__host <> two.variable__host SOFT WEIGHT 3 TIER 2",
        f"""SELECT one.id {PAIR} MINIMIZE sum(CASE WHEN one.variable__host = two.variable__host
            THEN one.kind + two.kind ELSE 0 END) TIER 2""",
        "SELECT id FROM task MINIMIZE count(DISTINCT variable__host) TIER 2",
        f"SELECT (SELECT max(loads.load) FROM {RACKS}) - (SELECT min(loads.load) FROM {RACKS}) AS r MINIMIZE r TIER 2",
        f"SELECT loads.rack FROM {RACKS} GROUP BY loads.rack HAVING sum(loads.load) > 2 MINIMIZE count(*) TIER 2",
        """SELECT task.team, sum(task.kind + 1) AS total FROM task JOIN host ON task.variable__host = host.name
            GROUP BY task.team, host.rack MINIMIZE max(total) TIER 2""",
        f"SELECT host.name FROM host WHERE EXISTS (SELECT 1 {ON_HOST}) MINIMIZE count(*) TIER 2",
        f"SELECT host.name FROM host MINIMIZE max((SELECT sum(task.kind + 1) {ON_HOST}) * 2 + host.size) TIER 2",
        """SELECT id FROM task
            MINIMIZE sum((SELECT size FROM host WHERE host.name = task.variable__host) * (kind + 1)) TIER 2""",
    ],
    ids=[
        "pairs",
        "together",
        "soft",
        "weighted",
        "distinct",
        "range",
        "having",
        "named",
        "used",
        "load",
        "price",
    ],
)
def test_an_objective_is_recognised_and_worth_what_the_constraint_model_says(price: str) -> None:
    for seed in range(2):
        solution = compared(state(seed), f"{PLACED} CREATE CONSTRAINT price AS {price};", f"seed {seed}")
        assert by_engines(solution)


def test_two_racks_for_a_team_that_has_to_be_somewhere_may_be_soft() -> None:
    soft = """CREATE CONSTRAINT two AS SELECT task.team FROM task JOIN host ON task.variable__host = host.name
        GROUP BY task.team CHECK count(DISTINCT host.rack) >= 2 SOFT TIER 2;"""
    for seed in range(4):
        rows = state(seed, SCHEMA.replace("variable__host TEXT", "variable__host TEXT NOT NULL"))
        assert by_engines(compared(rows, PLACED + soft, f"seed {seed}"))


def test_the_square_of_a_count_is_a_cost_of_one_load() -> None:
    rows = database(
        SCHEMA,
        {
            "host": [{"name": f"h{number:02}", "rack": "x", "size": number} for number in range(40)],
            "task": [{"id": number, "team": "s", "kind": 0, "host": None} for number in range(2)],
        },
    )
    squares = """
        CREATE VIEW load AS SELECT host.name, count(*) AS tasks
          FROM task JOIN host ON task.variable__host = host.name GROUP BY host.name;
        CREATE CONSTRAINT even AS SELECT name FROM load MINIMIZE sum(tasks * tasks) TIER 2;
    """
    solution = Model.build(rows, PLACED + squares).solve(budget=60)
    assert sorted(solution.assignments["task", "variable__host"].values()) == ["h00", "h01"]  # type: ignore[type-var]
    (part,) = solution.statistics["parts"]  # type: ignore[misc]
    assert any("arcs" in note for note in part["notes"]), "a network takes costs of one load only"


@pytest.mark.parametrize(
    "worth", ["MINIMIZE max(sum(demand.amount) * 12 / spare.capacity)", "MINIMIZE max(sum(demand.amount))"]
)
def test_resources_as_rows_are_loads_of_each(worth: str) -> None:
    """A limit for each resource, and the greatest of all as one peak, worth what the constraint model says."""
    schema = """
        CREATE TABLE host (name TEXT PRIMARY KEY);
        CREATE TABLE spare (host TEXT NOT NULL, resource TEXT NOT NULL, capacity INTEGER NOT NULL,
          PRIMARY KEY (host, resource));
        CREATE TABLE task (id INTEGER PRIMARY KEY, variable__host TEXT NOT NULL REFERENCES host (name));
        CREATE TABLE demand (task INTEGER NOT NULL, resource TEXT NOT NULL, amount INTEGER NOT NULL,
          PRIMARY KEY (task, resource));
    """
    rows = """FROM task JOIN demand ON demand.task = task.id JOIN spare ON spare.resource = demand.resource
        AND task.variable__host = spare.host GROUP BY spare.host, spare.resource, spare.capacity"""
    policy = f"""
        CREATE CONSTRAINT capacity AS SELECT spare.host {rows} CHECK sum(demand.amount) <= spare.capacity;
        CREATE CONSTRAINT level AS SELECT spare.host {rows} {worth};
    """
    for seed in range(4):
        random = Random(seed)
        hosts, resources = ("h0", "h1", "h2"), ("cpu", "memory")
        state = database(
            schema,
            {
                "host": [{"name": host} for host in hosts],
                "spare": [
                    {"host": host, "resource": resource, "capacity": random.randint(6, 12)}
                    for host in hosts
                    for resource in resources
                ],
                "task": [{"id": number} for number in range(5)],
                "demand": [
                    {"task": number, "resource": resource, "amount": random.randint(1, 5)}
                    for number in range(5)
                    for resource in resources
                    if random.random() < 0.9
                ],
            },
        )
        solution = compared(state, policy, f"seed {seed}")
        assert solution is not None
        assert by_engines(solution)
        assert solution.gap == 0
