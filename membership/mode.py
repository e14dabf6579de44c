"""The two ways to agree on the membership of a cluster."""

from enum import StrEnum


class Mode(StrEnum):
    """Who agrees on views. One mode for a whole cluster."""

    DECENTRALISED = "decentralised"
    """All members, among themselves: the default. It works as long as a majority of them can talk."""
    CENTRALISED = "centralised"
    """An ensemble of a few voters, for all others: it works as long as a majority of the ensemble can talk."""
