"""A decision on spot capacity as HTML: self-contained, without scripts."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.spot import SpotDecision
from jupyter_gpuprof.records.spotwords import span
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.markup import bullets, fragment, head_row, line_breaks, plain, row_cells, table
from jupyter_gpuprof.views.spot_svg import spot_svg
from jupyter_gpuprof.views.spot_words import PLAN_HEADS, label_words, plan_cells, spot_facts


def spot_html(decision: SpotDecision) -> str:
    """The report of one decision as a fragment that a notebook can show and save."""
    rows = []
    for plan in decision.plans:
        name, *cells = (escape(cell) for cell in plan_cells(plan))
        rows.append(f"<tr><th scope='row'>{name}</th>{row_cells((cell, '') for cell in cells)}</tr>")
    return fragment(
        f"Spot capacity for {clean(decision.run_name)}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{plain(decision.run_name)}</span> "
        f"<span>{escape(moment(decision.started_at))}</span></div>",
        _conclusion(decision),
        f"<div class='jp-gpuprof-wide'>{spot_svg(decision)}</div>",
        table(head_row(PLAN_HEADS, ()), "".join(rows), "jp-gpuprof-below"),
        _details(decision),
    )


def _conclusion(decision: SpotDecision) -> str:
    plan = decision.plans[0]
    return (
        "<div class='jp-gpuprof-verdict'><div class='jp-gpuprof-why'>"
        f"<p class='jp-gpuprof-label' role='heading' aria-level='3'>{escape(label_words(decision))}</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(decision.sentence))}</p></div>"
        f"<div class='jp-gpuprof-figures'><p><b>{escape(span(plan.interval_s))}</b><span>interval</span></p>"
        f"<p><b>{escape(plan_cells(plan)[4])}</b><span>time lost</span></p></div></div>"
        f"{bullets(decision.reasons)}"
    )


def _details(decision: SpotDecision) -> str:
    facts = [
        *((name, escape(words)) for name, words in spot_facts(decision)),
        ("Notes", line_breaks(decision.notes)),
        ("Decision", f"<code>{plain(decision.decision_id)}</code>"),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in facts if words)
    return f"<dl class='jp-gpuprof-below'>{terms}</dl>"
