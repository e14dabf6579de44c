"""Random policies of assignment shape over random small data, from a seed."""

from __future__ import annotations

from random import Random
from typing import Any

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT, size INTEGER, up BOOLEAN NOT NULL, load INTEGER NOT NULL);
CREATE TABLE app (name TEXT PRIMARY KEY, spread INTEGER NOT NULL);
CREATE TABLE label (host TEXT NOT NULL, label TEXT NOT NULL, PRIMARY KEY (host, label));
CREATE TABLE wanted (task INTEGER NOT NULL, label TEXT NOT NULL, PRIMARY KEY (task, label));
CREATE TABLE port (app TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (app, number));
CREATE TABLE task (id INTEGER PRIMARY KEY, app TEXT REFERENCES app (name), weight INTEGER, place TEXT, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name)UNIQUE);
"""

VIEWS = """
CREATE VIEW share AS SELECT count(*) AS tasks, (SELECT count(*) FROM host) AS hosts FROM task;
CREATE VIEW up_host AS SELECT name, rack, size FROM host WHERE up;
CREATE VIEW placed AS SELECT t.id, t.app, t.weight, h.name AS place, h.rack AS rack, h.size AS size
  FROM task t JOIN host h ON t.variable__host = h.name;
CREATE VIEW loads AS SELECT h.name AS place, h.rack AS rack, h.size AS size, count(*) AS tasks,
  sum(t.weight) AS used FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.rack, h.size;
CREATE VIEW rack_loads AS SELECT h.rack AS rack, count(*) AS tasks, sum(t.weight) AS used
  FROM task t JOIN up_host h ON t.variable__host = h.name GROUP BY h.rack;
CREATE VIEW deviation AS SELECT place, greatest(loads.tasks - share.tasks / nullif(share.hosts, 0), 0) AS above
  FROM loads CROSS JOIN share;
"""

CHECKS = (
    "FROM task t JOIN host h ON t.variable__host = h.name WHERE NOT h.up CHECK FALSE",
    "FROM task t JOIN host h ON t.variable__host = h.name CHECK h.size >= t.weight OR h.up",
    "FROM task t JOIN app a ON a.name = t.app JOIN host h ON t.variable__host = h.name CHECK a.spread < 2 OR h.up",
    "FROM task CHECK variable__host <> 'h0' OR weight > 1",
    "FROM task CHECK variable__host IN (SELECT name FROM host WHERE up OR size > 2)",
    "FROM task WHERE weight > 2 CHECK variable__host NOT IN ('h0', 'h2')",
    "FROM task CHECK variable__host = place",
    "FROM task t JOIN wanted w ON w.task = t.id JOIN label l ON t.variable__host = l.host CHECK l.label <> w.label",
    "FROM task t JOIN wanted w ON w.task = t.id JOIN label l ON l.label = w.label AND t.variable__host = l.host "
    "CHECK FALSE",
    "FROM placed CHECK size IS NULL OR size >= weight",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.size CHECK sum(t.weight) <= h.size",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name CHECK count(*) <= {n}",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.size, h.load "
    "CHECK h.load + 2 * sum(t.weight) <= h.size + {n} AND count(*) < 3",
    "FROM task t JOIN host h ON t.variable__host = h.name WHERE h.up GROUP BY h.rack CHECK count(*) >= {n}",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.rack, t.app CHECK count(*) <= {n}",
    "FROM task t JOIN host h ON t.variable__host = h.name WHERE t.app = 'x' GROUP BY h.rack "
    "CHECK count(*) FILTER (WHERE h.up) <= {n}",
    "FROM task GROUP BY app CHECK all_different(variable__host)",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY t.app CHECK all_different(h.rack)",
    "FROM task GROUP BY app CHECK count(*) FILTER (WHERE variable__host = 'h1') <= {n}",
    "FROM task CHECK count(*) FILTER (WHERE variable__host = 'h1') = least({n}, count(*))",
    "FROM port p JOIN task t ON t.app = p.app JOIN host h ON t.variable__host = h.name "
    "GROUP BY p.number, h.name CHECK count(*) <= 1",
    "FROM loads WHERE size > 1 CHECK used <= size",
    "FROM rack_loads CHECK tasks BETWEEN 0 AND {n}",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.up CHECK h.up OR count(*) = 0",
    "FROM task t JOIN host h ON t.variable__host = h.name AND h.rack = t.app GROUP BY h.name "
    "CHECK count(*) <= {n}",
)

OBJECTIVES = (
    "FROM task WHERE variable__host <> host MINIMIZE count(*)",
    "FROM task WHERE variable__host <> host AND weight > 1 MINIMIZE sum(weight)",
    "FROM task WHERE variable__host IS DISTINCT FROM host MINIMIZE count(*)",
    "FROM task t JOIN host h ON t.variable__host = h.name MINIMIZE sum(h.load)",
    "FROM task t JOIN host h ON t.variable__host = h.name MAXIMIZE sum(h.size * t.weight)",
    "FROM task t JOIN host h ON t.variable__host = h.name MINIMIZE h.load - t.weight",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.rack MINIMIZE greatest(count(*) - 1, 0)",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.size MINIMIZE count(*) + h.size",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name MINIMIZE count(*) * count(*)",
    "FROM loads MINIMIZE max(used)",
    "FROM loads MAXIMIZE min(size - used)",
    "FROM loads MINIMIZE max(tasks) - min(tasks)",
    "FROM rack_loads MINIMIZE sum(tasks * tasks)",
    "FROM rack_loads MINIMIZE count(*) FILTER (WHERE tasks > 1)",
    "FROM deviation MINIMIZE sum(above)",
    "FROM deviation MINIMIZE sum(above * above)",
    "FROM placed WHERE rack = 'r1' MAXIMIZE count(*)",
    "FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.size "
    "CHECK sum(t.weight) <= h.size SOFT",
)

UNASSIGNED_CHECKS = (
    "FROM task WHERE weight > 2 CHECK variable__host IS NOT NULL",
    "FROM task CHECK count(*) FILTER (WHERE variable__host IS NULL) <= {n}",
)
UNASSIGNED_OBJECTIVES = (
    "FROM task WHERE variable__host IS NULL MINIMIZE count(*)",
    "FROM task WHERE variable__host IS NULL MINIMIZE sum(weight)",
    "FROM task MAXIMIZE count(variable__host)",
)


class AssignmentMaker:
    """Random policies, data and schema."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nullable = self.random.random() < 0.4
        unique = self.random.random() < 0.2

        def schema(text: str) -> str:
            text = text.replace("UNIQUE", ", UNIQUE (app, variable__host)" if unique else "")
            return (
                text.replace("variable__host TEXT NOT NULL", "variable__host TEXT") if self.nullable else text
            )

        self.schema = schema(SCHEMA)

    def data(self) -> dict[str, list[dict[str, Any]]]:
        pick = self.random.choice
        hosts = [
            {
                "name": f"h{i}",
                "rack": pick(["r1", "r2", "x", None]),
                "size": pick([0, 1, 3, 6, None]),
                "up": pick([0, 1, 1]),
                "load": pick([0, 1, 4]),
            }
            for i in range(pick([1, 2, 3, 3]))
        ]
        tasks = [
            {
                "id": i,
                "app": pick(["x", "y", None]),
                "weight": pick([None, 0, 1, 2, 3]),
                "place": pick([None, None, "h0", "h1"]),
                "host": pick([None, "h0", "h1", "gone"]),
            }
            for i in range(pick([0, 1, 2, 3, 4]))
        ]
        labels = [
            {"host": f"h{i}", "label": text} for i in range(len(hosts)) for text in "ab" if pick([0, 1])
        ]
        wanted = [{"task": i, "label": text} for i in range(len(tasks)) for text in "ab" if pick([0, 0, 1])]
        ports = [{"app": app, "number": n} for app in "xy" for n in (1, 2) if pick([0, 1])]
        apps = [{"name": name, "spread": pick([1, 2])} for name in "xy"]
        return {"host": hosts, "app": apps, "label": labels, "wanted": wanted, "port": ports, "task": tasks}

    def policies(self) -> str:
        pick = self.random.choice
        checks = CHECKS + (UNASSIGNED_CHECKS if self.nullable else ())
        objectives = OBJECTIVES + (UNASSIGNED_OBJECTIVES if self.nullable else ())
        texts = [pick(checks).format(n=pick([0, 1, 2])) for _ in range(pick([0, 1, 2, 3]))]
        texts += [
            f"{pick(objectives)} TIER {pick([1, 2])} WEIGHT {pick([1, 3])}"
            for _ in range(pick([0, 1, 2]) if texts else pick([1, 2]))
        ]
        return VIEWS + "\n".join(
            f"CREATE CONSTRAINT c{number} AS SELECT 1 AS one {text};" for number, text in enumerate(texts)
        )
