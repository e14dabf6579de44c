-- What the control plane knows of a replicated datastore.  Columns that start with controllable__ are
-- decided by the solver; the column each is paired with holds the value of today.

CREATE TABLE host (
    name TEXT PRIMARY KEY,
    rack TEXT NOT NULL,
    zone TEXT NOT NULL,
    capacity_bytes BIGINT NOT NULL CHECK (capacity_bytes >= 0),
    alive BOOLEAN NOT NULL,       -- a member of the current view
    drained BOOLEAN NOT NULL,     -- an operator wants it empty
    servers INTEGER CHECK (servers >= 0),  -- each holds one copy; NULL: the engine needs none, so any number
    layout_server BOOLEAN NOT NULL,
    controllable__layout_server BOOLEAN NOT NULL,
    sequencer BOOLEAN NOT NULL,
    controllable__sequencer BOOLEAN NOT NULL
);

-- What else is known of hosts: the tags of their agents that have no meaning of their own.
CREATE TABLE host_label (
    host TEXT NOT NULL REFERENCES host (name),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (host, key)
);

-- Slots and load are of engines that divide their keys into slots and count operations; others have 0.
CREATE TABLE segment (
    key TEXT PRIMARY KEY,
    bytes BIGINT NOT NULL CHECK (bytes >= 0),
    replication_factor INTEGER NOT NULL CHECK (replication_factor >= 1),
    slots INTEGER NOT NULL DEFAULT 0 CHECK (slots >= 0),
    load BIGINT NOT NULL DEFAULT 0 CHECK (load >= 0)  -- operations per second
);

-- One row per wanted copy: replication_factor rows per segment, slots 0, 1, ...  A copy that does not exist
-- yet, or whose host is gone, has host NULL (or names a host that is not alive).
CREATE TABLE replica (
    segment TEXT NOT NULL REFERENCES segment (key),
    slot INTEGER NOT NULL,
    host TEXT,
    controllable__host TEXT NOT NULL REFERENCES host (name),
    is_primary BOOLEAN NOT NULL,
    controllable__primary BOOLEAN NOT NULL CURRENT is_primary,
    PRIMARY KEY (segment, slot)
);

-- What operators may ask for besides; all of it may stay empty.

-- How many copies of a segment a zone holds.
CREATE TABLE zone_rule (
    segment TEXT NOT NULL REFERENCES segment (key),
    zone TEXT NOT NULL,
    least INTEGER NOT NULL CHECK (least >= 0),
    most INTEGER NOT NULL,
    PRIMARY KEY (segment, zone)
);

-- How many copies of a segment are on hosts with a label.
CREATE TABLE label_rule (
    segment TEXT NOT NULL REFERENCES segment (key),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    least INTEGER NOT NULL CHECK (least >= 0),
    most INTEGER NOT NULL,
    PRIMARY KEY (segment, key, value)
);

-- A copy that stays on one host.
CREATE TABLE pin (
    segment TEXT NOT NULL REFERENCES segment (key),
    slot INTEGER NOT NULL,
    host TEXT NOT NULL REFERENCES host (name),
    PRIMARY KEY (segment, slot)
);

-- Hosts that are worked on: their copies stay, but they get no new ones, and lead no segment if that can be.
CREATE TABLE maintenance (
    host TEXT PRIMARY KEY REFERENCES host (name)
);

-- Hosts that came back a short while ago: their copies stay, but they get no new ones.
CREATE TABLE frozen (
    host TEXT PRIMARY KEY REFERENCES host (name)
);

-- Segments with so many readers that their copies should not share hosts.
CREATE TABLE hot_segment (
    segment TEXT PRIMARY KEY REFERENCES segment (key)
);
