-- A cell as Borg sees it: machines, jobs in priority bands, their tasks, and reservations that tasks run inside of.

CREATE TABLE machine (
    name TEXT PRIMARY KEY,
    rack TEXT NOT NULL,
    power TEXT NOT NULL,                            -- the power domain
    cpu BIGINT NOT NULL CHECK (cpu >= 1),           -- in any unit, the same as of the tasks
    ram BIGINT NOT NULL CHECK (ram >= 1),
    up BOOLEAN NOT NULL DEFAULT TRUE
);

CREATE TABLE band (
    name TEXT PRIMARY KEY,                          -- monitoring, production, batch, free
    rank INTEGER NOT NULL UNIQUE,                   -- the higher, the more important
    quota_needed BOOLEAN NOT NULL DEFAULT TRUE
);

CREATE TABLE job (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    band TEXT NOT NULL REFERENCES band (name),
    disruption_budget INTEGER NOT NULL CHECK (disruption_budget >= 0)  -- tasks that may lose their place at once
);

CREATE TABLE quota (
    owner TEXT NOT NULL,
    band TEXT NOT NULL REFERENCES band (name),
    cpu BIGINT NOT NULL CHECK (cpu >= 0),
    ram BIGINT NOT NULL CHECK (ram >= 0),
    PRIMARY KEY (owner, band)
);

-- Tasks that stay where they are.
CREATE TABLE running_task (
    name TEXT PRIMARY KEY,
    job TEXT NOT NULL REFERENCES job (name),
    machine TEXT NOT NULL REFERENCES machine (name),
    cpu BIGINT NOT NULL CHECK (cpu >= 0),
    ram BIGINT NOT NULL CHECK (ram >= 0)
);
CREATE INDEX running_task_by_machine ON running_task (machine, cpu, ram);

-- Tasks to decide on: pending ones (machine is NULL), and running ones that are offered for preemption.  An alloc is
-- a row like a task's; tasks that run inside of it name it, and take what they need from it and not from the machine.
CREATE TABLE task (
    name TEXT PRIMARY KEY,
    job TEXT NOT NULL REFERENCES job (name),
    cpu BIGINT NOT NULL CHECK (cpu >= 0),
    ram BIGINT NOT NULL CHECK (ram >= 0),
    alloc TEXT REFERENCES task (name),
    machine TEXT,
    controllable__machine TEXT REFERENCES machine (name)  -- NULL: nowhere
);
