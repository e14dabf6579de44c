-- Even load, for pods that are placed together: the highest share of cpu, and of memory, that is requested of a node which
-- gets one.  It takes the place of the pack's objectives for pods one by one, and comes after what is preferred.

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
