"""One rank of a scaling measurement: a fresh process that runs the person's cell as part of a job."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from jupyter_gpuprof.probes import dataparallel
from jupyter_gpuprof.session.reruns.job import JobFolder
from jupyter_gpuprof.session.reruns.launch import TOLD


def main(folder: str) -> None:
    """Run this rank's part of the job of a folder and leave its round there.

    It ends with an error if nothing was measured, so that the launcher ends the others, which may wait for
    this one in a collective.
    """
    rank, _ = dataparallel.world()
    files = JobFolder(Path(folder), rank)
    job = files.read_job()
    # Before anything imports torch: it reads what it may see only once.
    dataparallel.see_one_device(job.device_kind, int(os.environ.get("LOCAL_RANK", "0")))
    from jupyter_gpuprof.session.reruns.rankrun import run_rank

    done = run_rank(job, files)
    files.write_round(done)
    if done.outcome != "measured":
        sys.exit(TOLD)
