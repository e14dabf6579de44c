import random

import pytest

from chaos.message_faults import MessageFaults
from membership.configuration import RESTART_STRIDE
from membership.effects import Evicted, JoinWaiting
from tests.membership.test_power_cut import cut_power, running, start


@pytest.mark.parametrize("seed", range(40))
def test_one_joiner(cluster, seed):
    world = running(cluster, 5, seed)
    cut_power(world)
    faults = MessageFaults(world.simulator, random.Random(seed), world.simulator.crash)
    # all but the highest-numbered one miss the configuration
    sim = world.simulator
    start(world, range(5))
    have = lambda: [n for n, h in enumerate(world.hosts) if h.process is not None and h.process.configuration is not None and len(h.process.configuration) > 1]
    assert world.run(40.0, lambda: len(have()) >= 2)
    minority = have()
    others = [n for n in range(5) if n not in minority]
    cut_power(world, others)
    sim.network.partition([minority, others])
    top = max(world.hosts[n].process.configuration.epoch for n in minority)
    print("minority", minority, top, {n:world.hosts[n].process.is_provisional for n in minority}, {k: v.epoch for k,v in world.disks.items()})
    for e in range(RESTART_STRIDE, top+1):
        world.histories.pop(((), e), None)
    start(world, others)
    world.run(40.0)
    print([ (n, h.process.configuration and (h.process.configuration.epoch, len(h.process.configuration))) for n,h in enumerate(world.hosts)])
    sim.network.heal()
    ok = world.run(90.0, lambda: world.together(5))
    print('END', ok, [ (n, h.process and h.process.configuration and (h.process.configuration.epoch, len(h.process.configuration))) for n,h in enumerate(world.hosts)], world.seen(JoinWaiting)[-1:], world.seen(Evicted)[-5:])
    assert ok
    print("epoch", world.epoch)
