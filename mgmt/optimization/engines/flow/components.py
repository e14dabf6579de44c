"""Strongly connected components of a directed graph, in whole columns.

A flow can change on an arc only around a cycle of what is left of the network, so what lies between two components is
the same in all flows.

Components are peeled off by colours (Orzan): every node takes the greatest number that reaches it, and what reaches
back to the node of that number is one component.  Each sweep is over all arcs at once; the graphs here are shallow.
"""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import Amounts

_MOST_SWEEPS = 400


def components_of(tails: Amounts, heads: Amounts, nodes: int) -> Amounts:
    """(nodes,) a number for each component; where that takes too long, one for several of them."""
    component = np.arange(nodes)
    sweeps = 0
    while len(tails):
        colour = np.arange(nodes)
        while True:
            before = colour.copy()
            np.maximum.at(colour, heads, before[tails])
            sweeps += 1
            if np.array_equal(before, colour):
                break
            if sweeps > _MOST_SWEEPS:
                component[tails] = component[heads] = nodes
                return component
        same = colour[tails] == colour[heads]
        tails, heads = tails[same], heads[same]
        back = np.zeros(nodes, np.bool_)
        back[tails] = back[heads] = True
        back &= colour == np.arange(nodes)
        while True:
            more = back.copy()
            more[tails[back[heads]]] = True
            sweeps += 1
            if np.array_equal(back, more):
                break
            back = more
        component[back] = colour[back]
        open_arcs = ~back[tails] & ~back[heads]
        tails, heads = _trimmed(tails[open_arcs], heads[open_arcs], nodes)
    return component


def _trimmed(tails: Amounts, heads: Amounts, nodes: int) -> tuple[Amounts, Amounts]:
    """The arcs without those of nodes that nothing reaches, or that reach nothing: each is a component by itself."""
    while True:
        kept = np.zeros(nodes, np.bool_)
        kept[heads] = True
        ends = np.zeros(nodes, np.bool_)
        ends[tails] = True
        kept &= ends
        inside = kept[tails] & kept[heads]
        if bool(inside.all()):
            return tails, heads
        tails, heads = tails[inside], heads[inside]
