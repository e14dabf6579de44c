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

CREATE CONSTRAINT one_replica_per_rack AS
SELECT replica.segment, host.rack
FROM replica JOIN host ON replica.controllable__host = host.name
GROUP BY replica.segment, host.rack
CHECK count(*) <= 1;

CREATE CONSTRAINT host_capacity AS
SELECT host.name, host.capacity_bytes
FROM replica
JOIN segment ON segment.key = replica.segment
JOIN host ON replica.controllable__host = host.name
GROUP BY host.name, host.capacity_bytes
CHECK sum(segment.bytes) <= host.capacity_bytes;

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

CREATE CONSTRAINT roles_on_usable_hosts AS
SELECT name FROM host
WHERE drained OR NOT alive
CHECK NOT controllable__layout_server AND NOT controllable__sequencer;

CREATE CONSTRAINT three_layout_servers AS
SELECT name FROM host
WHERE alive AND NOT drained
CHECK count(*) FILTER (WHERE controllable__layout_server) = least(3, count(*));

CREATE CONSTRAINT one_sequencer AS
SELECT name FROM host
WHERE alive AND NOT drained
CHECK count(*) FILTER (WHERE controllable__sequencer) = 1;
