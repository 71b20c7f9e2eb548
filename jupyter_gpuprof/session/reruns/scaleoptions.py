"""What a person may choose for a scaling, and the order of its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jupyter_gpuprof.errors import OptionError

Mode = Literal["weak", "strong"]
#: Seconds after which a job of one count is ended.
LIMIT_S = 300.0


@dataclass(frozen=True)
class ScaleOptions:
    """What a person may choose.

    Args:
        counts: device counts, each once.
        mode: "weak" keeps the batch of each device, "strong" that of all together.
        steps: counted steps of each rank in each repeat; None chooses.
        repeats: of each count.
        limit_s: a job that runs longer is ended; waiting in a queue does not count.
        raw: the cell distributes its work by itself; None looks at its source.
        allow_writes: run a cell that writes files all the same.
        least_gain, least_efficiency: the rule of what a count must bring to be worth it.
        price_per_hour: of one device, in any currency.
    """

    counts: tuple[int, ...]
    mode: Mode = "weak"
    steps: int | None = None
    repeats: int = 3
    limit_s: float = LIMIT_S
    raw: bool | None = None
    allow_writes: bool = False
    least_gain: float = 1.6
    least_efficiency: float = 0.7
    price_per_hour: float | None = None


def scale_options(counts: tuple[int, ...], args: Any) -> ScaleOptions:
    """The options of a door's parsed arguments.

    Raises:
        OptionError: a value makes no sense.
    """
    if args.repeats < 1:
        raise OptionError(f"--repeats takes 1 or more, not {args.repeats}.")
    if args.timeout is not None and not args.timeout > 0:
        raise OptionError(f"--timeout takes seconds above 0, not {args.timeout:g}.")
    if args.price is not None and not args.price >= 0:
        raise OptionError(f"--price takes what a device costs in an hour, not {args.price:g}.")
    if not args.least_gain > 1 or not 0 < args.least_efficiency <= 1:
        raise OptionError("--least-gain takes a number above 1, --least-efficiency one up to 1.")
    return ScaleOptions(
        counts=counts,
        mode=args.mode,
        steps=args.steps,
        repeats=args.repeats,
        limit_s=args.timeout or LIMIT_S,
        raw=True if args.raw else None,
        allow_writes=args.allow_writes,
        least_gain=args.least_gain,
        least_efficiency=args.least_efficiency,
        price_per_hour=args.price,
    )


def parse_counts(words: Sequence[str]) -> tuple[int, ...]:
    """Device counts, smallest first.

    Raises:
        OptionError: they are no positive whole numbers, or one comes twice.
    """
    try:
        counts = [int(word) for word in words]
    except ValueError:
        counts = [0]
    if not counts or min(counts) < 1:
        raise OptionError(
            f"Device counts are whole numbers from 1 on, not {' '.join(words)!r}.",
            "For example: %gpuprof scale 1 2 4 8",
        )
    if len(set(counts)) < len(counts):
        raise OptionError(f"A device count comes twice in {' '.join(words)}.", "Name each count once.")
    return tuple(sorted(counts))


def interleaved(counts: Sequence[int], repeats: int) -> Iterator[int]:
    """1, 2, 4, 4, 2, 1, 1, 2, 4: what drifts meanwhile hits all counts alike."""
    for repeat in range(repeats):
        yield from counts if repeat % 2 == 0 else reversed(counts)
