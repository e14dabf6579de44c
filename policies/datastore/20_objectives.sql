-- Objectives, the most important tier first.  The README says why they stand in this order.

-- What a host can hold beside the largest one, in thousandths.
CREATE VIEW host_weight AS
SELECT usable_host.name AS host, host.capacity_bytes * 1000 / largest.bytes AS weight
FROM usable_host
JOIN host ON host.name = usable_host.name
CROSS JOIN (SELECT greatest(max(capacity_bytes), 1) AS bytes FROM host) AS largest;

-- The even share of a host by its weight, and how far from it nothing is moved for balance alone: a tenth.
CREATE VIEW even_share AS
SELECT host_weight.host AS host,
       total.replicas * weight / all_hosts.weights AS least_replicas,
       (total.replicas * weight + all_hosts.weights - 1) / all_hosts.weights AS most_replicas,
       total.replicas * weight / all_hosts.weights / 10 AS tolerance,
       total.segments * weight / all_hosts.weights AS least_primaries,
       (total.segments * weight + all_hosts.weights - 1) / all_hosts.weights AS most_primaries
FROM host_weight
CROSS JOIN (SELECT greatest(sum(weight), 1) AS weights FROM host_weight) AS all_hosts
CROSS JOIN (SELECT (SELECT count(*) FROM replica) AS replicas, (SELECT count(*) FROM segment) AS segments) AS total;

CREATE VIEW host_load AS
SELECT usable_host.name AS host,
       count(*) AS replicas,
       count(*) FILTER (WHERE replica.controllable__primary) AS primaries
FROM replica JOIN usable_host ON replica.controllable__host = usable_host.name
GROUP BY usable_host.name;

-- How far each host is from its share: beyond the tolerance, and at all.
CREATE VIEW host_deviation AS
SELECT host_load.host AS host,
       greatest(replicas - most_replicas - tolerance, least_replicas - tolerance - replicas, 0) AS beyond,
       greatest(replicas - most_replicas, least_replicas - replicas, 0) AS replicas,
       greatest(primaries - most_primaries, least_primaries - primaries, 0) AS primaries
FROM host_load JOIN even_share ON even_share.host = host_load.host;

CREATE CONSTRAINT balance_replicas AS
SELECT host FROM host_deviation
MINIMIZE sum(beyond * beyond) TIER 1;

-- Copies of a segment in a zone beyond an even share, where there are several zones and no rule says how many it holds.
CREATE VIEW zone_share AS
SELECT segment.key AS segment, (segment.replication_factor + zones.number - 1) / zones.number AS most
FROM segment CROSS JOIN (SELECT count(DISTINCT zone) AS number FROM host WHERE alive) AS zones
WHERE zones.number > 1 AND segment.key NOT IN (SELECT segment FROM zone_rule);

CREATE VIEW zone_load AS
SELECT replica.segment, host.zone, greatest(count(*) - zone_share.most, 0) AS beyond
FROM replica
JOIN zone_share ON zone_share.segment = replica.segment
JOIN host ON replica.controllable__host = host.name
GROUP BY replica.segment, host.zone, zone_share.most;

CREATE CONSTRAINT zones_share_copies AS
SELECT segment FROM zone_load
MINIMIZE sum(beyond) TIER 1 WEIGHT 1000;

-- Hot segments: copies of theirs beyond an even share of them, host by host.
CREATE VIEW hot_load AS
SELECT usable_host.name AS host, count(*) AS copies
FROM replica
JOIN hot_segment ON hot_segment.segment = replica.segment
JOIN usable_host ON replica.controllable__host = usable_host.name
GROUP BY usable_host.name;

CREATE VIEW hot_share AS
SELECT ((SELECT count(*) FROM replica JOIN hot_segment ON hot_segment.segment = replica.segment)
        + count(*) - 1) / greatest(count(*), 1) AS most
FROM usable_host;

CREATE CONSTRAINT hot_segments_apart AS
SELECT host FROM hot_load CROSS JOIN hot_share
MINIMIZE sum(greatest(copies - most, 0)) TIER 1;

-- Copies that a rule moves whatever is chosen; all other moves are for balance.
CREATE VIEW required_move AS
SELECT replica.segment, replica.slot, replica.host
FROM replica LEFT JOIN usable_host ON usable_host.name = replica.host
WHERE usable_host.name IS NULL;

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

-- A rack that leads half of the segments takes the majority with it that engines elect the next primaries by.
CREATE VIEW rack_load AS
SELECT host.rack, count(*) FILTER (WHERE replica.controllable__primary) AS primaries
FROM replica JOIN host ON replica.controllable__host = host.name
GROUP BY host.rack;

CREATE CONSTRAINT no_rack_leads_a_majority AS
SELECT rack FROM rack_load
CROSS JOIN (SELECT (count(*) - 1) / 2 AS most FROM segment) AS minority
MINIMIZE sum(greatest(primaries - most, 0)) TIER 4 WEIGHT 3;

-- Worth more than the two hosts that it may bring one primary off their shares.
CREATE CONSTRAINT primaries_leave_maintenance AS
SELECT replica.segment FROM replica JOIN maintenance ON replica.controllable__host = maintenance.host
WHERE replica.controllable__primary
MINIMIZE count(*) TIER 4 WEIGHT 3;

-- The even share of a rack: of five in three racks none holds the majority.
CREATE VIEW rack_layout_servers AS
SELECT host.rack, count(*) FILTER (WHERE host.controllable__layout_server) AS servers, least, most
FROM host
JOIN usable_host ON usable_host.name = host.name
CROSS JOIN (SELECT wanted / racks AS least, (wanted + racks - 1) / racks AS most
            FROM layout_servers
            CROSS JOIN (SELECT greatest(count(DISTINCT rack), 1) AS racks FROM usable_host)) AS share
GROUP BY host.rack, least, most;

CREATE CONSTRAINT layout_servers_in_distinct_racks AS
SELECT rack FROM rack_layout_servers
MINIMIZE sum(greatest(servers - most, least - servers, 0)) TIER 4;

-- How heavy it is to lead a segment, by slots and by load, in whole average segments: finer differences are not worth
-- a change of primaries, and cannot be evened out with primaries that are few.
CREATE VIEW segment_weight AS
SELECT segment.key AS segment,
       (2 * segment.slots * total.number + total.slots) / (2 * greatest(total.slots, 1)) AS slots,
       (2 * segment.load * total.number + total.load) / (2 * greatest(total.load, 1)) AS load
FROM segment
CROSS JOIN (SELECT count(*) AS number, sum(slots) AS slots, sum(load) AS load
            FROM segment WHERE slots > 0 OR load > 0) AS total
WHERE segment.slots > 0 OR segment.load > 0;

-- What a host may lead: its even share, or the heaviest segment alone.
CREATE VIEW most_led AS
SELECT host_weight.host AS host,
       greatest((total.slots * weight + all_hosts.weights - 1) / all_hosts.weights, total.most_slots) AS slots,
       greatest((total.load * weight + all_hosts.weights - 1) / all_hosts.weights, total.most_load) AS load
FROM host_weight
CROSS JOIN (SELECT greatest(sum(weight), 1) AS weights FROM host_weight) AS all_hosts
CROSS JOIN (SELECT sum(slots) AS slots, max(slots) AS most_slots, sum(load) AS load, max(load) AS most_load
            FROM segment_weight) AS total;

CREATE VIEW led AS
SELECT usable_host.name AS host, sum(segment_weight.slots) AS slots, sum(segment_weight.load) AS load
FROM replica
JOIN segment_weight ON segment_weight.segment = replica.segment
JOIN usable_host ON replica.controllable__host = usable_host.name
WHERE replica.controllable__primary
GROUP BY usable_host.name;

CREATE CONSTRAINT balance_slots AS
SELECT led.host FROM led JOIN most_led ON most_led.host = led.host
MINIMIZE sum(greatest(led.slots - most_led.slots, 0)) TIER 5;

CREATE CONSTRAINT balance_load AS
SELECT led.host FROM led JOIN most_led ON most_led.host = led.host
MINIMIZE sum(greatest(led.load - most_led.load, 0)) TIER 5;

CREATE CONSTRAINT primaries_on_existing_copies AS
SELECT segment, slot FROM replica
WHERE controllable__primary AND controllable__host <> host
MINIMIZE count(*) TIER 6;

CREATE CONSTRAINT fewest_primary_changes AS
SELECT segment, slot FROM replica
WHERE is_primary AND NOT controllable__primary
MINIMIZE count(*) TIER 7;

CREATE CONSTRAINT layout_servers_stay AS
SELECT name FROM host
WHERE controllable__layout_server AND NOT layout_server
MINIMIZE count(*) TIER 7;

CREATE CONSTRAINT sequencer_stays AS
SELECT name FROM host
WHERE controllable__sequencer AND NOT sequencer
MINIMIZE count(*) TIER 7;
