"""What the report of a trial says, the same in text and in HTML."""

from __future__ import annotations

from typing import Literal

from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.trial import Trial, Variant
from jupyter_gpuprof.views.format import (
    byte_size,
    clean,
    known,
    number,
    percent,
    ratio,
    seconds,
    sentence,
    why,
)
from jupyter_gpuprof.views.parts import Part, parts_of
from jupyter_gpuprof.views.rows import Row, share_change

#: An interval that holds 1 and ends this close to it rules a gain out; a wider one tells nothing.
_CLOSE = 0.05

Result = Literal["faster", "slower", "no gain", "cannot tell"]


def result(trial: Trial) -> Result:
    """What the ratio shows, by its interval as it is printed."""
    low, high = known(trial.ratio.low), known(trial.ratio.high)
    if known(trial.ratio) is None or low is None or high is None:
        return "cannot tell"
    low, high = round(low, 2), round(high, 2)
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "no gain" if 1 - low <= _CLOSE and high - 1 <= _CLOSE else "cannot tell"


def change_words(trial: Trial) -> str:
    """What was changed."""
    return clean(", ".join(trial.settings)) or "the change"


def headline(trial: Trial) -> str:
    """``num_workers=4: 2.3x faster (2.1x to 2.5x)``."""
    return f"{change_words(trial)}: {result_words(trial)} {interval_words(trial)}".rstrip()


def result_words(trial: Trial) -> str:
    """``2.3x faster``, ``1.2x slower per sample``, ``no gain, 1.00x``."""
    found, value = result(trial), known(trial.ratio)
    per = " per sample" if trial.unit == "sample" else ""
    if found == "faster":
        return f"{ratio(value)} faster{per}"
    if found == "slower":
        return f"{ratio(_inverse(value))} slower{per}"
    return f"{found}, {ratio(value)}{per}"


def interval_words(trial: Trial) -> str:
    """The interval of what `result_words` says: ``(2.1x to 2.5x)``."""
    low, high = known(trial.ratio.low), known(trial.ratio.high)
    if result(trial) == "slower":
        low, high = _inverse(high), _inverse(low)
    return "" if low is None or high is None else f"({ratio(low)} to {ratio(high)})"


def meaning_words(trial: Trial) -> str:
    """What to think of a ratio that is neither faster nor slower; empty where it is."""
    found = result(trial)
    if found == "no gain":
        return (
            f"The interval holds 1, and a gain above {percent(max(trial.ratio.high - 1, 0.0))} is unlikely."
        )
    if found == "cannot tell":
        return "The interval holds 1: whether the change helps cannot be told. More steps make it narrower."
    return ""


def prediction_words(trial: Trial) -> str:
    """``Predicted 2.6x, measured 2.3x: ...``, or why nothing was predicted."""
    if isinstance(trial.predicted, Missing):
        return f"Not predicted: {why(trial.predicted)}."
    where = "within" if holds_prediction(trial) else "outside of"
    words = (
        f"Predicted {ratio(trial.predicted)}, measured {ratio(trial.ratio)}:"
        f" the prediction lies {where} the measured interval."
    )
    how = sentence(trial.predicted_how).rstrip(".")
    return f"{words} {how}." if how else words


def holds_prediction(trial: Trial) -> bool:
    """Whether the measured interval holds what was predicted."""
    predicted = known(trial.predicted)
    return predicted is not None and trial.ratio.low <= predicted <= trial.ratio.high


def verdict_words(trial: Trial) -> list[str]:
    """Why each of the two is bound as it is."""
    told = (("Before", trial.before), ("After", trial.after))
    return [
        f"{when}: {variant.label}. {sentence(variant.sentence)}".rstrip(". ") + "." for when, variant in told
    ]


def trial_rows(trial: Trial) -> list[Row]:
    """Verdict, times, memory and parts, before and after."""
    before, after = trial.before, trial.after
    gain = result_words(trial)
    rows = [
        Row("verdict", before.label, after.label, "the same" if before.label == after.label else "changed"),
        Row("mean step", seconds(before.step_s), seconds(after.step_s), gain if trial.unit == "step" else ""),
        Row("95 % interval", _interval(before.step_s), _interval(after.step_s), ""),
    ]
    sizes = [known(variant.samples_per_step) for variant in (before, after)]
    if trial.unit == "sample" and all(sizes):
        rows.append(Row("batch size", number(sizes[0]), number(sizes[1]), ""))
        rows.append(Row("per sample", seconds(_per_sample(before)), seconds(_per_sample(after)), gain))
    rows.append(Row("steps counted", number(before.steps), number(after.steps), ""))
    peaks = [variant.peak_allocated_bytes for variant in (before, after)]
    if any(known(peak) is not None for peak in peaks):
        old, new = known(peaks[0]), known(peaks[1])
        change = ratio(new / old) if old and new else ""
        rows.append(Row("peak memory", byte_size(peaks[0]), byte_size(peaks[1]), change))
    old_parts, new_parts = ({part.key: part for part in parts} for parts in variant_parts(trial))
    for key in {**old_parts, **new_parts}:
        parts = [part for part in (old_parts.get(key), new_parts.get(key)) if part is not None]
        if all(part.share.value == part.share.high == 0 for part in parts):
            continue  # seen neither before nor after
        old_share, new_share = (dict(variant.shares.items())[key] for variant in (before, after))
        change = share_change(old_share, new_share)
        rows.append(Row(parts[0].name, percent(old_share), percent(new_share), change, key))
    return rows


def variant_parts(trial: Trial) -> tuple[list[Part], list[Part]]:
    """The parts of the time before and after."""
    # A trial does not keep whose clock measured it; on a CPU it can only be the host's.
    clock = "host" if trial.device.kind == "cpu" else "device"
    before, after = (parts_of(variant.shares, trial.device, clock) for variant in (trial.before, trial.after))
    return before, after


def rounds(trial: Trial) -> list[tuple[str, str]]:
    """Each round in the order they ran: its letter and its mean step."""
    left = {"A": iter(trial.before.rounds_s), "B": iter(trial.after.rounds_s)}
    return [(letter, seconds(next(left[letter], None))) for letter in trial.order if letter in left]


def lines_title(trial: Trial) -> str:
    """What stands above the lines that make the change."""
    return "To keep it, write" if result(trial) == "faster" else "What was changed"


def _interval(estimate: Estimate) -> str:
    return f"{seconds(estimate.low)} to {seconds(estimate.high)}"


def _per_sample(variant: Variant) -> float | None:
    step, size = known(variant.step_s), known(variant.samples_per_step)
    return step / size if step is not None and size else None


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None
