-- All pods of a gang are placed, or none.  Pods say which gang of their namespace they are of by the label `rota/gang`,
-- and of how many by `rota/gang-size`: a gang of which some pods are not there yet waits.  Members that run already
-- count.  A pod whose size is no number is left out.

CREATE VIEW gang_member AS
SELECT gang.template, gang.value AS gang, TRY_CAST(size.value AS BIGINT) AS size
FROM template_label AS gang JOIN template_label AS size ON size.template = gang.template
WHERE gang.key = 'rota/gang' AND size.key = 'rota/gang-size';

CREATE VIEW running_gang AS
SELECT split_part(running_pod.name, '/', 1) AS namespace, gang_member.gang, count(*) AS pods
FROM running_pod JOIN gang_member ON gang_member.template = running_pod.template
GROUP BY split_part(running_pod.name, '/', 1), gang_member.gang;

CREATE CONSTRAINT gang_sizes_are_numbers AS
SELECT pod.name FROM pod JOIN gang_member AS member ON member.template = pod.template
WHERE member.size IS NULL
CHECK pod.controllable__node IS NULL;

CREATE CONSTRAINT all_of_a_gang_or_none AS
SELECT split_part(pod.name, '/', 1) AS namespace, member.gang
FROM pod JOIN gang_member AS member ON member.template = pod.template
LEFT JOIN running_gang AS running
  ON running.gang = member.gang AND running.namespace = split_part(pod.name, '/', 1)
WHERE member.size IS NOT NULL
GROUP BY split_part(pod.name, '/', 1), member.gang, member.size, running.pods
CHECK count(*) FILTER (WHERE pod.controllable__node IS NOT NULL) = 0
   OR count(*) FILTER (WHERE pod.controllable__node IS NOT NULL) + coalesce(running.pods, 0) >= member.size;
