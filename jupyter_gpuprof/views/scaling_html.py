"""A scaling as HTML: self-contained, without scripts, with a still picture for every front end."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.scaling import Scaling, ScalingProgress
from jupyter_gpuprof.views.format import clean, known, moment, number, sentence
from jupyter_gpuprof.views.markup import bullet_section, bullets, head_row, heading, plain, row_cells, table
from jupyter_gpuprof.views.scaling_series import curve_key
from jupyter_gpuprof.views.scaling_svg import CURVE_STYLE, curve_svg
from jupyter_gpuprof.views.scaling_words import (
    banners,
    cost_rows,
    fit_words,
    heads,
    label_words,
    mode_words,
    point_cells,
    ranks_noun,
    setting_words,
    unfinished_words,
    worth_words,
)
from jupyter_gpuprof.views.style import ROOT_CLASS, page_sheet, part_class, style_sheet

_PART_OF_LABEL = {
    "input-bound": "exposed_input",
    "communication-bound": "exposed_communication",
    "scales": "device_compute",
}


def scaling_html(scaling: Scaling, progress: ScalingProgress | None = None) -> str:
    """The report of a scaling as a fragment that a notebook can show and save.

    Args:
        scaling: the curve, finished or not.
        progress: where the measurement stands while it goes on.
    """
    blocks = (
        _top(scaling),
        "".join(f"<p class='jp-gpuprof-simulated'>{escape(words)}.</p>" for words in banners(scaling)),
        _progress(scaling, progress),
        _verdict(scaling),
        # A figure of the same curve hides the still picture (scaling_figure).
        f"<div data-gpuprof-still='{curve_key(scaling)}'>{curve_svg(scaling, progress)}</div>",
        _points(scaling),
        _costs(scaling),
        bullet_section("Doubts", scaling.verdict.doubts),
        bullet_section("Notes", scaling.notes),
        _details(scaling),
    )
    body = "\n".join(block for block in blocks if block)
    return (
        f"<section class='{ROOT_CLASS}' aria-label='{escape(_title(scaling))}'>\n"
        f"<style>{style_sheet()} {CURVE_STYLE}</style>\n{body}\n</section>"
    )


def scaling_page(scaling: Scaling) -> str:
    """The report of a scaling as a page of its own."""
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'/>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n"
        f"<title>gpuprof: {escape(_title(scaling))}</title>\n<style>{page_sheet()}</style>\n</head>\n"
        f"<body>\n<main>\n{scaling_html(scaling)}\n</main>\n</body>\n</html>\n"
    )


def _title(scaling: Scaling) -> str:
    return f"Scaling of {clean(scaling.run_name)}, {mode_words(scaling)}"


def _top(scaling: Scaling) -> str:
    return (
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{escape(_title(scaling))}</span> "
        f"<span>{escape(moment(scaling.started_at))}</span></div>"
    )


def _progress(scaling: Scaling, progress: ScalingProgress | None) -> str:
    words = unfinished_words(scaling, progress)
    if not words:
        return ""
    bar = ""
    if progress is not None:
        done = min(max(known(progress.done) or 0.0, 0.0), 1.0)
        bar = f"<progress max='1' value='{done:.3f}' aria-label='done' style='width:100%'></progress>"
    return f"<div class='jp-gpuprof-note'><p class='jp-gpuprof-soft'>{escape(sentence(words))}</p>{bar}</div>"


def _verdict(scaling: Scaling) -> str:
    verdict = scaling.verdict
    label = escape(sentence(label_words(scaling)))
    part = _PART_OF_LABEL.get(verdict.label)
    worth = known(scaling.worth_it_count)
    noun = ranks_noun(scaling, int(worth) if worth is not None else 2)
    return (
        f"<div class='jp-gpuprof-verdict{' ' + part_class(part) if part else ''}'>"
        "<div class='jp-gpuprof-why'>"
        f"<p class='jp-gpuprof-label' role='heading' aria-level='3'>{label}</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(verdict.sentence))}.</p></div>"
        f"<p class='jp-gpuprof-figure'><b>{number(worth)}</b> <span>{escape(noun)} worth it</span></p></div>"
        f"{bullets(verdict.reasons)}"
    )


def _points(scaling: Scaling) -> str:
    rows = "".join(_row(point_cells(point), last_is_text=True) for point in scaling.points)
    name = f"{sentence(ranks_noun(scaling))}, {mode_words(scaling)}"
    return f"{heading(name)}{table(head_row(heads(scaling), numbers=range(8)), rows, 'jp-gpuprof-ranks')}"


def _costs(scaling: Scaling) -> str:
    lines = cost_rows(scaling)
    if not lines:
        return ""
    rows = "".join(_row(line) for line in lines[1:])
    return f"{heading('The same work')}{table(head_row(lines[0], numbers=range(4)), rows)}"


def _row(cells: tuple[str, ...], last_is_text: bool = False) -> str:
    first, *rest = cells
    classes = ["jp-gpuprof-num"] * len(rest)
    if last_is_text:
        classes[-1] = "jp-gpuprof-text"
    drawn = row_cells((escape(cell), name) for cell, name in zip(rest, classes, strict=True))
    return f"<tr><th scope='row' class='jp-gpuprof-num'>{escape(first)}</th>{drawn}</tr>"


def _details(scaling: Scaling) -> str:
    facts = [
        ("Worth it", escape(sentence(worth_words(scaling)))),
        *((name, escape(words)) for name, words in fit_words(scaling)),
        ("Measured", escape(setting_words(scaling))),
        ("Scaling", f"<code>{plain(scaling.scaling_id)}</code>"),
        ("Run", f"<code>{plain(scaling.run_id)}</code>" if scaling.run_id else ""),
    ]
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{words}</dd>" for name, words in facts if words)
    summary = "Details: the rule, the laws, how it was measured"
    return f"<details><summary>{summary}</summary><dl>{terms}</dl></details>"
