"""A fleet's report and a replay as HTML: self-contained, without scripts, with still pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.records.fleetreplay import FleetComparison
from jupyter_gpuprof.records.fleetreport import FleetGroup, FleetReport
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.views.fleet_svg import CURVE_PARTS, busy_svg, waits_svg, week_svg
from jupyter_gpuprof.views.fleet_words import (
    MOST_ROWS,
    PAIR_HEADS,
    claim_words,
    doubt_words,
    group_cells,
    group_heads,
    headline_figures,
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
    wait,
)
from jupyter_gpuprof.views.format import clean, sentence
from jupyter_gpuprof.views.ledger_words import loss_words
from jupyter_gpuprof.views.markup import bullet_section, fragment, head_row, heading, row_cells, table
from jupyter_gpuprof.views.style import part_class


def fleet_html(report: FleetReport) -> str:
    """The report as a fragment that a notebook can show and save."""
    title = report_title(report)
    figures = "".join(
        f"<p><b>{escape(value)}</b><span>{name}</span></p>" for value, name in headline_figures(report)
    )
    pictures = [
        "" if isinstance(report.week, Missing) else week_svg(report.week),
        waits_svg(report.curves),
        _legend(report) if len(report.curves) > 1 else "",
        "" if isinstance(report.histogram, Missing) else busy_svg(report.histogram),
    ]
    pooling = [] if isinstance(report.pooling, Missing) else pooling_words(report.pooling)
    return fragment(
        f"Fleet: {title}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{escape(title)}</span></div>",
        _conclusion("Where the GPU-hours went", report_headline(report), figures),
        *(f"<div class='jp-gpuprof-wide jp-gpuprof-below'>{shape}</div>" for shape in pictures if shape),
        _groups("team", report.by_team) if len(report.by_team) > 1 else "",
        _groups("GPUs", report.by_size),
        _groups("user", report.by_user) if len(report.by_user) > 1 else "",
        bullet_section("Lost", [loss_words(loss) for loss in report.losses]),
        bullet_section("By Prometheus", observed_words(report)),
        bullet_section("As one pool", pooling),
        bullet_section("Read", read_words(report)),
        bullet_section("Notes", [*money_words(report), *report.notes]),
    )


def replay_html(comparison: FleetComparison) -> str:
    """What another policy brings."""
    before, after = clean(comparison.before.policy), clean(comparison.after.policy)
    title = f"{after} against {before}"
    verdict = comparison.verdict
    figures = [
        f"<p><b>{escape(wait(one.waits.p90_s, one.waits))}</b><span>p90 wait {name}</span></p>"
        for name, one in (("before", comparison.before), ("after", comparison.after))
    ]
    cells = [_row(row) for row in outcome_rows(comparison)]
    return fragment(
        f"Fleet replay: {title}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{escape(title)}</span>"
        f"<span>{comparison.after.jobs:,} jobs</span></div>",
        _conclusion(verdict.label.capitalize(), verdict.sentence, "".join(figures)),
        table(head_row(("", before, after), (1, 2)), "".join(cells), "jp-gpuprof-below"),
        _pairs(comparison, "team"),
        _pairs(comparison, "class"),
        bullet_section("Reclaiming", claim_words(comparison)),
        bullet_section("Doubt", doubt_words(comparison)),
        bullet_section("Search", search_words(comparison)),
        bullet_section("Not replayed", refused_words(comparison.refused)),
        bullet_section("Notes", comparison.notes),
    )


def _conclusion(label: str, words: str, figures: str) -> str:
    return (
        f"<div class='jp-gpuprof-verdict {part_class('device_compute')}'><div class='jp-gpuprof-why'>"
        f"<p class='jp-gpuprof-label' role='heading' aria-level='3'>{escape(label)}</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(words))}.</p></div>"
        f"<div class='jp-gpuprof-figures'>{figures}</div></div>"
    )


def _legend(report: FleetReport) -> str:
    keys = (
        f"<span><span class='jp-gpuprof-key {part_class(part)}'></span>{escape(clean(curve.key))}</span>"
        for curve, part in zip(report.curves, CURVE_PARTS, strict=False)
    )
    return f"<div class='jp-gpuprof-figures jp-gpuprof-soft'>{''.join(keys)}</div>"


def _groups(name: str, groups: Sequence[FleetGroup]) -> str:
    if not groups:
        return ""
    shown = groups[:MOST_ROWS]
    heads = group_heads(name, shown)
    rows = "".join(_row(group_cells(group, shown)) for group in shown)
    rest = len(groups) - len(shown)
    more = f"<p class='jp-gpuprof-soft'>and {rest} more</p>" if rest else ""
    return heading(f"By {name}") + table(head_row(heads, tuple(range(1, len(heads)))), rows) + more


def _pairs(comparison: FleetComparison, kind: str) -> str:
    rows = pair_rows(comparison, kind)
    if not rows:
        return ""
    drawn = "".join(_row(row) for row in rows)
    return heading(f"Queue wait by {kind}") + table(head_row((kind, *PAIR_HEADS), (1, 2, 3, 4)), drawn)


def _row(cells: Sequence[str]) -> str:
    name, *numbers = cells
    drawn = row_cells((escape(cell), "jp-gpuprof-num") for cell in numbers)
    return f"<tr><th scope='row'>{escape(name)}</th>{drawn}</tr>"
