"""``%gpuprof scale`` in a real kernel: stopped in the middle, shown again from disk; and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_gpuprof.probes import jobs
from jupyter_gpuprof.probes.machine import usable_cores
from jupyter_gpuprof.records.scaling import Scaling
from jupyter_gpuprof.store.trials import find_curve
from tests.notebook.test_kernel import SETUP, Kernel

CELL = """%%gpuprof --name tiny
for epoch in range(40):
    for x, y in DataLoader(Slow(60, 2), batch_size=2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if epoch == 0 and not os.environ.get("WORLD_SIZE"): break
"""


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.run(SETUP + "import os\n")
    yield kernel
    kernel.stop()


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """Everything shown, in its order."""
    return [m["content"]["data"]["text/plain"] for m in messages if "data" in m["content"]]


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="two ranks need two cores")
def test_the_stop_button_keeps_the_points(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(CELL)

    files = f"--json {tmp_path / 'curve.json'} --html {tmp_path / 'curve.html'}"
    began = time.monotonic()
    request = kernel.start(f"%gpuprof scale 1 2 --repeats 1 --steps 200 {files}\nprint('after it')")
    seen: list[dict[str, Any]] = []
    while not any("2 CPU processes, repeat 1" in text and "samples/s so far" in text for text in texts(seen)):
        seen += kernel.messages(request, until="update_display_data", timeout=120)
    updates = [m for m in seen if m["msg_type"] == "update_display_data"]
    seconds = time.monotonic() - began
    # Two displays, each updated at most four times a second, and the figure only once.
    assert len(updates) <= 4.5 * seconds + 2
    assert any("s left" in text for text in texts(seen))
    kernel.manager.interrupt_kernel()
    rest = kernel.messages(request, timeout=60)

    last = texts(rest)[-1]
    assert "The measurement was interrupted; it holds what was measured until then." in last
    assert not [m for m in rest if m["msg_type"] == "error"]
    curve = Scaling.from_dict(json.loads((tmp_path / "curve.json").read_text()))
    assert not curve.finished
    assert [point.outcome for point in curve.points] == ["measured", "cancelled"]
    assert find_curve(Scaling, "last") == curve
    assert curve.run_name == "tiny"
    assert "<svg" in (tmp_path / "curve.html").read_text()
    assert not [p for p in psutil.Process(kernel_pid(kernel)).children(recursive=True) if is_job(p)]

    again = texts(kernel.run("%gpuprof show scale"))
    assert again[-1] == last
    assert curve.scaling_id in "".join(texts(kernel.run("%gpuprof history")))


def kernel_pid(kernel: Kernel) -> int:
    pid: int = kernel.manager.provisioner.process.pid
    return pid


def is_job(process: psutil.Process) -> bool:
    try:
        return jobs.TAG in process.environ() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 2", "No cell was profiled in this kernel yet."),
        ("0 2", "Device counts are whole numbers from 1 on"),
        ("1 x", "Device counts are whole numbers from 1 on"),
        ("1 2 2", "A device count comes twice in 1 2 2."),
        ("1 2 --repeats 0", "--repeats takes 1 or more"),
        ("1 2 --json /no/such/folder/c.json", "cannot be written: there is no folder"),
    ],
)
def test_what_is_refused_in_one_sentence(cells: Any, line: str, words: str) -> None:
    result = cells.run(f"%gpuprof scale {line}")
    assert words in str(result.error_in_exec)
    assert "Traceback" not in cells.stdout + cells.stderr
