"""Rules and objectives over pending pods on nodes, each in spellings that mean the same."""

from __future__ import annotations

from bench.policies.phrasings.family import Asked, Family
from bench.policies.phrasings.mixed_families import MIXED_FAMILIES
from bench.policies.phrasings.pack_families import PACK_FAMILIES

_RULE = Asked(0.1, 0.3)
_PAIRS = Asked(0.2, 0.5)
_LEVEL = Asked(0.5, 1.0, gap=0.01)

CAPACITY = """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
CHECK sum(pod.cpu) <= node.cpu_cap AND sum(pod.memory) <= node.memory_cap AND count(*) <= node.pods_cap;
"""
LOAD = """
CREATE VIEW load AS
SELECT node.name, node.rack, node.zone, node.cpu_cap, sum(pod.cpu) AS cpu, count(*) AS pods
FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.rack, node.zone, node.cpu_cap;
"""
ROWS = """
CREATE CONSTRAINT capacity AS
SELECT spare.node, spare.resource
FROM demand JOIN pod ON pod.name = demand.pod
JOIN spare ON pod.variable__node = spare.node AND spare.resource = demand.resource
GROUP BY spare.node, spare.resource, spare.capacity
CHECK sum(demand.amount) <= spare.capacity;
"""

_CAPACITY_SPELLINGS = {
    "columns": CAPACITY,
    "columns_constraint": """
CREATE CONSTRAINT capacity AS
SELECT * FROM pod, node
CHECK capacity_constraint(pod.variable__node, node.name, pod.cpu, node.cpu_cap)
  AND capacity_constraint(pod.variable__node, node.name, pod.memory, node.memory_cap)
  AND capacity_constraint(pod.variable__node, node.name, 1, node.pods_cap);
""",
    "columns_constraint_joined": """
CREATE CONSTRAINT capacity AS
SELECT * FROM node JOIN pod ON pod.variable__node = node.name
CHECK capacity_constraint(pod.variable__node, node.name, pod.cpu, node.cpu_cap) = true
  AND capacity_constraint(pod.variable__node, node.name, pod.memory, node.memory_cap) = true
  AND capacity_constraint(pod.variable__node, node.name, 1, node.pods_cap) = true;
""",
    "columns_weave": """
CREATE VIEW constraint_capacity AS
SELECT node.name FROM node JOIN pod ON pod.variable__node = node.name
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
HAVING sum(pod.cpu) <= node.cpu_cap AND sum(pod.memory) <= node.memory_cap AND count(*) <= node.pods_cap;
""",
    "columns_subquery": """
CREATE CONSTRAINT capacity AS
SELECT * FROM node
CHECK (SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name) <= node.cpu_cap
  AND (SELECT sum(pod.memory) FROM pod WHERE pod.variable__node = node.name) <= node.memory_cap
  AND (SELECT count(*) FROM pod WHERE pod.variable__node = node.name) <= node.pods_cap;
""",
    "columns_having": """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
HAVING sum(pod.cpu) > node.cpu_cap OR sum(pod.memory) > node.memory_cap OR count(*) > node.pods_cap
CHECK FALSE;
""",
    "columns_view": """
CREATE VIEW used AS
SELECT node.name, sum(pod.cpu) AS cpu, sum(pod.memory) AS memory, count(*) AS pods
FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.name;
CREATE CONSTRAINT capacity AS
SELECT * FROM used JOIN node ON node.name = used.name
CHECK used.cpu <= node.cpu_cap AND used.memory <= node.memory_cap AND used.pods <= node.pods_cap;
""",
    "columns_spare_view": """
CREATE VIEW left_over AS
SELECT node.name, node.cpu_cap - sum(pod.cpu) AS cpu, node.memory_cap - sum(pod.memory) AS memory,
       node.pods_cap - count(*) AS pods
FROM node JOIN pod ON pod.variable__node = node.name
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap;
CREATE CONSTRAINT capacity AS SELECT * FROM left_over CHECK least(cpu, memory, pods) >= 0;
""",
    "columns_left_join": """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM node LEFT JOIN pod ON pod.variable__node = node.name
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
CHECK sum(pod.cpu) <= node.cpu_cap AND sum(pod.memory) <= node.memory_cap AND count(pod.name) <= node.pods_cap;
""",
    "columns_case_sum": """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM pod CROSS JOIN node
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
CHECK sum(CASE WHEN pod.variable__node = node.name THEN pod.cpu ELSE 0 END) <= node.cpu_cap
  AND sum(CASE WHEN pod.variable__node = node.name THEN pod.memory ELSE 0 END) <= node.memory_cap
  AND sum(CASE WHEN pod.variable__node = node.name THEN 1 ELSE 0 END) <= node.pods_cap;
""",
    "columns_filter": """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM pod, node
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
CHECK sum(pod.cpu) FILTER (WHERE pod.variable__node = node.name) <= node.cpu_cap
  AND sum(pod.memory) FILTER (WHERE pod.variable__node = node.name) <= node.memory_cap
  AND count(*) FILTER (WHERE pod.variable__node = node.name) <= node.pods_cap;
""",
    "columns_bool_sum": """
CREATE CONSTRAINT capacity AS
SELECT node.name FROM pod, node
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
CHECK sum(pod.cpu * (pod.variable__node = node.name)) <= node.cpu_cap
  AND sum(pod.memory * (pod.variable__node = node.name)) <= node.memory_cap
  AND sum(pod.variable__node = node.name) <= node.pods_cap;
""",
    "columns_group_by_variable": """
CREATE VIEW used AS
SELECT variable__node AS node, sum(cpu) AS cpu, sum(memory) AS memory, count(*) AS pods FROM pod
GROUP BY variable__node;
CREATE CONSTRAINT capacity AS
SELECT * FROM used JOIN node ON used.node = node.name
CHECK used.cpu <= node.cpu_cap AND used.memory <= node.memory_cap AND used.pods <= node.pods_cap;
""",
    "columns_all_nodes": """
CREATE VIEW used AS
SELECT node.name, node.cpu_cap, node.memory_cap, node.pods_cap,
       sum(pod.cpu) AS cpu, sum(pod.memory) AS memory, count(*) AS pods
FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap;
CREATE CONSTRAINT capacity AS
SELECT * FROM used CHECK all(cpu <= cpu_cap AND memory <= memory_cap AND pods <= pods_cap);
""",
    "columns_for_each_pod": """
CREATE CONSTRAINT capacity AS
SELECT * FROM pod AS a JOIN node ON a.variable__node = node.name
CHECK (SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name) <= node.cpu_cap
  AND (SELECT sum(pod.memory) FROM pod WHERE pod.variable__node = node.name) <= node.memory_cap
  AND (SELECT count(*) FROM pod WHERE pod.variable__node = node.name) <= node.pods_cap;
""",
    "columns_no_overfull": """
CREATE CONSTRAINT capacity AS
SELECT * FROM app WHERE name = (SELECT min(name) FROM app)
CHECK NOT EXISTS (
  SELECT 1 FROM pod JOIN node ON pod.variable__node = node.name
  GROUP BY node.name, node.cpu_cap, node.memory_cap, node.pods_cap
  HAVING sum(pod.cpu) > node.cpu_cap OR sum(pod.memory) > node.memory_cap OR count(*) > node.pods_cap);
""",
    "rows": ROWS,
    "rows_constraint": """
CREATE CONSTRAINT capacity AS
SELECT * FROM pod JOIN demand ON demand.pod = pod.name JOIN spare ON spare.resource = demand.resource
GROUP BY demand.resource
CHECK capacity_constraint(pod.variable__node, spare.node, demand.amount, spare.capacity);
""",
    "rows_constraint_each": "\n".join(
        f"""CREATE CONSTRAINT capacity_{resource} AS
SELECT * FROM pod JOIN demand ON demand.pod = pod.name JOIN spare ON spare.resource = demand.resource
WHERE demand.resource = '{resource}'
CHECK capacity_constraint(pod.variable__node, spare.node, demand.amount, spare.capacity);"""
        for resource in ("cpu", "memory", "pods")
    ),
    "rows_of_union": """
CREATE VIEW wanted AS
SELECT name, 'cpu' AS resource, cpu AS amount FROM pod
UNION ALL SELECT name, 'memory', memory FROM pod UNION ALL SELECT name, 'pods', 1 FROM pod;
CREATE CONSTRAINT capacity AS
SELECT spare.node, spare.resource FROM pod JOIN wanted ON wanted.name = pod.name
JOIN spare ON pod.variable__node = spare.node AND spare.resource = wanted.resource
GROUP BY spare.node, spare.resource, spare.capacity
CHECK sum(wanted.amount) <= spare.capacity;
""",
    "rows_case": """
CREATE CONSTRAINT capacity AS
SELECT spare.node, spare.resource FROM pod JOIN spare ON pod.variable__node = spare.node
GROUP BY spare.node, spare.resource, spare.capacity
CHECK sum(CASE spare.resource WHEN 'cpu' THEN pod.cpu WHEN 'memory' THEN pod.memory ELSE 1 END) <= spare.capacity;
""",
    "rows_subquery": """
CREATE CONSTRAINT capacity AS
SELECT * FROM spare
CHECK (SELECT sum(demand.amount) FROM demand JOIN pod ON pod.name = demand.pod
       WHERE pod.variable__node = spare.node AND demand.resource = spare.resource) <= spare.capacity;
""",
    "rows_view": """
CREATE VIEW used AS
SELECT node.name, demand.resource, sum(demand.amount) AS amount
FROM pod JOIN demand ON demand.pod = pod.name JOIN node ON pod.variable__node = node.name
GROUP BY node.name, demand.resource;
CREATE CONSTRAINT capacity AS
SELECT * FROM used JOIN spare ON spare.node = used.name AND spare.resource = used.resource
CHECK used.amount <= spare.capacity;
""",
    "rows_having": """
CREATE CONSTRAINT capacity AS
SELECT spare.node FROM pod, demand, spare
WHERE demand.pod = pod.name AND pod.variable__node = spare.node AND spare.resource = demand.resource
GROUP BY spare.node, spare.resource, spare.capacity
HAVING sum(demand.amount) > spare.capacity CHECK FALSE;
""",
}

_FAMILIES = [
    Family(
        "capacity",
        "no node holds more cpu, memory or pods than it has",
        _RULE,
        _CAPACITY_SPELLINGS,
        listed=("columns", "rows", "rows_constraint"),
        asked_of={"columns": Asked(0.03, 0.12)},
        published="DCM: batch p95 < 250 ms at 500 nodes, all policies; 85 ms of search at 1000",
    ),
    Family(
        "capacity_level",
        "capacity, and the highest cpu of a node is as low as can be",
        _RULE,
        {
            "columns": CAPACITY + LOAD + "CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE max(cpu);",
            "rows": ROWS + LOAD + "CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE max(cpu);",
            "rows_load_of_rows": ROWS
            + """
CREATE VIEW load AS
SELECT spare.node, sum(demand.amount) AS cpu
FROM pod JOIN demand ON demand.pod = pod.name
JOIN spare ON pod.variable__node = spare.node AND spare.resource = demand.resource
WHERE demand.resource = 'cpu' GROUP BY spare.node;
CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE max(cpu);
""",
            "columns_subquery": CAPACITY
            + """
CREATE CONSTRAINT level AS
SELECT * FROM node MINIMIZE max((SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name));
""",
            "columns_group_by_variable": CAPACITY
            + """
CREATE CONSTRAINT level AS
SELECT * FROM (SELECT variable__node, sum(cpu) AS cpu FROM pod GROUP BY variable__node) AS t MINIMIZE max(cpu);
""",
            "columns_scalar": CAPACITY
            + LOAD
            + """
CREATE CONSTRAINT level AS
SELECT * FROM app WHERE name = 'a000' MINIMIZE (SELECT max(cpu) FROM load);
""",
        },
        listed=("rows",),
        value="SELECT max(cpu) FROM (SELECT sum(cpu) AS cpu FROM pod GROUP BY node)",
        published="DCM 0.2 s at 500 nodes",
    ),
    Family(
        "level_resources",
        "capacity, and the highest load of a node is as low as can be, of each resource together",
        _LEVEL,
        {
            "dcm": """
CREATE VIEW load AS
SELECT spare.node, spare.resource, spare.capacity, sum(demand.amount) AS used
FROM pod JOIN demand ON demand.pod = pod.name
JOIN spare ON spare.resource = demand.resource AND spare.node = pod.variable__node
GROUP BY spare.node, spare.resource, spare.capacity;
CREATE CONSTRAINT capacity AS SELECT * FROM load CHECK used <= capacity;
CREATE VIEW peak AS SELECT resource, max(used) AS used FROM load GROUP BY resource;
CREATE CONSTRAINT level AS SELECT * FROM peak MINIMIZE sum(used);
""",
            "of_each": """
CREATE VIEW load AS
SELECT spare.node, spare.resource, spare.capacity, sum(demand.amount) AS used
FROM pod JOIN demand ON demand.pod = pod.name
JOIN spare ON spare.resource = demand.resource AND spare.node = pod.variable__node
GROUP BY spare.node, spare.resource, spare.capacity;
CREATE CONSTRAINT capacity AS SELECT * FROM load CHECK used <= capacity;
CREATE CONSTRAINT level_cpu AS SELECT * FROM load WHERE resource = 'cpu' MINIMIZE max(used);
CREATE CONSTRAINT level_memory AS SELECT * FROM load WHERE resource = 'memory' MINIMIZE max(used);
CREATE CONSTRAINT level_pods AS SELECT * FROM load WHERE resource = 'pods' MINIMIZE max(used);
""",
            "columns": CAPACITY
            + LOAD.replace("count(*)", "sum(pod.memory) AS memory, count(*)")
            + """
CREATE CONSTRAINT level_cpu AS SELECT * FROM load MINIMIZE max(cpu);
CREATE CONSTRAINT level_memory AS SELECT * FROM load MINIMIZE max(memory);
CREATE CONSTRAINT level_pods AS SELECT * FROM load MINIMIZE max(pods);
""",
        },
        value="""
SELECT sum(used) FROM (SELECT max(used) AS used FROM (SELECT resource, sum(amount) AS used
FROM pod JOIN demand ON demand.pod = pod.name GROUP BY node, resource) GROUP BY resource)
""",
        published="DCM 0.2 s at 500 nodes",
    ),
    Family(
        "headroom",
        "the cpu left on the fullest node that is used is as much as can be (DCM's spare capacity)",
        _LEVEL,
        {
            "max_min_view": LOAD
            + "CREATE CONSTRAINT spread AS SELECT cpu_cap - cpu AS spare FROM load MAXIMIZE min(spare);",
            "min_max_view": LOAD
            + "CREATE CONSTRAINT spread AS SELECT cpu - cpu_cap AS used FROM load MINIMIZE max(used);",
            "dcm": """
CREATE VIEW spare_cpu AS
SELECT node.name, node.cpu_cap - sum(pod.cpu) AS spare
FROM node JOIN pod ON pod.variable__node = node.name GROUP BY node.name, node.cpu_cap;
CREATE CONSTRAINT spread AS SELECT min(spare) AS m FROM spare_cpu MAXIMIZE m;
""",
        },
        prelude=CAPACITY,
        value="""SELECT max(coalesce(used.cpu, 0) - node.cpu_cap) FROM node
                 LEFT JOIN (SELECT node, sum(cpu) AS cpu FROM pod GROUP BY node) AS used ON used.node = node.name""",
        published="DCM, OSDI Fig 11: 50 pods, 1000 nodes, 85 ms of search",
    ),
    Family(
        "apart",
        "the pods of an app are on different nodes",
        _RULE,
        {
            "all_different": """
CREATE CONSTRAINT apart AS SELECT app FROM pod GROUP BY app CHECK all_different(variable__node);
""",
            "self_join": """
CREATE CONSTRAINT apart AS
SELECT a.name FROM pod AS a JOIN pod AS b ON a.app = b.app AND a.number < b.number
CHECK a.variable__node <> b.variable__node;
""",
            "self_join_both_ways": """
CREATE CONSTRAINT apart AS
SELECT a.name FROM pod AS a, pod AS b WHERE a.app = b.app AND a.name <> b.name
CHECK a.variable__node <> b.variable__node;
""",
            "self_join_gated": """
CREATE CONSTRAINT apart AS
SELECT a.name FROM pod AS a JOIN pod AS b
  ON a.app = b.app AND a.number < b.number AND a.variable__node = b.variable__node
CHECK FALSE;
""",
            "exists": """
CREATE CONSTRAINT apart AS
SELECT * FROM pod AS a
WHERE EXISTS (SELECT 1 FROM pod AS b
              WHERE b.app = a.app AND b.name <> a.name AND b.variable__node = a.variable__node)
CHECK FALSE;
""",
            "not_exists": """
CREATE CONSTRAINT apart AS
SELECT * FROM pod AS a
CHECK NOT EXISTS (SELECT 1 FROM pod AS b
                  WHERE b.app = a.app AND b.name <> a.name AND b.variable__node = a.variable__node);
""",
            "not_in": """
CREATE CONSTRAINT apart AS
SELECT * FROM pod AS a
CHECK a.variable__node NOT IN (SELECT b.variable__node FROM pod AS b WHERE b.app = a.app AND b.name <> a.name);
""",
            "one_for_app_and_node": """
CREATE CONSTRAINT apart AS
SELECT pod.app, node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.name CHECK count(*) <= 1;
""",
            "group_by_variable": """
CREATE CONSTRAINT apart AS
SELECT app, variable__node FROM pod GROUP BY app, variable__node CHECK count(*) <= 1;
""",
            "having": """
CREATE CONSTRAINT apart AS
SELECT pod.app, node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.name HAVING count(*) > 1 CHECK FALSE;
""",
            "count_distinct": """
CREATE CONSTRAINT apart AS
SELECT app FROM pod GROUP BY app CHECK count(DISTINCT variable__node) = count(*);
""",
            "subquery_count": """
CREATE CONSTRAINT apart AS
SELECT * FROM pod AS a
CHECK (SELECT count(*) FROM pod AS b WHERE b.app = a.app AND b.variable__node = a.variable__node) = 1;
""",
        },
        prelude=CAPACITY,
        listed=("self_join", "exists", "all_different"),
        asked_of={"exists": _PAIRS},
        broken="SELECT app, node FROM pod GROUP BY app, node HAVING count(*) > 1",
    ),
    Family(
        "two_zones",
        "an app uses at least two zones",
        _RULE,
        {
            "count_distinct": """
CREATE CONSTRAINT two_zones AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK count(DISTINCT node.zone) >= 2;
""",
            "not_all_equal": """
CREATE CONSTRAINT two_zones AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK NOT all_equal(node.zone);
""",
            "min_is_not_max": """
CREATE CONSTRAINT two_zones AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK min(node.zone) <> max(node.zone);
""",
            "not_all_in_one": """
CREATE CONSTRAINT two_zones AS
SELECT pod.app, node.zone, size.pods
FROM pod JOIN node ON pod.variable__node = node.name
JOIN (SELECT app, count(*) AS pods FROM pod GROUP BY app) AS size ON size.app = pod.app
GROUP BY pod.app, node.zone, size.pods CHECK count(*) < size.pods;
""",
            "pair": """
CREATE CONSTRAINT two_zones AS
SELECT a.app FROM pod AS a JOIN node AS x ON a.variable__node = x.name
JOIN pod AS b ON b.app = a.app AND a.number < b.number JOIN node AS y ON b.variable__node = y.name
GROUP BY a.app CHECK any(x.zone <> y.zone);
""",
            "exists_pair": """
CREATE CONSTRAINT two_zones AS
SELECT * FROM app AS whole
CHECK EXISTS (SELECT 1 FROM pod AS a JOIN node AS x ON a.variable__node = x.name
              JOIN pod AS b ON b.app = a.app JOIN node AS y ON b.variable__node = y.name
              WHERE a.app = whole.name AND x.zone <> y.zone);
""",
            "subquery": """
CREATE CONSTRAINT two_zones AS
SELECT * FROM app
CHECK (SELECT count(DISTINCT node.zone) FROM pod JOIN node ON pod.variable__node = node.name
       WHERE pod.app = app.name) > 1;
""",
            "view_of_zones": """
CREATE VIEW app_zone AS
SELECT pod.app, node.zone, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone;
CREATE CONSTRAINT two_zones AS
SELECT app FROM app_zone GROUP BY app CHECK sum(CASE WHEN pods > 0 THEN 1 ELSE 0 END) >= 2;
""",
            "having": """
CREATE CONSTRAINT two_zones AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app HAVING count(DISTINCT node.zone) < 2 CHECK FALSE;
""",
        },
        prelude=CAPACITY,
        listed=("count_distinct",),
        broken="SELECT app FROM pod JOIN node ON node.name = pod.node GROUP BY app HAVING count(DISTINCT zone) < 2",
    ),
    Family(
        "two_racks",
        "an app uses at least two racks (texts compared)",
        _RULE,
        {
            "min_is_not_max": """
CREATE CONSTRAINT two_racks AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK min(node.rack) <> max(node.rack);
""",
            "min_before_max": """
CREATE CONSTRAINT two_racks AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK min(node.rack) < max(node.rack);
""",
            "count_distinct": """
CREATE CONSTRAINT two_racks AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK count(DISTINCT node.rack) > 1;
""",
            "not_all_equal": """
CREATE CONSTRAINT two_racks AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK NOT all_equal(node.rack);
""",
        },
        prelude=CAPACITY,
        listed=("min_is_not_max",),
        broken="SELECT app FROM pod JOIN node ON node.name = pod.node GROUP BY app HAVING count(DISTINCT rack) < 2",
    ),
    Family(
        "level_share",
        "the highest share of a node's cpu, in percent, is as low as can be",
        Asked(0.2, 0.5),
        {
            "max": LOAD + "CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE max(cpu * 100 / cpu_cap);",
            "share_view": LOAD
            + """
CREATE VIEW share AS SELECT name, cpu * 100 / cpu_cap AS percent FROM load;
CREATE CONSTRAINT level AS SELECT * FROM share MINIMIZE max(percent);
""",
            "one_statement": """
CREATE VIEW share AS
SELECT node.name, sum(pod.cpu) * 100 / node.cpu_cap AS percent
FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.name, node.cpu_cap;
CREATE CONSTRAINT level AS SELECT * FROM share MINIMIZE max(percent);
""",
            "subquery": """
CREATE CONSTRAINT level AS
SELECT * FROM node
MINIMIZE max((SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name) * 100 / node.cpu_cap);
""",
            "max_min": LOAD
            + "CREATE CONSTRAINT level AS SELECT * FROM load MAXIMIZE min(100 - cpu * 100 / cpu_cap);",
            "scaled_in_sum": """
CREATE VIEW share AS
SELECT node.name, sum(pod.cpu * 100) / node.cpu_cap AS percent
FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.name, node.cpu_cap;
CREATE CONSTRAINT level AS SELECT * FROM share MINIMIZE max(percent);
""",
        },
        prelude=CAPACITY,
        listed=("max",),
        value="""SELECT max(used.cpu * 100 // cpu_cap) FROM node
                 JOIN (SELECT node, sum(cpu) AS cpu FROM pod GROUP BY node) AS used ON used.node = node.name""",
    ),
    Family(
        "squares",
        "the sum of the squares of the nodes' loads is as small as can be",
        _LEVEL,
        {
            "sum": LOAD + "CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE sum(cpu * cpu);",
            "view": LOAD
            + """
CREATE VIEW cost AS SELECT name, cpu * cpu AS square FROM load;
CREATE CONSTRAINT level AS SELECT * FROM cost MINIMIZE sum(square);
""",
            "maximize": LOAD + "CREATE CONSTRAINT level AS SELECT * FROM load MAXIMIZE -sum(cpu * cpu);",
            "subquery": """
CREATE VIEW used AS
SELECT node.name, (SELECT sum(pod.cpu) FROM pod WHERE pod.variable__node = node.name) AS cpu FROM node;
CREATE CONSTRAINT level AS SELECT * FROM used MINIMIZE sum(cpu * cpu);
""",
            "row_objective": LOAD + "CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE cpu * cpu;",
            "pairs": """
CREATE CONSTRAINT level AS
SELECT a.cpu * b.cpu AS product FROM pod AS a JOIN pod AS b ON a.variable__node = b.variable__node
MINIMIZE sum(a.cpu * b.cpu);
""",
        },
        prelude=CAPACITY,
        listed=("sum",),
        value="SELECT sum(cpu * cpu) FROM (SELECT sum(cpu) AS cpu FROM pod GROUP BY node)",
    ),
    Family(
        "range",
        "the highest and the lowest load of a node are as near as can be",
        _LEVEL,
        {
            "max_minus_min": LOAD
            + "CREATE CONSTRAINT level AS SELECT * FROM load MINIMIZE max(cpu) - min(cpu);",
            "scalars": LOAD
            + """
CREATE CONSTRAINT level AS
SELECT * FROM app WHERE name = 'a000' MINIMIZE (SELECT max(cpu) FROM load) - (SELECT min(cpu) FROM load);
""",
            "two_objectives": LOAD
            + """
CREATE CONSTRAINT high AS SELECT * FROM load MINIMIZE max(cpu) TIER 1;
CREATE CONSTRAINT low AS SELECT * FROM load MAXIMIZE min(cpu) TIER 1;
""",
            "view": LOAD
            + """
CREATE VIEW ends AS SELECT max(cpu) AS high, min(cpu) AS low FROM load;
CREATE CONSTRAINT level AS SELECT * FROM ends MINIMIZE high - low;
""",
            "pairs": LOAD
            + """
CREATE CONSTRAINT level AS SELECT * FROM load AS a, load AS b MINIMIZE max(a.cpu - b.cpu);
""",
        },
        prelude=CAPACITY,
        listed=("max_minus_min",),
        value="""SELECT max(cpu) - min(cpu) FROM (
                 SELECT node.name, coalesce(sum(pod.cpu), 0) AS cpu FROM node LEFT JOIN pod ON pod.node = node.name
                 GROUP BY node.name)""",
    ),
    Family(
        "fewest_nodes",
        "as few nodes as can be are used",
        Asked(1.0, 3.0, gap=0.2),
        {
            "case": LOAD
            + """
CREATE CONSTRAINT fewest AS SELECT * FROM load MINIMIZE sum(CASE WHEN pods > 0 THEN 1 ELSE 0 END);
""",
            "count_where": LOAD
            + "CREATE CONSTRAINT fewest AS SELECT * FROM load WHERE pods > 0 MINIMIZE count(*);",
            "count_distinct": "CREATE CONSTRAINT fewest AS SELECT * FROM pod MINIMIZE count(DISTINCT variable__node);",
            "exists": """
CREATE CONSTRAINT fewest AS
SELECT * FROM node WHERE EXISTS (SELECT 1 FROM pod WHERE pod.variable__node = node.name) MINIMIZE count(*);
""",
            "in": """
CREATE CONSTRAINT fewest AS
SELECT * FROM node WHERE name IN (SELECT variable__node FROM pod) MINIMIZE count(*);
""",
            "least": LOAD + "CREATE CONSTRAINT fewest AS SELECT * FROM load MINIMIZE sum(least(pods, 1));",
            "most_empty": LOAD
            + "CREATE CONSTRAINT fewest AS SELECT * FROM load WHERE pods = 0 MAXIMIZE count(*);",
            "distinct_rows": """
CREATE CONSTRAINT fewest AS SELECT DISTINCT variable__node FROM pod MINIMIZE count(*);
""",
        },
        prelude=CAPACITY,
        listed=("case",),
        value="SELECT count(DISTINCT node) FROM pod",
    ),
    Family(
        "level_racks",
        "the highest cpu of a rack is as low as can be",
        Asked(10.0, 10.0, or_budget=True),
        {
            "group_by_rack": """
CREATE VIEW rack_load AS
SELECT node.rack, sum(pod.cpu) AS cpu FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.rack;
CREATE CONSTRAINT level AS SELECT * FROM rack_load MINIMIZE max(cpu);
""",
            "view_of_loads": LOAD
            + """
CREATE VIEW rack_load AS SELECT rack, sum(cpu) AS cpu FROM load GROUP BY rack;
CREATE CONSTRAINT level AS SELECT * FROM rack_load MINIMIZE max(cpu);
""",
            "subquery": """
CREATE VIEW rack AS SELECT DISTINCT rack AS name FROM node;
CREATE CONSTRAINT level AS
SELECT * FROM rack
MINIMIZE max((SELECT sum(pod.cpu) FROM pod JOIN node ON pod.variable__node = node.name WHERE node.rack = rack.name));
""",
        },
        prelude=CAPACITY,
        listed=("group_by_rack",),
        value="SELECT max(cpu) FROM (SELECT sum(cpu) AS cpu FROM pod JOIN node ON node.name = pod.node GROUP BY rack)",
    ),
    Family(
        "level_rack_shares",
        "the highest share of a rack's cpu, in thousandths, is as low as can be",
        _LEVEL,
        {
            "capacity_view": """
CREATE VIEW rack_cap AS SELECT rack, sum(cpu_cap) AS cap FROM node GROUP BY rack;
CREATE VIEW rack_load AS
SELECT node.rack, rack_cap.cap, sum(pod.cpu) AS cpu
FROM pod JOIN node ON pod.variable__node = node.name JOIN rack_cap ON rack_cap.rack = node.rack
GROUP BY node.rack, rack_cap.cap;
CREATE CONSTRAINT level AS SELECT * FROM rack_load MINIMIZE max(cpu * 1000 / cap);
""",
            "join_of_views": """
CREATE VIEW rack_cap AS SELECT rack, sum(cpu_cap) AS cap FROM node GROUP BY rack;
CREATE VIEW rack_load AS
SELECT node.rack, sum(pod.cpu) AS cpu FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.rack;
CREATE CONSTRAINT level AS
SELECT * FROM rack_load JOIN rack_cap ON rack_cap.rack = rack_load.rack MINIMIZE max(cpu * 1000 / cap);
""",
            "sums_of_loads": LOAD
            + """
CREATE VIEW rack_share AS SELECT rack, sum(cpu) * 1000 / sum(cpu_cap) AS share FROM load GROUP BY rack;
CREATE CONSTRAINT level AS SELECT * FROM rack_share MINIMIZE max(share);
""",
            "subquery": """
CREATE VIEW rack_load AS
SELECT node.rack, sum(pod.cpu) AS cpu FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.rack;
CREATE CONSTRAINT level AS
SELECT * FROM rack_load
MINIMIZE max(cpu * 1000 / (SELECT sum(node.cpu_cap) FROM node WHERE node.rack = rack_load.rack));
""",
        },
        prelude=CAPACITY,
        listed=("capacity_view",),
        value="""SELECT max(cpu * 1000 // cap) FROM
                 (SELECT rack, sum(cpu) AS cpu FROM pod JOIN node ON node.name = pod.node GROUP BY rack)
                 JOIN (SELECT rack, sum(cpu_cap) AS cap FROM node GROUP BY rack) USING (rack)""",
    ),
    Family(
        "one_zone",
        "the pods of an app are in one zone",
        _PAIRS,
        {
            "pairs": """
CREATE CONSTRAINT one_zone AS
SELECT a.name FROM pod AS a JOIN node AS x ON a.variable__node = x.name
JOIN pod AS b ON b.app = a.app AND a.number < b.number JOIN node AS y ON b.variable__node = y.name
CHECK x.zone = y.zone;
""",
            "pairs_gated": """
CREATE CONSTRAINT one_zone AS
SELECT a.name FROM pod AS a, node AS x, pod AS b, node AS y
WHERE a.variable__node = x.name AND b.variable__node = y.name AND a.app = b.app AND a.number < b.number
  AND x.zone <> y.zone
CHECK FALSE;
""",
            "all_equal": """
CREATE CONSTRAINT one_zone AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name GROUP BY pod.app CHECK all_equal(node.zone);
""",
            "count_distinct": """
CREATE CONSTRAINT one_zone AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK count(DISTINCT node.zone) = 1;
""",
            "min_is_max": """
CREATE CONSTRAINT one_zone AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app CHECK min(node.zone) = max(node.zone);
""",
            "with_the_first": """
CREATE CONSTRAINT one_zone AS
SELECT a.name FROM pod AS a JOIN node AS x ON a.variable__node = x.name
JOIN pod AS b ON b.app = a.app JOIN node AS y ON b.variable__node = y.name
WHERE b.number IN (SELECT min(number) FROM pod GROUP BY app)
CHECK x.zone = y.zone;
""",
            "scalars": """
CREATE CONSTRAINT one_zone AS
SELECT a.name FROM pod AS a JOIN pod AS b ON b.app = a.app AND a.number < b.number
CHECK (SELECT zone FROM node WHERE node.name = a.variable__node)
    = (SELECT zone FROM node WHERE node.name = b.variable__node);
""",
            "all_or_none": """
CREATE CONSTRAINT one_zone AS
SELECT pod.app, node.zone, size.pods
FROM pod JOIN node ON pod.variable__node = node.name
JOIN (SELECT app, count(*) AS pods FROM pod GROUP BY app) AS size ON size.app = pod.app
GROUP BY pod.app, node.zone, size.pods CHECK count(*) = 0 OR count(*) = size.pods;
""",
            "view": """
CREATE VIEW place AS
SELECT pod.app, pod.number, node.zone FROM pod JOIN node ON pod.variable__node = node.name;
CREATE CONSTRAINT one_zone AS
SELECT * FROM place AS a JOIN place AS b ON a.app = b.app AND a.number < b.number CHECK a.zone = b.zone;
""",
        },
        prelude=CAPACITY,
        listed=("pairs",),
        broken="SELECT app FROM pod JOIN node ON node.name = pod.node GROUP BY app HAVING count(DISTINCT zone) > 1",
    ),
    Family(
        "crowded",
        "as few nodes as can be have more than two pods",
        _RULE,
        {
            "one_statement": """
CREATE CONSTRAINT crowded AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name MINIMIZE sum(CASE WHEN count(*) > 2 THEN 1 ELSE 0 END);
""",
            "view": LOAD
            + "CREATE CONSTRAINT crowded AS SELECT * FROM load WHERE pods > 2 MINIMIZE count(*);",
            "case_of_view": LOAD
            + """
CREATE CONSTRAINT crowded AS SELECT * FROM load MINIMIZE sum(CASE WHEN pods > 2 THEN 1 ELSE 0 END);
""",
            "having": """
CREATE VIEW crowd AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name GROUP BY node.name HAVING count(*) > 2;
CREATE CONSTRAINT crowded AS SELECT * FROM crowd MINIMIZE count(*);
""",
            "subquery": """
CREATE CONSTRAINT crowded AS
SELECT * FROM node WHERE (SELECT count(*) FROM pod WHERE pod.variable__node = node.name) > 2 MINIMIZE count(*);
""",
        },
        prelude=CAPACITY,
        listed=("one_statement",),
        value="SELECT count(*) FROM (SELECT node FROM pod GROUP BY node HAVING count(*) > 2)",
    ),
    Family(
        "any_all",
        "each app has a pod in z0, one in z1, and none in rack r002",
        _RULE,
        {
            "any_all_any": """
CREATE CONSTRAINT zones AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name GROUP BY pod.app
CHECK any(node.zone = 'z0') AND all(node.rack <> 'r002') AND any(node.zone = 'z1');
""",
            "filters": """
CREATE CONSTRAINT zones AS
SELECT pod.app FROM pod JOIN node ON pod.variable__node = node.name GROUP BY pod.app
CHECK count(*) FILTER (WHERE node.zone = 'z0') >= 1 AND count(*) FILTER (WHERE node.rack = 'r002') = 0
  AND count(*) FILTER (WHERE node.zone = 'z1') >= 1;
""",
            "exists": """
CREATE CONSTRAINT zones AS
SELECT * FROM app
CHECK EXISTS (SELECT 1 FROM pod JOIN node ON pod.variable__node = node.name
              WHERE pod.app = app.name AND node.zone = 'z0')
  AND EXISTS (SELECT 1 FROM pod JOIN node ON pod.variable__node = node.name
              WHERE pod.app = app.name AND node.zone = 'z1')
  AND NOT EXISTS (SELECT 1 FROM pod JOIN node ON pod.variable__node = node.name
                  WHERE pod.app = app.name AND node.rack = 'r002');
""",
            "in": """
CREATE CONSTRAINT zones AS
SELECT * FROM app
CHECK 'z0' IN (SELECT node.zone FROM pod JOIN node ON pod.variable__node = node.name WHERE pod.app = app.name)
  AND 'z1' IN (SELECT node.zone FROM pod JOIN node ON pod.variable__node = node.name WHERE pod.app = app.name)
  AND 'r002' NOT IN (SELECT node.rack FROM pod JOIN node ON pod.variable__node = node.name WHERE pod.app = app.name);
""",
            "three_constraints": """
CREATE CONSTRAINT zones AS
SELECT pod.app, node.zone FROM pod JOIN node ON pod.variable__node = node.name WHERE node.zone IN ('z0', 'z1')
GROUP BY pod.app, node.zone CHECK count(*) > 0;
CREATE CONSTRAINT rack AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name WHERE node.rack = 'r002' CHECK FALSE;
""",
        },
        prelude=CAPACITY,
        listed=("any_all_any",),
        broken="""SELECT app FROM pod JOIN node ON node.name = pod.node GROUP BY app
                  HAVING NOT (bool_or(zone = 'z0') AND bool_or(zone = 'z1') AND bool_and(rack <> 'r002'))""",
    ),
    Family(
        "selector",
        "pods whose app selects a label are on nodes that have it",
        _RULE,
        {
            "in": """
CREATE CONSTRAINT selected AS
SELECT pod.name FROM pod JOIN selector ON selector.app = pod.app
CHECK pod.variable__node IN (SELECT label.node FROM node_label AS label
                             WHERE label.key = selector.key AND label.value = selector.value);
""",
            "join": """
CREATE CONSTRAINT selected AS
SELECT pod.name FROM pod JOIN selector ON selector.app = pod.app
JOIN node_label AS label ON pod.variable__node = label.node AND label.key = selector.key
CHECK label.value = selector.value;
""",
            "not_in": """
CREATE CONSTRAINT selected AS
SELECT pod.name FROM pod JOIN selector ON selector.app = pod.app
CHECK pod.variable__node NOT IN (SELECT label.node FROM node_label AS label
                                 WHERE label.key = selector.key AND label.value <> selector.value);
""",
            "view": """
CREATE VIEW candidate AS
SELECT pod.name AS pod, label.node FROM pod JOIN selector ON selector.app = pod.app
JOIN node_label AS label ON label.key = selector.key AND label.value = selector.value;
CREATE CONSTRAINT selected AS
SELECT * FROM pod WHERE app IN (SELECT app FROM selector)
CHECK variable__node IN (SELECT node FROM candidate WHERE candidate.pod = pod.name);
""",
            "tuples": """
CREATE CONSTRAINT selected AS
SELECT pod.name FROM pod JOIN selector ON selector.app = pod.app
CHECK (pod.variable__node, selector.key, selector.value) IN (SELECT node, key, value FROM node_label);
""",
            "exists": """
CREATE CONSTRAINT selected AS
SELECT pod.name FROM pod JOIN selector ON selector.app = pod.app
CHECK EXISTS (SELECT 1 FROM node_label AS label WHERE label.node = pod.variable__node
              AND label.key = selector.key AND label.value = selector.value);
""",
            "scalar": """
CREATE CONSTRAINT selected AS
SELECT pod.name FROM pod JOIN selector ON selector.app = pod.app
CHECK (SELECT label.value FROM node_label AS label
       WHERE label.node = pod.variable__node AND label.key = 'disk') = selector.value;
""",
            "case": """
CREATE CONSTRAINT selected AS
SELECT pod.name FROM pod JOIN node_label AS label ON pod.variable__node = label.node
CHECK CASE WHEN pod.app IN (SELECT app FROM selector) THEN label.value = 'ssd' ELSE TRUE END;
""",
            "implied": """
CREATE CONSTRAINT selected AS
SELECT * FROM pod
CHECK app NOT IN (SELECT app FROM selector)
   OR variable__node IN (SELECT node FROM node_label WHERE key = 'disk' AND value = 'ssd');
""",
            "counted": """
CREATE CONSTRAINT selected AS
SELECT label.node FROM pod JOIN selector ON selector.app = pod.app
JOIN node_label AS label ON pod.variable__node = label.node AND label.key = selector.key
WHERE label.value <> selector.value
GROUP BY label.node CHECK count(*) = 0;
""",
            "any_of": """
CREATE CONSTRAINT selected AS
SELECT * FROM pod WHERE app IN (SELECT app FROM selector)
CHECK variable__node = ANY (SELECT node FROM node_label WHERE key = 'disk' AND value = 'ssd');
""",
        },
        prelude=CAPACITY,
        broken="""SELECT pod.name FROM pod JOIN selector ON selector.app = pod.app
                  JOIN node_label AS label ON label.node = pod.node AND label.key = selector.key
                  WHERE label.value <> selector.value""",
    ),
    Family(
        "taints",
        "pods are on no node with a taint that their app does not tolerate",
        _RULE,
        {
            "join": """
CREATE CONSTRAINT tolerated AS
SELECT pod.name FROM pod JOIN taint ON pod.variable__node = taint.node
CHECK (pod.app, taint.name) IN (SELECT app, taint FROM toleration);
""",
            "left_join": """
CREATE CONSTRAINT tolerated AS
SELECT pod.name FROM pod JOIN taint ON pod.variable__node = taint.node
LEFT JOIN toleration ON toleration.app = pod.app AND toleration.taint = taint.name
CHECK toleration.app IS NOT NULL;
""",
            "not_in": """
CREATE CONSTRAINT tolerated AS
SELECT * FROM pod
CHECK variable__node NOT IN (SELECT taint.node FROM taint
  WHERE taint.name NOT IN (SELECT toleration.taint FROM toleration WHERE toleration.app = pod.app));
""",
            "not_exists": """
CREATE CONSTRAINT tolerated AS
SELECT * FROM pod
CHECK NOT EXISTS (SELECT 1 FROM taint WHERE taint.node = pod.variable__node
  AND NOT EXISTS (SELECT 1 FROM toleration WHERE toleration.app = pod.app AND toleration.taint = taint.name));
""",
            "view": """
CREATE VIEW forbidden AS
SELECT app.name AS app, taint.node FROM app CROSS JOIN taint
WHERE NOT EXISTS (SELECT 1 FROM toleration WHERE toleration.app = app.name AND toleration.taint = taint.name);
CREATE CONSTRAINT tolerated AS
SELECT pod.name FROM pod JOIN forbidden ON forbidden.app = pod.app AND pod.variable__node = forbidden.node
CHECK FALSE;
""",
            "all": """
CREATE CONSTRAINT tolerated AS
SELECT * FROM pod
CHECK variable__node <> ALL (SELECT taint.node FROM taint WHERE taint.name = 'gpu')
   OR app IN (SELECT app FROM toleration WHERE taint = 'gpu');
""",
        },
        prelude=CAPACITY,
        broken="""SELECT pod.name FROM pod JOIN taint ON taint.node = pod.node
                  WHERE NOT EXISTS (SELECT 1 FROM toleration WHERE app = pod.app AND taint = taint.name)""",
    ),
    Family(
        "price",
        "the nodes' prices, summed over pods, are as low as can be (separable)",
        _RULE,
        {
            "join": """
CREATE CONSTRAINT cheap AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name MINIMIZE sum(node.price * pod.cpu);
""",
            "scalar": """
CREATE CONSTRAINT cheap AS
SELECT * FROM pod MINIMIZE sum(cpu * (SELECT node.price FROM node WHERE node.name = pod.variable__node));
""",
            "per_node": """
CREATE VIEW cost AS
SELECT node.name, sum(pod.cpu) * node.price AS cost FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name, node.price;
CREATE CONSTRAINT cheap AS SELECT * FROM cost MINIMIZE sum(cost);
""",
            "row_objective": """
CREATE CONSTRAINT cheap AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name MINIMIZE node.price * pod.cpu;
""",
            "maximize": """
CREATE CONSTRAINT cheap AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name MAXIMIZE sum((100 - node.price) * pod.cpu);
""",
            "case": """
CREATE CONSTRAINT cheap AS
SELECT * FROM pod, node
MINIMIZE sum(CASE WHEN pod.variable__node = node.name THEN pod.cpu * node.price ELSE 0 END);
""",
        },
        prelude=CAPACITY,
        value="SELECT sum(cpu * price) FROM pod JOIN node ON node.name = pod.node",
    ),
    Family(
        "preferred_zone",
        "as few pods as can be are outside of zone z0, where racks hold at most 40 cpu",
        _PAIRS,
        {
            "count": """
CREATE CONSTRAINT preferred AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name WHERE node.zone <> 'z0' MINIMIZE count(*);
""",
            "soft": """
CREATE CONSTRAINT preferred AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name CHECK node.zone = 'z0' SOFT;
""",
            "maximize_case": """
CREATE CONSTRAINT preferred AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name
MAXIMIZE sum(CASE WHEN node.zone = 'z0' THEN 1 ELSE 0 END);
""",
            "in": """
CREATE CONSTRAINT preferred AS
SELECT * FROM pod MAXIMIZE sum(variable__node IN (SELECT name FROM node WHERE zone = 'z0'));
""",
            "filter": """
CREATE CONSTRAINT preferred AS
SELECT * FROM pod JOIN node ON pod.variable__node = node.name
MINIMIZE count(*) FILTER (WHERE node.zone <> 'z0');
""",
        },
        prelude=CAPACITY
        + """
CREATE CONSTRAINT racks AS
SELECT node.rack FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.rack CHECK sum(pod.cpu) <= 40;
""",
        broken="SELECT rack FROM pod JOIN node ON node.name = pod.node GROUP BY rack HAVING sum(cpu) > 40",
        value="SELECT count(*) FROM pod JOIN node ON node.name = pod.node WHERE zone <> 'z0'",
    ),
    Family(
        "own_nodes",
        "a node holds pods of one app only",
        _PAIRS,
        {
            "count_distinct": """
CREATE CONSTRAINT own AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name CHECK count(DISTINCT pod.app) <= 1;
""",
            "all_equal": """
CREATE CONSTRAINT own AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name CHECK all_equal(pod.app);
""",
            "pairs": """
CREATE CONSTRAINT own AS
SELECT a.name FROM pod AS a JOIN pod AS b ON a.app < b.app CHECK a.variable__node <> b.variable__node;
""",
            "not_exists": """
CREATE CONSTRAINT own AS
SELECT * FROM pod AS a
CHECK NOT EXISTS (SELECT 1 FROM pod AS b WHERE b.app <> a.app AND b.variable__node = a.variable__node);
""",
            "min_is_max": """
CREATE CONSTRAINT own AS
SELECT node.name FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY node.name CHECK min(pod.app) = max(pod.app);
""",
        },
        prelude=CAPACITY,
        broken="SELECT node FROM pod GROUP BY node HAVING count(DISTINCT app) > 1",
    ),
    Family(
        "even_zones",
        "the pods of an app in two zones differ by at most one (topology spread)",
        _PAIRS,
        {
            "max_min": """
CREATE VIEW app_zone AS
SELECT pod.app, node.zone, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone;
CREATE CONSTRAINT even AS SELECT app FROM app_zone GROUP BY app CHECK max(pods) - min(pods) <= 1;
""",
            "pairs_of_zones": """
CREATE VIEW app_zone AS
SELECT pod.app, node.zone, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone;
CREATE CONSTRAINT even AS
SELECT * FROM app_zone AS a JOIN app_zone AS b ON a.app = b.app CHECK a.pods - b.pods <= 1;
""",
            "beside_least": """
CREATE VIEW app_zone AS
SELECT pod.app, node.zone, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone;
CREATE VIEW least AS SELECT app, min(pods) AS pods FROM app_zone GROUP BY app;
CREATE CONSTRAINT even AS
SELECT a.app, a.zone FROM app_zone AS a JOIN least ON least.app = a.app CHECK a.pods <= least.pods + 1;
""",
            "least_scalar": """
CREATE VIEW app_zone AS
SELECT pod.app, node.zone, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone;
CREATE CONSTRAINT even AS
SELECT a.app, a.zone FROM app_zone AS a
CHECK a.pods <= 1 + (SELECT min(b.pods) FROM app_zone AS b WHERE b.app = a.app);
""",
            "bands": """
CREATE VIEW share AS
SELECT pod.app, count(*) / zones.number AS least, (count(*) + zones.number - 1) / zones.number AS most
FROM pod CROSS JOIN (SELECT count(DISTINCT zone) AS number FROM node) AS zones GROUP BY pod.app, zones.number;
CREATE CONSTRAINT even AS
SELECT pod.app, node.zone FROM pod JOIN share ON share.app = pod.app
JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.zone, share.least, share.most CHECK count(*) BETWEEN share.least AND share.most;
""",
        },
        prelude=CAPACITY,
        broken="""SELECT app FROM (SELECT app.name AS app, zone.zone, count(pod.name) AS pods
                    FROM app CROSS JOIN (SELECT DISTINCT zone FROM node) AS zone
                    LEFT JOIN (pod JOIN node ON node.name = pod.node) ON pod.app = app.name AND node.zone = zone.zone
                    GROUP BY ALL) GROUP BY app HAVING max(pods) - min(pods) > 1""",
    ),
    Family(
        "with_another",
        "a pod of each even app shares its rack with one of the app after it",
        _PAIRS,
        {
            "pair": """
CREATE CONSTRAINT near AS
SELECT a.app FROM pod AS a JOIN node AS x ON a.variable__node = x.name
JOIN follows ON follows.app = a.app
JOIN pod AS b ON b.app = follows.next JOIN node AS y ON b.variable__node = y.name
GROUP BY a.app CHECK any(x.rack = y.rack);
""",
            "exists": """
CREATE CONSTRAINT near AS
SELECT * FROM follows
CHECK EXISTS (SELECT 1 FROM pod AS a JOIN node AS x ON a.variable__node = x.name
              JOIN node AS y ON y.rack = x.rack JOIN pod AS b ON b.variable__node = y.name
              WHERE a.app = follows.app AND b.app = follows.next);
""",
            "racks": """
CREATE VIEW app_rack AS
SELECT pod.app, node.rack, count(*) AS pods FROM pod JOIN node ON pod.variable__node = node.name
GROUP BY pod.app, node.rack;
CREATE CONSTRAINT near AS
SELECT follows.app FROM follows JOIN app_rack AS a ON a.app = follows.app
JOIN app_rack AS b ON b.app = follows.next AND b.rack = a.rack
GROUP BY follows.app CHECK any(a.pods > 0 AND b.pods > 0);
""",
        },
        prelude=CAPACITY
        + """
CREATE VIEW follows AS
SELECT a.name AS app, b.name AS next
FROM (SELECT name, row_number() OVER (ORDER BY name) AS n FROM app) AS a
JOIN (SELECT name, row_number() OVER (ORDER BY name) AS n FROM app) AS b ON b.n = a.n + 1 AND a.n % 2 = 1;
""",
        broken="""SELECT a.n FROM (SELECT name, row_number() OVER (ORDER BY name) AS n FROM app) AS a
                  JOIN (SELECT name, row_number() OVER (ORDER BY name) AS n FROM app) AS b
                    ON b.n = a.n + 1 AND a.n % 2 = 1
                  WHERE NOT EXISTS (SELECT 1 FROM pod AS p JOIN node AS x ON x.name = p.node, pod AS q
                                    JOIN node AS y ON y.name = q.node
                                    WHERE p.app = a.name AND q.app = b.name AND x.rack = y.rack)""",
    ),
]

FAMILIES = (*_FAMILIES, *MIXED_FAMILIES, *PACK_FAMILIES)
