"""The catalogue of devices: which smaller ones would hold a run, and what that saves."""

from __future__ import annotations

import functools
import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.catalogue import NO_PRICES, SmallerDevice
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Device

PRICES = "JUPYTER_GPUPROF_PRICES"
PRICES_FILE = "JUPYTER_GPUPROF_PRICES_FILE"
#: Below this share of the present device's memory another one is smaller (drivers differ by 2 %).
SMALLER = 0.9

_EXAMPLE = 'Write them as "A100-80GB=1.80, L4=0.60, date=2026-01-31", per hour and in one currency.'


@dataclass(frozen=True)
class CatalogueDevice:
    """One line of devices.json.

    Args:
        name: a short name ("A100-80GB", "A100-80GB MIG 1g.10gb").
        kind: a whole device, or a slice of one.
        parent: the name of the device that a slice is of.
        architecture: the vendor's name for the generation.
        memory_bytes: as torch reports it, within about 2 %.
        multiprocessors: SMs, or CUs of AMD devices.
        patterns: regular expressions for the whole name as torch and NVML print it.
        price_per_hour: as the file has it; it is shipped without.
        price_date: of that price.
    """

    name: str
    kind: Literal["device", "MIG profile"]
    parent: str | None
    architecture: str
    memory_bytes: int
    multiprocessors: Number
    patterns: tuple[str, ...]
    price_per_hour: float | None = None
    price_date: str | None = None


@dataclass(frozen=True)
class Prices:
    """What an hour costs, by name in the catalogue, and the date of these prices ("" where none is given)."""

    per_hour: dict[str, float] = field(default_factory=dict)
    date: str = ""


@functools.cache
def catalogue() -> tuple[CatalogueDevice, ...]:
    """Every device and MIG profile of devices.json, each profile behind its device."""
    found: dict[str, CatalogueDevice] = {}
    for line in json.loads(Path(__file__).with_name("devices.json").read_text(encoding="utf-8"))["devices"]:
        name, parent = line["name"], line.get("parent")
        profile = name.removeprefix(f"{parent} ")  # "MIG 1g.10gb"
        whole = found[parent].patterns if parent else ()
        found[name] = CatalogueDevice(
            name=name,
            kind=line["kind"],
            parent=parent,
            architecture=line["architecture"],
            memory_bytes=round(line["memory_gib"] * 2**30),
            multiprocessors=line.get("multiprocessors", Missing("not known")),
            patterns=tuple(line.get("patterns") or (f"{p} {re.escape(profile)}" for p in whole)),
            price_per_hour=line["price_per_hour"],
            price_date=line["price_date"],
        )
    return tuple(found.values())


def find(name: str) -> CatalogueDevice | None:
    """The device of this name, as the catalogue, torch or NVML print it; None if it is not known."""
    for device in catalogue():
        if name.strip().casefold() == device.name.casefold():
            return device
    for device in catalogue():
        if any(re.fullmatch(pattern, name.strip(), re.IGNORECASE) for pattern in device.patterns):
            return device
    return None


def prices(given: str = "") -> Prices:
    """The person's prices: those given, then those of the environment, of their file and of devices.json.

    Args:
        given: ``"H100=2.50,A100-80GB=1.80"``, as a door's option has them.

    Raises:
        OptionError: the file cannot be read, a device is not known, or a price is not a number above 0.
    """
    own = [device for device in catalogue() if device.price_per_hour is not None]
    per_hour = {device.name: float(device.price_per_hour or 0) for device in own}
    date = max((device.price_date or "" for device in own), default="")
    sources = (
        (PRICES_FILE, _file_lines()),
        (PRICES, os.environ.get(PRICES, "").split(",")),
        ("prices", given.split(",")),
    )
    for source, lines in sources:
        for line in lines:
            if not line.split("#")[0].strip():
                continue
            key, _, value = (part.strip() for part in line.split("#")[0].partition("="))
            if key.casefold() == "date":
                date = value
                continue
            per_hour |= dict.fromkeys(_named(key, source), _price(key, value, source))
    return Prices(per_hour, date)


def _file_lines() -> list[str]:
    """The lines of the person's file; its JSON is turned into such lines."""
    path = os.environ.get(PRICES_FILE)
    if not path:
        return []
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        if not text.lstrip().startswith("{"):
            return text.splitlines()
        data = json.loads(text)
        dated = [f"date={data['date']}"] if "date" in data else []
        return dated + [f"{name}={price}" for name, price in data["prices"].items()]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise OptionError(
            f"The prices of {PRICES_FILE} cannot be read ({type(error).__name__}).",
            'It takes lines like A100-80GB=1.80, or {"date": "2026-01-31", "prices": {"A100-80GB": 1.8}}.',
        ) from error


def _named(key: str, source: str) -> list[str]:
    """The catalogue's names that a price is for: "A100" is for all of them, but not for their slices."""
    device = find(key)
    if device is not None:
        return [device.name]
    family = [
        device.name
        for device in catalogue()
        if device.kind == "device" and key and device.name.casefold().startswith(f"{key.casefold()}-")
    ]
    if not family:
        known = ", ".join(device.name for device in catalogue() if device.kind == "device")
        raise OptionError(f"{source} has a price for {key!r}, which is no device here.", f"Known: {known}.")
    return family


def _price(key: str, value: str, source: str) -> float:
    try:
        price = float(value)
    except ValueError:
        price = math.nan
    if not (math.isfinite(price) and price > 0):
        raise OptionError(f"{source} has no price for {key}: {value!r} is not a number above 0.", _EXAMPLE)
    return price


def smaller_devices(
    peak_bytes: float, device: Device, priced: Prices | None = None, *, headroom: float = 0.2
) -> tuple[SmallerDevice, ...]:
    """What has less memory than `device` and holds the peak: its own slices, then all others, smallest first.

    Args:
        peak_bytes: the most that the run's allocator held.
        device: what it ran on.
        priced: the person's prices; without both devices' prices there is no saving.
        headroom: how much more than the peak must fit, as a share of it.
    """
    if isinstance(device.memory_bytes, Missing):
        return ()
    present, priced = find(device.name), priced or Prices()
    whole = None if present is None else present.parent or present.name
    found = [
        SmallerDevice(
            name=other.name,
            kind=other.kind,
            of_this_device=whole is not None and other.parent == whole,
            memory_bytes=other.memory_bytes,
            saving_per_hour=_saving(present, other, priced),
            priced=priced.date,
        )
        for other in catalogue()
        if peak_bytes * (1 + headroom) <= other.memory_bytes < SMALLER * device.memory_bytes
    ]
    return tuple(sorted(found, key=lambda other: (not other.of_this_device, other.memory_bytes)))


def _saving(present: CatalogueDevice | None, other: CatalogueDevice, priced: Prices) -> Number:
    if present is None or present.name not in priced.per_hour or other.name not in priced.per_hour:
        return NO_PRICES
    return priced.per_hour[present.name] - priced.per_hour[other.name]
