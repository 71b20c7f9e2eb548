"""One rank of a scaling measurement: a fresh process that runs the person's cell as part of a job."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_gpuprof.probes import dataparallel
from jupyter_gpuprof.session.job import JobFolder


def main(folder: str) -> None:
    """Run this rank's part of the job of a folder and leave its round there."""
    rank, _ = dataparallel.world()
    files = JobFolder(Path(folder), rank)
    job = files.read_job()
    # Before anything imports torch: it reads what it may see only once.
    dataparallel.see_one_device(job.device_kind, int(os.environ.get("LOCAL_RANK", "0")))
    from jupyter_gpuprof.session.rankrun import run_rank

    files.write_round(run_rank(job, files))
