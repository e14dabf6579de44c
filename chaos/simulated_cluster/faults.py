"""The fault vocabulary on the simulator: what each fault does to simulated hosts, their processes and the network.

The counterpart of `LinkState` and of signals to real agents.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Protocol, cast

from chaos import faults
from chaos.faults import DiskFault, DiskLoss, Fault, Hosts
from chaos.simulated_cluster.message_faults import MessageFaults
from chaos.simulation.host import Host
from chaos.simulation.simulator import Simulator
from membership.errors import EvictionError, RecoveryError
from membership.protocol.context.effects import Effects
from membership.protocol.core import Core
from membership.runtime.change_feed import ClusterStatus
from membership.runtime.process import MemberProcess


class HostControl(Protocol):
    """Who starts and stops the processes of hosts, and keeps the trace."""

    def host(self, name: str, *, add: bool = False) -> Host:
        """The host of this name. Raises BadArgumentError if there is none and it may not be added."""

    def start_host(self, host: Host) -> None: ...
    def crash_host(self, host: Host) -> None: ...
    def stop_host(self, host: Host) -> None: ...
    def copy_disk(self, host: Host) -> None: ...
    def lose_disk(self, host: Host, fault: DiskLoss) -> None: ...
    def hurt_disk(self, host: Host, fault: DiskFault) -> None: ...
    def swap_addresses(self, first: Host, second: Host) -> None: ...
    def note(self, what: str) -> None: ...


class SimulatedFaults:
    """Applies faults."""

    def __init__(self, simulator: Simulator, control: HostControl, rng: random.Random) -> None:
        self._simulator = simulator
        self._control = control
        self.message_faults = MessageFaults(simulator, rng, self._crash_noted)
        self._accusing: dict[str, None] = {}

    def apply(self, fault: Fault) -> None:
        """Do this now."""
        control, host, simulator = self._control, self._control.host, self._simulator
        messages, network = self.message_faults, simulator.network
        match fault:
            case faults.Start(names):
                for name in names:
                    control.start_host(host(name, add=True))
            case faults.Crash(names):
                for name in names:
                    control.crash_host(host(name))
            case faults.Leave(names):
                for name in names:
                    self._leave(host(name))
            case faults.Evict(source, destination):
                self._evict(host(source), destination)
            case faults.Recover(names, forced):
                self._recover(host(names[0]), names, forced)
            case faults.Tag(word, names):
                for name in names:
                    simulator.command(host(name), partial(_tag, word))
            case faults.Pause(names):
                for name in names:
                    simulator.pause(host(name))
            case faults.Resume(names):
                for name in names:
                    simulator.resume(host(name))
            case faults.Partition(groups):
                network.partition([[host(name).index for name in group] for group in groups])
            case faults.Heal():
                network.heal()
            case faults.DropIngress(probability, names):
                for name in names:
                    network.drop_ingress(host(name).index, probability)
            case faults.DropEgress(probability, names):
                for name in names:
                    network.drop_egress(host(name).index, probability)
            case faults.Block(source, destination):
                network.block(host(source).index, host(destination).index)
            case faults.Unblock(source, destination):
                network.unblock(host(source).index, host(destination).index)
            case faults.Loss(probability):
                network.configure(replace(network.settings, loss=probability))
            case faults.Duplication(probability):
                network.configure(replace(network.settings, duplication=probability))
            case faults.Reordering(probability, seconds):
                delay = max(seconds, network.settings.maximum_delay)
                changed = replace(network.settings, tail_probability=probability, tail_delay=delay)
                network.configure(changed)
            case faults.Restart(names):
                for name in names:
                    control.crash_host(host(name))
                    control.start_host(host(name))
            case faults.DropMessages(kind, probability, names):
                messages.drop(kind, probability, map(host, names))
            case faults.CrashOn(kind, names):
                messages.crash_on(kind, map(host, names))
            case faults.Disarm(names):
                messages.disarm(map(host, names))
            case faults.Delay(seconds, names):
                for name in names:
                    network.slow_down(host(name).index, seconds)
            case faults.Accuse(names):
                for name in names:
                    self._accusing[name] = None
                    self._accuse(host(name))
            case faults.SwapAddresses(first, second):
                control.swap_addresses(host(first), host(second, add=True))
            case faults.CopyDisk(names):
                for name in names:
                    control.copy_disk(host(name))
            case faults.RestoreDisk(names) | faults.WipeDisk(names) | faults.LoseFile(names):
                for name in names:
                    control.lose_disk(host(name), fault)
            case faults.JumpClock(seconds, names):
                for name in names:
                    simulator.jump_clock(host(name), seconds)
            case _:  # what befalls disks
                for name in fault.hosts:
                    control.hurt_disk(host(name), fault)

    def on_view(self, host: Host) -> None:
        """A process here has installed a view: if it accuses everybody, it has new subjects."""
        if host.name in self._accusing:
            self._simulator.call_after(0.0, lambda: self._accuse(host))

    def _crash_noted(self, host: Host) -> None:
        self._control.note(f"{host.name} crashes")
        self._control.crash_host(host)

    def _accuse(self, host: Host) -> None:
        if host.process is None:
            return
        for subject in dict.fromkeys(process_on(host).subjects):

            def accuse(process: MemberProcess, now: float, subject: bytes = subject.incarnation) -> Effects:
                return process.edge_checked(subject, healthy=False, certain=True, now=now)

            self._simulator.command(host, accuse)

    def _leave(self, host: Host) -> None:
        def leave(process: MemberProcess, now: float) -> Effects:
            effects = process.leave(now)
            if process.state.status is ClusterStatus.LEFT and not effects.events:
                # It was still joining: there is nothing to wait for.
                self._simulator.call_after(0.0, lambda: self._stop_if(host, process))
            return effects

        self._simulator.command(host, leave)

    def _stop_if(self, host: Host, process: MemberProcess) -> None:
        if host.process is process:
            self._control.stop_host(host)

    def _evict(self, host: Host, name: str) -> None:
        def evict(process: MemberProcess, now: float) -> Effects:
            try:
                return process.evict(name, now)
            except EvictionError as error:
                self._control.note(f"{host.name} refuses: {error}")
                return process.tick(now)

        self._simulator.command(host, evict)

    def _recover(self, host: Host, survivors: Hosts, forced: bool) -> None:
        def recover(process: MemberProcess, now: float) -> Effects:
            try:
                return process.recover(survivors, now, force=forced)
            except RecoveryError as error:
                self._control.note(f"{host.name} refuses: {error}")
                return process.tick(now)

        self._simulator.command(host, recover)


def _tag(word: str, process: MemberProcess, now: float) -> Effects:
    return process.set_metadata({**dict(process.core.me.metadata), "tag": word}, now)


def process_on(host: Host) -> MemberProcess:
    """The member's process that runs here; only where one does."""
    return cast(MemberProcess, host.process)


def core_on(host: Host) -> Core:
    """Its present core."""
    return cast(Core, process_on(host).core)
