-- Two hosts of 100 cpu; all machines are on the first.
INSERT INTO host (name, cpu, memory) VALUES ('a', 100, 100), ('b', 100, 100);
INSERT INTO vm (name, cpu, memory, host) VALUES ('p', 40, 10, 'a'), ('q', 30, 10, 'a'), ('r', 20, 10, 'a'), ('s', 10, 10, 'a');

TEST 'the hosts become even with as few migrations as that takes';
EXPECT OBJECTIVE highest_utilisation = 500000000;
EXPECT OBJECTIVE lowest_utilisation = 500000000;
EXPECT OBJECTIVE fewest_migrations = 2;

TEST 'no more machines move than may';
INSERT INTO migration_limit VALUES (1);
EXPECT vm('p') = 'b';
EXPECT vm('q'), vm('r'), vm('s') = 'a';

TEST 'machines of a rule stay together';
INSERT INTO together VALUES ('pair', 'p'), ('pair', 'q');
EXPECT vm('p'), vm('q') COLOCATED;

TEST 'machines of a rule stay apart';
INSERT INTO apart VALUES ('pair', 'q'), ('pair', 'r');
EXPECT vm('q'), vm('r') SPREAD;

TEST 'a machine stays where it may be';
INSERT INTO allowed_host VALUES ('p', 'a'), ('s', 'a');
EXPECT vm('p'), vm('s') = 'a';

TEST 'a host in maintenance is left, or the limit is named';
UPDATE host SET maintenance = TRUE WHERE name = 'a';
INSERT INTO migration_limit VALUES (3);
EXPECT INFEASIBLE (hosts_in_maintenance_are_emptied, limited_migrations);

TEST 'memory is a limit, too';
UPDATE vm SET memory = 60 WHERE name IN ('p', 's');
EXPECT vm('p'), vm('s') SPREAD;

TEST 'more than all hosts have is refused';
UPDATE vm SET cpu = 70;
EXPECT INFEASIBLE (cpu_capacity);

TEST 'hosts in order are left as they are';
UPDATE vm SET host = 'b' WHERE name IN ('q', 'r');
EXPECT vm('p'), vm('s') = 'a';
EXPECT OBJECTIVE fewest_migrations = 0;

TEST 'the fullest and the emptiest host both count';
INSERT INTO host (name, cpu, memory) VALUES ('c', 100, 100);
UPDATE vm SET cpu = 10 WHERE name <> 'p';
EXPECT OBJECTIVE highest_utilisation = 400000000;
EXPECT OBJECTIVE lowest_utilisation = 100000000;

TEST 'a peak of a short while does not count';
INSERT INTO vm_usage SELECT 'p', n, CASE WHEN n = 0 THEN 100 ELSE 20 END FROM range(20) AS samples (n);
EXPECT OBJECTIVE highest_utilisation = 400000000;

TEST 'what is promised of cpu fits, whatever is used';
UPDATE vm SET cpu_reservation = 60 WHERE name IN ('p', 's');
EXPECT vm('p'), vm('s') SPREAD;

TEST 'what is promised of memory fits, whatever is used';
UPDATE vm SET memory_reservation = 60 WHERE name IN ('p', 's');
EXPECT vm('p'), vm('s') SPREAD;

TEST 'room is kept for the loss of a host';
UPDATE vm SET memory_reservation = 30;
INSERT INTO failover VALUES (1);
EXPECT INFEASIBLE (memory_reservations);

TEST 'a machine stays where its storage is reached';
INSERT INTO host_access VALUES ('a', 'ds1');
INSERT INTO vm_access VALUES ('p', 'ds1'), ('q', 'ds1');
EXPECT vm('p'), vm('q') = 'a';

TEST 'a machine that may not be moved stays';
UPDATE vm SET stays = TRUE WHERE name <> 'p';
EXPECT vm('q'), vm('r'), vm('s') = 'a';
EXPECT vm('p') = 'b';

TEST 'preferred hosts go before balance';
INSERT INTO preferred_host SELECT name, 'a' FROM vm;
EXPECT vm('p'), vm('q'), vm('r'), vm('s') = 'a';
EXPECT OBJECTIVE machines_off_their_preferred_hosts = 0;
