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
