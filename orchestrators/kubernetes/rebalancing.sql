-- What `rota kube rebalance` wants beside the rules of the pack, whose preferences come first: load that is even, by as
-- few evictions as do it, and no more than are allowed.

CREATE CONSTRAINT everybody_keeps_a_place AS
SELECT name FROM pod
CHECK controllable__node IS NOT NULL;

CREATE CONSTRAINT evictions_are_limited AS
SELECT count(*) AS pods FROM pod
WHERE controllable__node IS DISTINCT FROM node
CHECK count(*) <= {evictions};

CREATE CONSTRAINT budgets_are_kept AS
SELECT budget.name, budget.allowed
FROM disruption_budget AS budget JOIN budget_pod ON budget_pod.budget = budget.name
JOIN pod ON pod.name = budget_pod.pod
WHERE pod.controllable__node IS DISTINCT FROM pod.node
GROUP BY budget.name, budget.allowed
CHECK count(*) <= budget.allowed;

-- What stays on each node, and what one unit is of it, in millionths; memory counts in MiB.
CREATE VIEW node_share AS
SELECT node.name AS node,
       coalesce(used.cpu, 0) AS cpu, 1000000 // node.cpu AS of_cpu,
       coalesce(used.memory, 0) // 1048576 AS memory, 1000000 // (node.memory // 1048576) AS of_memory
FROM node LEFT JOIN (
    SELECT node, sum(cpu) AS cpu, sum(memory) AS memory FROM running_pod GROUP BY node) AS used ON used.node = node.name
WHERE node.cpu > 0 AND node.memory >= 1048576;

CREATE VIEW cpu_load AS
SELECT share.node, (sum(pod.cpu) + share.cpu) * share.of_cpu AS millionths
FROM pod JOIN node_share AS share ON pod.controllable__node = share.node
GROUP BY share.node, share.cpu, share.of_cpu;

CREATE VIEW memory_load AS
SELECT share.node, (sum(pod.memory // 1048576) + share.memory) * share.of_memory AS millionths
FROM pod JOIN node_share AS share ON pod.controllable__node = share.node
GROUP BY share.node, share.memory, share.of_memory;

CREATE CONSTRAINT highest_cpu AS
SELECT node FROM cpu_load MINIMIZE max(millionths) TIER 8;

CREATE CONSTRAINT highest_memory AS
SELECT node FROM memory_load MINIMIZE max(millionths) TIER 8;

CREATE CONSTRAINT fewest_evictions AS
SELECT name FROM pod WHERE controllable__node IS DISTINCT FROM node MINIMIZE count(*) TIER 9;
