-- Hard rules: where machines may run, and how many may move.  Each has a row in the README.

-- What a machine counts with: nine tenths of the samples of its window are no higher.
CREATE VIEW vm_load AS
SELECT vm.name, coalesce(peak.cpu, vm.cpu) AS cpu
FROM vm LEFT JOIN (SELECT vm, quantile_disc(cpu, 0.9) AS cpu FROM vm_usage GROUP BY vm) AS peak ON peak.vm = vm.name;

CREATE CONSTRAINT cpu_capacity AS
SELECT host.name, host.cpu
FROM vm JOIN vm_load ON vm_load.name = vm.name JOIN host ON vm.controllable__host = host.name
GROUP BY host.name, host.cpu
CHECK sum(vm_load.cpu) <= host.cpu;

CREATE CONSTRAINT memory_capacity AS
SELECT host.name, host.memory
FROM vm JOIN host ON vm.controllable__host = host.name
GROUP BY host.name, host.memory
CHECK sum(vm.memory) <= host.memory;

-- What may be promised on a host: all it has but for its part of what the largest hosts have that may be lost.
CREATE VIEW promisable AS
SELECT host.name,
    CAST(CAST(host.cpu AS HUGEINT) * (used.cpu - lost.cpu) // used.cpu AS BIGINT) AS cpu,
    CAST(CAST(host.memory AS HUGEINT) * (used.memory - lost.memory) // used.memory AS BIGINT) AS memory
FROM host
CROSS JOIN (
    SELECT greatest(coalesce(sum(cpu), 0), 1) AS cpu, greatest(coalesce(sum(memory), 0), 1) AS memory
    FROM host WHERE NOT maintenance) AS used
CROSS JOIN (
    SELECT coalesce(sum(cpu) FILTER (WHERE by_cpu <= hosts), 0) AS cpu,
        coalesce(sum(memory) FILTER (WHERE by_memory <= hosts), 0) AS memory
    FROM (
        SELECT cpu, memory, row_number() OVER (ORDER BY cpu DESC) AS by_cpu,
            row_number() OVER (ORDER BY memory DESC) AS by_memory
        FROM host WHERE NOT maintenance) AS ranked
    CROSS JOIN (SELECT coalesce(max(hosts), 0) AS hosts FROM failover) AS asked) AS lost;

CREATE CONSTRAINT cpu_reservations AS
SELECT promisable.name, promisable.cpu
FROM vm JOIN promisable ON vm.controllable__host = promisable.name
GROUP BY promisable.name, promisable.cpu
CHECK sum(vm.cpu_reservation) <= promisable.cpu;

CREATE CONSTRAINT memory_reservations AS
SELECT promisable.name, promisable.memory
FROM vm JOIN promisable ON vm.controllable__host = promisable.name
GROUP BY promisable.name, promisable.memory
CHECK sum(vm.memory_reservation) <= promisable.memory;

CREATE CONSTRAINT affinity AS
SELECT together.rule
FROM together JOIN vm ON vm.name = together.vm
GROUP BY together.rule
CHECK count(DISTINCT vm.controllable__host) = 1;

CREATE CONSTRAINT anti_affinity AS
SELECT apart.rule
FROM apart JOIN vm ON vm.name = apart.vm
GROUP BY apart.rule
CHECK all_different(vm.controllable__host);

CREATE VIEW refused_host AS
SELECT listed.vm, host.name AS host
FROM (SELECT DISTINCT vm FROM allowed_host) AS listed CROSS JOIN host
WHERE NOT EXISTS (
    SELECT 1 FROM allowed_host WHERE allowed_host.vm = listed.vm AND allowed_host.host = host.name);

CREATE CONSTRAINT host_affinity AS
SELECT vm.name, refused_host.host
FROM vm JOIN refused_host ON refused_host.vm = vm.name AND vm.controllable__host = refused_host.host
CHECK FALSE;

CREATE VIEW out_of_reach AS
SELECT DISTINCT vm_access.vm, missing.host
FROM (
    SELECT host.name AS host, used.resource
    FROM host CROSS JOIN (SELECT DISTINCT resource FROM vm_access) AS used
    WHERE NOT EXISTS (
        SELECT 1 FROM host_access WHERE host_access.host = host.name AND host_access.resource = used.resource)
) AS missing JOIN vm_access ON vm_access.resource = missing.resource;

CREATE CONSTRAINT storage_and_networks_are_reached AS
SELECT vm.name, out_of_reach.host
FROM vm JOIN out_of_reach ON out_of_reach.vm = vm.name AND vm.controllable__host = out_of_reach.host
CHECK FALSE;

CREATE CONSTRAINT some_machines_stay AS
SELECT name FROM vm
WHERE stays
CHECK controllable__host = host;

CREATE CONSTRAINT hosts_in_maintenance_are_emptied AS
SELECT vm.name, host.name AS host
FROM vm JOIN host ON vm.controllable__host = host.name
WHERE host.maintenance
CHECK FALSE;

CREATE CONSTRAINT limited_migrations AS
SELECT migration_limit.migrations
FROM vm CROSS JOIN migration_limit
WHERE vm.controllable__host <> vm.host
GROUP BY migration_limit.migrations
CHECK count(*) <= migration_limit.migrations;
