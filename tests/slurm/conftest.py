"""One cluster for all tests of this folder; each test leaves it idle."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, NoCluster


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    pytest.importorskip("submitit")
    # Not in pytest's folder: the path of munge's socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="gpuprof-slurm-"))
    try:
        try:
            cluster = Cluster(folder)
            cluster.start()
        except NoCluster as error:
            pytest.skip(f"no Slurm here: {error}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(cluster.conf))
            yield cluster
        cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, idle before the test and after it: no job is left, queued or running."""
    slurm_cluster.await_idle()
    yield slurm_cluster
    left = slurm_cluster.jobs()
    slurm_cluster.end_jobs()
    slurm_cluster.await_idle()
    assert not left, f"jobs are left in the queue: {left}"
