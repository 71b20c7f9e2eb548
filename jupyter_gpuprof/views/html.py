"""Runs as HTML: self-contained, without scripts, readable without its style.

Headings are paragraphs with a heading's role, since JupyterLab puts real ones of outputs into the
notebook's table of contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Loader, Run
from jupyter_gpuprof.views.format import (
    clean,
    counted,
    interval,
    known,
    moment,
    number,
    percent,
    seconds,
    sentence,
    why,
    yes_no,
)
from jupyter_gpuprof.views.markup import (
    bullet_section,
    bullets,
    head_row,
    heading,
    hinted,
    line_breaks,
    plain,
    row_cells,
    table,
)
from jupyter_gpuprof.views.ops_html import ops_section, ranks_section, timeline_section
from jupyter_gpuprof.views.parts import (
    PART_OF_LABEL,
    Part,
    bar_widths,
    compute_note,
    measured_parts,
    missing_parts,
)
from jupyter_gpuprof.views.rows import (
    HISTORY_HEADS,
    Row,
    comparison_doubts,
    comparison_rows,
    history_cells,
    step_change,
)
from jupyter_gpuprof.views.sentences import (
    clock_words,
    device_words,
    memory_reason,
    memory_words,
    overhead_words,
    prediction,
    step_time_words,
    steps_words,
    strength_words,
)
from jupyter_gpuprof.views.style import ROOT_CLASS, page_sheet, part_class, style_sheet

_LOADER_HEADS = (
    "loader",
    "role",
    "batches",
    "size",
    "waited",
    "exposed",
    "workers",
    "prefetch",
    "pinned",
    "persistent",
)
_WHEN = ("before", "after")
_SIMULATED = "<p class='jp-gpuprof-simulated'><b>Simulated device.</b> No real hardware was measured.</p>"


def run_html(run: Run) -> str:
    """The report of one run as a fragment that a notebook can show and save."""
    return _fragment(
        f"Training profile of {clean(run.name)}",
        _top(run),
        _SIMULATED if run.device.simulated else "",
        _verdict(run),
        _parts(run),
        ranks_section(run.ranks),
        _remedies(run),
        bullet_section("Doubts", run.verdict.doubts),
        ops_section(run),
        timeline_section(run),
        _details(run),
    )


def run_page(run: Run) -> str:
    """The report of one run as a page of its own."""
    title = escape(f"gpuprof: {clean(run.name)}")
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'/>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n"
        f"<title>{title}</title>\n<style>{page_sheet()}</style>\n</head>\n"
        f"<body>\n<main>\n{run_html(run)}\n</main>\n</body>\n</html>\n"
    )


def compare_html(a: Run, b: Run) -> str:
    """Two runs side by side: `a` before, `b` after, and what changed."""
    names = " → ".join(plain(run.name) for run in (a, b))
    bars = zip(_WHEN, (_bar(a), _bar(b)), strict=True)
    pairs = (f"<span class='jp-gpuprof-soft'>{when}</span>{bar}" for when, bar in bars)
    heads = head_row(("", *_WHEN, "change"), numbers=(1, 2))
    rows = "".join(_comparison_row(row) for row in comparison_rows(a, b))
    return _fragment(
        f"Comparison of {clean(a.name)} and {clean(b.name)}",
        f"<div class='jp-gpuprof-pair-top'><p class='jp-gpuprof-name'>{names}</p>"
        f"<p class='jp-gpuprof-figure'><b>{step_change(a, b)}</b> <span>mean step</span></p></div>",
        f"<div class='jp-gpuprof-pair'>{''.join(pairs)}</div>",
        table(heads, rows),
        bullet_section("Doubts", comparison_doubts(a, b)),
    )


def history_html(runs: Sequence[Run]) -> str:
    """A list of runs, in the order given (newest first)."""
    if not runs:
        return _fragment("Profiled runs", "<p>No runs yet.</p>")
    rows = "".join(_history_row(run) for run in runs)
    return _fragment("Profiled runs", table(head_row(HISTORY_HEADS, numbers=(4, 5)), rows))


def _fragment(name: str, *blocks: str) -> str:
    body = "\n".join(block for block in blocks if block)
    return (
        f"<section class='{ROOT_CLASS}' aria-label='{escape(name)}'>\n"
        f"<style>{style_sheet()}</style>\n{body}\n</section>"
    )


def _top(run: Run) -> str:
    return (
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{plain(run.name)}</span> "
        f"<span>{escape(moment(run.started_at))}</span></div>"
    )


def _verdict(run: Run) -> str:
    verdict = run.verdict
    strength = strength_words(run)
    aside = f" <span>{escape(strength)}</span>" if strength else ""
    also = f"<p class='jp-gpuprof-soft'>Also {plain(', '.join(verdict.also))}.</p>" if verdict.also else ""
    mean = run.steps.mean_s
    hint = f" title='{escape(why(mean))}'" if isinstance(mean, Missing) else ""
    part = PART_OF_LABEL.get(verdict.label)
    label = f"{escape(sentence(verdict.label))}{aside}"
    return (
        f"<div class='jp-gpuprof-verdict{' ' + part_class(part) if part else ''}'>"
        "<div class='jp-gpuprof-why'>"
        f"<p class='jp-gpuprof-label' role='heading' aria-level='3'>{label}</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(verdict.sentence))}</p>{also}</div>"
        f"<p class='jp-gpuprof-figure'{hint}><b>{seconds(mean)}</b> <span>mean step</span></p></div>"
        f"{bullets(verdict.reasons)}"
    )


def _parts(run: Run) -> str:
    rows = "".join(_part_row(part) for part in measured_parts(run))
    rows += "".join(_missing_row(name, reason) for name, reason in missing_parts(run))
    heads = (
        "<tr><th scope='col'>Part</th><th scope='col' class='jp-gpuprof-num'>Share</th>"
        "<th scope='col' class='jp-gpuprof-num'>95 % interval</th>"
        "<th scope='col' class='jp-gpuprof-range'>0 to 100 %</th></tr>"
    )
    note = compute_note(run)
    return f"{heading('Where the time goes')}{_bar(run)}{table(heads, rows, 'jp-gpuprof-parts')}" + (
        f"<p class='jp-gpuprof-soft jp-gpuprof-note'>{escape(note)}</p>" if note else ""
    )


def _bar(run: Run) -> str:
    parts = measured_parts(run)
    widths = bar_widths([part.share.value for part in parts])
    words = ", ".join(f"{part.name} {percent(part.share)}" for part in parts) or "no part was measured"
    drawn = [_segment(part, width) for part, width in zip(parts, widths, strict=False) if width > 0]
    return (
        f"<div class='jp-gpuprof-bar' role='img' aria-label='Parts of the time: {escape(words)}'>"
        f"{' '.join(drawn)}</div>"
    )


def _segment(part: Part, width: float) -> str:
    told = f"{part.name} {percent(part.share)}"
    classes = part_class(part.key) + ("" if width >= 1 else " jp-gpuprof-thin")
    words = f"<span>{escape(percent(part.share, 0))}</span> <span>{escape(part.name)}</span>"
    return f"<span class='{classes}' style='width:{width:.4f}%' title='{escape(told)}'>{words}</span>"


def _part_row(part: Part) -> str:
    share = part.share
    seen = share.value != 0 or share.high != 0
    colour = part_class(part.key)
    return (
        f"<tr class='{'' if seen else 'jp-gpuprof-zero'}'>"
        f"<th scope='row'><span class='jp-gpuprof-key {colour}'></span>{escape(part.name)}</th>"
        f"<td class='jp-gpuprof-num'>{escape(percent(share))}</td>"
        f"<td class='jp-gpuprof-num'>{interval(share)}</td>"
        f"<td class='jp-gpuprof-range'>{_track(part) if seen else ''}</td></tr>"
    )


def _track(part: Part) -> str:
    value, low, high = (_clamped(x) for x in (part.share.value, part.share.low, part.share.high))
    colour = part_class(part.key)
    return (
        "<span class='jp-gpuprof-track' aria-hidden='true'>"
        f"<i class='{colour}' style='left:{low:.2f}%;width:{max(high - low, 0):.2f}%'></i>"
        f"<b class='{colour}' style='left:{value:.2f}%'></b></span>"
    )


def _clamped(share: float) -> float:
    return 100 * min(max(known(share) or 0.0, 0.0), 1.0)


def _missing_row(name: str, reason: str) -> str:
    return (
        "<tr class='jp-gpuprof-unknown'>"
        f"<th scope='row'><span class='jp-gpuprof-key'></span>{escape(name)}</th>"
        "<td class='jp-gpuprof-num'>n/a</td>"
        f"<td colspan='2' class='jp-gpuprof-text'>not measured: {escape(reason)}</td></tr>"
    )


def _remedies(run: Run) -> str:
    if not run.remedies:
        return ""
    items = []
    for remedy in run.remedies:
        gain, _, reason = prediction(run, remedy, "→").partition(": ")
        how = f"{sentence(remedy.how)} (not predicted: {reason})" if reason else sentence(remedy.how)
        items.append(
            f"<li><b>{escape(sentence(remedy.title))}</b> "
            f"<span class='jp-gpuprof-gain{' jp-gpuprof-soft' if reason else ''}'>{escape(gain)}</span>"
            f"<p class='jp-gpuprof-soft'>{escape(how)}</p></li>"
        )
    return f"{heading('What to try')}<ol class='jp-gpuprof-remedies'>{''.join(items)}</ol>"


def _details(run: Run) -> str:
    memory = memory_words(run) or f"not measured: {memory_reason(run)}"
    facts = [
        ("Steps", escape(steps_words(run))),
        ("Step time", escape(step_time_words(run))),
        ("Memory", escape(memory)),
        ("Device", escape(f"{device_words(run.device)}; {clock_words(run)}")),
        ("Overhead", escape(overhead_words(run))),
        ("Near misses", line_breaks(run.verdict.near)),
        ("Notes", line_breaks(run.notes)),
        ("Run", f"<code>{plain(run.run_id)}</code>"),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in facts if words)
    summary = f"Details: {counted(run.steps.counted, 'step')} on {clean(run.device.name)}"
    return f"<details><summary>{escape(summary)}</summary><dl>{terms}</dl>{_loaders(run.loaders)}</details>"


def _loaders(loaders: Sequence[Loader]) -> str:
    if not loaders:
        return ""
    rows = "".join(_loader_row(loader) for loader in loaders)
    return f"{heading('Loaders')}{table(head_row(_LOADER_HEADS, numbers=(2, 3, 4, 5, 6, 7)), rows)}"


def _loader_row(loader: Loader) -> str:
    cells = (
        (plain(loader.role), ""),
        (number(loader.fetches), "jp-gpuprof-num"),
        (hinted(number(loader.batch_size), loader.batch_size), "jp-gpuprof-num"),
        (seconds(loader.wait_s), "jp-gpuprof-num"),
        (seconds(loader.exposed_s), "jp-gpuprof-num"),
        (hinted(number(loader.num_workers), loader.num_workers), "jp-gpuprof-num"),
        (hinted(number(loader.prefetch_factor), loader.prefetch_factor), "jp-gpuprof-num"),
        (hinted(yes_no(loader.pin_memory), loader.pin_memory), ""),
        (hinted(yes_no(loader.persistent_workers), loader.persistent_workers), ""),
    )
    return f"<tr><th scope='row'>{plain(loader.name)}</th>{row_cells(cells)}</tr>"


def _comparison_row(row: Row) -> str:
    key = f"<span class='jp-gpuprof-key {part_class(row.key)}'></span>" if row.key else ""
    number_class = "jp-gpuprof-num"
    cells = ((escape(row.before), number_class), (escape(row.after), number_class), (escape(row.change), ""))
    return f"<tr><th scope='row'>{key}{escape(row.name)}</th>{row_cells(cells)}</tr>"


def _history_row(run: Run) -> str:
    run_id, when, name, label, mean, share = (escape(cell) for cell in history_cells(run))
    number_class, text = "jp-gpuprof-num", "jp-gpuprof-text"
    cells = ((when, ""), (name, text), (label, text), (mean, number_class), (share, number_class))
    return f"<tr><th scope='row'><code>{run_id}</code></th>{row_cells(cells)}</tr>"
