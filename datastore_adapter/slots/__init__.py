"""Servers that speak Redis Cluster (Valkey, Redis) behind the interface that the management plane knows.

A *shard* is a segment of the plane: a set of slots, with a primary and its replicas.  Its key is ours, for the engine
knows only node ids, and which of them is the primary changes at every fail-over.  A *server* is one process and holds
at most one copy of one shard; a host runs one or more of them.

Where to begin reading: `slots_adapter` (what the plane calls), `state.cluster_state` (what the servers said, put
together), `state.shards` (which shard is which), `state.evidence` (who may be promoted), `lowering` (the steps of a
plan), and how they are carried out: `steps`.  What is agreed (intent, plans, the fence) is kept by
another adapter, the *layout adapter*: these servers have no compare-and-set of their own.
"""
