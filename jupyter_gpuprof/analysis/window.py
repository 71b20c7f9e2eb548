"""A few steps seen op by op, and all the others timed by events: one table of both.

The events tell, for every step, how long the device had to wait for its batch and for work between
steps; what it did inside the step they cannot tell. The window tells that, for a few steps, and its
proportions are applied to all of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jupyter_gpuprof.analysis.stability import block_length, resample
from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.records.timing import Part, StepTable

#: What a step consists of where the events see one block.
INSIDE = (Part.COMPUTE, Part.COMMUNICATION, Part.COPIES, Part.HOST_GAP)
#: What both see: the rest of a step, without validation and the like.
_BOTH = (*INSIDE, Part.INPUT, Part.OTHER)


#: An interval of the window's input wait wider than this is no check.
TOO_WIDE = 0.25


def apply_window(table: StepTable, window: StepTable) -> StepTable:
    """The table with the inside of each step divided as in the window.

    In a window the idle time of the device for host work *after* the optimizer step is part of its host
    gap; the events name it apart, so that share is taken off first.

    Args:
        table: by events, shape (rows, parts).
        window: by gpu ops, shape (steps, parts).
    """
    inside = window.seconds[:, INSIDE].sum(axis=0)
    whole = table.seconds[:, _BOTH].sum()
    if whole > 0:
        other = table.part_s(Part.OTHER) / whole * window.seconds[:, _BOTH].sum()
        inside[INSIDE.index(Part.HOST_GAP)] = max(0.0, inside[INSIDE.index(Part.HOST_GAP)] - other)
    if inside.sum() <= 0:
        return table
    seconds = table.seconds.copy()
    seconds[:, INSIDE] = seconds[:, INSIDE].sum(axis=1, keepdims=True) * (inside / inside.sum())
    missing = {part: why for part, why in table.missing.items() if part not in INSIDE}
    missing |= {part: why for part, why in window.missing.items() if part in INSIDE}
    if Part.COMMUNICATION in table.missing and not window.seconds[:, Part.COMMUNICATION].any():
        missing[Part.COMMUNICATION] = table.missing[Part.COMMUNICATION]  # one process has none to measure
    if Part.COPIES in missing:
        seconds[:, Part.COPIES] = 0.0
    return replace(table, seconds=seconds, missing=missing)


def agreement(table: StepTable, window: StepTable, workers: int = 0) -> tuple[bool, str]:
    """Whether the input wait by events and in the window agree within their intervals, and a sentence."""
    if Part.INPUT in table.missing or Part.INPUT in window.missing:
        return True, ""
    by_events = _input(table, block_length(workers))
    in_window = _input(window, 1)
    if in_window.high - in_window.low > TOO_WIDE:
        return True, "The window has too few steps to check the input wait against that of the events."
    agree = by_events.low <= in_window.high and in_window.low <= by_events.high
    words = (
        f"input wait {_words(by_events)} of the step by events and {_words(in_window)} in the window of ops"
    )
    return agree, f"The two ways to measure agree: {words}." if agree else (
        f"The two ways to measure disagree: {words}; trust neither before a longer run."
    )


def _input(table: StepTable, block: int) -> Estimate:
    seconds = table.seconds if len(table.seconds) else np.zeros((1, len(Part)))
    return resample(seconds, block).share((Part.INPUT,), _BOTH)


def _words(share: Estimate) -> str:
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f} to {100 * share.high:.1f} %)"
