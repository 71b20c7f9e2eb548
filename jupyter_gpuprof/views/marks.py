"""What a report leaves in the metadata of its output, so that the panel knows which runs a notebook has.

The metadata of an output stay in the notebook file and are shown by no front end. They name what the
panel then asks the server for; of a curve they hold the points, since the server's API has no curves.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.scaling import Scaling
from jupyter_gpuprof.views.format import known

KEY = "jupyter_gpuprof"


def run_mark(run: Run) -> dict[str, Any]:
    """The metadata of a run's report."""
    mark = {
        "run_id": run.run_id,
        "name": run.name,
        "label": run.verdict.label,
        "started_at": run.started_at,
    }
    return {KEY: {"run": mark}}


def scaling_mark(scaling: Scaling) -> dict[str, Any]:
    """The metadata of a curve's report: the points that were measured."""
    points = [
        {"count": point.count, "throughput": known(point.throughput)}
        for point in scaling.points
        if known(point.throughput) is not None
    ]
    mark = {
        "label": scaling.verdict.label,
        "sentence": scaling.verdict.sentence,
        "simulated": scaling.simulated,
        "points": points,
    }
    return {KEY: {"scaling": mark}}
