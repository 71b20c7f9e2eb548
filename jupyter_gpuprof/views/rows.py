"""The rows of the tables that hold several runs, the same in text and in HTML."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.records.reading import Estimate, Share
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.views.format import clean, known, moment, percent, points, ratio, seconds
from jupyter_gpuprof.views.parts import part_name

#: The heads of the history, in the order of `history_cells`.
HISTORY_HEADS = ("run", "when", "name", "label", "mean step", "input wait")


@dataclass(frozen=True)
class Row:
    """One line of a comparison; `key` is the part's key where it is a part."""

    name: str
    before: str
    after: str
    change: str
    key: str = ""


def comparison_rows(before: Run, after: Run) -> list[Row]:
    """Label and mean step, then each part that at least one of the runs knows."""
    rows = [
        Row("label", label_words(before), label_words(after), ""),
        Row(
            "mean step",
            seconds(before.steps.mean_s),
            seconds(after.steps.mean_s),
            step_change(before, after),
        ),
    ]
    for (key, old), (_, new) in zip(before.shares.items(), after.shares.items(), strict=True):
        if known(old) is None and known(new) is None:
            continue
        names = dict.fromkeys((part_name(key, before), part_name(key, after)))
        rows.append(Row(" / ".join(names), percent(old), percent(new), share_change(old, new), key))
    return rows


def label_words(run: Run) -> str:
    """The label with its strength."""
    verdict = run.verdict
    return verdict.label if verdict.strength == "none" else f"{verdict.label} ({verdict.strength})"


def step_change(before: Run, after: Run) -> str:
    """How the mean step changed: ``2.5x faster``."""
    old, new = known(before.steps.mean_s), known(after.steps.mean_s)
    if not old or not new:
        return "n/a"
    if abs(old / new - 1) < 0.005:
        return "the same"
    return f"{ratio(old / new)} faster" if old > new else f"{ratio(new / old)} slower"


def share_change(before: Share, after: Share) -> str:
    """How a share changed in points, and whether the two intervals overlap, so that it may be chance."""
    old, new = known(before), known(after)
    if old is None or new is None:
        return "n/a"
    change = points(new - old)
    return f"{change}, intervals overlap" if old != new and _overlap(before, after) else change


def comparison_doubts(before: Run, after: Run) -> list[str]:
    """Why the two runs may not be comparable."""
    doubts = []
    simulated = [clean(run.name) for run in (before, after) if run.device.simulated]
    if simulated:
        doubts.append(f"SIMULATED device, not real hardware: {', '.join(dict.fromkeys(simulated))}.")
    if (before.device.name, before.device.count) != (after.device.name, after.device.count):
        doubts.append(f"The devices differ: {_devices(before)} and {_devices(after)}.")
    if before.clock != after.clock:
        doubts.append(f"The clocks differ: {before.clock} and {after.clock}.")
    return doubts


def history_cells(run: Run) -> tuple[str, str, str, str, str, str]:
    """One run in a list of runs, under `HISTORY_HEADS`."""
    label = f"{run.verdict.label}, SIMULATED" if run.device.simulated else run.verdict.label
    return (
        clean(run.run_id),
        moment(run.started_at),
        clean(run.name),
        label,
        seconds(run.steps.mean_s),
        percent(run.shares.exposed_input),
    )


def _devices(run: Run) -> str:
    return f"{run.device.count} x {clean(run.device.name)}"


def _overlap(one: Share, other: Share) -> bool:
    if not isinstance(one, Estimate) or not isinstance(other, Estimate):
        return False
    return one.low <= other.high and other.low <= one.high
