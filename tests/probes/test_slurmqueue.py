"""What is read from Slurm's commands, in the forms that its versions and clusters give it."""

from __future__ import annotations

import pytest

from jupyter_gpuprof.probes.slurmqueue import (
    QueueEntry,
    SlurmSilent,
    cancel,
    complaint,
    read_entry,
    read_nodes,
)


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("PENDING|Resources\n", QueueEntry("PENDING", "Resources")),
        ("RUNNING|None\n", QueueEntry("RUNNING")),
        ("TIMEOUT|TimeLimit\n", QueueEntry("TIMEOUT", "TimeLimit")),
        ("PENDING|Nodes are DOWN, DRAINED\n", QueueEntry("PENDING", "Nodes are DOWN, DRAINED")),
        ("", None),
    ],
)
def test_a_job(line: str, entry: QueueEntry | None) -> None:
    assert read_entry(line) == entry


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        ("n1|idle|gpu:2\nn2|mix|gpu:2\n", [2, 2]),
        ("n1|alloc|gpu:a100:4(S:0-1)\n", [4]),
        ("n1|idle|gpu:a100:2(S:0),gpu:v100:6(S:1),shard:16\n", [8]),
        ("n1|idle|(null)\nn2|idle~|\n", [0, 0]),
        ("n1|idle|gpu:2\nn1|idle|gpu:2\n", [2]),  # in two partitions
        ("n1|down*|gpu:2\nn2|drng|gpu:2\nn3|drain|gpu:2\nn4|inval|gpu:2\nn5|plnd|gpu:2\n", [2]),
        ("", []),
    ],
)
def test_nodes_that_take_jobs(lines: str, gpus: list[int]) -> None:
    assert read_nodes(lines) == gpus


def test_a_complaint_is_one_line() -> None:
    said = (
        "sbatch: error: Memory specification can not be satisfied\n"
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"
    )
    assert complaint(said) == (
        "Memory specification can not be satisfied; "
        "Batch job submission failed: Requested node configuration is not available"
    )
    assert complaint("slurm_load_jobs error: Invalid job id specified") == "Invalid job id specified"
    assert complaint("") == ""


def test_without_slurm_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmSilent, match="scancel"):
        cancel("1")
