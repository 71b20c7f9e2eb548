"""``%gpuprof spot``: is this job safe on interruptible capacity, from what was measured and what is given."""

from __future__ import annotations

import math
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.planning import interruptions
from jupyter_gpuprof.planning.catalogue import find, prices
from jupyter_gpuprof.planning.checkpointinterval import fits_notice
from jupyter_gpuprof.planning.savesseen import interval_seen
from jupyter_gpuprof.planning.spot import decide_spot
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.spot import (
    NOT_GIVEN,
    Audit,
    CheckpointCost,
    Interruptions,
    Range,
    SaveTimes,
    SpotDecision,
    SpotFigures,
)
from jupyter_gpuprof.session.devices.keep import parse_span
from jupyter_gpuprof.store.runs import new_run_id
from jupyter_gpuprof.store.trials import recent_curves, save_curve

#: Of a notice, until the loop has seen it: clouds are asked every five seconds, and a step is ended first.
MARGIN_S = 5.0


def measured_cost(run: Run | None) -> CheckpointCost | None:
    """What a checkpoint was measured to cost, the last time; None if it never was.

    Args:
        run: of the job; without a measurement of it, one of another run of the same name is taken.
    """
    costs = recent_curves(CheckpointCost)
    if run is None:
        return costs[0] if costs else None
    alike = [cost for cost in costs if cost.run_name == run.name]
    return next((cost for cost in costs if cost.run_id == run.run_id), alike[0] if alike else None)


def spot_decision(
    args: Any, *, run: Run | None = None, cost: CheckpointCost | None = None, audit: Audit = "never ran"
) -> SpotDecision:
    """The decision, kept in the ledger.

    Args:
        args: the parsed `SPOT_OPTIONS`; what is given there goes before what was measured.
        run: of the job, which tells its step and how often it saves today.
        cost: what a checkpoint of it was measured to cost.
        audit: what a resume audit of it came to.

    Raises:
        OptionError: a figure makes no sense.
        UsageError: a figure is missing.
    """
    started_at = clock.utc_now()
    figures = spot_figures(args, run=run, cost=cost, audit=audit)
    notes: tuple[str, ...] = ()
    if run is not None and isinstance(figures.today_s, Range) and args.interval is None:
        notes = ("The interval of today follows from the share of the run's time that saving took.",)
    decision = decide_spot(
        figures,
        decision_id=new_run_id(started_at),
        run_id=run.run_id if run is not None else "",
        run_name=run.name if run is not None else "job",
        started_at=started_at,
        notes=notes,
    )
    save_curve(decision)
    return decision


def spot_figures(
    args: Any, *, run: Run | None = None, cost: CheckpointCost | None = None, audit: Audit = "never ran"
) -> SpotFigures:
    """What the decision rests on; see `spot_decision`."""
    plain = cost.ways[0] if cost is not None and cost.ways else None
    background = next((way for way in cost.ways if way.how == "asynchronous"), None) if cost else None
    blocking = _span(args.checkpoint)
    if isinstance(blocking, Missing):
        if plain is None:
            raise UsageError(
                "What a checkpoint costs is not known.",
                "Measure it with %gpuprof checkpoint, or give it: --checkpoint 30s.",
            )
        blocking = plain.durable_s  # a checkpoint that is not safe yet is none
    stall, durable = _span(args.stall), _span(args.durable)
    if isinstance(stall, Missing) != isinstance(durable, Missing):
        raise OptionError("--stall and --durable of a save in the background go together.")
    if isinstance(stall, Missing) and background is not None and args.checkpoint is None:
        stall, durable = background.blocking_s, background.durable_s
    notice = _span(args.notice)
    return SpotFigures(
        blocking_s=float(blocking),
        restart_s=_restart(args, plain),
        interruptions=_interruptions(args),
        async_blocking_s=stall,
        async_durable_s=durable,
        durable_p99_s=plain.durable_p99_s if plain is not None else NOT_GIVEN,
        notice_s=notice,
        in_time_ratio=_in_time(notice, float(blocking), plain if args.checkpoint is None else None),
        price_ratio=_price_ratio(args),
        price_per_device_hour=_price(args, run),
        devices=args.devices,
        work_s=_span(args.work),
        deadline_s=_span(args.deadline),
        today_s=_today(args, run, plain),
        step_s=run.steps.mean_s if run is not None else Missing("no run was profiled"),
        is_release=args.release,
        audit=args.audit or audit,
    )


def _span(words: str | None) -> Number:
    return NOT_GIVEN if words is None else parse_span(words)


def _interruptions(args: Any) -> Interruptions:
    counted = args.interruptions is not None or args.over is not None
    if sum((args.between is not None, args.rate is not None, counted)) != 1:
        raise UsageError(
            "How often the job is interrupted is needed, said in one way.",
            "For example --between 6h, or --rate 0.2, or --interruptions 3 --over 48h.",
        )
    if args.between is not None:
        return interruptions.given(parse_span(args.between))
    if args.rate is not None:
        return interruptions.given_rate(args.rate)
    if args.interruptions is None or args.over is None:
        raise OptionError("--interruptions K and --over TIME go together.")
    return interruptions.observed(args.interruptions, parse_span(args.over))


def _restart(args: Any, plain: SaveTimes | None) -> float:
    if args.restart is None:
        raise UsageError(
            "The time from an interruption until training runs again is needed.",
            "For example --restart 10m, the queue and the start; loading is added where it was measured.",
        )
    load = plain.load_s if plain is not None else NOT_GIVEN
    return float(parse_span(args.restart) + (0.0 if isinstance(load, Missing) else load))


def _in_time(notice: Number, blocking_s: float, plain: SaveTimes | None) -> Number:
    """How probably an emergency save is done within the notice."""
    if isinstance(notice, Missing):
        return notice
    if plain is not None and plain.durable_each_s:
        done = sum(fits_notice(each, float(notice), MARGIN_S) for each in plain.durable_each_s)
        if not done:
            return Missing("no save was done within the notice")
        return interruptions.in_time_ratio(done, len(plain.durable_each_s))
    if not fits_notice(blocking_s, float(notice), MARGIN_S):
        return Missing("a checkpoint takes longer than the notice")
    return interruptions.in_time_ratio(1, 1)  # one figure, as from a single save


def _price_ratio(args: Any) -> Number:
    if args.price_ratio is not None:
        return float(args.price_ratio)
    if args.spot_price is None:
        return NOT_GIVEN
    if args.price is None:
        raise OptionError("--spot-price needs --price, that on demand.")
    if not args.price > 0:
        raise OptionError(f"The price must be above 0, not {args.price:g}.")
    return float(args.spot_price / args.price)


def _price(args: Any, run: Run | None) -> Number:
    """Of an hour on demand: as given, else what the person set for the run's device."""
    if args.price is not None:
        return float(args.price)
    known = find(run.device.name) if run is not None else None
    price = prices().per_hour.get(known.name) if known is not None else None
    return NOT_GIVEN if price is None else price


def _today(args: Any, run: Run | None, plain: SaveTimes | None) -> Range | Missing:
    if args.interval is not None:
        seconds = parse_span(args.interval)
        if not 0 < seconds < math.inf:
            raise OptionError("The interval of today must be above 0.")
        return Range.of(seconds)
    if run is None:
        return Missing("no run was profiled, and none was given")
    if plain is None:
        return Missing("what a save takes was not measured")
    return interval_seen(run, plain.blocking_s)
