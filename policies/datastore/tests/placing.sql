-- Three hosts in three racks; one segment with two copies, led by the one on a.  Everything is in order.
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('a', 'r1', 'z', 1000, TRUE, FALSE, TRUE, TRUE),
  ('b', 'r2', 'z', 1000, TRUE, FALSE, TRUE, FALSE),
  ('c', 'r3', 'z', 1000, TRUE, FALSE, TRUE, FALSE);
INSERT INTO segment (key, bytes, replication_factor) VALUES ('s', 10, 2);
INSERT INTO replica (segment, slot, host, is_primary) VALUES ('s', 0, 'a', TRUE), ('s', 1, 'b', FALSE);

TEST 'what is in order is left as it is';
EXPECT replica.host('s', 0) = 'a';
EXPECT replica.host('s', 1) = 'b';
EXPECT replica.is_primary('s', 0) = TRUE;
EXPECT host.sequencer('a') = TRUE;

TEST 'a dead host is replaced, and the copy that is there leads';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r4', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
UPDATE host SET alive = FALSE WHERE name = 'a';
EXPECT replica.host('s', 0) IN ('c', 'd');
EXPECT replica.host('s', 1) = 'b';
EXPECT replica.is_primary('s', 1) = TRUE;
EXPECT host.layout_server('a') = FALSE;
EXPECT host.sequencer('a') = FALSE;

TEST 'a drained host is left';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r4', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
UPDATE host SET drained = TRUE WHERE name = 'b';
EXPECT replica.host('s', 1) IN ('c', 'd');

TEST 'a segment has as many copies as it should';
DELETE FROM replica WHERE slot = 1;
EXPECT INFEASIBLE (replication_factor);

TEST 'copies are in different racks';
UPDATE host SET rack = 'r2' WHERE name = 'c';
UPDATE replica SET host = NULL WHERE slot = 0;
EXPECT replica.host('s', 0) = 'a';

TEST 'where racks are fewer than copies none is left out';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r2', 'z', 1000, TRUE, FALSE, FALSE, FALSE), ('e', 'r3', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
UPDATE segment SET replication_factor = 4;
UPDATE replica SET host = 'd' WHERE slot = 0;
INSERT INTO replica (segment, slot, host, is_primary) VALUES ('s', 2, 'c', FALSE), ('s', 3, 'e', FALSE);
EXPECT OBJECTIVE fewest_moves = 1;

TEST 'copies of one rack are still on different hosts, however small';
UPDATE host SET rack = 'r1';
UPDATE host SET capacity_bytes = 100000000 WHERE name = 'b';
UPDATE replica SET host = 'b';
EXPECT replica.host SPREAD;

TEST 'a zone has the copies that it is to have';
UPDATE host SET zone = 'y' WHERE name = 'c';
INSERT INTO zone_rule VALUES ('s', 'y', 1, 1);
EXPECT OBJECTIVE fewest_moves = 1;

TEST 'a zone of one rack has all copies if it is to';
UPDATE host SET rack = 'r1';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r4', 'y', 1000, TRUE, FALSE, FALSE, FALSE);
INSERT INTO zone_rule VALUES ('s', 'z', 2, 2);
EXPECT replica.host('s', 0) = 'a';
EXPECT replica.host('s', 1) = 'b';

TEST 'what a zone has is in all of its racks';
UPDATE host SET rack = 'r1' WHERE name = 'b';
INSERT INTO zone_rule VALUES ('s', 'z', 2, 2);
EXPECT OBJECTIVE fewest_moves = 1;

TEST 'copies are spread over zones';
UPDATE host SET zone = 'y' WHERE name = 'c';
UPDATE segment SET replication_factor = 2;
EXPECT OBJECTIVE zones_share_copies = 0;
EXPECT replica.host('s', 0) IN ('a', 'c');

TEST 'as many copies as it says are on hosts with a label';
INSERT INTO host_label VALUES ('c', 'disk', 'ssd');
INSERT INTO label_rule VALUES ('s', 'disk', 'ssd', 1, 1);
EXPECT OBJECTIVE fewest_moves = 1;

TEST 'nobody has the label that is asked for';
INSERT INTO label_rule VALUES ('s', 'disk', 'ssd', 1, 1);
EXPECT INFEASIBLE (labels_have_hosts);

TEST 'nobody is in the zone that is asked for';
INSERT INTO zone_rule VALUES ('s', 'moon', 1, 2);
EXPECT INFEASIBLE (zones_have_hosts);

TEST 'a pinned copy is where it is pinned';
INSERT INTO pin VALUES ('s', 1, 'c');
EXPECT replica.host('s', 1) = 'c';

TEST 'a host in maintenance gets no copy';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r4', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
INSERT INTO maintenance VALUES ('c');
UPDATE replica SET host = NULL WHERE slot = 1;
EXPECT replica.host('s', 1) IN ('b', 'd');

TEST 'a host in maintenance does not lead';
INSERT INTO maintenance VALUES ('a');
EXPECT replica.host('s', 0) = 'a';
EXPECT replica.is_primary('s', 1) = TRUE;

TEST 'a frozen host gets no copy';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r4', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
INSERT INTO frozen VALUES ('c');
UPDATE replica SET host = NULL WHERE slot = 1;
EXPECT replica.host('s', 1) IN ('b', 'd');

TEST 'a frozen host keeps what it has, and leads';
INSERT INTO frozen VALUES ('a');
EXPECT replica.host('s', 0) = 'a';
EXPECT replica.is_primary('s', 0) = TRUE;

TEST 'a host that is too small gets no copy';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r4', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
UPDATE host SET capacity_bytes = 5 WHERE name = 'c';
UPDATE replica SET host = NULL WHERE slot = 1;
EXPECT replica.host('s', 1) IN ('b', 'd');

TEST 'copies are shared out';
INSERT INTO segment (key, bytes, replication_factor) VALUES ('t', 10, 1), ('u', 10, 1), ('v', 10, 1);
INSERT INTO replica (segment, slot, host, is_primary) VALUES ('t', 0, 'a', TRUE), ('u', 0, 'a', TRUE), ('v', 0, 'a', TRUE);
EXPECT OBJECTIVE balance_replicas = 0;
EXPECT OBJECTIVE fewest_moves = 2;

TEST 'new copies are shared out to the last one';
UPDATE host SET alive = FALSE WHERE name = 'c';
INSERT INTO segment (key, bytes, replication_factor) VALUES
  ('01', 1, 2), ('02', 1, 2), ('03', 1, 2), ('04', 1, 2), ('05', 1, 2), ('06', 1, 2), ('07', 1, 2), ('08', 1, 2),
  ('09', 1, 2), ('10', 1, 1), ('11', 1, 1), ('12', 1, 1), ('13', 1, 1);
INSERT INTO replica (segment, slot, is_primary) SELECT key, 0, TRUE FROM segment WHERE key <> 's';
INSERT INTO replica (segment, slot, is_primary) SELECT key, 1, FALSE FROM segment WHERE key < '10';
EXPECT OBJECTIVE even_replicas = 0;

TEST 'no host leads more than its share';
INSERT INTO segment (key, bytes, replication_factor) VALUES ('t', 10, 2);
INSERT INTO replica (segment, slot, host, is_primary) VALUES ('t', 0, 'a', TRUE), ('t', 1, 'c', FALSE);
EXPECT OBJECTIVE balance_primaries = 0;
EXPECT OBJECTIVE fewest_moves = 0;

TEST 'no rack leads half of the segments';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r1', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
INSERT INTO segment (key, bytes, replication_factor) VALUES ('t', 10, 2), ('u', 10, 2);
INSERT INTO replica (segment, slot, host, is_primary) VALUES
  ('t', 0, 'd', TRUE), ('t', 1, 'b', FALSE), ('u', 0, 'c', TRUE), ('u', 1, 'd', FALSE);
EXPECT OBJECTIVE no_rack_leads_a_majority = 0;
EXPECT OBJECTIVE fewest_moves = 0;

TEST 'hot segments are apart';
UPDATE replica SET host = 'c' WHERE slot = 0;
INSERT INTO segment (key, bytes, replication_factor) VALUES ('t', 10, 1), ('u', 10, 1);
INSERT INTO replica (segment, slot, host, is_primary) VALUES ('t', 0, 'a', TRUE), ('u', 0, 'a', TRUE);
INSERT INTO hot_segment VALUES ('t'), ('u');
EXPECT replica.host('t', 0), replica.host('u', 0) SPREAD;

TEST 'layout servers are in different racks';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r3', 'z', 1000, TRUE, FALSE, TRUE, FALSE);
UPDATE host SET layout_server = FALSE WHERE name = 'a';
EXPECT host.layout_server('a'), host.layout_server('b') = TRUE;

TEST 'a host whose servers are all in use gets no copy';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r4', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
UPDATE host SET servers = 1;
INSERT INTO segment (key, bytes, replication_factor) VALUES ('t', 10, 1);
INSERT INTO replica (segment, slot, host, is_primary) VALUES ('t', 0, 'c', TRUE);
UPDATE replica SET host = NULL WHERE segment = 's' AND slot = 1;
EXPECT replica.host('s', 1) IN ('b', 'd');

TEST 'more copies than servers are no placement';
UPDATE host SET servers = 0;
EXPECT INFEASIBLE (host_servers);

TEST 'copies change places where every server is in use';
INSERT INTO host (name, rack, zone, capacity_bytes, alive, drained, layout_server, sequencer) VALUES
  ('d', 'r1', 'z', 1000, TRUE, FALSE, FALSE, FALSE);
UPDATE host SET servers = 1;
INSERT INTO segment (key, bytes, replication_factor) VALUES ('t', 10, 2);
UPDATE replica SET host = 'd' WHERE slot = 1;
INSERT INTO replica (segment, slot, host, is_primary) VALUES ('t', 0, 'b', TRUE), ('t', 1, 'c', FALSE);
EXPECT OBJECTIVE fewest_moves = 2;
EXPECT OBJECTIVE fewest_primary_changes = 0;

TEST 'who leads a large segment leads no other';
INSERT INTO segment (key, bytes, replication_factor, slots, load) VALUES ('big', 10, 1, 4000, 0), ('t', 10, 3, 2000, 0), ('u', 10, 3, 2000, 0), ('v', 10, 3, 2000, 0);
INSERT INTO replica (segment, slot, host, is_primary) VALUES
  ('big', 0, 'b', TRUE), ('t', 0, 'a', FALSE), ('t', 1, 'b', TRUE), ('t', 2, 'c', FALSE), ('u', 0, 'a', FALSE),
  ('u', 1, 'b', FALSE), ('u', 2, 'c', TRUE), ('v', 0, 'a', FALSE), ('v', 1, 'b', FALSE), ('v', 2, 'c', TRUE);
EXPECT OBJECTIVE balance_slots = 0;
EXPECT replica.is_primary('t', 1) = FALSE;

TEST 'who leads a busy segment leads no other';
INSERT INTO segment (key, bytes, replication_factor, slots, load) VALUES ('hot', 10, 1, 1000, 4000), ('t', 10, 3, 1000, 2000), ('u', 10, 3, 1000, 2000), ('v', 10, 3, 1000, 2000);
INSERT INTO replica (segment, slot, host, is_primary) VALUES
  ('hot', 0, 'b', TRUE), ('t', 0, 'a', FALSE), ('t', 1, 'b', TRUE), ('t', 2, 'c', FALSE), ('u', 0, 'a', FALSE),
  ('u', 1, 'b', FALSE), ('u', 2, 'c', TRUE), ('v', 0, 'a', FALSE), ('v', 1, 'b', FALSE), ('v', 2, 'c', TRUE);
EXPECT OBJECTIVE balance_load = 0;
EXPECT replica.is_primary('t', 1) = FALSE;
