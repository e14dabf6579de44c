-- Virtual machines on hosts.  Where each runs is decided (controllable__host); host beside it is where it runs today.
-- All amounts of cpu are in one unit (MHz, say), and so are all of memory (MiB, say).

CREATE TABLE host (
    name TEXT PRIMARY KEY,
    cpu BIGINT NOT NULL CHECK (cpu BETWEEN 1 AND 10000000),
    memory BIGINT NOT NULL CHECK (memory >= 0),
    maintenance BOOLEAN NOT NULL DEFAULT FALSE      -- to be emptied
);

CREATE TABLE vm (
    name TEXT PRIMARY KEY,
    cpu BIGINT NOT NULL CHECK (cpu >= 0),           -- what it uses
    memory BIGINT NOT NULL CHECK (memory >= 0),     -- what it uses, or was given
    host TEXT NOT NULL REFERENCES host (name),
    controllable__host TEXT NOT NULL REFERENCES host (name),
    cpu_reservation BIGINT NOT NULL DEFAULT 0 CHECK (cpu_reservation >= 0),        -- what it is promised
    memory_reservation BIGINT NOT NULL DEFAULT 0 CHECK (memory_reservation >= 0),
    stays BOOLEAN NOT NULL DEFAULT FALSE            -- may not be moved
);

CREATE TABLE vm_usage (                             -- samples of a window; a machine without any uses vm.cpu
    vm TEXT NOT NULL REFERENCES vm (name),
    at BIGINT NOT NULL,                             -- when, in seconds
    cpu BIGINT NOT NULL CHECK (cpu >= 0),
    PRIMARY KEY (vm, at)
);

-- Rules of an operator: machines that are kept together, kept apart, or kept on certain hosts.
CREATE TABLE together (
    rule TEXT NOT NULL,
    vm TEXT NOT NULL REFERENCES vm (name),
    PRIMARY KEY (rule, vm)
);

CREATE TABLE apart (
    rule TEXT NOT NULL,
    vm TEXT NOT NULL REFERENCES vm (name),
    PRIMARY KEY (rule, vm)
);

CREATE TABLE allowed_host (                         -- a machine without a row may run anywhere
    vm TEXT NOT NULL REFERENCES vm (name),
    host TEXT NOT NULL REFERENCES host (name),
    PRIMARY KEY (vm, host)
);

CREATE TABLE preferred_host (                       -- a machine without a row prefers none
    vm TEXT NOT NULL REFERENCES vm (name),
    host TEXT NOT NULL REFERENCES host (name),
    PRIMARY KEY (vm, host)
);

-- Datastores and networks: what a machine uses, it must reach from its host.
CREATE TABLE vm_access (
    vm TEXT NOT NULL REFERENCES vm (name),
    resource TEXT NOT NULL,
    PRIMARY KEY (vm, resource)
);

CREATE TABLE host_access (
    host TEXT NOT NULL REFERENCES host (name),
    resource TEXT NOT NULL,
    PRIMARY KEY (host, resource)
);

CREATE TABLE migration_limit (                      -- one row, or none for no limit
    migrations INTEGER PRIMARY KEY CHECK (migrations >= 0)
);

CREATE TABLE failover (                             -- one row: the loss of so many hosts is to be survived
    hosts INTEGER PRIMARY KEY CHECK (hosts >= 0)
);
