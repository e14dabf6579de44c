-- Node a is empty, b half full: every pod would rather be on a.
INSERT INTO node (name, cpu, memory) VALUES ('a', 100, 100), ('b', 100, 100);
INSERT INTO template (name) VALUES ('plain'), ('web'), ('db');
INSERT INTO template_label VALUES ('web', 'app', 'web'), ('db', 'app', 'db');
INSERT INTO running_pod (name, node, template, cpu, memory) VALUES ('half', 'b', 'plain', 50, 50);

TEST 'a pod goes where little is requested';
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'plain', 10, 10);
EXPECT pod('p') = 'a';

TEST 'a node that is not ready takes nothing new';
UPDATE node SET ready = FALSE WHERE name = 'a';
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'plain', 10, 10);
EXPECT pod('p') = 'b';

TEST 'a selector is heeded';
INSERT INTO node_label VALUES ('b', 'disk', 'ssd');
INSERT INTO node_selector VALUES ('web', 'disk', 'ssd');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'a taint keeps off who does not tolerate it';
INSERT INTO node_taint VALUES ('a', 'gpu', 'only', 'NoSchedule');
INSERT INTO toleration (template, key, operator) VALUES ('web', 'gpu', 'Exists');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'plain', 10, 10), ('q', 'web', 10, 10);
EXPECT pod('p') = 'b';
EXPECT pod('q') = 'a';

TEST 'what does not fit together is on different nodes';
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'plain', 50, 60), ('q', 'plain', 50, 50);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'two pods with a host port are on different nodes';
INSERT INTO host_port (template, port) VALUES ('web', 80);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 1, 1), ('q', 'web', 1, 1);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'a pod goes where the pod runs that it has an affinity to';
INSERT INTO affinity VALUES ('x', 'web', 'kubernetes.io/hostname', FALSE);
INSERT INTO affinity_label VALUES ('x', 'app', 'db');
INSERT INTO running_pod (name, node, template, cpu, memory) VALUES ('r', 'b', 'db', 0, 0);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'a pod avoids the pod that it must not meet, and the pod that must not meet it';
INSERT INTO affinity VALUES ('x', 'web', 'kubernetes.io/hostname', TRUE);
INSERT INTO affinity_label VALUES ('x', 'app', 'db');
INSERT INTO running_pod (name, node, template, cpu, memory) VALUES ('r', 'a', 'db', 0, 0);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'a lower band gives way, and no other';
INSERT INTO pod (name, template, priority, cpu, memory, node) VALUES ('low', 'plain', 1, 60, 60, 'a'), ('mid', 'plain', 2, 40, 40, 'b');
INSERT INTO pod (name, template, priority, cpu, memory) VALUES ('new', 'plain', 2, 70, 70);
EXPECT pod('new') = 'a';
EXPECT pod('mid') = 'b';
EXPECT OBJECTIVE least_harm = 1;

TEST 'a node affinity is heeded';
INSERT INTO node_label VALUES ('b', 'disk', 'ssd');
INSERT INTO node_affinity VALUES ('web', 1, 'disk', 'In', 'ssd');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'a port that a running pod has is taken';
INSERT INTO host_port (template, port) VALUES ('web', 80);
INSERT INTO running_pod (name, node, template, cpu, memory) VALUES ('r', 'a', 'web', 0, 0);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'pods are shared out where nodes are equally free';
DELETE FROM running_pod;
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'plain', 10, 10), ('q', 'plain', 10, 10);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'pods with an affinity to each other are on one node all the same';
DELETE FROM running_pod;
INSERT INTO affinity VALUES ('x', 'web', 'kubernetes.io/hostname', FALSE);
INSERT INTO affinity_label VALUES ('x', 'app', 'web');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10), ('q', 'web', 10, 10);
EXPECT pod('p'), pod('q') COLOCATED;

TEST 'pods that must not meet each other are on different nodes';
INSERT INTO affinity VALUES ('x', 'web', 'kubernetes.io/hostname', TRUE);
INSERT INTO affinity_label VALUES ('x', 'app', 'web');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10), ('q', 'web', 10, 10);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'a pod avoids another that is placed with it';
INSERT INTO affinity VALUES ('x', 'web', 'kubernetes.io/hostname', TRUE);
INSERT INTO affinity_label VALUES ('x', 'app', 'db');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10), ('q', 'db', 10, 10);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'a running pod is not joined by one that it must not meet';
INSERT INTO affinity VALUES ('x', 'web', 'kubernetes.io/hostname', TRUE);
INSERT INTO affinity_label VALUES ('x', 'app', 'db');
INSERT INTO running_pod (name, node, template, cpu, memory) VALUES ('r', 'a', 'web', 0, 0);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'db', 10, 10);
EXPECT pod('p') = 'b';

TEST 'what is spread over zones goes to nodes that are in one';
INSERT INTO node_label VALUES ('b', 'topology.kubernetes.io/zone', 'z');
INSERT INTO topology_spread (template, topology, max_skew) VALUES ('web', 'topology.kubernetes.io/zone', 1);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'what is spread is spread, even to a node that is half full';
INSERT INTO topology_spread (template, topology, max_skew) VALUES ('web', 'kubernetes.io/hostname', 1);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10), ('q', 'web', 10, 10);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'an equal band stays, although all would fit if it moved';
INSERT INTO pod (name, template, cpu, memory, node) VALUES ('old', 'plain', 40, 40, 'a');
INSERT INTO pod (name, template, cpu, memory) VALUES ('new', 'plain', 70, 70);
EXPECT pod('old') = 'a';
EXPECT pod('new') = NULL;

TEST 'of two that could make room the lower band moves';
DELETE FROM running_pod;
INSERT INTO node (name, cpu, memory) VALUES ('c', 60, 60);
INSERT INTO pod (name, template, priority, cpu, memory, node) VALUES ('low', 'plain', 1, 60, 60, 'a'), ('mid', 'plain', 2, 60, 60, 'b');
INSERT INTO pod (name, template, priority, cpu, memory) VALUES ('new', 'plain', 3, 70, 70);
EXPECT pod('new') = 'a';
EXPECT pod('mid') = 'b';
EXPECT pod('low') = 'c';

TEST 'more bands than can be weighed are refused';
INSERT INTO pod (name, template, priority, cpu, memory)
  SELECT 'p' || i, 'plain', i, 0, 0 FROM (
    WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 52) SELECT i FROM number);
EXPECT INFEASIBLE (bands_can_be_weighed);

TEST 'a node that is preferred is worth some load';
INSERT INTO node_set VALUES ('liked', 'b');
INSERT INTO node_preference VALUES ('web', 'node affinity', 'liked', 200);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10), ('q', 'plain', 10, 10);
EXPECT pod('p') = 'b';
EXPECT pod('q') = 'a';

TEST 'a pod would rather be where a running one is that it likes';
INSERT INTO preferred_affinity VALUES ('x', 'web', 'kubernetes.io/hostname', 200);
INSERT INTO preferred_affinity_to VALUES ('x', 'plain');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'pods that would rather not meet are apart, also on a node that is fuller';
INSERT INTO preferred_affinity VALUES ('x', 'web', 'kubernetes.io/hostname', -200);
INSERT INTO preferred_affinity_to VALUES ('x', 'web');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10), ('q', 'web', 10, 10);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'pods that would rather meet do';
INSERT INTO preferred_affinity VALUES ('x', 'web', 'kubernetes.io/hostname', 200);
INSERT INTO preferred_affinity_to VALUES ('x', 'db');
INSERT INTO node_set VALUES ('only', 'b');
INSERT INTO node_rule VALUES ('db', 'node selector', 'only', TRUE);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10), ('q', 'db', 10, 10);
EXPECT pod('p'), pod('q') COLOCATED;

TEST 'rather two pods move than a budget is overdrawn';
DELETE FROM running_pod;
INSERT INTO node (name, cpu, memory) VALUES ('c', 65, 65);
INSERT INTO disruption_budget VALUES ('one', 0);
INSERT INTO budget_pod VALUES ('one', 'kept');
INSERT INTO pod (name, template, priority, cpu, memory, node) VALUES ('kept', 'plain', 1, 60, 60, 'a'), ('free', 'plain', 1, 60, 60, 'b'), ('also', 'plain', 1, 5, 5, 'b');
INSERT INTO pod (name, template, priority, cpu, memory) VALUES ('new', 'plain', 3, 96, 96);
EXPECT pod('kept') = 'a';
EXPECT pod('new') = 'b';

TEST 'a pod is on a node of the set that a rule names';
INSERT INTO node_set VALUES ('ssd', 'b');
INSERT INTO node_rule VALUES ('web', 'node affinity', 'ssd', TRUE);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'a pod is on no node of the set that a rule excludes';
INSERT INTO node_set VALUES ('far', 'a');
INSERT INTO node_rule VALUES ('web', 'volume', 'far', FALSE);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'other resources are shared out as well';
INSERT INTO node_resource VALUES ('a', 'gpu', 1), ('b', 'gpu', 1);
INSERT INTO template_resource VALUES ('web', 'gpu', 1);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 1, 1), ('q', 'web', 1, 1);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'a port of one address is free on another';
INSERT INTO host_port (template, port, ip) VALUES ('web', 80, '10.0.0.1'), ('db', 80, '10.0.0.2');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 1, 1), ('q', 'db', 1, 1);
EXPECT pod('p'), pod('q') COLOCATED;

TEST 'a port of every address is taken on each';
INSERT INTO host_port (template, port, ip) VALUES ('web', 80, '10.0.0.1'), ('db', 80, '0.0.0.0');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 1, 1), ('q', 'db', 1, 1);
EXPECT pod('p'), pod('q') SPREAD;

TEST 'an affinity means those that it names';
INSERT INTO affinity VALUES ('x', 'web', 'kubernetes.io/hostname', FALSE);
INSERT INTO affinity_to VALUES ('x', 'plain');
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 10, 10);
EXPECT pod('p') = 'b';

TEST 'while there are fewer domains than there should be, each takes no more than the skew';
INSERT INTO topology_spread (template, topology, max_skew, min_domains) VALUES ('web', 'kubernetes.io/hostname', 1, 3);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 1, 1), ('q', 'web', 1, 1), ('r', 'web', 1, 1);
EXPECT OBJECTIVE pods_left_out = 1;

TEST 'a spread counts the pods of other templates as well';
INSERT INTO topology_spread (template, topology, max_skew) VALUES ('web', 'kubernetes.io/hostname', 1);
INSERT INTO spread_to VALUES ('web', 'kubernetes.io/hostname', 'db');
INSERT INTO node_set VALUES ('here', 'a');
INSERT INTO node_rule VALUES ('db', 'node affinity', 'here', TRUE);
INSERT INTO pod (name, template, cpu, memory) VALUES ('p', 'web', 1, 1), ('q', 'db', 1, 1);
EXPECT pod('p') = 'b';
EXPECT pod('q') = 'a';
