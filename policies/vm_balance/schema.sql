-- Virtual machines on hosts.  Where each runs is decided (controllable__host); host beside it is where it runs today.

CREATE TABLE host (
    name TEXT PRIMARY KEY,
    cpu BIGINT NOT NULL CHECK (cpu BETWEEN 1 AND 10000000),  -- in the unit of the machines, MHz say
    memory BIGINT NOT NULL CHECK (memory >= 0),
    maintenance BOOLEAN NOT NULL DEFAULT FALSE      -- to be emptied
);

CREATE TABLE vm (
    name TEXT PRIMARY KEY,
    cpu BIGINT NOT NULL CHECK (cpu >= 0),           -- what it uses
    memory BIGINT NOT NULL CHECK (memory >= 0),     -- what it was given
    host TEXT NOT NULL REFERENCES host (name),
    controllable__host TEXT NOT NULL REFERENCES host (name)
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

CREATE TABLE migration_limit (                      -- one row, or none for no limit
    migrations INTEGER PRIMARY KEY CHECK (migrations >= 0)
);
