"""nftables rules for the faults of links: a pure translation.

The text that makes the switch of `namespaces` drop what a `LinkState` says, replacing all earlier rules in one
transaction. The switch's ports are named as the hosts. A packet filter drops or lets pass; it neither delays nor
reorders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chaos.processes.link_state import LinkState

TABLE = "rota"
_PARTS = 1_000_000


def rules(state: LinkState, hosts: Sequence[str]) -> str:
    """A script for `nft -f`. Only IP packets are dropped: hosts keep finding each other's hardware addresses."""
    lines = "\n".join(f"        {line}" for line in _lines(state, hosts))
    return (
        f"table bridge {TABLE}\n"
        f"delete table bridge {TABLE}\n"
        f"table bridge {TABLE} {{\n"
        "    chain forward {\n"
        "        type filter hook forward priority 0; policy accept;\n"
        "        meta protocol != ip accept\n"
        f"{lines}\n"
        "    }\n"
        "}\n"
    )


def _lines(state: LinkState, hosts: Sequence[str]) -> Iterator[str]:
    sides = state.groups(hosts)
    if len(sides) > 1:
        for side in sides:
            yield f"iifname {_set(side)} oifname != {_set(side)} drop"
    links = [f'"{source}" . "{destination}"' for source, destination in state.blocked_links()]
    if links:
        yield f"iifname . oifname {{ {', '.join(links)} }} drop"
    for host in hosts:
        yield from _loses(f'iifname "{host}" ', state.egress(host))
        yield from _loses(f'oifname "{host}" ', state.ingress(host))
    yield from _loses("", state.loss)


def _loses(match: str, share: float) -> Iterator[str]:
    if share >= 1:
        yield f"{match}drop"
    elif share > 0:
        yield f"{match}numgen random mod {_PARTS} < {max(1, round(share * _PARTS))} drop"


def _set(hosts: Iterable[str]) -> str:
    return "{ " + ", ".join(f'"{host}"' for host in hosts) + " }"
