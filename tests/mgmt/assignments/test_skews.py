"""Groups compared with the least of their family: recognised, and worth what the constraint model says they are."""

from __future__ import annotations

from random import Random

import pytest

from mgmt.state.database import Database
from tests.budget import budgeted
from tests.mgmt.assignments.both_ways import PLACED, by_engines, compared, makes_a_difference
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT, hall TEXT, size INTEGER NOT NULL);
CREATE TABLE place (host TEXT NOT NULL, topology TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (host, topology));
CREATE TABLE team (name TEXT PRIMARY KEY, topology TEXT NOT NULL, skew INTEGER, area TEXT);
CREATE TABLE standing (team TEXT NOT NULL, name TEXT NOT NULL, tasks INTEGER, PRIMARY KEY (team, name));
CREATE TABLE task (id INTEGER PRIMARY KEY, team TEXT NOT NULL, kind INTEGER NOT NULL,
  variable__host TEXT REFERENCES host (name));
"""
BY_PLACE = """
CREATE VIEW held AS SELECT team.name AS team, standing.name AS spot, team.area, team.skew, standing.tasks AS standing,
    count(*) AS tasks, sum(task.kind) AS kinds, count(*) + standing.tasks AS total
  FROM team JOIN task ON task.team = team.name
  JOIN place ON place.topology = team.topology AND task.variable__host = place.host
  JOIN standing ON standing.team = team.name AND standing.name = place.name
  GROUP BY team.name, standing.name, team.area, team.skew, standing.tasks;
"""
BY_RACK = """
CREATE VIEW held AS SELECT task.team, host.rack AS spot, count(*) AS tasks
  FROM task JOIN host ON task.variable__host = host.name WHERE host.size < 8 GROUP BY task.team, host.rack;
"""
LEAST = "CREATE VIEW least AS SELECT team, min(tasks) AS tasks, min(total) AS total FROM held GROUP BY team;"
LEAST_TASKS = "CREATE VIEW least AS SELECT team, min(tasks) AS fewest FROM held GROUP BY team;"
RULE = "CREATE CONSTRAINT rule AS SELECT held.team, held.spot FROM held JOIN least ON held.team = least.team CHECK "
KNOWN = {
    "counts": BY_RACK + LEAST_TASKS + RULE + "held.tasks - least.fewest <= 1;",
    "turned round": BY_RACK + LEAST_TASKS + RULE + "1 + least.fewest > held.tasks;",
    "what stands counts": BY_PLACE + LEAST + RULE + "held.total - least.total <= held.skew;",
    "excused where nothing comes": BY_PLACE
    + LEAST
    + RULE
    + "held.tasks = 0 OR held.total - least.total <= held.skew;",
    "excused where little comes": BY_PLACE
    + LEAST
    + RULE
    + "held.tasks < 2 OR held.total <= held.skew + least.total;",
    "some groups alone": BY_PLACE + LEAST + RULE + "held.standing > 0 OR held.total - least.tasks <= 1;",
    "and more": BY_RACK + LEAST_TASKS + RULE + "held.tasks <= 2 AND held.tasks - least.fewest <= 1;",
    "without what stands": BY_PLACE + LEAST + RULE + "held.total - 1 <= least.tasks;",
    "sums": BY_PLACE
    + "CREATE VIEW least AS SELECT team, min(kinds) AS kinds FROM held GROUP BY team;"
    + RULE
    + "held.kinds - least.kinds <= 1;",
    "selected beside it": BY_PLACE
    + """CREATE CONSTRAINT rule AS SELECT held.team, held.spot FROM held
         CHECK held.total <= held.skew + (SELECT min(other.total) FROM held AS other WHERE other.team = held.team);""",
    "two keys": BY_PLACE
    + "CREATE VIEW least AS SELECT area AS region, team, min(total) AS total FROM held GROUP BY team, area;"
    + """CREATE CONSTRAINT rule AS SELECT held.team, held.spot FROM least JOIN held
         ON held.team = least.team AND least.region = held.area CHECK held.total - least.total <= 1;""",
    "families of values": """
        CREATE VIEW held AS SELECT host.hall, host.rack AS spot, count(*) AS tasks
          FROM task JOIN host ON task.variable__host = host.name GROUP BY host.hall, host.rack;
        CREATE VIEW least AS SELECT hall, min(tasks) AS tasks FROM held GROUP BY hall;
        CREATE CONSTRAINT rule AS SELECT held.spot FROM held JOIN least ON held.hall = least.hall
          CHECK held.tasks <= least.tasks;""",
}
OTHERS = {
    "not by all keys": BY_PLACE
    + "CREATE VIEW least AS SELECT area, team, min(total) AS total FROM held GROUP BY team, area;"
    + RULE
    + "held.total - least.total <= 1;",
    "at least the least": BY_RACK + LEAST_TASKS + RULE + "least.fewest - held.tasks <= -1 OR held.tasks = 0;",
    "of other rows": BY_RACK
    + "CREATE VIEW least AS SELECT spot, min(tasks) AS tasks FROM held GROUP BY spot;"
    + """CREATE CONSTRAINT rule AS SELECT held.team, held.spot FROM held JOIN least ON held.spot = least.spot
         CHECK held.tasks - least.tasks <= 1;""",
    "twice the least": BY_RACK + LEAST_TASKS + RULE + "held.tasks <= 2 * least.fewest + 1;",
    "the least of something else": BY_PLACE
    + "CREATE VIEW least AS SELECT team, min(kinds) AS kinds FROM held GROUP BY team;"
    + RULE
    + "held.tasks - least.kinds <= 2;",
    "only some of the groups": BY_PLACE
    + "CREATE VIEW least AS SELECT team, min(total) AS total FROM held WHERE standing > 0 GROUP BY team;"
    + RULE
    + "held.total - least.total <= 1;",
}


def state(seed: int) -> Database:
    """Four hosts in two or three racks, one of them perhaps in none; of some places more is known than their hosts."""
    random = Random(seed)
    hosts = [f"h{number}" for number in range(4)]
    racks = {host: random.choice(("x", "x", "y", "z", None)) for host in hosts}
    spots = [*hosts, "x", "y", "z"]
    return database(
        SCHEMA,
        {
            "host": [
                {
                    "name": host,
                    "rack": racks[host],
                    "hall": random.choice(("n", "s", None)),
                    "size": random.randint(1, 9),
                }
                for host in hosts
            ],
            "place": [
                *(
                    {"host": host, "topology": "host", "name": host}
                    for host in [*hosts, "gone"][: 5 - seed % 2]
                ),
                *({"host": host, "topology": "rack", "name": rack} for host, rack in racks.items() if rack),
            ],
            "team": [
                {
                    "name": team,
                    "topology": random.choice(("host", "rack", "rack")),
                    "skew": random.choice((0, 1, 1, 2, None)),
                    "area": random.choice(("e", "w", None)),
                }
                for team in ("s", "t")
            ],
            "standing": [
                {"team": team, "name": name, "tasks": random.choice((0, 0, 1, 2, None))}
                for team in ("s", "t")
                for name in [*spots, *(["gone"] if seed % 3 == 0 else [])]
            ],
            "task": [
                {"id": number, "team": random.choice("ssst"), "kind": random.randrange(3)}
                for number in range(5)
            ],
        },
    )


@pytest.mark.parametrize("states", budgeted((2, 3), 0, in_test=1))
@pytest.mark.parametrize("name", KNOWN)
def test_a_skew_is_recognised_and_means_what_the_constraint_model_says(name: str, states: int) -> None:
    """In so many states at least, and in further ones until the rule makes a difference."""
    differs = False
    for seed in range(8):
        rows = state(seed)
        solution = compared(rows, KNOWN[name] + PLACED, f"seed {seed}")
        assert by_engines(solution), f"seed {seed}"
        differs = differs or makes_a_difference(rows, solution)
        if differs and seed >= states - 1:
            break
    assert differs, "the rule never makes a difference"


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_skew_means_what_the_constraint_model_says(name: str) -> None:
    for seed in range(4):
        compared(state(seed), OTHERS[name] + PLACED, f"seed {seed}")
