"""How ranks are laid out on the nodes of a cluster."""

from __future__ import annotations


def spread(count: int, per_node: int) -> tuple[int, int]:
    """As few nodes as will do, and the most ranks that one of them gets when they are spread evenly."""
    nodes = -(-count // per_node)
    return nodes, -(-count // nodes)
