-- Objectives, the most important tier first.  The README says why they stand in this order.

-- The even share of a host, and how far from it nothing is moved for balance alone: a tenth.
CREATE VIEW even_share AS
SELECT total.replicas / hosts.number AS least_replicas,
       (total.replicas + hosts.number - 1) / hosts.number AS most_replicas,
       total.replicas / hosts.number / 10 AS tolerance,
       total.segments / hosts.number AS least_primaries,
       (total.segments + hosts.number - 1) / hosts.number AS most_primaries
FROM (SELECT (SELECT count(*) FROM replica) AS replicas, (SELECT count(*) FROM segment) AS segments) AS total
CROSS JOIN (SELECT count(*) AS number FROM usable_host) AS hosts;

CREATE VIEW host_load AS
SELECT usable_host.name AS host,
       count(*) AS replicas,
       count(*) FILTER (WHERE replica.controllable__primary) AS primaries
FROM replica JOIN usable_host ON replica.controllable__host = usable_host.name
GROUP BY usable_host.name;

-- How far each host is from its share: beyond the tolerance, and at all.
CREATE VIEW host_deviation AS
SELECT host,
       greatest(replicas - most_replicas - tolerance, least_replicas - tolerance - replicas, 0) AS beyond,
       greatest(replicas - most_replicas, least_replicas - replicas, 0) AS replicas,
       greatest(primaries - most_primaries, least_primaries - primaries, 0) AS primaries
FROM host_load CROSS JOIN even_share;

CREATE CONSTRAINT balance_replicas AS
SELECT host FROM host_deviation
MINIMIZE sum(beyond * beyond) TIER 1;

CREATE CONSTRAINT fewest_moves AS
SELECT segment, slot FROM replica
WHERE controllable__host <> host
MINIMIZE count(*) TIER 2;

CREATE CONSTRAINT even_replicas AS
SELECT host FROM host_deviation
MINIMIZE sum(replicas * replicas) TIER 3;

CREATE CONSTRAINT balance_primaries AS
SELECT host FROM host_deviation
MINIMIZE sum(primaries) TIER 4;

CREATE CONSTRAINT layout_servers_in_distinct_racks AS
SELECT rack FROM host
GROUP BY rack
MINIMIZE greatest(count(*) FILTER (WHERE controllable__layout_server) - 1, 0) TIER 4;

CREATE CONSTRAINT primaries_on_existing_copies AS
SELECT segment, slot FROM replica
WHERE controllable__primary AND controllable__host <> host
MINIMIZE count(*) TIER 5;

CREATE CONSTRAINT fewest_primary_changes AS
SELECT segment, slot FROM replica
WHERE is_primary AND NOT controllable__primary
MINIMIZE count(*) TIER 6;

CREATE CONSTRAINT fewest_role_changes AS
SELECT name FROM host
WHERE (controllable__layout_server AND NOT layout_server) OR (controllable__sequencer AND NOT sequencer)
MINIMIZE count(*) TIER 6;
