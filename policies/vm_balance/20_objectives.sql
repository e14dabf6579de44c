-- Objectives, the most important tier first.  The README says why they stand in this order.

CREATE CONSTRAINT machines_off_their_preferred_hosts AS
SELECT vm.name FROM vm
WHERE vm.name IN (SELECT vm FROM preferred_host)
  AND (vm.name, vm.controllable__host) NOT IN (SELECT vm, host FROM preferred_host)
MINIMIZE count(*) TIER 1;

-- What one unit of cpu is of a host, in billionths; a host that is to be emptied does not count.
CREATE VIEW host_share AS
SELECT name, 1000000000 / cpu AS of_unit FROM host WHERE NOT maintenance;

CREATE VIEW utilisation AS
SELECT host_share.name AS host, sum(vm_load.cpu) * host_share.of_unit AS billionths
FROM vm JOIN vm_load ON vm_load.name = vm.name JOIN host_share ON vm.controllable__host = host_share.name
GROUP BY host_share.name, host_share.of_unit;

CREATE CONSTRAINT highest_utilisation AS
SELECT host FROM utilisation
MINIMIZE max(billionths) TIER 2;

CREATE CONSTRAINT lowest_utilisation AS
SELECT host FROM utilisation
MAXIMIZE min(billionths) TIER 2;

CREATE CONSTRAINT fewest_migrations AS
SELECT name FROM vm
WHERE controllable__host <> host
MINIMIZE count(*) TIER 3;
