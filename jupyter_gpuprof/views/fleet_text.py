"""A fleet's report and a replay as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.records.fleetreplay import FleetComparison
from jupyter_gpuprof.records.fleetreport import FleetGroup, FleetReport
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.views.fleet_words import (
    MOST_ROWS,
    PAIR_HEADS,
    claim_words,
    doubt_words,
    group_cells,
    group_heads,
    hours,
    money_words,
    observed_words,
    outcome_rows,
    pair_rows,
    pooling_words,
    read_words,
    refused_words,
    report_headline,
    report_title,
    search_words,
)
from jupyter_gpuprof.views.format import clean, sentence
from jupyter_gpuprof.views.ledger_words import loss_words
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap

_NARROWEST = 48


def fleet_text(report: FleetReport, width: int = 100) -> str:
    """The report, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    blocks = [
        wrap(f"gpuprof fleet: {report_title(report)}", width),
        wrap(f"{sentence(report_headline(report))}.", width),
        _groups("team", report.by_team, width) if len(report.by_team) > 1 else [],
        _groups("GPUs", report.by_size, width),
        _groups("user", report.by_user, width) if len(report.by_user) > 1 else [],
        _list("Lost", [loss_words(loss) for loss in report.losses], width),
        _list("By Prometheus", observed_words(report), width),
        _list("As one pool", _pooling(report), width),
        _list("Read", read_words(report), width),
        _list("Notes", [*money_words(report), *report.notes], width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def replay_text(comparison: FleetComparison, width: int = 100) -> str:
    """What another policy brings, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    before, after = clean(comparison.before.policy), clean(comparison.after.policy)
    table = [("", before, after), *outcome_rows(comparison)]
    blocks = [
        wrap(f"gpuprof fleet replay: {after} against {before}, {comparison.after.jobs:,} jobs", width),
        wrap(f"{sentence(comparison.verdict.sentence)}.", width),
        fitting(table, width, (1, 2), "", ()),
        _pairs(comparison, "team", width),
        _pairs(comparison, "class", width),
        bullet_lines([*claim_words(comparison), *doubt_words(comparison), *search_words(comparison)], width),
        _list("Not replayed", refused_words(comparison.refused), width),
        _list("Notes", comparison.notes, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _groups(name: str, groups: Sequence[FleetGroup], width: int) -> list[str]:
    if not groups:
        return []
    shown = groups[:MOST_ROWS]
    rows = [group_heads(name, shown), *(group_cells(group, shown) for group in shown)]
    numbers = tuple(range(1, len(rows[0])))
    lines = fitting(rows, width, numbers, "", (len(rows[0]) - 2, len(rows[0]) - 4))
    rest = groups[MOST_ROWS:]
    if rest:
        lines.append(f"and {len(rest)} more with {hours(sum(group.gpu_hours for group in rest))} GPU-hours")
    return lines


def _pairs(comparison: FleetComparison, kind: str, width: int) -> list[str]:
    rows = pair_rows(comparison, kind)
    if not rows:
        return []
    return fitting([(f"wait by {kind}", *PAIR_HEADS), *rows], width, (1, 2, 3, 4), "", (1, 2))


def _pooling(report: FleetReport) -> list[str]:
    return [] if isinstance(report.pooling, Missing) else pooling_words(report.pooling)


def _list(title: str, items: Sequence[str], width: int) -> list[str]:
    return [title, *bullet_lines(items, width)] if items else []
