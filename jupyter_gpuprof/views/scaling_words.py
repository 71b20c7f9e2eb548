"""What a scaling says in words, the same in text and in HTML."""

from __future__ import annotations

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.scaling import Scaling, ScalingPoint, ScalingProgress
from jupyter_gpuprof.views.format import (
    NOT_AVAILABLE,
    byte_size,
    clean,
    counted,
    interval,
    known,
    number,
    percent,
    seconds,
    why,
)

_MODES = {
    "weak": "weak scaling (the batch per {one} is fixed)",
    "strong": "strong scaling (the batch of all {many} together is fixed)",
}


def ranks_noun(scaling: Scaling, count: int = 2) -> str:
    """What the counts count: "devices", "CPU process"."""
    many = clean(scaling.ranks)
    return {"devices": "device", "CPU processes": "CPU process"}.get(many, many) if count == 1 else many


def mode_words(scaling: Scaling) -> str:
    """The mode and what it means."""
    words = _MODES.get(scaling.mode, clean(scaling.mode))
    return words.format(one=ranks_noun(scaling, 1), many=ranks_noun(scaling))


def picture_title(scaling: Scaling) -> str:
    """The title of the picture."""
    return f"Throughput over {ranks_noun(scaling)}, {mode_words(scaling)}"


def banners(scaling: Scaling) -> list[str]:
    """What must be known before the numbers are read."""
    said = []
    if scaling.simulated:
        said.append("SIMULATED devices: no real hardware was measured")
    if scaling.ranks == "CPU processes":
        said.append("CPU processes, not devices: they share the cores of one machine")
    return said


def setting_words(scaling: Scaling) -> str:
    """How it was measured."""
    most = max((len(point.repeats) for point in scaling.points), default=0)
    return (
        f"{counted(scaling.steps, 'step')} of each {ranks_noun(scaling, 1)} in each of up to "
        f"{counted(most, 'repeat')}, on {clean(scaling.device_name) or 'unnamed device'}, "
        f"backend {clean(scaling.backend)}"
    )


def unfinished_words(scaling: Scaling, progress: ScalingProgress | None) -> str:
    """Where the measurement stands, nothing once it is finished."""
    if progress is not None:
        words = f"{percent(min(progress.done, 1.0), 0)} done: {clean(progress.what)}"
        if progress.running is not None and known(progress.running[1]) is not None:
            words += f", {rate(progress.running[1])} samples/s so far"
        if 0 < progress.done < 1:
            words += f"; about {seconds(progress.elapsed_s * (1 - progress.done) / progress.done)} left"
        return words
    return "" if scaling.finished else "not finished: what was measured until it was stopped"


def heads(scaling: Scaling) -> tuple[str, ...]:
    """The heads of the table of points (short, so that a terminal of 100 columns holds all)."""
    return (
        ranks_noun(scaling),
        "samples/s",
        "95 % interval",
        "efficiency",
        "exp. comm.",
        "exp. input",
        "memory",
        "start-up",
        "repeats",
    )


def point_cells(point: ScalingPoint) -> tuple[str, ...]:
    """The cells of one count; the last one says what became of it."""
    efficiency = known(point.efficiency)
    return (
        f"{point.count:,}",
        rate(point.throughput),
        _between(point.low, point.high),
        NOT_AVAILABLE if efficiency is None else f"{efficiency:.2f}",
        _share(point.exposed_communication),
        _share(point.exposed_input),
        byte_size(known(point.peak_memory_bytes)),
        seconds(known(point.startup_s)),
        outcome_words(point),
    )


def outcome_words(point: ScalingPoint) -> str:
    """How many repeats there were, or what happened instead; the doubts of the verdict say why."""
    if point.outcome == "measured":
        return str(len(point.repeats)) if point.repeats else "to come"
    told = clean(point.outcome)
    return f"{len(point.repeats)}, then {told}" if point.repeats else told


def label_words(scaling: Scaling) -> str:
    """The label of the verdict."""
    label = clean(scaling.verdict.label)
    return label if scaling.finished else f"{label} so far"


def worth_words(scaling: Scaling) -> str:
    """The count that is worth it and by which rule."""
    worth = scaling.worth_it_count
    rule = f"the largest count where {clean(scaling.rule)}" if scaling.rule else "no rule"
    if isinstance(worth, Missing):
        return f"unknown ({why(worth)}); {rule}"
    return f"{number(worth)} {ranks_noun(scaling, int(worth))}: {rule}"


def fit_words(scaling: Scaling) -> list[tuple[str, str]]:
    """The laws behind the curve by name."""
    fit = scaling.fit
    if isinstance(fit.amdahl, Missing):
        amdahl = f"none: {why(fit.amdahl)}"
    else:
        serial = fit.amdahl.serial
        amdahl = f"{percent(serial)} {interval(serial)} of the work is serial"
    if isinstance(fit.usl, Missing):
        usl = f"none: {why(fit.usl)}"
    else:
        peak = fit.usl.peak_count
        usl = (
            f"contention {fit.usl.contention:.3g}, coherency {fit.usl.coherency:.3g}: "
            f"highest at about {peak.value:.3g} [{peak.low:.3g}, {peak.high:.3g}] {ranks_noun(scaling)}"
        )
    return [("Amdahl's law", amdahl), ("Gunther's law", usl)]


def cost_rows(scaling: Scaling) -> list[tuple[str, ...]]:
    """Heads and rows of what each count costs for the same work, with money where prices are known."""
    rows = scaling.costs
    if not rows:
        return []
    first = rows[0].count
    priced = any(known(row.money_per_million_samples) is not None for row in rows)
    head = (ranks_noun(scaling), f"time ({first} is 1)", f"cost ({first} is 1)", "price of a million samples")
    cells = [
        (
            f"{row.count:,}",
            f"{row.time_ratio:.2f}",
            f"{row.cost_ratio:.2f}",
            rate(row.money_per_million_samples),
        )
        for row in rows
    ]
    return [line if priced else line[:3] for line in (head, *cells)]


def rate(value: Number | None) -> str:
    """A throughput or a price with about three figures: ``17,822``, ``91.8``, ``0.53``."""
    plain = known(value)
    if plain is None:
        return NOT_AVAILABLE
    size = abs(plain)
    if size >= 1e12 or 0 < size < 0.01:
        return f"{plain:.3g}"
    return f"{plain:,.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


def _between(low: Number, high: Number) -> str:
    if known(low) is None or known(high) is None:
        return ""
    return f"[{rate(low)}, {rate(high)}]" if low != high else ""


def _share(share: object) -> str:
    return NOT_AVAILABLE if isinstance(share, Missing) else percent(share)  # type: ignore[arg-type]
