"""Whose the devices of this machine are."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpuprof.analysis.accounting import detect_allocation
from jupyter_gpuprof.records.ledger import Allocation


def allocation_here(environ: Mapping[str, str]) -> Allocation:
    """Whether the devices that are seen are this server's own, by the environment it runs in."""
    return detect_allocation(environ)
