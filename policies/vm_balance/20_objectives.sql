-- Objectives, the most important tier first.  The README says why they stand in this order.

-- What one unit of cpu is of a host, in billionths; a host that is to be emptied does not count.
CREATE VIEW host_share AS
SELECT name, 1000000000 / cpu AS of_unit FROM host WHERE NOT maintenance;

CREATE VIEW utilisation AS
SELECT host_share.name AS host, sum(vm.cpu) * host_share.of_unit AS billionths
FROM vm JOIN host_share ON vm.controllable__host = host_share.name
GROUP BY host_share.name, host_share.of_unit;

CREATE CONSTRAINT highest_utilisation AS
SELECT host FROM utilisation
MINIMIZE max(billionths) TIER 1;

CREATE CONSTRAINT lowest_utilisation AS
SELECT host FROM utilisation
MAXIMIZE min(billionths) TIER 1;

CREATE CONSTRAINT fewest_migrations AS
SELECT name FROM vm
WHERE controllable__host <> host
MINIMIZE count(*) TIER 2;
