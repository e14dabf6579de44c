-- All pods of a gang are placed, or none.  Pods say which gang they are of by the label `rota/gang`, and of how many by
-- `rota/gang-size`: a gang of which some pods are not there yet waits.  Members that run already count.

CREATE VIEW gang_member AS
SELECT gang.template, gang.value AS gang, CAST(size.value AS BIGINT) AS size
FROM template_label AS gang JOIN template_label AS size ON size.template = gang.template
WHERE gang.key = 'rota/gang' AND size.key = 'rota/gang-size';

CREATE VIEW running_gang AS
SELECT gang_member.gang, count(*) AS pods
FROM running_pod JOIN gang_member ON gang_member.template = running_pod.template
GROUP BY gang_member.gang;

CREATE CONSTRAINT all_of_a_gang_or_none AS
SELECT member.gang
FROM pod JOIN gang_member AS member ON member.template = pod.template
LEFT JOIN running_gang AS running ON running.gang = member.gang
GROUP BY member.gang, member.size, running.pods
CHECK count(*) FILTER (WHERE pod.controllable__node IS NOT NULL) = 0
   OR count(*) FILTER (WHERE pod.controllable__node IS NOT NULL) + coalesce(running.pods, 0) >= member.size;
