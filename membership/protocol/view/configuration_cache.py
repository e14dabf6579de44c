"""A cache of configurations, and of the differences between them, shared by the cores of one process.

A configuration is by far the largest thing a member holds; this way a thousand members in one process hold each view
once. It is only a cache: cores with different caches behave alike.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec

from membership.protocol.view.configuration import RECORD_DECODER, Configuration, ConfigurationError
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.protocol.view.rings import Rings
from membership.protocol.view.view_difference import ViewChanged, by_comparison, by_cut


class ConfigurationCache:
    """Shares configurations between the cores of one process, by (previous id, cut hash) and by id.

    And what changed from one to the next, for whoever installs it: comparing two views of thousands costs each
    member more than the rest of an installation.
    """

    def __init__(self, capacity: int = 16) -> None:
        self._capacity = capacity
        self._by_step: OrderedDict[tuple[bytes, bytes], Configuration] = OrderedDict()
        self._by_id: OrderedDict[bytes, Configuration] = OrderedDict()
        self._changes: OrderedDict[tuple[bytes, bytes, bytes], ViewChanged] = OrderedDict()

    def found(self, founder: Member, cluster_id: bytes, rings: int) -> Configuration:
        """As `Configuration.found`."""
        return self._keep((cluster_id, founder.incarnation), Configuration.found(founder, cluster_id, rings))

    def restart(
        self, remembered: Configuration, founder: Member, rings: int, recovery: bytes = b""
    ) -> Configuration:
        """As `Configuration.restart`."""
        view = remembered.restart(founder, rings, recovery)
        return self._keep((remembered.id, founder.incarnation), view)

    def apply(self, configuration: Configuration, cut: Cut) -> Configuration:
        """As `Configuration.apply`, computed once for all cores."""
        step = (configuration.id, cut.hash)
        found = self._by_step.get(step)
        return self._keep(step, configuration.apply(cut)) if found is None else found

    def recover(
        self, configuration: Configuration, survivors: Iterable[bytes], recovery: bytes
    ) -> Configuration:
        """As `Configuration.recover`."""
        return self._keep((configuration.id, recovery), configuration.recover(survivors, recovery))

    def change(
        self, previous: Configuration | None, configuration: Configuration, cut: Cut | None
    ) -> ViewChanged:
        """What changes for a member that goes from `previous` to `configuration`, by this one cut if it knows it."""
        step = (
            b"" if previous is None else previous.id,
            configuration.id,
            b"" if cut is None else cut.hash,
        )
        found = self._changes.get(step)
        if found is None:
            if cut is None or previous is None:
                found = by_comparison(previous, configuration)
            else:
                found = by_cut(previous, configuration, cut)
            self._changes[step] = found
            self._trim()
        return found

    def decode(self, body: bytes, identifier: bytes, rings: int) -> Configuration:
        """The configuration in these bytes. Raises ConfigurationError if they do not hold this one."""
        found = self._by_id.get(identifier)
        if found is not None:
            return found
        try:
            record = RECORD_DECODER.decode(body)
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigurationError(f"not a configuration: {error}") from error
        if record.id != identifier or not record.members or len(record.members) != len(record.joined_epochs):
            raise ConfigurationError("the configuration contradicts its header")
        joined = {
            member.incarnation: epoch
            for member, epoch in zip(record.members, record.joined_epochs, strict=True)
        }
        names = {member.name for member in record.members}
        addresses = {member.address for member in record.members}
        if not len(joined) == len(names) == len(addresses) == len(record.members):
            raise ConfigurationError("the configuration lists a member twice")
        configuration = Configuration(
            record.epoch,
            record.id,
            record.cluster_id,
            Rings.build(record.members, rings),
            joined,
            record.lineage,
        )
        if configuration.members != record.members:
            raise ConfigurationError("members out of canonical order: do all settings agree on the rings?")
        self._by_id[identifier] = configuration
        self._trim()
        return configuration

    def _keep(self, step: tuple[bytes, bytes], configuration: Configuration) -> Configuration:
        configuration = self._by_id.setdefault(configuration.id, configuration)
        self._by_step[step] = configuration
        self._trim()
        return configuration

    def _trim(self) -> None:
        memos: tuple[OrderedDict[Any, Any], ...] = (self._by_step, self._by_id, self._changes)
        for memo in memos:
            while len(memo) > self._capacity:
                memo.popitem(last=False)
