"""What a user adds to the datastore pack."""

from __future__ import annotations

from bench.policies.phrasings.family import Asked, Family

_ASKED = Asked(0.3, 3.0)

LEVEL_BYTES = Family(
    "pack_level_bytes",
    "as a last tier, the host with the most megabytes has as few as can be",
    Asked(2.0, 20.0, gap=0.02),
    {
        "max_of_view": """
CREATE VIEW host_mb AS
SELECT host.name, sum(segment.bytes / 1000000) AS mb
FROM replica JOIN segment ON segment.key = replica.segment JOIN host ON replica.controllable__host = host.name
GROUP BY host.name;
CREATE CONSTRAINT level_bytes AS SELECT * FROM host_mb MINIMIZE max(mb) TIER 9;
""",
        "subquery_per_host": """
CREATE VIEW host_mb AS
SELECT host.name, (SELECT sum(segment.bytes / 1000000) FROM replica JOIN segment ON segment.key = replica.segment
                   WHERE replica.controllable__host = host.name) AS mb
FROM host;
CREATE CONSTRAINT level_bytes AS SELECT * FROM host_mb MINIMIZE max(mb) TIER 9;
""",
        "derived_table": """
CREATE CONSTRAINT level_bytes AS
SELECT * FROM (SELECT host.name, sum(mb.mb) AS mb
               FROM (SELECT key, bytes / 1000000 AS mb FROM segment) AS mb, replica, host
               WHERE mb.key = replica.segment AND replica.controllable__host = host.name
               GROUP BY host.name) AS t
MINIMIZE max(mb) TIER 9;
""",
    },
    listed=("max_of_view",),
    value="""SELECT max(mb) FROM (SELECT sum(bytes // 1000000) AS mb FROM replica JOIN segment ON key = segment
             GROUP BY host)""",
    state="datastore",
)

TWO_ZONES = Family(
    "pack_two_zones",
    "the copies of a segment are in at least two zones",
    _ASKED,
    {
        "count_distinct": """
CREATE CONSTRAINT two_zones AS
SELECT replica.segment FROM replica JOIN host ON replica.controllable__host = host.name
GROUP BY replica.segment CHECK count(DISTINCT host.zone) >= 2;
""",
        "not_all_equal": """
CREATE CONSTRAINT two_zones AS
SELECT replica.segment FROM replica JOIN host ON replica.controllable__host = host.name
GROUP BY replica.segment CHECK NOT all_equal(host.zone);
""",
        "at_most_two_in_a_zone": """
CREATE CONSTRAINT two_zones AS
SELECT replica.segment, host.zone FROM replica JOIN host ON replica.controllable__host = host.name
GROUP BY replica.segment, host.zone CHECK count(*) <= 2;
""",
        "min_is_not_max": """
CREATE CONSTRAINT two_zones AS
SELECT replica.segment FROM replica JOIN host ON replica.controllable__host = host.name
GROUP BY replica.segment CHECK min(host.zone) <> max(host.zone);
""",
        "pair_exists": """
CREATE CONSTRAINT two_zones AS
SELECT a.segment FROM replica AS a JOIN host AS x ON a.controllable__host = x.name
JOIN replica AS b ON b.segment = a.segment AND a.slot < b.slot JOIN host AS y ON b.controllable__host = y.name
GROUP BY a.segment CHECK any(x.zone <> y.zone);
""",
    },
    listed=("count_distinct",),
    broken="""SELECT segment FROM replica JOIN host ON host.name = replica.host GROUP BY segment
              HAVING count(DISTINCT zone) < 2""",
    state="datastore",
)

TENANT = Family(
    "pack_tenant",
    "a tenant has no copy in rack r000",
    _ASKED,
    {
        "groups": """
CREATE CONSTRAINT tenant_rack AS
SELECT tenant.name, host.rack FROM replica JOIN tenant ON tenant.segment = replica.segment
JOIN host ON replica.controllable__host = host.name WHERE tenant.name = 't00'
GROUP BY tenant.name, host.rack CHECK host.rack <> 'r000' OR count(*) = 0;
""",
        "rows": """
CREATE CONSTRAINT tenant_rack AS
SELECT replica.segment, replica.slot FROM replica JOIN tenant ON tenant.segment = replica.segment
JOIN host ON replica.controllable__host = host.name WHERE tenant.name = 't00' CHECK host.rack <> 'r000';
""",
        "not_in": """
CREATE CONSTRAINT tenant_rack AS
SELECT * FROM replica WHERE segment IN (SELECT segment FROM tenant WHERE name = 't00')
CHECK controllable__host NOT IN (SELECT name FROM host WHERE rack = 'r000');
""",
        "gated": """
CREATE CONSTRAINT tenant_rack AS
SELECT replica.segment FROM replica JOIN tenant ON tenant.segment = replica.segment
JOIN host ON replica.controllable__host = host.name WHERE tenant.name = 't00' AND host.rack = 'r000' CHECK FALSE;
""",
        "count_of_all": """
CREATE CONSTRAINT tenant_rack AS
SELECT tenant.name FROM replica JOIN tenant ON tenant.segment = replica.segment
JOIN host ON replica.controllable__host = host.name
GROUP BY tenant.name CHECK tenant.name <> 't00' OR count(*) FILTER (WHERE host.rack = 'r000') = 0;
""",
        "not_exists": """
CREATE CONSTRAINT tenant_rack AS
SELECT * FROM host WHERE rack = 'r000'
CHECK NOT EXISTS (SELECT 1 FROM replica JOIN tenant ON tenant.segment = replica.segment
                  WHERE replica.controllable__host = host.name AND tenant.name = 't00');
""",
    },
    listed=("groups",),
    broken="""SELECT replica.segment FROM replica JOIN tenant ON tenant.segment = replica.segment
              JOIN host ON host.name = replica.host WHERE tenant.name = 't00' AND rack = 'r000'""",
    state="datastore",
)

APART = Family(
    "pack_hosts_apart",
    "segments s000000 and s000001 share no host",
    _ASKED,
    {
        "pairs": """
CREATE CONSTRAINT apart AS
SELECT a.slot FROM replica AS a, replica AS b WHERE a.segment = 's000000' AND b.segment = 's000001'
CHECK a.controllable__host <> b.controllable__host;
""",
        "all_different": """
CREATE CONSTRAINT apart AS
SELECT * FROM replica WHERE segment IN ('s000000', 's000001') CHECK all_different(controllable__host);
""",
        "at_most_one": """
CREATE CONSTRAINT apart AS
SELECT host.name FROM replica JOIN host ON replica.controllable__host = host.name
WHERE replica.segment IN ('s000000', 's000001') GROUP BY host.name CHECK count(*) <= 1;
""",
    },
    broken="""SELECT host FROM replica WHERE segment IN ('s000000', 's000001') GROUP BY host HAVING count(*) > 1""",
    state="datastore",
)

PACK_FAMILIES = (LEVEL_BYTES, TWO_ZONES, TENANT, APART)
