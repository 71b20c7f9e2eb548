"""Smaller devices that would hold a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.reading import Missing, Number

#: What devices cost is the person's to say; without it no money is printed.
NO_PRICES = Missing("no price is set for both devices")


@dataclass(frozen=True)
class SmallerDevice:
    """A device, or a slice of one, with less memory than the present one, but enough for the run.

    Args:
        name: what it is called in the catalogue.
        kind: a whole device, or a MIG profile (a slice of one).
        of_this_device: a slice of the device that the run was on.
        memory_bytes: as torch reports it.
        saving_per_hour: what an hour costs less, in the person's own currency.
        priced: the date of the person's prices, "" where they gave none.
    """

    name: str
    kind: Literal["device", "MIG profile"]
    of_this_device: bool
    memory_bytes: int
    saving_per_hour: Number = NO_PRICES
    priced: str = ""
