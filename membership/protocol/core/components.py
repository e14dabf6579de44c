"""The components of one core that outlive a view, by name.

The core makes them once; dispatch and view installation share them. Those of one view are in `view_instance`.
"""

from typing import NamedTuple

from membership.protocol.context.context import Context
from membership.protocol.dissemination.anti_entropy import AntiEntropy
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.dissemination.catch_up import CatchUp
from membership.protocol.lifecycle.admission import Admission
from membership.protocol.lifecycle.change_requests import ChangeRequests
from membership.protocol.lifecycle.founder_election import FounderElection
from membership.protocol.lifecycle.joiner import Joiner
from membership.protocol.lifecycle.refounding import Refounding
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.recovery.operator_recovery import Recovery
from membership.protocol.recovery.permanent_quorum_loss import PermanentQuorumLoss
from membership.protocol.recovery.quorum_watch import QuorumWatch


class Components(NamedTuple):
    """One of each, all on the same context."""

    context: Context
    joiner: Joiner
    election: FounderElection
    refounding: Refounding
    monitor: Monitor
    admission: Admission
    catch_up: CatchUp
    quorum: QuorumWatch
    requests: ChangeRequests
    recovery: Recovery
    quorum_loss: PermanentQuorumLoss
    anti_entropy: AntiEntropy
    broadcaster: Broadcaster
