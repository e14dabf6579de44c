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
