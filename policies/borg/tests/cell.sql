-- Two machines, and a job of each band by its name.
INSERT INTO machine (name, rack, power, cpu, ram) VALUES ('a', 'r1', 'w1', 100, 100), ('b', 'r2', 'w2', 100, 100);
INSERT INTO band (name, rank, quota_needed) VALUES ('production', 3, TRUE), ('batch', 2, TRUE), ('free', 1, FALSE);
INSERT INTO job VALUES ('production', 'ann', 'production', 9), ('batch', 'ann', 'batch', 9), ('free', 'ann', 'free', 9);
INSERT INTO quota VALUES ('ann', 'production', 100, 100), ('ann', 'batch', 100, 100);

TEST 'tasks of a job are in different failure domains';
INSERT INTO task (name, job, cpu, ram) VALUES ('p', 'batch', 10, 10), ('q', 'batch', 10, 10);
EXPECT task('p'), task('q') SPREAD BY machine.rack;

TEST 'a machine that is down is left';
UPDATE machine SET up = FALSE WHERE name = 'a';
INSERT INTO task (name, job, cpu, ram, machine) VALUES ('p', 'batch', 10, 10, 'a');
EXPECT task('p') = 'b';

TEST 'a higher band takes the place of a lower one';
UPDATE machine SET up = FALSE WHERE name = 'b';
INSERT INTO task (name, job, cpu, ram, machine) VALUES ('low', 'free', 60, 60, 'a');
INSERT INTO task (name, job, cpu, ram) VALUES ('high', 'production', 60, 60);
EXPECT task('high') = 'a';
EXPECT OBJECTIVE least_harm = 1;

TEST 'but not beyond the disruption budget';
UPDATE machine SET up = FALSE WHERE name = 'b';
UPDATE job SET disruption_budget = 0 WHERE name = 'free';
INSERT INTO task (name, job, cpu, ram, machine) VALUES ('low', 'free', 60, 60, 'a');
INSERT INTO task (name, job, cpu, ram) VALUES ('high', 'production', 60, 60);
EXPECT task('low') = 'a';

TEST 'beyond the quota there is no place';
INSERT INTO task (name, job, cpu, ram) VALUES ('p', 'production', 60, 60), ('q', 'production', 60, 60);
EXPECT OBJECTIVE tasks_left_out = 1;

TEST 'a task is with its alloc';
INSERT INTO task (name, job, cpu, ram) VALUES ('alloc', 'production', 60, 60);
INSERT INTO task (name, job, cpu, ram, alloc) VALUES ('guest', 'production', 50, 50, 'alloc');
EXPECT task('alloc'), task('guest') COLOCATED;

TEST 'what does not fit into an alloc stays out';
INSERT INTO task (name, job, cpu, ram) VALUES ('alloc', 'production', 40, 40);
INSERT INTO task (name, job, cpu, ram, alloc) VALUES ('guest', 'production', 50, 50, 'alloc');
EXPECT task('guest') = NULL;

TEST 'an equal band stays, although all would fit if it moved';
INSERT INTO running_task VALUES ('r', 'free', 'b', 50, 50);
INSERT INTO task (name, job, cpu, ram, machine) VALUES ('old', 'free', 40, 40, 'a');
INSERT INTO task (name, job, cpu, ram) VALUES ('new', 'free', 70, 70);
EXPECT task('old') = 'a';
EXPECT task('new') = NULL;

TEST 'of two that could make room the lower band moves';
INSERT INTO machine (name, rack, power, cpu, ram) VALUES ('c', 'r3', 'w3', 60, 60);
INSERT INTO task (name, job, cpu, ram, machine) VALUES ('low', 'free', 60, 60, 'a'), ('mid', 'batch', 60, 60, 'b');
INSERT INTO task (name, job, cpu, ram) VALUES ('high', 'production', 70, 70);
EXPECT task('high') = 'a';
EXPECT task('mid') = 'b';
EXPECT task('low') = 'c';

TEST 'racks of one power domain are told apart';
UPDATE machine SET power = 'w1';
INSERT INTO task (name, job, cpu, ram) VALUES ('p', 'batch', 10, 10), ('q', 'batch', 10, 10);
EXPECT task('p'), task('q') SPREAD BY machine.rack;

TEST 'and power domains of one rack';
UPDATE machine SET rack = 'r1';
INSERT INTO task (name, job, cpu, ram) VALUES ('p', 'batch', 10, 10), ('q', 'batch', 10, 10);
EXPECT task('p'), task('q') SPREAD BY machine.power;

TEST 'a task goes where no more is left of one resource than of the other';
INSERT INTO running_task VALUES ('r', 'free', 'a', 0, 20), ('s', 'free', 'b', 40, 40);
INSERT INTO task (name, job, cpu, ram) VALUES ('p', 'batch', 20, 0);
EXPECT task('p') = 'a';

TEST 'else to the fullest machine that has room';
INSERT INTO running_task VALUES ('r', 'free', 'b', 40, 40);
INSERT INTO task (name, job, cpu, ram) VALUES ('p', 'batch', 10, 10);
EXPECT task('p') = 'b';

TEST 'more bands than can be weighed are refused';
INSERT INTO band (name, rank, quota_needed)
  SELECT 'x' || i, 100 + i, FALSE FROM (
    WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 52) SELECT i FROM number);
INSERT INTO job SELECT name, 'ann', name, 9 FROM band WHERE rank > 100;
INSERT INTO task (name, job, cpu, ram) SELECT 't' || name, name, 1, 1 FROM band WHERE rank > 100;
EXPECT INFEASIBLE (bands_can_be_weighed);
