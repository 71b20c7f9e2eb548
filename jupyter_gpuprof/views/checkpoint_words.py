"""What the report on the cost of a checkpoint says, the same in text and in HTML."""

from __future__ import annotations

from jupyter_gpuprof.records.spot import CheckpointCost, SaveTimes
from jupyter_gpuprof.views.format import byte_size, clean, counted, known, ratio, seconds
from jupyter_gpuprof.views.sentences import device_words

#: The heads of the tables, in the order of `way_cells` and `part_cells`.
WAY_HEADS = ("save", "stops training", "99 %", "safe after", "99 %", "load", "size")
PART_HEADS = ("state", "what", "size", "of the parameters")


def way_cells(way: SaveTimes) -> tuple[str, ...]:
    """One way of saving, under `WAY_HEADS`."""
    return (
        "your own" if way.how == "yours" else way.how,
        seconds(way.blocking_s),
        seconds(way.blocking_p99_s),
        seconds(way.durable_s),
        seconds(way.durable_p99_s),
        seconds(way.load_s),
        byte_size(way.size_bytes),
    )


def part_rows(cost: CheckpointCost) -> list[tuple[str, ...]]:
    """What the checkpoint holds, under `PART_HEADS`, and the sum."""
    rows = [
        (clean(p.name), p.kind, byte_size(p.state_bytes), _share(cost, p.state_bytes)) for p in cost.parts
    ]
    total = sum(part.state_bytes for part in cost.parts)
    return [*rows, ("together", "", byte_size(total), _share(cost, total))] if rows else []


def cost_facts(cost: CheckpointCost) -> list[tuple[str, str]]:
    """What else there is to say, each under its name."""
    repeats = counted(cost.ways[0].repeats, "save") if cost.ways else "no save"
    return [
        ("Parameters", byte_size(cost.parameter_bytes)),
        ("Folder", clean(cost.folder)),
        ("Timed", f"{repeats} of each kind; 99 % by nearest rank"),
        ("Device", device_words(cost.device)),
    ]


def _share(cost: CheckpointCost, size: int) -> str:
    parameters = known(cost.parameter_bytes)
    return ratio(size / parameters) if parameters else "n/a"
