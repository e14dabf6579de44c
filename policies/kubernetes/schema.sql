-- What a Kubernetes scheduler knows of its cluster.  controllable__node is decided by the solver; node beside it
-- holds where a pod is today.

CREATE TABLE node (
    name TEXT PRIMARY KEY,
    ready BOOLEAN NOT NULL DEFAULT TRUE,
    unschedulable BOOLEAN NOT NULL DEFAULT FALSE,   -- cordoned
    memory_pressure BOOLEAN NOT NULL DEFAULT FALSE,
    disk_pressure BOOLEAN NOT NULL DEFAULT FALSE,
    pid_pressure BOOLEAN NOT NULL DEFAULT FALSE,
    network_unavailable BOOLEAN NOT NULL DEFAULT FALSE,
    cpu BIGINT NOT NULL CHECK (cpu >= 0),           -- what pods may request in all, in any unit
    memory BIGINT NOT NULL CHECK (memory >= 0),
    ephemeral_storage BIGINT NOT NULL DEFAULT 0 CHECK (ephemeral_storage >= 0),
    pods BIGINT NOT NULL DEFAULT 110 CHECK (pods >= 0)
);

-- The zone of a node is its label topology.kubernetes.io/zone, its rack whatever label says so.
CREATE TABLE node_label (
    node TEXT NOT NULL REFERENCES node (name),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (node, key)
);
CREATE INDEX node_label_by_value ON node_label (key, value, node);

CREATE TABLE node_taint (
    node TEXT NOT NULL REFERENCES node (name),
    key TEXT NOT NULL,
    value TEXT NOT NULL DEFAULT '',
    effect TEXT NOT NULL CHECK (effect IN ('NoSchedule', 'PreferNoSchedule', 'NoExecute')),
    PRIMARY KEY (node, key, effect)
);

-- What pods of one controller have in common: labels, selectors, tolerations, ports, affinities.
CREATE TABLE template (
    name TEXT PRIMARY KEY
);

CREATE TABLE template_label (
    template TEXT NOT NULL REFERENCES template (name),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (template, key)
);

CREATE TABLE node_selector (                        -- all of a template's rows must match
    template TEXT NOT NULL REFERENCES template (name),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (template, key)
);

CREATE TABLE node_affinity (                        -- one term must match; a term matches when all its keys do
    template TEXT NOT NULL REFERENCES template (name),
    term INTEGER NOT NULL,
    key TEXT NOT NULL,
    operator TEXT NOT NULL CHECK (operator IN ('In', 'NotIn', 'Exists', 'DoesNotExist', 'Gt', 'Lt')),
    value TEXT NOT NULL DEFAULT '',                 -- In and NotIn: one row for each value
    PRIMARY KEY (template, term, key, operator, value)
);

CREATE TABLE toleration (
    template TEXT NOT NULL REFERENCES template (name),
    key TEXT NOT NULL DEFAULT '',                   -- '' tolerates every key
    operator TEXT NOT NULL DEFAULT 'Equal' CHECK (operator IN ('Equal', 'Exists')),
    value TEXT NOT NULL DEFAULT '',
    effect TEXT NOT NULL DEFAULT '',                -- '' tolerates every effect
    PRIMARY KEY (template, key, operator, value, effect)
);

CREATE TABLE host_port (
    template TEXT NOT NULL REFERENCES template (name),
    port INTEGER NOT NULL,
    protocol TEXT NOT NULL DEFAULT 'TCP',
    ip TEXT NOT NULL DEFAULT '0.0.0.0',             -- 0.0.0.0: every address of the node
    PRIMARY KEY (template, port, protocol, ip)
);

-- Which nodes will do, and who is meant, can also be said by name.  So it is by what reads Kubernetes' objects: it has
-- matched the labels already, with all operators that the API has.
CREATE TABLE node_set (
    name TEXT NOT NULL,
    node TEXT NOT NULL REFERENCES node (name),
    PRIMARY KEY (name, node)
);

CREATE TABLE node_rule (                            -- all of a template's rows must hold
    template TEXT NOT NULL REFERENCES template (name),
    rule TEXT NOT NULL,                             -- the reason: 'node selector', 'node affinity', 'volume', ...
    node_set TEXT NOT NULL,
    inside BOOLEAN NOT NULL,                        -- pods must be on a node of the set, or (FALSE) on none of them
    PRIMARY KEY (template, rule, node_set)
);

-- What there is and what is wanted beside cpu, memory and ephemeral storage.
CREATE TABLE node_resource (
    node TEXT NOT NULL REFERENCES node (name),
    resource TEXT NOT NULL,
    spare BIGINT NOT NULL CHECK (spare >= 0),       -- what running pods leave
    PRIMARY KEY (node, resource)
);

CREATE TABLE template_resource (
    template TEXT NOT NULL REFERENCES template (name),
    resource TEXT NOT NULL,
    amount BIGINT NOT NULL CHECK (amount >= 0),
    PRIMARY KEY (template, resource)
);

-- Pods of the template must (or, apart, must not) share a domain of the topology with pods that have all the labels.
CREATE TABLE affinity (
    id TEXT PRIMARY KEY,
    template TEXT NOT NULL REFERENCES template (name),
    topology TEXT NOT NULL,                         -- a label key of nodes; kubernetes.io/hostname is the node itself
    apart BOOLEAN NOT NULL
);

CREATE TABLE affinity_label (
    affinity TEXT NOT NULL REFERENCES affinity (id),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (affinity, key)
);

CREATE TABLE affinity_to (                          -- others that are meant, whatever their labels
    affinity TEXT NOT NULL REFERENCES affinity (id),
    template TEXT NOT NULL REFERENCES template (name),
    PRIMARY KEY (affinity, template)
);

-- Pods of the template are spread over the domains of the topology.
CREATE TABLE topology_spread (
    template TEXT NOT NULL REFERENCES template (name),
    topology TEXT NOT NULL,
    max_skew INTEGER NOT NULL CHECK (max_skew >= 1),
    min_domains INTEGER NOT NULL DEFAULT 1,         -- while there are fewer, the emptiest domain counts as empty
    counts_itself BOOLEAN NOT NULL DEFAULT TRUE,    -- pods of the template are counted
    node_set TEXT,                                  -- only nodes of this set count, or (not inside) only the others
    inside BOOLEAN NOT NULL DEFAULT TRUE,
    PRIMARY KEY (template, topology)
);

CREATE TABLE spread_to (                            -- other templates whose pods are counted with it
    template TEXT NOT NULL REFERENCES template (name),
    topology TEXT NOT NULL,
    other TEXT NOT NULL REFERENCES template (name),
    PRIMARY KEY (template, topology, other)
);

-- Pods that stay where they are.
CREATE TABLE running_pod (
    name TEXT PRIMARY KEY,
    node TEXT NOT NULL REFERENCES node (name),
    template TEXT NOT NULL REFERENCES template (name),
    cpu BIGINT NOT NULL CHECK (cpu >= 0),
    memory BIGINT NOT NULL CHECK (memory >= 0),
    ephemeral_storage BIGINT NOT NULL DEFAULT 0 CHECK (ephemeral_storage >= 0),
    terminating BOOLEAN NOT NULL DEFAULT FALSE      -- it is being deleted: spreads do not count it any more
);
CREATE INDEX running_pod_by_node ON running_pod (node, cpu, memory, ephemeral_storage);
CREATE INDEX running_pod_by_template ON running_pod (template, node);

-- Pods to decide on: pending ones (node is NULL), and running ones that are offered for preemption.
CREATE TABLE pod (
    name TEXT PRIMARY KEY,
    template TEXT NOT NULL REFERENCES template (name),
    priority INTEGER NOT NULL DEFAULT 0,
    cpu BIGINT NOT NULL CHECK (cpu >= 0),
    memory BIGINT NOT NULL CHECK (memory >= 0),
    ephemeral_storage BIGINT NOT NULL DEFAULT 0 CHECK (ephemeral_storage >= 0),
    preempts BOOLEAN NOT NULL DEFAULT TRUE,         -- pods of lower priorities may make way for it
    waited BIGINT NOT NULL DEFAULT 0,               -- seconds since it was created
    node TEXT,
    controllable__node TEXT REFERENCES node (name)  -- NULL: nowhere
);

-- How many of some pods may lose their place.
CREATE TABLE disruption_budget (
    name TEXT PRIMARY KEY,
    allowed INTEGER NOT NULL CHECK (allowed >= 0)
);

CREATE TABLE budget_pod (
    budget TEXT NOT NULL REFERENCES disruption_budget (name),
    pod TEXT NOT NULL,
    PRIMARY KEY (budget, pod)
);

-- What is not required, only preferred: points for each pod on a node of the set, or (negative) against it.
CREATE TABLE node_preference (
    template TEXT NOT NULL REFERENCES template (name),
    reason TEXT NOT NULL,
    node_set TEXT NOT NULL,
    points INTEGER NOT NULL,
    PRIMARY KEY (template, reason, node_set)
);

-- Points for each pair of pods, one of the template and one that is meant, that share a domain.
CREATE TABLE preferred_affinity (
    id TEXT PRIMARY KEY,
    template TEXT NOT NULL REFERENCES template (name),
    topology TEXT NOT NULL,
    points INTEGER NOT NULL
);

CREATE TABLE preferred_affinity_to (
    affinity TEXT NOT NULL REFERENCES preferred_affinity (id),
    template TEXT NOT NULL REFERENCES template (name),
    PRIMARY KEY (affinity, template)
);
