-- Objectives, the most important tier first.  The README says why they stand in this order.

CREATE VIEW band AS
SELECT priority, count(*) AS pods FROM pod GROUP BY priority;

-- One pod weighs more than all pods of lower bands together: the weight is a power of two, with room below it for each
-- of the lower bands.
CREATE VIEW band_weight AS
SELECT high.priority, coalesce(sum(CAST(ceil(log(2, low.pods + 1)) AS BIGINT)), 0) AS bits
FROM band AS high LEFT JOIN band AS low ON low.priority < high.priority
GROUP BY high.priority;

CREATE CONSTRAINT bands_can_be_weighed AS
SELECT priority, bits FROM band_weight
CHECK bits <= 50;

CREATE CONSTRAINT pods_left_out AS
SELECT pod.name FROM pod JOIN band_weight ON band_weight.priority = pod.priority
WHERE pod.controllable__node IS NULL
MINIMIZE sum(CAST(1 AS BIGINT) << band_weight.bits) TIER 1;

CREATE CONSTRAINT least_harm AS
SELECT pod.name FROM pod JOIN band_weight ON band_weight.priority = pod.priority
WHERE pod.node IS NOT NULL AND pod.controllable__node IS DISTINCT FROM pod.node
MINIMIZE sum(CAST(1 AS BIGINT) << band_weight.bits) TIER 2;

CREATE CONSTRAINT least_requested AS
SELECT pod.name FROM pod JOIN spare_capacity AS spare ON pod.controllable__node = spare.node
MINIMIZE sum(spare.load) TIER 3;

CREATE VIEW newly_placed AS
SELECT node.name AS node, count(*) AS pods
FROM pod JOIN node ON pod.controllable__node = node.name
GROUP BY node.name;

CREATE CONSTRAINT not_all_on_one_node AS
SELECT node FROM newly_placed
MINIMIZE sum(10 * pods * pods) TIER 3;
