"""A problem as large as people have it: 107 shards of three copies, 321 rows, on 40 machines in eight racks."""

from __future__ import annotations

from pathlib import Path

SCHEMA = """\
CREATE TABLE machine (name TEXT PRIMARY KEY, rack TEXT NOT NULL, room INTEGER NOT NULL, price INTEGER NOT NULL);
CREATE TABLE shard (key TEXT PRIMARY KEY, size INTEGER NOT NULL);
CREATE TABLE copy (
    shard TEXT NOT NULL REFERENCES shard (key),
    number INTEGER NOT NULL,
    machine TEXT,
    controllable__machine TEXT NOT NULL REFERENCES machine (name),
    PRIMARY KEY (shard, number)
);
"""
RULES = """\
CREATE CONSTRAINT room AS
SELECT machine.name, machine.room
FROM copy JOIN shard ON shard.key = copy.shard JOIN machine ON copy.controllable__machine = machine.name
GROUP BY machine.name, machine.room
CHECK sum(shard.size) <= machine.room;

CREATE CONSTRAINT racks_apart AS
SELECT copy.shard, machine.rack
FROM copy JOIN machine ON copy.controllable__machine = machine.name
GROUP BY copy.shard, machine.rack
CHECK count(*) <= 1;

CREATE VIEW machine_load AS
SELECT machine.name, count(*) AS copies
FROM copy JOIN machine ON copy.controllable__machine = machine.name
GROUP BY machine.name;

CREATE CONSTRAINT level AS
SELECT name FROM machine_load
MINIMIZE max(copies) TIER 1;

CREATE CONSTRAINT rent AS
SELECT copy.shard, copy.number
FROM copy JOIN machine ON copy.controllable__machine = machine.name
MINIMIZE sum(machine.price) TIER 2;
"""
MACHINES, RACKS, SHARDS, COPIES = 40, 8, 107, 3


def write(folder: Path) -> None:
    """The files ``schema.sql``, ``rules.sql`` and ``rows.sql``.  Today nothing is where it is best."""
    machines = [
        f"('m{number:02}', 'r{number % RACKS}', 600, {3 + number * 7 % 3})" for number in range(MACHINES)
    ]
    shards = [f"('s{number:03}', {10 + number * 37 % 50})" for number in range(SHARDS)]
    copies = [
        f"('s{shard:03}', {number}, 'm{(shard * shard + number * 3) % MACHINES:02}')"
        for shard in range(SHARDS)
        for number in range(COPIES)
    ]
    rows = (
        f"INSERT INTO machine VALUES {', '.join(machines)};\n"
        f"INSERT INTO shard VALUES {', '.join(shards)};\n"
        f"INSERT INTO copy (shard, number, machine) VALUES {', '.join(copies)};\n"
    )
    for name, text in (("schema.sql", SCHEMA), ("rules.sql", RULES), ("rows.sql", rows)):
        (folder / name).write_text(text)
