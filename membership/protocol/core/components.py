"""The parts of one core that outlive a view, by name.

What it is: what the core makes once and its dispatcher and view installer share.
What it is not: the parts that live as long as one configuration (see stage), nor any rule.
"""

from typing import NamedTuple

from membership.protocol.context.context import Context
from membership.protocol.dissemination.anti_entropy import Greeting
from membership.protocol.dissemination.catch_up import CatchUp
from membership.protocol.lifecycle.admission import Admission
from membership.protocol.lifecycle.founder_election import Rendezvous
from membership.protocol.lifecycle.joiner import Joiner
from membership.protocol.lifecycle.refounding import Founding
from membership.protocol.lifecycle.requests import Requests
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.recovery.permanent_quorum_loss import Resignation
from membership.protocol.recovery.quorum_watch import QuorumWatch
from membership.protocol.recovery.recovery import Recovery


class Parts(NamedTuple):
    """One of each, all on the same context."""

    context: Context
    joiner: Joiner
    rendezvous: Rendezvous
    founding: Founding
    monitor: Monitor
    admission: Admission
    catch_up: CatchUp
    quorum: QuorumWatch
    requests: Requests
    recovery: Recovery
    resignation: Resignation
    greeting: Greeting
