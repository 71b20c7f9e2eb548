"""Smaller devices and free levers in words: what is on, off, untold, and never a price that nobody gave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jupyter_gpuprof.analysis.conclude import conclude
from jupyter_gpuprof.planning.catalogue import Prices, smaller_devices
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.levers import KNOWN, Lever
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device, Loader, Memory, Remedy
from jupyter_gpuprof.records.timing import Part, StepTable

GIB = 2**30
H100 = Device("cuda", "NVIDIA H100 80GB HBM3", 1, 85_029_158_912, False)


def facts(peak_gib: float, **changes: object) -> Facts:
    loader = Loader("L", "training", 100, 0.1, 0.1, 8, 2, 2, True, True)
    made = Facts(H100, Memory(int(peak_gib * GIB), int(peak_gib * GIB)), (loader,), live=True)
    return replace(made, **changes)  # type: ignore[arg-type]


def remedies(known: Facts) -> dict[str, Remedy]:
    row = np.zeros((300, len(Part)))
    row[:, Part.COMPUTE], row[:, Part.INPUT] = 0.050, 0.0005
    table = StepTable(row, 1, {Part.COMMUNICATION: "one process", Part.COPIES: "none", Part.HOST_GAP: "none"})
    return {remedy.id: remedy for remedy in conclude(table, known).remedies}


def words(found: dict[str, Remedy]) -> str:
    return " ".join(f"{remedy.title} {remedy.how}" for remedy in found.values())


def levers(**states: str) -> tuple[Lever, ...]:
    """All levers in these states, the others not applicable."""
    return tuple(
        replace(lever, state=states.get(lever.id, "not applicable"), detail=f"saw {lever.id}")
        for lever in KNOWN
    )


def test_oversized_names_slices_and_small_devices_but_no_money() -> None:
    found = remedies(facts(6, smaller=smaller_devices(6 * GIB, H100)))
    assert set(found) == {"oversized.batch", "oversized.device"}
    assert "about 12 times" in found["oversized.batch"].title  # 0.9 x 79.19 / 6
    assert "%gpuprof batch" in found["oversized.batch"].title
    device = found["oversized.device"].title
    assert "MIG 1g.10gb" in device
    assert "L4 (22 GiB)" in device
    assert "A10 (22 GiB)" in device
    assert "7.2 GiB" in device
    assert "price" not in words(found)
    assert "per hour" not in words(found)
    assert all(isinstance(remedy.predicted_step_s, Missing) for remedy in found.values())


def test_the_best_saving_at_the_persons_prices() -> None:
    prices = Prices({"H100-SXM": 2.5, "L4": 0.6, "A40": 1.0, "H200": 4.0}, "2026-01-31")
    found = remedies(facts(6, smaller=smaller_devices(6 * GIB, H100, prices)))
    how = found["oversized.device"].how
    assert "L4 costs 1.90 less per hour at your prices of 2026-01-31" in how
    assert "$" not in how


def test_a_smaller_device_that_costs_more_saves_nothing() -> None:
    prices = Prices({"H100-SXM": 1.0, "L4": 1.5})
    found = remedies(facts(6, smaller=smaller_devices(6 * GIB, H100, prices)))
    assert "per hour" not in words(found)


def test_oversized_without_a_catalogue_still_says_what_would_do() -> None:
    assert remedies(facts(6))["oversized.device"].title == (
        "A smaller device; the peak with a fifth of headroom is 7.2 GiB"
    )


def test_free_levers_carry_their_condition_and_their_setting() -> None:
    found = remedies(facts(60, levers=levers(autocast="off", compile="off", tf32="on")))
    assert list(found) == ["size.autocast", "size.compile"]
    assert found["size.autocast"].setting == "autocast=bfloat16"
    assert "helps when" in found["size.autocast"].title
    assert "off: saw autocast" in found["size.autocast"].how
    assert "on already: TF32 (saw tf32)" in found["size.autocast"].how
    assert "on already" not in found["size.compile"].how


def test_what_could_not_be_told_says_so() -> None:
    found = remedies(facts(60, levers=levers(sdpa="unknown")))
    assert list(found) == ["size.sdpa"]
    assert "could not be told: saw sdpa" in found["size.sdpa"].how


@pytest.mark.parametrize("lever", [lever.id for lever in KNOWN])
def test_levers_that_cannot_help_are_never_proposed(lever: str) -> None:
    assert remedies(facts(60, levers=levers())) == {}
    found = remedies(facts(60, levers=levers(**{lever: "off"})))
    assert list(found) == [f"size.{lever}"]


def test_when_all_is_on_it_says_so() -> None:
    found = remedies(facts(60, levers=levers(autocast="on", compile="on")))
    assert list(found) == ["size.levers"]
    assert "torch.compile" in found["size.levers"].how


def test_a_stored_trace_has_one_remedy_for_what_nobody_looked_at() -> None:
    found = remedies(facts(60))
    assert list(found) == ["size.levers"]
    assert "not looked at" in found["size.levers"].how
