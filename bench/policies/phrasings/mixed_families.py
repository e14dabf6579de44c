"""Objectives that join several loads, count pairs or count places, as users of DCM write them."""

from __future__ import annotations

from bench.policies.phrasings.family import Asked, Family

_LEVEL = Asked(0.5, 1.0, gap=0.01)

CPU_AND_MEMORY = Family(
    "cpu_and_memory",
    "the highest cpu plus the highest memory of a node is as low as can be",
    _LEVEL,
    {
        "one_expression": """
CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE max(cpu) + max(memory);
""",
        "two_objectives": """
CREATE CONSTRAINT level_cpu AS SELECT * FROM load MINIMIZE max(cpu) TIER 1;
CREATE CONSTRAINT level_memory AS SELECT * FROM load MINIMIZE max(memory) TIER 1;
""",
        "two_scalars": """
CREATE CONSTRAINT level AS
SELECT * FROM app WHERE name = 'a000' MINIMIZE (SELECT max(cpu) FROM load) + (SELECT max(memory) FROM load);
""",
        "weave": """
CREATE VIEW highest AS SELECT max(cpu) AS cpu, max(memory) AS memory FROM load;
CREATE VIEW objective_level AS SELECT -(cpu + memory) FROM highest;
""",
    },
    value="""SELECT max(cpu) + max(memory) FROM
             (SELECT sum(cpu) AS cpu, sum(memory) AS memory FROM pod GROUP BY node)""",
    prelude="""
CREATE VIEW load AS
SELECT node.name, sum(pod.cpu) AS cpu, sum(pod.memory) AS memory
FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.name;
CREATE CONSTRAINT capacity AS
SELECT * FROM load JOIN node ON node.name = load.name
CHECK load.cpu <= node.cpu_cap AND load.memory <= node.memory_cap;
CREATE CONSTRAINT number AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.pods_cap CHECK count(*) <= node.pods_cap;
""",
)

_RACKS = """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
CHECK sum(pod.cpu) <= node.cpu_cap AND sum(pod.memory) <= node.memory_cap AND count(*) <= node.pods_cap;
"""

SOFT_APART = Family(
    "soft_apart",
    "as few pairs of pods of an app as can be share a rack",
    _LEVEL,
    {
        "pairs": """
CREATE CONSTRAINT apart AS
SELECT a.name FROM pod AS a JOIN node AS x ON a.variable__node = x.name
JOIN pod AS b ON b.app = a.app AND a.number < b.number JOIN node AS y ON b.variable__node = y.name
WHERE x.rack = y.rack MINIMIZE count(*);
""",
        "pairs_soft": """
CREATE CONSTRAINT apart AS
SELECT a.name FROM pod AS a JOIN node AS x ON a.variable__node = x.name
JOIN pod AS b ON b.app = a.app AND a.number < b.number JOIN node AS y ON b.variable__node = y.name
CHECK x.rack <> y.rack SOFT;
""",
        "counts": """
CREATE VIEW app_rack AS
SELECT pod.app, node.rack, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.rack;
CREATE CONSTRAINT apart AS SELECT * FROM app_rack MINIMIZE sum(pods * (pods - 1) / 2);
""",
    },
    value="""SELECT count(*) FROM pod AS a JOIN node AS x ON x.name = a.node JOIN pod AS b ON b.app = a.app
             JOIN node AS y ON y.name = b.node WHERE a.number < b.number AND x.rack = y.rack""",
    prelude=_RACKS,
)

RACKS_USED = Family(
    "racks_used",
    "the apps' racks, counted app by app, are as few as can be",
    _LEVEL,
    {
        "count_distinct": """
CREATE VIEW used AS
SELECT pod.app, count(DISTINCT node.rack) AS racks FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app;
CREATE CONSTRAINT few AS SELECT * FROM used MINIMIZE sum(racks);
""",
        "where": """
CREATE VIEW app_rack AS
SELECT pod.app, node.rack, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.rack;
CREATE CONSTRAINT few AS SELECT * FROM app_rack WHERE pods > 0 MINIMIZE count(*);
""",
        "least": """
CREATE VIEW app_rack AS
SELECT pod.app, node.rack, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.rack;
CREATE CONSTRAINT few AS SELECT * FROM app_rack MINIMIZE sum(least(pods, 1));
""",
        "strict_groups": """
CREATE VIEW app_rack AS
SELECT pod.app, node.rack FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.rack STRICT GROUPS;
CREATE CONSTRAINT few AS SELECT * FROM app_rack MINIMIZE count(*);
""",
    },
    value="SELECT count(*) FROM (SELECT DISTINCT app, rack FROM pod JOIN node ON node.name = pod.node)",
    prelude=_RACKS,
)

QUOTA = Family(
    "quota",
    "an app has at most 30 cpu in a zone",
    Asked(0.1, 0.3),
    {
        "group_by": """
CREATE CONSTRAINT quota AS
SELECT pod.app, node.zone FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone CHECK sum(pod.cpu) <= 30;
""",
        "view_of_node_loads": """
CREATE VIEW part AS
SELECT pod.app, node.name, node.zone, sum(pod.cpu) AS cpu
FROM pod JOIN node ON pod.variable__node = node.name GROUP BY pod.app, node.name, node.zone;
CREATE CONSTRAINT quota AS SELECT app, zone FROM part GROUP BY app, zone CHECK sum(cpu) <= 30;
""",
        "subquery": """
CREATE VIEW zone AS SELECT DISTINCT zone AS name FROM node;
CREATE CONSTRAINT quota AS
SELECT * FROM app CROSS JOIN zone
CHECK (SELECT sum(pod.cpu) FROM pod JOIN node ON pod.variable__node = node.name
       WHERE pod.app = app.name AND node.zone = zone.name) <= 30;
""",
        "max_of_groups": """
CREATE VIEW part AS
SELECT pod.app, node.zone, sum(pod.cpu) AS cpu FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone;
CREATE CONSTRAINT quota AS SELECT app FROM part GROUP BY app CHECK max(cpu) <= 30;
""",
    },
    broken="""SELECT app FROM pod JOIN node ON node.name = pod.node GROUP BY app, zone HAVING sum(cpu) > 30""",
    prelude=_RACKS,
)

MIXED_FAMILIES = (CPU_AND_MEMORY, SOFT_APART, RACKS_USED, QUOTA)
