"""Stacks of Python threads: counted as numbers while a run is on, turned into words after it.

While it is on, a stack is a tuple of numbers (the code's identity and where in it, per frame). Its spots,
with file, line and columns, can be written to a file; the source is looked up at the end.
"""

from __future__ import annotations

import itertools
import linecache
import os
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from jupyter_gpuprof.records.samples import Frame, StackCount, Where

#: Frames kept of a stack, innermost first; distinct stacks kept; characters kept of a source text.
MAX_FRAMES, MAX_STACKS, MAX_TEXT = 60, 2000, 120

#: File, function, first line, last line, first column and last column (in bytes); the last three are 0
#: where only the line is known.
Spot = tuple[str, str, int, int, int, int]
#: What kind of stack it is (`Where`, or the kind of thread) and its spots, innermost first: how often.
Stacks = Counter[tuple[str, tuple[Spot, ...]]]

_OURS = str(Path(__file__).parent.parent) + os.sep


class StackCounts:
    """Counts stacks, at most `MAX_STACKS` distinct ones; `left_out` counts what did not fit."""

    def __init__(self) -> None:
        self.left_out = 0
        self._counts: dict[tuple[str | int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}  # kept alive, so that an identity stays one code's
        self._spots: dict[tuple[int, int], Spot] = {}

    def add(self, frame: FrameType | None, kind: str, times: int = 1, until: CodeType | None = None) -> None:
        """Count the stack whose innermost frame is `frame`.

        Args:
            frame: of a thread, which cannot run meanwhile.
            kind: counted apart.
            times: how often it is taken to have been seen.
            until: the code of the outermost frame to keep.
        """
        key: list[str | int] = [kind]
        codes = self._codes
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            known = id(code)
            if known not in codes:
                codes[known] = code
            key.append(known)
            key.append(frame.f_lasti)
            if code is until:
                break
            frame = frame.f_back
        stack, counts = tuple(key), self._counts
        if stack in counts:
            counts[stack] += times
        elif len(counts) < MAX_STACKS:
            counts[stack] = times
        else:
            self.left_out += times

    def stacks(self) -> Stacks:
        """What was counted so far, in a form that another process can read."""
        found: Stacks = Counter()
        for (kind, *rest), times in list(self._counts.items()):
            spots = tuple(map(self._spot, rest[::2], rest[1::2]))
            found[str(kind), spots] += times
        return found

    def _spot(self, known: str | int, instruction: str | int) -> Spot:
        at = (int(known), int(instruction))
        if at not in self._spots:
            self._spots[at] = spot_of(self._codes[at[0]], at[1])
        return self._spots[at]


def spot_of(code: CodeType, instruction: int) -> Spot:
    """Where in the source an instruction of `code` (its offset, a frame's ``f_lasti``) comes from."""
    function = getattr(code, "co_qualname", code.co_name)  # 3.11
    instruction = max(0, instruction)
    if hasattr(code, "co_positions"):  # 3.11
        positions = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
        line, last, first_column, last_column = positions
        if line is not None and None not in (last, first_column, last_column):
            return code.co_filename, function, line, last or 0, first_column or 0, last_column or 0
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end and line)
    return code.co_filename, function, next(lines, code.co_firstlineno), 0, 0, 0


def stack_counts(stacks: Stacks) -> tuple[StackCount, ...]:
    """The stacks as records, the most frequent first; frames of this package are left out.

    The kind of each stack must be a `Where`.
    """
    frames: dict[Spot, Frame] = {}
    merged: Counter[tuple[tuple[Frame, ...], Where]] = Counter()
    for (kind, spots), times in stacks.items():
        for spot in spots:
            if spot not in frames:
                frames[spot] = Frame(spot[0], spot[2], spot[1], text_of(spot))
        theirs = tuple(frames[spot] for spot in spots if not spot[0].startswith(_OURS))
        where: Where = "fetch" if kind == "fetch" else "step"
        if theirs:
            merged[theirs, where] += times
    return tuple(StackCount(stack, where, times) for (stack, where), times in merged.most_common())


def text_of(spot: Spot) -> str:
    """The source at a spot, on one line and at most `MAX_TEXT` characters; empty where there is none."""
    file, _, first, last, begin, end = spot
    lines = [linecache.getline(file, n).encode() for n in range(first, max(first, last) + 1)]
    if last:
        lines[-1] = lines[-1][:end]  # first: it may be the same line
        lines[0] = lines[0][begin:]
    words = " ".join(line.decode(errors="replace").strip() for line in lines).strip()
    if not words or words.isidentifier():  # a loop's variable, say: the line tells more
        words = linecache.getline(file, first).strip()
    return words if len(words) <= MAX_TEXT else words[: MAX_TEXT - 1] + "…"
