"""One line while the cell runs."""

from __future__ import annotations

from jupyter_gpuprof.views.format import percent


def live_text(step: int, steps_per_s: float, input_share: float | None, warmup: bool) -> str:
    """Where the loop stands, such as ``gpuprof: step 120, 34.1 steps/s, input wait 62 %``.

    While it warms up there is no share yet, and the line says so instead.
    """
    pace = f"gpuprof: step {step:,}, {steps_per_s:,.1f} steps/s"
    if warmup:
        return f"{pace}, warming up"
    return f"{pace}, input wait {percent(input_share, digits=0)}"


def reading_text(done_bytes: int, total_bytes: int, elapsed_s: float) -> str:
    """One line while a file is read, like "gpuprof: reading 43 %, about 12 s left".

    Args:
        done_bytes: read so far.
        total_bytes: of all files.
        elapsed_s: since the beginning.
    """
    share = done_bytes / total_bytes if total_bytes else 1.0
    left = f", about {elapsed_s * (1 - share) / share:.0f} s left" if 0 < share < 1 else ""
    return f"gpuprof: reading {100 * share:.0f} %{left}"


def rerun_text(name: str, what: str, done: float, elapsed_s: float) -> str:
    """One line while cells are rerun, with a bar and what is left.

    Args:
        name: of the command.
        what: runs now.
        done: share of all of it, 0 to 1.
        elapsed_s: since the beginning.
    """
    cells = round(20 * min(1.0, done))
    left = f", about {elapsed_s * (1 - done) / done:.0f} s left" if 0.02 < done < 1 else ""
    return f"gpuprof {name}: {'█' * cells}{'░' * (20 - cells)} {100 * done:.0f} %, {what}{left}"
