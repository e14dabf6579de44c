-- Hard rules: where copies and roles may be.  Each has a section in the README.

CREATE VIEW usable_host AS
SELECT name, rack FROM host WHERE alive AND NOT drained;

CREATE CONSTRAINT replication_factor AS
SELECT segment.key
FROM segment LEFT JOIN replica ON replica.segment = segment.key
GROUP BY segment.key, segment.replication_factor
CHECK count(replica.slot) = segment.replication_factor;

CREATE CONSTRAINT replicas_on_distinct_hosts AS
SELECT segment FROM replica
GROUP BY segment
CHECK all_different(controllable__host);

-- How many copies of a segment a rack may hold: one, or as even as possible when there are fewer racks than copies.
-- A lost rack does not count, or there would be no placement until its hosts are forgotten; a drained one does.
-- Where rules say what zones hold of a segment, see below.
CREATE VIEW rack_share AS
SELECT segment.key AS segment,
       segment.replication_factor / racks.number AS least,
       (segment.replication_factor + racks.number - 1) / racks.number AS most
FROM segment CROSS JOIN (SELECT count(DISTINCT rack) AS number FROM host WHERE alive) AS racks
WHERE segment.key NOT IN (SELECT segment FROM zone_rule);

CREATE CONSTRAINT one_replica_per_rack AS
SELECT replica.segment, host.rack
FROM replica
JOIN rack_share ON rack_share.segment = replica.segment
JOIN host ON replica.controllable__host = host.name
GROUP BY replica.segment, host.rack, rack_share.most
CHECK count(*) <= rack_share.most;

CREATE CONSTRAINT racks_hold_even_shares AS
SELECT replica.segment, host.rack
FROM replica
JOIN rack_share ON rack_share.segment = replica.segment
JOIN host ON replica.controllable__host = host.name
WHERE rack_share.most > 1 AND host.alive
GROUP BY replica.segment, host.rack, rack_share.least
CHECK count(*) >= rack_share.least;

-- Of segments with rules for zones: how many copies each zone holds, and in how many racks.
CREATE VIEW zone_band AS
SELECT segment.key AS segment, segment.replication_factor AS copies, zone.name AS zone, zone.racks,
       coalesce(zone_rule.least, 0) AS least,
       greatest(least(coalesce(zone_rule.most, replication_factor), replication_factor), 0) AS most
FROM segment
CROSS JOIN (SELECT zone AS name, count(*) AS racks
            FROM (SELECT rack, min(zone) AS zone FROM host WHERE alive GROUP BY rack) GROUP BY zone) AS zone
LEFT JOIN zone_rule ON zone_rule.segment = segment.key AND zone_rule.zone = zone.name
WHERE segment.key IN (SELECT segment FROM zone_rule);

-- As even as these rules let the racks be: with so many copies in each rack there is room for all, or too much.
CREATE VIEW even_share_of_zones AS
SELECT segment, min(number) FILTER (WHERE has_room) AS most, max(number) FILTER (WHERE can_be_filled) AS least
FROM (SELECT segment, number, sum(least(most, racks * number)) >= copies AS has_room,
             sum(greatest(least, racks * least(number, most / racks))) <= copies AS can_be_filled
      FROM (SELECT *, unnest(range(copies + 1)) AS number FROM zone_band) GROUP BY segment, copies, number)
GROUP BY segment
HAVING bool_or(has_room) AND bool_or(can_be_filled);

CREATE VIEW rack_band AS
SELECT zone_band.segment, place.rack,
       least(even.least, even.most, zone_band.most / racks) AS least,
       greatest(even.most, (zone_band.least + racks - 1) / racks) AS most
FROM zone_band
JOIN (SELECT rack, min(zone) AS zone FROM host WHERE alive GROUP BY rack) AS place ON place.zone = zone_band.zone
JOIN even_share_of_zones AS even ON even.segment = zone_band.segment;

CREATE CONSTRAINT racks_share_what_zones_hold AS
SELECT replica.segment, host.rack
FROM replica
JOIN rack_band ON rack_band.segment = replica.segment
JOIN host ON replica.controllable__host = host.name
WHERE host.rack = rack_band.rack
GROUP BY replica.segment, host.rack, rack_band.least, rack_band.most
CHECK count(*) BETWEEN rack_band.least AND rack_band.most;

CREATE CONSTRAINT zone_rules AS
SELECT replica.segment, host.zone
FROM replica
JOIN zone_rule ON zone_rule.segment = replica.segment
JOIN host ON replica.controllable__host = host.name
WHERE host.zone = zone_rule.zone
GROUP BY replica.segment, host.zone, zone_rule.least, zone_rule.most
CHECK count(*) BETWEEN zone_rule.least AND zone_rule.most;

CREATE CONSTRAINT label_rules AS
SELECT replica.segment, rule.key, rule.value
FROM replica
JOIN label_rule AS rule ON rule.segment = replica.segment
JOIN host_label AS label ON replica.controllable__host = label.host
WHERE label.key = rule.key AND label.value = rule.value
GROUP BY replica.segment, rule.key, rule.value, rule.least, rule.most
CHECK count(*) BETWEEN rule.least AND rule.most;

-- Where no host is there is none to check a rule at.
CREATE CONSTRAINT zones_have_hosts AS
SELECT segment, zone FROM zone_rule
WHERE least > 0 AND zone NOT IN (SELECT zone FROM host)
CHECK FALSE;

CREATE CONSTRAINT labels_have_hosts AS
SELECT segment, key, value FROM label_rule
WHERE least > 0 AND (key, value) NOT IN (SELECT key, value FROM host_label)
CHECK FALSE;

CREATE CONSTRAINT pinned_copies AS
SELECT replica.segment, replica.slot
FROM replica JOIN pin ON pin.segment = replica.segment AND pin.slot = replica.slot
CHECK replica.controllable__host = pin.host;

CREATE CONSTRAINT no_new_copies_in_maintenance AS
SELECT replica.segment, replica.slot
FROM replica JOIN maintenance ON replica.controllable__host = maintenance.host
WHERE replica.host IS NULL OR replica.host <> maintenance.host
CHECK FALSE;

CREATE CONSTRAINT no_new_copies_on_frozen_hosts AS
SELECT replica.segment, replica.slot
FROM replica JOIN frozen ON replica.controllable__host = frozen.host
WHERE replica.host IS NULL OR replica.host <> frozen.host
CHECK FALSE;

CREATE CONSTRAINT host_capacity AS
SELECT host.name, host.capacity_bytes
FROM replica
JOIN segment ON segment.key = replica.segment
JOIN host ON replica.controllable__host = host.name
GROUP BY host.name, host.capacity_bytes
CHECK sum(segment.bytes) <= host.capacity_bytes;

CREATE CONSTRAINT host_servers AS
SELECT host.name, host.servers
FROM replica JOIN host ON replica.controllable__host = host.name
WHERE host.servers IS NOT NULL
GROUP BY host.name, host.servers
CHECK count(*) <= host.servers;

CREATE CONSTRAINT replicas_on_live_hosts AS
SELECT replica.segment, replica.slot, host.name
FROM replica JOIN host ON replica.controllable__host = host.name
WHERE NOT host.alive
CHECK FALSE;

CREATE CONSTRAINT drained_hosts_are_empty AS
SELECT replica.segment, replica.slot, host.name
FROM replica JOIN host ON replica.controllable__host = host.name
WHERE host.drained
CHECK FALSE;

CREATE CONSTRAINT one_primary_per_segment AS
SELECT segment FROM replica
GROUP BY segment
CHECK count(*) FILTER (WHERE controllable__primary) = 1;

CREATE CONSTRAINT layout_servers_on_usable_hosts AS
SELECT name FROM host
WHERE drained OR NOT alive
CHECK NOT controllable__layout_server;

CREATE CONSTRAINT sequencer_on_a_usable_host AS
SELECT name FROM host
WHERE drained OR NOT alive
CHECK NOT controllable__sequencer;

-- A majority of three outlives one host that dies, of five two that die together.
CREATE VIEW layout_servers AS
SELECT CASE WHEN count(*) >= 5 THEN 5 ELSE least(3, count(*)) END AS wanted FROM usable_host;

CREATE CONSTRAINT enough_layout_servers AS
SELECT layout_servers.wanted FROM host CROSS JOIN layout_servers
WHERE host.alive AND NOT host.drained
GROUP BY layout_servers.wanted
CHECK count(*) FILTER (WHERE host.controllable__layout_server) = layout_servers.wanted;

CREATE CONSTRAINT one_sequencer AS
SELECT name FROM host
WHERE alive AND NOT drained
CHECK count(*) FILTER (WHERE controllable__sequencer) = 1;
