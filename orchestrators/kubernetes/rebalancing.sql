-- What `rota kube rebalance` wants beside the rules of the pack and even load (evenness.sql): as few evictions as do it,
-- no more than are allowed, and budgets kept in any case.

CREATE CONSTRAINT everybody_keeps_a_place AS
SELECT name FROM pod
CHECK controllable__node IS NOT NULL;

CREATE CONSTRAINT evictions_are_limited AS
SELECT count(*) AS pods FROM pod
WHERE controllable__node IS DISTINCT FROM node
CHECK count(*) <= {evictions};

CREATE CONSTRAINT budgets_are_kept AS
SELECT budget.name, budget.allowed
FROM disruption_budget AS budget JOIN budget_pod ON budget_pod.budget = budget.name
JOIN pod ON pod.name = budget_pod.pod
WHERE pod.controllable__node IS DISTINCT FROM pod.node
GROUP BY budget.name, budget.allowed
CHECK count(*) <= budget.allowed;

CREATE CONSTRAINT fewest_evictions AS
SELECT name FROM pod WHERE controllable__node IS DISTINCT FROM node MINIMIZE count(*) TIER 9;
