"""Faults that are an operator's or the process's own doing: evictions and changed metadata."""

from __future__ import annotations

from chaos import faults
from chaos.simulated_cluster.cluster import Cluster
from membership.settings import Settings


def standing() -> Cluster:
    cluster = Cluster(5, seed=1, settings=Settings.local())
    cluster.start()
    assert cluster.run(30.0, stop=lambda: cluster.converged() and len(cluster.running()) == 5)
    cluster.run(cluster.now + 2.0)
    return cluster


def test_an_evicted_process_stays_out_until_it_is_started() -> None:
    cluster = standing()
    cluster.apply(faults.Evict("n1", "n3"))
    cluster.run(cluster.now + 10.0)
    assert cluster.converged()
    assert [host.name for host in cluster.running()] == ["n0", "n1", "n2", "n4"]
    cluster.apply(faults.Start(("n3",)))
    assert cluster.run(cluster.now + 5.0, stop=lambda: cluster.converged() and len(cluster.running()) == 5)


def test_an_eviction_of_nobody_is_noted_and_harmless() -> None:
    cluster = standing()
    before = cluster.latest
    cluster.apply(faults.Evict("n1", "n9"))
    cluster.run(cluster.now + 3.0)
    assert cluster.latest is before
    assert any("refuses" in line for line in cluster.trace)


def test_a_tag_is_in_the_view_of_everybody() -> None:
    cluster = standing()
    cluster.apply(faults.Tag("blue", ("n2", "n4")))
    cluster.run(cluster.now + 5.0)
    assert cluster.converged()
    assert cluster.latest is not None
    tagged = {member.name for member in cluster.latest.members if dict(member.metadata) == {"tag": "blue"}}
    assert tagged == {"n2", "n4"}
