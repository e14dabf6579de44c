"""The logically centralised mode: an ensemble of voters records the membership of a cluster.

`Voter` is the core of an ensemble member, `Client` that of a cluster's member; both are driven like
`membership.protocol.core.Core`. The cluster's members watch each other on the rings and tell only the ensemble.
Source: Rapid (USENIX ATC 2018), section 5.
"""

from membership.ensemble.client import Client
from membership.ensemble.durable_state import RecordError
from membership.ensemble.voter import EnsembleError, Voter

__all__ = ["Client", "EnsembleError", "RecordError", "Voter"]
