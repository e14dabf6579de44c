-- Hard rules: what a cell must never do.  Each has a row in the README.

CREATE VIEW free_capacity AS
SELECT machine.name AS machine, machine.rack, machine.power,
       greatest(machine.cpu - coalesce(used.cpu, 0), 0) AS cpu,
       greatest(machine.ram - coalesce(used.ram, 0), 0) AS ram,
       machine.cpu AS all_cpu, machine.ram AS all_ram
FROM machine LEFT JOIN (
    SELECT machine, sum(cpu) AS cpu, sum(ram) AS ram FROM running_task GROUP BY machine) AS used
  ON used.machine = machine.name;

CREATE CONSTRAINT machine_capacity AS
SELECT free.machine, free.cpu, free.ram
FROM task JOIN free_capacity AS free ON task.controllable__machine = free.machine
WHERE task.alloc IS NULL
GROUP BY free.machine, free.cpu, free.ram
CHECK sum(task.cpu) <= free.cpu AND sum(task.ram) <= free.ram;

CREATE CONSTRAINT machines_are_up AS
SELECT task.name, machine.name AS machine
FROM task JOIN machine ON task.controllable__machine = machine.name
WHERE NOT machine.up
CHECK FALSE;

CREATE CONSTRAINT tasks_are_where_their_alloc_is AS
SELECT guest.name, guest.alloc
FROM task AS guest JOIN task AS alloc ON alloc.name = guest.alloc
CHECK guest.controllable__machine IS NULL
   OR guest.controllable__machine IS NOT DISTINCT FROM alloc.controllable__machine;

CREATE CONSTRAINT alloc_capacity AS
SELECT alloc.name, alloc.cpu, alloc.ram
FROM task AS guest JOIN task AS alloc ON alloc.name = guest.alloc
WHERE guest.controllable__machine IS NOT NULL
GROUP BY alloc.name, alloc.cpu, alloc.ram
CHECK sum(guest.cpu) <= alloc.cpu AND sum(guest.ram) <= alloc.ram;

-- What an owner has of a band in all: the quota, and what runs already even where the quota was cut since.
CREATE VIEW in_use AS
SELECT job.owner, job.band, coalesce(sum(running.cpu), 0) AS cpu, coalesce(sum(running.ram), 0) AS ram
FROM job JOIN (
    SELECT job, cpu, ram FROM running_task
    UNION ALL SELECT job, cpu, ram FROM task WHERE machine IS NOT NULL AND alloc IS NULL) AS running
  ON running.job = job.name
GROUP BY job.owner, job.band;

CREATE VIEW staying AS
SELECT job.owner, job.band, sum(running_task.cpu) AS cpu, sum(running_task.ram) AS ram
FROM job JOIN running_task ON running_task.job = job.name
GROUP BY job.owner, job.band;

CREATE VIEW allowance AS
SELECT wanted.owner, wanted.band,
       greatest(coalesce(quota.cpu, 0), coalesce(in_use.cpu, 0)) - coalesce(staying.cpu, 0) AS cpu,
       greatest(coalesce(quota.ram, 0), coalesce(in_use.ram, 0)) - coalesce(staying.ram, 0) AS ram
FROM (SELECT DISTINCT job.owner, job.band FROM job JOIN band ON band.name = job.band
      WHERE band.quota_needed) AS wanted
LEFT JOIN quota ON quota.owner = wanted.owner AND quota.band = wanted.band
LEFT JOIN in_use ON in_use.owner = wanted.owner AND in_use.band = wanted.band
LEFT JOIN staying ON staying.owner = wanted.owner AND staying.band = wanted.band;

CREATE CONSTRAINT quota_is_kept AS
SELECT allowance.owner, allowance.band, allowance.cpu, allowance.ram
FROM task JOIN job ON job.name = task.job
JOIN allowance ON allowance.owner = job.owner AND allowance.band = job.band
WHERE task.controllable__machine IS NOT NULL AND task.alloc IS NULL
GROUP BY allowance.owner, allowance.band, allowance.cpu, allowance.ram
CHECK sum(task.cpu) <= allowance.cpu AND sum(task.ram) <= allowance.ram;

CREATE VIEW ranked_task AS
SELECT task.name AS task, task.job, job.disruption_budget, band.rank, coalesce(machine.up, FALSE) AS stands
FROM task JOIN job ON job.name = task.job JOIN band ON band.name = job.band
LEFT JOIN machine ON machine.name = task.machine;

-- The places that tasks hold on machines that are up, by band.
CREATE VIEW held_place AS
SELECT DISTINCT task.machine, ranked.rank
FROM task JOIN ranked_task AS ranked ON ranked.task = task.name
WHERE ranked.stands;

-- Tasks give up their places only where a task of a higher band that has none comes to.
CREATE CONSTRAINT only_lower_bands_are_preempted AS
SELECT held.machine, held.rank
FROM task JOIN ranked_task AS ranked ON ranked.task = task.name
JOIN held_place AS held
  ON (ranked.stands AND task.machine = held.machine AND ranked.rank = held.rank)
  OR (NOT ranked.stands AND ranked.rank > held.rank)
GROUP BY held.machine, held.rank
CHECK count(*) FILTER (WHERE ranked.stands AND task.controllable__machine IS DISTINCT FROM task.machine) = 0
   OR count(*) FILTER (WHERE NOT ranked.stands AND task.controllable__machine = held.machine) > 0;

CREATE CONSTRAINT disruptions_within_budget AS
SELECT ranked.job, ranked.disruption_budget
FROM task AS victim JOIN ranked_task AS ranked ON ranked.task = victim.name
WHERE ranked.stands AND victim.controllable__machine IS DISTINCT FROM victim.machine
GROUP BY ranked.job, ranked.disruption_budget
CHECK count(*) <= ranked.disruption_budget;
