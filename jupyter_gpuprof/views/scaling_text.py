"""A scaling as plain text for a terminal, and for every front end that shows no HTML."""

from __future__ import annotations

from jupyter_gpuprof.records.scaling import Scaling, ScalingProgress
from jupyter_gpuprof.views.format import NOT_AVAILABLE, clean, sentence
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap
from jupyter_gpuprof.views.scaling_words import (
    banners,
    cost_rows,
    fit_words,
    heads,
    label_words,
    mode_words,
    picture_title,
    point_cells,
    setting_words,
    unfinished_words,
    worth_words,
)

_NARROWEST = 48
#: Columns to leave out for want of room, in this order.
_DROP = (7, 6, 2, 4, 5)


def scaling_text(scaling: Scaling, width: int = 100, progress: ScalingProgress | None = None) -> str:
    """The report of a scaling, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    verdict = scaling.verdict
    standing = unfinished_words(scaling, progress)
    costs = cost_rows(scaling)
    cells = [point_cells(point) for point in scaling.points]
    # What nothing is known of goes first.
    unknown = [column for column in _DROP if all(row[column] == NOT_AVAILABLE for row in cells)]
    facts = [
        ("Worth it", worth_words(scaling)),
        *fit_words(scaling),
        ("Measured", setting_words(scaling)),
    ]
    blocks = [
        [
            *wrap(f"gpuprof: scaling of {clean(scaling.run_name)}, {mode_words(scaling)}", width),
            *banners(scaling),
            *(wrap(standing, width) if standing else []),
        ],
        [
            *wrap(label_words(scaling).upper(), width),
            *wrap(sentence(verdict.sentence), width),
            *bullet_lines(verdict.reasons, width),
        ],
        [
            *wrap(picture_title(scaling), width),
            *fitting(
                [heads(scaling), *cells],
                width,
                right=tuple(range(8)),
                indent="  ",
                drop=(*unknown, *(column for column in _DROP if column not in unknown)),
            ),
        ],
        ["The same work", *fitting(costs, width, tuple(range(4)), "  ", drop=(1,))] if costs else [],
        [line for name, words in facts for line in wrap(words, width, f"{name:<14}", " " * 14)],
        ["Doubts", *bullet_lines(verdict.doubts, width)] if verdict.doubts else [],
        ["Notes", *bullet_lines(scaling.notes, width)] if scaling.notes else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def scaling_line(scaling: Scaling, progress: ScalingProgress | None = None) -> str:
    """Where a measurement stands, or how it ended, on one line."""
    standing = unfinished_words(scaling, progress)
    return f"gpuprof: {standing or clean(scaling.verdict.sentence)}"
