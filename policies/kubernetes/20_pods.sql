-- Rules between pods: who must, and who must not, share a domain of a topology.

CREATE VIEW used_topology AS
SELECT topology FROM affinity
UNION SELECT topology FROM topology_spread
UNION SELECT topology FROM preferred_affinity;

-- The domain of each node: what a label says.  While no node has a label for its host, each is one by itself.
CREATE VIEW node_domain AS
SELECT node.name AS node, used.topology, node.name AS domain
FROM used_topology AS used CROSS JOIN node
WHERE used.topology = 'kubernetes.io/hostname'
  AND NOT EXISTS (SELECT 1 FROM node_label WHERE key = 'kubernetes.io/hostname')
UNION ALL
SELECT label.node, used.topology, label.value AS domain
FROM used_topology AS used JOIN node_label AS label ON label.key = used.topology;

-- The templates whose pods an affinity speaks of: those that have all its labels, and those that it names.
CREATE VIEW affinity_member AS
SELECT affinity, template FROM affinity_to
UNION
SELECT wanted.affinity, label.template
FROM affinity_label AS wanted
JOIN template_label AS label ON label.key = wanted.key AND label.value = wanted.value
GROUP BY wanted.affinity, label.template
HAVING count(*) = (SELECT count(*) FROM affinity_label AS listed WHERE listed.affinity = wanted.affinity);

-- Everybody an affinity concerns: those that ask for it, and the others that it speaks of.
CREATE VIEW affinity_party AS
SELECT id AS affinity, template, topology, apart, TRUE AS asks FROM affinity
UNION ALL
SELECT affinity.id, member.template, affinity.topology, affinity.apart, FALSE
FROM affinity JOIN affinity_member AS member ON member.affinity = affinity.id
WHERE member.template <> affinity.template;

CREATE VIEW running_member AS
SELECT affinity.id AS affinity, place.domain, count(*) AS pods
FROM affinity JOIN affinity_member AS member ON member.affinity = affinity.id
JOIN running_pod ON running_pod.template = member.template
JOIN node_domain AS place ON place.node = running_pod.node AND place.topology = affinity.topology
GROUP BY affinity.id, place.domain;

-- Affinities of a template to itself, and perhaps to others, while none of all these has a place.
CREATE VIEW founding_affinity AS
SELECT affinity.id AS affinity, affinity.template, affinity.topology, affinity.id IN (
    SELECT party.affinity FROM affinity_party AS party JOIN pod ON pod.template = party.template
    WHERE NOT party.asks) AS among_others
FROM affinity JOIN affinity_member AS own ON own.affinity = affinity.id AND own.template = affinity.template
WHERE NOT affinity.apart
  AND affinity.id NOT IN (SELECT affinity FROM running_member)
  AND affinity.id NOT IN (
    SELECT party.affinity FROM affinity_party AS party JOIN pod ON pod.template = party.template
    WHERE NOT party.asks AND pod.node IS NOT NULL);

-- How many pods of its own template meet an affinity together.  While one is founded, two of them do; one that is the
-- only one is the first, and meets it anywhere.  Otherwise no number does: there are others to go to.
CREATE VIEW enough_of_its_own AS
SELECT affinity.id AS affinity, CASE
    WHEN affinity.id IN (SELECT affinity FROM founding_affinity) THEN least(count(*), 2) ELSE count(*) + 1
    END AS pods
FROM affinity JOIN pod ON pod.template = affinity.template
GROUP BY affinity.id;

CREATE CONSTRAINT pod_affinity AS
SELECT party.affinity, place.domain
FROM affinity_party AS party
JOIN enough_of_its_own AS enough ON enough.affinity = party.affinity
JOIN pod ON pod.template = party.template
JOIN node_domain AS place ON place.topology = party.topology AND pod.controllable__node = place.node
LEFT JOIN running_member AS running ON running.affinity = party.affinity AND running.domain = place.domain
WHERE NOT party.apart AND party.affinity NOT IN (SELECT affinity FROM founding_affinity WHERE NOT among_others)
GROUP BY party.affinity, place.domain, running.pods, enough.pods
CHECK count(*) FILTER (WHERE party.asks) = 0
   OR count(*) FILTER (WHERE NOT party.asks) + coalesce(running.pods, 0) > 0
   OR count(*) FILTER (WHERE party.asks) >= enough.pods;

CREATE CONSTRAINT pod_affinity_to_itself AS
SELECT founding.affinity, founding.template
FROM founding_affinity AS founding
JOIN pod ON pod.template = founding.template
JOIN node_domain AS place ON place.topology = founding.topology AND pod.controllable__node = place.node
WHERE NOT founding.among_others
GROUP BY founding.affinity, founding.template
CHECK count(DISTINCT place.domain) <= 1;

CREATE CONSTRAINT pod_anti_affinity_to_itself AS
SELECT own.affinity, own.template, place.domain
FROM affinity JOIN affinity_member AS own ON own.affinity = affinity.id AND own.template = affinity.template
JOIN pod ON pod.template = own.template
JOIN node_domain AS place ON place.topology = affinity.topology AND pod.controllable__node = place.node
WHERE affinity.apart
GROUP BY own.affinity, own.template, place.domain
CHECK count(*) <= 1;

CREATE CONSTRAINT pod_anti_affinity AS
SELECT party.affinity, place.domain
FROM affinity_party AS party
JOIN pod ON pod.template = party.template
JOIN node_domain AS place ON place.topology = party.topology AND pod.controllable__node = place.node
WHERE party.apart AND party.affinity IN (SELECT affinity FROM affinity_party WHERE NOT asks)
GROUP BY party.affinity, place.domain
CHECK count(*) FILTER (WHERE party.asks) = 0 OR count(*) FILTER (WHERE NOT party.asks) = 0;

-- Nodes in a domain where a pod runs that this template must not meet.
CREATE VIEW repelling_node AS
SELECT DISTINCT affinity.template, here.node
FROM affinity JOIN running_member AS running ON running.affinity = affinity.id
JOIN node_domain AS here ON here.topology = affinity.topology AND here.domain = running.domain
WHERE affinity.apart;

CREATE CONSTRAINT pod_anti_affinity_to_running_pods AS
SELECT pod.name, wrong.node
FROM pod JOIN repelling_node AS wrong ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;

-- Nodes in a domain where a pod runs that must not meet this template.
CREATE VIEW repelled_node AS
SELECT DISTINCT member.template, here.node
FROM affinity JOIN affinity_member AS member ON member.affinity = affinity.id
JOIN running_pod ON running_pod.template = affinity.template
JOIN node_domain AS there ON there.node = running_pod.node AND there.topology = affinity.topology
JOIN node_domain AS here ON here.topology = there.topology AND here.domain = there.domain
WHERE affinity.apart;

CREATE CONSTRAINT symmetry AS
SELECT pod.name, wrong.node
FROM pod JOIN repelled_node AS wrong ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;

-- Nodes that lack the label a template's affinity or spread is about.
CREATE VIEW node_without_domain AS
SELECT DISTINCT needed.template, node.name AS node
FROM (SELECT template, topology FROM topology_spread
      UNION SELECT template, topology FROM affinity WHERE NOT apart) AS needed CROSS JOIN node
WHERE NOT EXISTS (
    SELECT 1 FROM node_domain AS place
    WHERE place.node = node.name AND place.topology = needed.topology);

CREATE CONSTRAINT nodes_have_the_topology AS
SELECT pod.name, wrong.node
FROM pod JOIN node_without_domain AS wrong
  ON wrong.template = pod.template AND pod.controllable__node = wrong.node
WHERE pod.node IS DISTINCT FROM wrong.node
CHECK FALSE;

-- The nodes over which a template is spread, and on which pods count.
CREATE VIEW spread_node AS
SELECT spread.template, spread.topology, place.node, place.domain
FROM topology_spread AS spread JOIN node_domain AS place ON place.topology = spread.topology
WHERE NOT EXISTS (
    SELECT 1 FROM node_outside_selector AS wrong
    WHERE wrong.template = spread.template AND wrong.node = place.node)
  AND NOT EXISTS (
    SELECT 1 FROM node_outside_affinity AS wrong
    WHERE wrong.template = spread.template AND wrong.node = place.node)
  AND (spread.node_set IS NULL OR spread.inside = EXISTS (
    SELECT 1 FROM node_set AS listed WHERE listed.name = spread.node_set AND listed.node = place.node));

-- Whose pods a spread counts.
CREATE VIEW spread_member AS
SELECT template, topology, template AS member FROM topology_spread WHERE counts_itself
UNION
SELECT template, topology, other AS member FROM spread_to;

CREATE VIEW running_spread AS
SELECT spread.template, spread.topology, place.domain, count(*) AS pods
FROM spread_member AS spread JOIN running_pod ON running_pod.template = spread.member
JOIN spread_node AS place
  ON place.template = spread.template AND place.topology = spread.topology AND place.node = running_pod.node
WHERE NOT running_pod.terminating
GROUP BY spread.template, spread.topology, place.domain;

-- The domains a template may be spread over, those without a node for it left out.
CREATE VIEW spread_domain AS
SELECT spread.template, spread.topology, spread.max_skew, place.domain, coalesce(running.pods, 0) AS running,
       count(*) OVER (PARTITION BY spread.template, spread.topology) < spread.min_domains AS too_few
FROM topology_spread AS spread
JOIN (SELECT DISTINCT template, topology, domain FROM spread_node) AS place
  ON place.template = spread.template AND place.topology = spread.topology
LEFT JOIN running_spread AS running ON running.template = spread.template
  AND running.topology = spread.topology AND running.domain = place.domain;

-- Spreads that count pods of several templates, all of which may be moved.
CREATE VIEW mixed_spread AS
SELECT DISTINCT spread.template, spread.topology
FROM topology_spread AS spread
WHERE NOT spread.counts_itself OR EXISTS (
    SELECT 1 FROM spread_to JOIN pod ON pod.template = spread_to.other
    WHERE spread_to.template = spread.template AND spread_to.topology = spread.topology
      AND spread_to.other <> spread.template);

CREATE VIEW spread_load AS
SELECT spread.template, spread.topology, spread.domain, spread.max_skew, spread.too_few,
       count(*) AS placed, count(*) + spread.running AS pods
FROM spread_domain AS spread
JOIN pod ON pod.template = spread.template
JOIN spread_node AS place ON place.template = spread.template AND place.topology = spread.topology
  AND place.domain = spread.domain AND pod.controllable__node = place.node
WHERE (spread.template, spread.topology) NOT IN (SELECT template, topology FROM mixed_spread)
GROUP BY spread.template, spread.topology, spread.domain, spread.max_skew, spread.too_few, spread.running;

CREATE VIEW least_spread_load AS
SELECT template, topology, min(pods) AS pods FROM spread_load GROUP BY template, topology;

CREATE CONSTRAINT even_spread AS
SELECT spread_load.template, spread_load.topology, spread_load.domain
FROM spread_load JOIN least_spread_load AS least
  ON least.template = spread_load.template AND least.topology = spread_load.topology
CHECK spread_load.placed = 0 OR spread_load.pods - least.pods <= spread_load.max_skew;

CREATE CONSTRAINT min_domains AS
SELECT template, topology, domain FROM spread_load
WHERE too_few
CHECK placed = 0 OR pods <= max_skew;

-- The same for spreads that count pods of several templates: only those that ask for it must be even.
CREATE VIEW spread_party AS
SELECT template, topology, template AS member, TRUE AS asks, counts_itself AS counts FROM topology_spread
UNION ALL
SELECT template, topology, other, FALSE, TRUE FROM spread_to WHERE other <> template;

CREATE VIEW mixed_spread_load AS
SELECT spread.template, spread.topology, spread.domain, spread.max_skew, spread.too_few,
       count(*) FILTER (WHERE party.asks) AS placed,
       count(*) FILTER (WHERE party.counts) + spread.running AS pods
FROM spread_domain AS spread
JOIN mixed_spread AS mixed ON mixed.template = spread.template AND mixed.topology = spread.topology
JOIN spread_party AS party ON party.template = spread.template AND party.topology = spread.topology
JOIN pod ON pod.template = party.member
JOIN spread_node AS place ON place.template = spread.template AND place.topology = spread.topology
  AND place.domain = spread.domain AND pod.controllable__node = place.node
GROUP BY spread.template, spread.topology, spread.domain, spread.max_skew, spread.too_few, spread.running;

CREATE VIEW least_mixed_spread_load AS
SELECT template, topology, min(pods) AS pods FROM mixed_spread_load GROUP BY template, topology;

CREATE CONSTRAINT even_spread_of_several AS
SELECT mixed.template, mixed.topology, mixed.domain
FROM mixed_spread_load AS mixed JOIN least_mixed_spread_load AS least
  ON least.template = mixed.template AND least.topology = mixed.topology
CHECK mixed.placed = 0
   OR (mixed.pods - least.pods <= mixed.max_skew AND (NOT mixed.too_few OR mixed.pods <= mixed.max_skew));

-- The places that pods offered for preemption hold, by priority.
CREATE VIEW held_place AS
SELECT DISTINCT node, priority FROM pod WHERE node IN (SELECT name FROM node);

-- Pods leave their places only where a pending pod of a higher band comes to.
CREATE CONSTRAINT only_lower_bands_move AS
SELECT held.node, held.priority
FROM held_place AS held JOIN pod
  ON (pod.node = held.node AND pod.priority = held.priority)
  OR (pod.node IS NULL AND pod.preempts AND pod.priority > held.priority)
GROUP BY held.node, held.priority
CHECK count(*) FILTER (WHERE pod.node IS NOT NULL AND pod.controllable__node IS DISTINCT FROM pod.node) = 0
   OR count(*) FILTER (WHERE pod.node IS NULL AND pod.controllable__node = held.node) > 0;
