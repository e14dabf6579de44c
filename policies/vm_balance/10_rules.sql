-- Hard rules: where machines may run, and how many may move.  Each has a row in the README.

CREATE CONSTRAINT cpu_capacity AS
SELECT host.name, host.cpu
FROM vm JOIN host ON vm.controllable__host = host.name
GROUP BY host.name, host.cpu
CHECK sum(vm.cpu) <= host.cpu;

CREATE CONSTRAINT memory_capacity AS
SELECT host.name, host.memory
FROM vm JOIN host ON vm.controllable__host = host.name
GROUP BY host.name, host.memory
CHECK sum(vm.memory) <= host.memory;

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
