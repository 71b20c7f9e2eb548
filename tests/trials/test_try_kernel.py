"""``%gpuprof try`` and ``batch`` in a shell and in a real kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.notebook.conftest import Cells, cells  # noqa: F401  (a fixture)
from tests.notebook.test_kernel import LOOP, SETUP, Kernel


@pytest.mark.parametrize("command", ["try num_workers=2", "try", "batch"])
def test_before_any_profiled_cell(cells: Cells, command: str) -> None:  # noqa: F811
    cells.run(f"%gpuprof {command}")
    assert "No cell was profiled in this kernel yet" in cells.stderr
    assert "Put %%gpuprof on top of a training cell" in cells.stderr
    assert "Traceback" not in cells.stderr


def test_an_unknown_setting_lists_the_known_ones(cells: Cells) -> None:  # noqa: F811
    cells.run("%%gpuprof --quiet\n" + LOOP.format(n=8))
    cells.run("%gpuprof try wokers=2")
    assert "There is no setting 'wokers' to try" in cells.stderr
    assert "num_workers=4" in cells.stderr
    assert "Traceback" not in cells.stderr


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with a profiled cell, and a ledger of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPUPROF_DATABASE", str(tmp_path_factory.mktemp("ledger") / "ledger.db"))
        kernel = Kernel()
    kernel.run(SETUP)
    kernel.run("loader = DataLoader(Slow(60, 2), batch_size=2)")
    kernel.run(
        "%%gpuprof --quiet" + LOOP.format(n=60).replace("DataLoader(Slow(60), batch_size=2)", "loader")
    )
    yield kernel
    kernel.stop()


def lines(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was written into updated displays."""
    return [
        m["content"]
        for m in messages
        if m["msg_type"] in ("display_data", "update_display_data")
        and "text/html" not in m["content"]["data"]
    ]


@pytest.mark.slow
def test_a_trial_in_a_real_kernel(kernel: Kernel) -> None:
    began = time.monotonic()
    messages = kernel.run("%gpuprof try num_workers=2 --steps 12")
    seconds = time.monotonic() - began
    (result,) = [m["content"]["data"] for m in messages if m["msg_type"] == "execute_result"]
    assert {"text/plain", "text/html"} <= set(result)
    assert "num_workers=2" in result["text/plain"]
    assert "num_workers=2" in result["text/html"]
    shown = lines(messages)
    assert len({content["transient"]["display_id"] for content in shown}) == 1
    assert 3 <= len(shown) <= 4 * seconds + 2
    assert any("round 1 of 4" in content["data"]["text/plain"] for content in shown)
    assert not [m for m in messages if m["msg_type"].startswith("comm")]
    (history,) = [
        m["content"]["data"]["text/plain"]
        for m in kernel.run("%gpuprof history --predictions")
        if m["msg_type"] == "display_data"
    ]
    assert "num_workers=2" in history
    measured_s = seconds_measured(kernel)
    print(f"a try took {seconds:.1f} s, {100 * measured_s / seconds:.0f} % of it in counted steps")


def seconds_measured(kernel: Kernel) -> float:
    """Seconds in counted steps of the last trial of the kernel's ledger."""
    code = (
        "from jupyter_gpuprof.store.trials import recent_trials\n"
        "t = recent_trials(None)[0]\n"
        "print('measured', sum(v.step_s.value * v.steps for v in (t.before, t.after)))"
    )
    texts = [m["content"].get("text", "") for m in kernel.run(code)]
    return float(next(text for text in texts if text.startswith("measured")).split()[1])


@pytest.mark.slow
def test_an_interrupted_trial_is_one_line(kernel: Kernel) -> None:
    kernel.run("loader = DataLoader(Slow(4000, 2), batch_size=2)")
    before = output(kernel, CHECK)
    request = kernel.start("%gpuprof try num_workers=2 --steps 300")
    kernel.messages(request, until="update_display_data")  # the line moves: a round runs
    kernel.manager.interrupt_kernel()
    messages = kernel.messages(request)
    assert not [m for m in messages if m["msg_type"] == "error"]
    text = "".join(m["content"].get("text", "") for m in messages if m["msg_type"] == "stream")
    assert "try was interrupted; nothing was changed" in text
    assert output(kernel, CHECK) == before


CHECK = """
import hashlib
print(hashlib.sha256(b"".join([p.detach().numpy().tobytes() for p in model.parameters()]
    + [torch.get_rng_state().numpy().tobytes(), str(optimizer.param_groups).encode()])).hexdigest())
"""


def output(kernel: Kernel, source: str) -> str:
    return "".join(m["content"].get("text", "") for m in kernel.run(source) if m["msg_type"] == "stream")
