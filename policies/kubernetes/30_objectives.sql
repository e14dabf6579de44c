-- Objectives, the most important tier first.  The README says why they stand in this order.

CREATE VIEW band AS
SELECT priority, count(*) AS pods FROM pod GROUP BY priority;

-- One pod weighs more than all pods of lower bands together: the weight is a power of two, with room below it for each
-- of the lower bands.
CREATE VIEW band_weight AS
SELECT high.priority, coalesce(sum(CAST(ceil(log(2, low.pods + 1)) AS BIGINT)), 0) AS bits
FROM band AS high LEFT JOIN band AS low ON low.priority < high.priority
GROUP BY high.priority;

CREATE CONSTRAINT bands_can_be_weighed AS
SELECT priority, bits FROM band_weight
CHECK bits <= 50;

CREATE CONSTRAINT pods_left_out AS
SELECT pod.name FROM pod JOIN band_weight ON band_weight.priority = pod.priority
WHERE pod.controllable__node IS NULL
MINIMIZE sum(CAST(1 AS BIGINT) << band_weight.bits) TIER 1;

-- Pods of a budget that move or lose their place.
CREATE VIEW disruption AS
SELECT budget.name AS budget, budget.allowed, count(*) AS pods
FROM disruption_budget AS budget JOIN budget_pod AS covered ON covered.budget = budget.name
JOIN pod ON pod.name = covered.pod
WHERE pod.node IS NOT NULL AND pod.controllable__node IS DISTINCT FROM pod.node
GROUP BY budget.name, budget.allowed;

CREATE CONSTRAINT budgets_overdrawn AS
SELECT budget FROM disruption
MINIMIZE sum(greatest(pods - allowed, 0)) TIER 2;

CREATE CONSTRAINT least_harm AS
SELECT pod.name FROM pod JOIN band_weight ON band_weight.priority = pod.priority
WHERE pod.node IS NOT NULL AND pod.controllable__node IS DISTINCT FROM pod.node
MINIMIZE sum(CAST(1 AS BIGINT) << band_weight.bits) TIER 3;

CREATE CONSTRAINT least_requested AS
SELECT pod.name FROM pod JOIN spare_capacity AS spare ON pod.controllable__node = spare.node
MINIMIZE sum(spare.load) TIER 4;

CREATE VIEW newly_placed AS
SELECT node.name AS node, count(*) AS pods
FROM pod JOIN node ON pod.controllable__node = node.name
GROUP BY node.name;

CREATE CONSTRAINT not_all_on_one_node AS
SELECT node FROM newly_placed
MINIMIZE sum(10 * pods * pods) TIER 4;

-- Points of a node for the pods of a template: by itself, and for the pods that run in its domains.
CREATE VIEW preferred_node AS
SELECT liked.template, listed.node, liked.points
FROM node_preference AS liked JOIN node_set AS listed ON listed.name = liked.node_set
UNION ALL
SELECT liked.template, here.node, liked.points * count(*) AS points
FROM preferred_affinity AS liked JOIN preferred_affinity_to AS meant ON meant.affinity = liked.id
JOIN running_pod ON running_pod.template = meant.template
JOIN node_domain AS there ON there.node = running_pod.node AND there.topology = liked.topology
JOIN node_domain AS here ON here.topology = there.topology AND here.domain = there.domain
GROUP BY liked.id, liked.template, here.node, liked.points
UNION ALL
SELECT meant.template, here.node, liked.points * count(*) AS points
FROM preferred_affinity AS liked JOIN preferred_affinity_to AS meant ON meant.affinity = liked.id
JOIN running_pod ON running_pod.template = liked.template
JOIN node_domain AS there ON there.node = running_pod.node AND there.topology = liked.topology
JOIN node_domain AS here ON here.topology = there.topology AND here.domain = there.domain
GROUP BY liked.id, meant.template, here.node, liked.points;

CREATE VIEW node_points AS
SELECT template, node, CAST(sum(points) AS BIGINT) AS points FROM preferred_node GROUP BY template, node;

CREATE CONSTRAINT preferred_nodes AS
SELECT pod.name FROM pod JOIN node_points AS liked ON liked.template = pod.template AND pod.controllable__node = liked.node
MINIMIZE sum(-liked.points) TIER 4;

-- Pairs of pods that are placed together.
CREATE VIEW preferred_company AS
SELECT liked.id AS affinity, place.domain, liked.points, count(*) AS pods
FROM preferred_affinity AS liked
JOIN preferred_affinity_to AS meant ON meant.affinity = liked.id AND meant.template = liked.template
JOIN pod ON pod.template = liked.template
JOIN node_domain AS place ON place.topology = liked.topology AND pod.controllable__node = place.node
GROUP BY liked.id, place.domain, liked.points;

CREATE CONSTRAINT preferred_among_themselves AS
SELECT affinity, domain FROM preferred_company
MINIMIZE sum(-points * pods * pods) TIER 4;

CREATE VIEW preferred_party AS
SELECT id AS affinity, template, topology, points, TRUE AS asks FROM preferred_affinity
UNION ALL
SELECT liked.id, meant.template, liked.topology, liked.points, FALSE
FROM preferred_affinity AS liked JOIN preferred_affinity_to AS meant ON meant.affinity = liked.id
WHERE meant.template <> liked.template;

CREATE VIEW preferred_meeting AS
SELECT party.affinity, place.domain, party.points,
       count(*) FILTER (WHERE party.asks) AS asking, count(*) FILTER (WHERE NOT party.asks) AS meant
FROM preferred_party AS party
JOIN pod ON pod.template = party.template
JOIN node_domain AS place ON place.topology = party.topology AND pod.controllable__node = place.node
WHERE party.affinity IN (
    SELECT affinity FROM preferred_party AS other JOIN pod AS placed ON placed.template = other.template WHERE NOT asks)
GROUP BY party.affinity, place.domain, party.points;

CREATE CONSTRAINT preferred_with_others AS
SELECT affinity, domain FROM preferred_meeting
MINIMIZE sum(-points * asking * meant) TIER 4;
