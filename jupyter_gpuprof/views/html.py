"""Runs as HTML: self-contained, without scripts, readable without its style.

Headings are paragraphs with a heading's role, since JupyterLab puts real ones of outputs into the
notebook's table of contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Loader, Run
from jupyter_gpuprof.views.bars import part_bar
from jupyter_gpuprof.views.causes_html import causes_sections, levers_section, no_help_section, try_code
from jupyter_gpuprof.views.format import (
    clean,
    counted,
    moment,
    number,
    seconds,
    sentence,
    why,
    yes_no,
)
from jupyter_gpuprof.views.markup import (
    SIMULATED,
    bullet_section,
    bullets,
    fragment,
    head_row,
    heading,
    hinted,
    line_breaks,
    plain,
    row_cells,
    table,
)
from jupyter_gpuprof.views.ops_html import ops_section, ranks_section, timeline_section
from jupyter_gpuprof.views.pair_html import pair_bars, pair_table
from jupyter_gpuprof.views.parts import (
    PART_OF_LABEL,
    compute_note,
    measured_parts,
    missing_parts,
)
from jupyter_gpuprof.views.rows import (
    HISTORY_HEADS,
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
from jupyter_gpuprof.views.share_table import share_row, share_table
from jupyter_gpuprof.views.style import page_sheet, part_class

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


def run_html(run: Run) -> str:
    """The report of one run as a fragment that a notebook can show and save."""
    return fragment(
        f"Training profile of {clean(run.name)}",
        _top(run),
        SIMULATED if run.device.simulated else "",
        _verdict(run),
        _parts(run),
        ranks_section(run.ranks),
        causes_sections(run),
        _remedies(run),
        no_help_section(run),
        bullet_section("Doubts", run.verdict.doubts),
        ops_section(run),
        timeline_section(run),
        levers_section(run),
        _details(run),
    )


def run_page(run: Run) -> str:
    """The report of one run as a page of its own."""
    return page(run_html(run), f"gpuprof: {clean(run.name)}")


def page(fragment: str, title: str) -> str:
    """A fragment as a page of its own; the title is plain text."""
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'/>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n"
        f"<title>{escape(title)}</title>\n<style>{page_sheet()}</style>\n</head>\n"
        f"<body>\n<main>\n{fragment}\n</main>\n</body>\n</html>\n"
    )


def compare_html(a: Run, b: Run) -> str:
    """Two runs side by side: `a` before, `b` after, and what changed."""
    names = " → ".join(plain(run.name) for run in (a, b))
    return fragment(
        f"Comparison of {clean(a.name)} and {clean(b.name)}",
        f"<div class='jp-gpuprof-pair-top'><p class='jp-gpuprof-name'>{names}</p>"
        f"<p class='jp-gpuprof-figure'><b>{step_change(a, b)}</b> <span>mean step</span></p></div>",
        pair_bars(measured_parts(a), measured_parts(b)),
        pair_table(comparison_rows(a, b)),
        bullet_section("Doubts", comparison_doubts(a, b)),
    )


def history_html(runs: Sequence[Run]) -> str:
    """A list of runs, in the order given (newest first)."""
    if not runs:
        return fragment("Profiled runs", "<p>No runs yet.</p>")
    rows = "".join(_history_row(run) for run in runs)
    return fragment("Profiled runs", table(head_row(HISTORY_HEADS, numbers=(4, 5)), rows))


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
    rows = "".join(share_row(part.name, part.key, part.share) for part in measured_parts(run))
    rows += "".join(_missing_row(name, reason) for name, reason in missing_parts(run))
    note, bar = compute_note(run), part_bar(measured_parts(run))
    return f"{heading('Where the time goes')}{bar}{share_table('Part', rows)}" + (
        f"<p class='jp-gpuprof-soft jp-gpuprof-note'>{escape(note)}</p>" if note else ""
    )


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
            f"<p class='jp-gpuprof-soft'>{escape(how)}</p>{try_code(remedy)}</li>"
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


def _history_row(run: Run) -> str:
    run_id, when, name, label, mean, share = (escape(cell) for cell in history_cells(run))
    number_class, text = "jp-gpuprof-num", "jp-gpuprof-text"
    cells = ((when, ""), (name, text), (label, text), (mean, number_class), (share, number_class))
    return f"<tr><th scope='row'><code>{run_id}</code></th>{row_cells(cells)}</tr>"
