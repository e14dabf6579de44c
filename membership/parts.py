"""The parts of one core that outlive a view, by name.

What it is: what the core makes once and its dispatcher and view installer share.
What it is not: the parts that live as long as one configuration (see stage), nor any rule.
"""

from typing import NamedTuple

from membership.admission import Admission
from membership.catch_up import CatchUp
from membership.context import Context
from membership.founding import Founding
from membership.greeting import Greeting
from membership.joiner import Joiner
from membership.monitor import Monitor
from membership.quorum_watch import QuorumWatch
from membership.recovery import Recovery
from membership.rendezvous import Rendezvous
from membership.requests import Requests
from membership.resignation import Resignation


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
