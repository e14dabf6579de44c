-- Rules between a pod and a node: which nodes will do.  Every view here is free of variables; a running pod that is
-- offered for preemption may stay where it is, whatever has become of its node since.

CREATE VIEW refusing_node AS
SELECT name FROM node
WHERE NOT ready OR unschedulable OR memory_pressure OR disk_pressure OR pid_pressure OR network_unavailable;

CREATE CONSTRAINT node_predicates AS
SELECT pod.name, refusing_node.name AS node
FROM pod JOIN refusing_node ON pod.controllable__node = refusing_node.name
WHERE pod.node IS DISTINCT FROM refusing_node.name
CHECK FALSE;

CREATE VIEW node_outside_selector AS
SELECT wanting.template, node.name AS node
FROM (SELECT DISTINCT template FROM node_selector) AS wanting CROSS JOIN node
WHERE EXISTS (
    SELECT 1 FROM node_selector AS wanted
    WHERE wanted.template = wanting.template AND NOT EXISTS (
        SELECT 1 FROM node_label AS label
        WHERE label.node = node.name AND label.key = wanted.key AND label.value = wanted.value));

CREATE CONSTRAINT node_selector_matches AS
SELECT pod.name, wrong.node
FROM pod JOIN node_outside_selector AS wrong
  ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;

-- Terms of a node affinity that a node fails: some key of it is not as the term says.
CREATE VIEW failed_term AS
SELECT DISTINCT wanted.template, wanted.term, node.name AS node
FROM node_affinity AS wanted CROSS JOIN node
LEFT JOIN node_label AS label ON label.node = node.name AND label.key = wanted.key
WHERE NOT CASE wanted.operator
    WHEN 'Exists' THEN label.value IS NOT NULL
    WHEN 'DoesNotExist' THEN label.value IS NULL
    WHEN 'Gt' THEN coalesce(TRY_CAST(label.value AS BIGINT) > TRY_CAST(wanted.value AS BIGINT), FALSE)
    WHEN 'Lt' THEN coalesce(TRY_CAST(label.value AS BIGINT) < TRY_CAST(wanted.value AS BIGINT), FALSE)
    ELSE (wanted.operator = 'In') = EXISTS (
        SELECT 1 FROM node_affinity AS listed
        WHERE listed.template = wanted.template AND listed.term = wanted.term AND listed.key = wanted.key
          AND listed.operator = wanted.operator AND listed.value = label.value)
    END;

CREATE VIEW node_outside_affinity AS
SELECT template, node FROM failed_term
GROUP BY template, node
HAVING count(*) = (
    SELECT count(DISTINCT term) FROM node_affinity WHERE node_affinity.template = failed_term.template);

CREATE CONSTRAINT node_affinity_matches AS
SELECT pod.name, wrong.node
FROM pod JOIN node_outside_affinity AS wrong
  ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;

CREATE VIEW untolerated_node AS
SELECT DISTINCT used.template, taint.node
FROM (SELECT DISTINCT template FROM pod) AS used CROSS JOIN node_taint AS taint
WHERE taint.effect <> 'PreferNoSchedule' AND NOT EXISTS (
    SELECT 1 FROM toleration
    WHERE toleration.template = used.template AND toleration.effect IN ('', taint.effect)
      AND (toleration.key = taint.key OR (toleration.key = '' AND toleration.operator = 'Exists'))
      AND (toleration.operator = 'Exists' OR toleration.value = taint.value));

CREATE CONSTRAINT taints_are_tolerated AS
SELECT pod.name, wrong.node
FROM pod JOIN untolerated_node AS wrong
  ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;

-- Nodes that are ruled out by name.
CREATE VIEW ruled_out_node AS
SELECT node_rule.template, node_rule.rule, listed.node
FROM node_rule JOIN node_set AS listed ON listed.name = node_rule.node_set
WHERE NOT node_rule.inside
UNION ALL
SELECT node_rule.template, node_rule.rule, node.name AS node
FROM node_rule CROSS JOIN node
WHERE node_rule.inside AND NOT EXISTS (
    SELECT 1 FROM node_set AS listed WHERE listed.name = node_rule.node_set AND listed.node = node.name);

CREATE CONSTRAINT node_rules AS
SELECT pod.name, wrong.rule, wrong.node
FROM pod JOIN ruled_out_node AS wrong ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;

-- Percent of both resources that is requested on a node, and what is left of everything.
CREATE VIEW spare_capacity AS
SELECT node.name AS node,
       greatest(node.cpu - coalesce(used.cpu, 0), 0) AS cpu,
       greatest(node.memory - coalesce(used.memory, 0), 0) AS memory,
       greatest(node.ephemeral_storage - coalesce(used.ephemeral_storage, 0), 0) AS ephemeral_storage,
       greatest(node.pods - coalesce(used.pods, 0), 0) AS pods,
       coalesce(used.cpu * 100 / nullif(node.cpu, 0), 0)
         + coalesce(used.memory * 100 / nullif(node.memory, 0), 0) AS load
FROM node LEFT JOIN (
    SELECT node, sum(cpu) AS cpu, sum(memory) AS memory, sum(ephemeral_storage) AS ephemeral_storage,
           count(*) AS pods
    FROM running_pod GROUP BY node) AS used ON used.node = node.name;

CREATE CONSTRAINT capacity AS
SELECT spare.node, spare.cpu, spare.memory, spare.ephemeral_storage, spare.pods
FROM pod JOIN spare_capacity AS spare ON pod.controllable__node = spare.node
GROUP BY spare.node, spare.cpu, spare.memory, spare.ephemeral_storage, spare.pods
CHECK sum(pod.cpu) <= spare.cpu AND sum(pod.memory) <= spare.memory
  AND sum(pod.ephemeral_storage) <= spare.ephemeral_storage AND count(*) <= spare.pods;

CREATE CONSTRAINT other_resources AS
SELECT offered.node, offered.resource, offered.spare
FROM pod JOIN template_resource AS wanted ON wanted.template = pod.template
JOIN node_resource AS offered ON offered.resource = wanted.resource AND pod.controllable__node = offered.node
GROUP BY offered.node, offered.resource, offered.spare
CHECK sum(wanted.amount) <= offered.spare;

-- Who takes a port of an address: those that ask for this address, and those that ask for every one.
CREATE VIEW port_of_address AS
SELECT DISTINCT wanted.template, wanted.port, wanted.protocol, known.ip
FROM host_port AS wanted
JOIN host_port AS known ON known.port = wanted.port AND known.protocol = wanted.protocol
WHERE wanted.ip IN ('0.0.0.0', known.ip);

CREATE CONSTRAINT host_ports AS
SELECT taken.port, taken.protocol, taken.ip, node.name AS node
FROM port_of_address AS taken JOIN pod ON pod.template = taken.template JOIN node ON pod.controllable__node = node.name
GROUP BY taken.port, taken.protocol, taken.ip, node.name
CHECK count(*) <= 1;

CREATE VIEW node_with_port_taken AS
SELECT DISTINCT wanted.template, running_pod.node
FROM host_port AS wanted
JOIN host_port AS taken ON taken.port = wanted.port AND taken.protocol = wanted.protocol
  AND (taken.ip = wanted.ip OR '0.0.0.0' IN (taken.ip, wanted.ip))
JOIN running_pod ON running_pod.template = taken.template;

CREATE CONSTRAINT host_ports_of_running_pods AS
SELECT pod.name, wrong.node
FROM pod JOIN node_with_port_taken AS wrong
  ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;
