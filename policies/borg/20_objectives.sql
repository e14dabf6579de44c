-- Objectives, the most important tier first.  The README says why they stand in this order.

CREATE VIEW band_size AS
SELECT band.name AS band, band.rank, count(*) AS tasks
FROM task JOIN job ON job.name = task.job JOIN band ON band.name = job.band
GROUP BY band.name, band.rank;

-- One task weighs more than all tasks of lower bands together: a power of two, with room for each of these.
CREATE VIEW band_weight AS
SELECT high.band, coalesce(sum(CAST(ceil(log(2, low.tasks + 1)) AS BIGINT)), 0) AS bits
FROM band_size AS high LEFT JOIN band_size AS low ON low.rank < high.rank
GROUP BY high.band;

CREATE CONSTRAINT bands_can_be_weighed AS
SELECT band, bits FROM band_weight
CHECK bits <= 50;

CREATE CONSTRAINT tasks_left_out AS
SELECT task.name
FROM task JOIN job ON job.name = task.job JOIN band_weight ON band_weight.band = job.band
WHERE task.controllable__machine IS NULL
MINIMIZE sum(CAST(1 AS BIGINT) << band_weight.bits) TIER 1;

CREATE CONSTRAINT least_harm AS
SELECT task.name
FROM task JOIN job ON job.name = task.job JOIN band_weight ON band_weight.band = job.band
WHERE task.machine IS NOT NULL AND task.controllable__machine IS DISTINCT FROM task.machine
MINIMIZE sum(CAST(1 AS BIGINT) << band_weight.bits) TIER 2;

CREATE VIEW job_in_rack AS
SELECT task.job, machine.rack, count(*) AS tasks
FROM task JOIN machine ON task.controllable__machine = machine.name
GROUP BY task.job, machine.rack;

CREATE VIEW job_in_power_domain AS
SELECT task.job, machine.power, count(*) AS tasks
FROM task JOIN machine ON task.controllable__machine = machine.name
GROUP BY task.job, machine.power;

CREATE CONSTRAINT spread_over_racks AS
SELECT job, rack FROM job_in_rack
MINIMIZE sum(tasks * tasks) TIER 3;

CREATE CONSTRAINT spread_over_power_domains AS
SELECT job, power FROM job_in_power_domain
MINIMIZE sum(tasks * tasks) TIER 3;

-- What is free on each machine afterwards, in percent.
CREATE VIEW left_over AS
SELECT free.machine,
       (free.cpu - sum(task.cpu)) * 100 / free.all_cpu AS cpu,
       (free.ram - sum(task.ram)) * 100 / free.all_ram AS ram
FROM task JOIN free_capacity AS free ON task.controllable__machine = free.machine
WHERE task.alloc IS NULL
GROUP BY free.machine, free.cpu, free.ram, free.all_cpu, free.all_ram;

CREATE CONSTRAINT least_stranded AS
SELECT machine FROM left_over
MINIMIZE sum(abs(cpu - ram)) TIER 4;

CREATE CONSTRAINT best_fit AS
SELECT task.name
FROM task JOIN free_capacity AS free ON task.controllable__machine = free.machine
WHERE task.alloc IS NULL
MINIMIZE sum(free.cpu * 100 / free.all_cpu + free.ram * 100 / free.all_ram) TIER 5;
