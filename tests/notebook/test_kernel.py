"""The magic in real kernels: the live line, a real interrupt, two kernels at once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner  # noqa: F401  (what starts it)

from jupyter_gpuprof.store.runs import recent_runs

SETUP = """
%load_ext jupyter_gpuprof
import time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Slow(Dataset):
    def __init__(self, n=60, ms=4): self.n, self.ms = n, ms
    def __len__(self): return self.n
    def __getitem__(self, i):
        time.sleep(self.ms / 1e3)
        return torch.randn(8), i % 4
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
LOOP = """
for x, y in DataLoader(Slow({n}), batch_size=2):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


class Kernel:
    """A kernel process of this interpreter, and what it sends."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager._kernel_spec = _spec()
        self.manager.start_kernel(env={**os.environ, "PYTHONWARNINGS": "ignore"})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def start(self, source: str) -> str:
        return self.client.execute(source)

    def messages(self, request: str, until: str = "idle", timeout: float = 60) -> list[dict[str, Any]]:
        """The request's messages until the kernel is idle again (or a message of type `until` came)."""
        found, deadline = [], time.monotonic() + timeout
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") != request:
                continue
            found.append(message)
            if message["msg_type"] == until:
                return found
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
        raise TimeoutError(until)

    def run(self, source: str) -> list[dict[str, Any]]:
        return self.messages(self.start(source))

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def _spec() -> Any:
    from jupyter_client.kernelspec import KernelSpec

    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return KernelSpec(argv=command, display_name="Python", language="python")


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.run(SETUP)
    yield kernel
    kernel.stop()


def reports(messages: list[dict[str, Any]]) -> list[str]:
    return [
        m["content"]["data"]["text/plain"]
        for m in messages
        if m["msg_type"] == "display_data" and "text/html" in m["content"]["data"]
    ]


@pytest.mark.slow
def test_interrupt_gives_a_report_and_leaves_nothing(kernel: Kernel) -> None:
    request = kernel.start("%%gpuprof --name stopped" + LOOP.format(n=100_000))
    kernel.messages(request, until="update_display_data")  # the live line moves: the loop runs
    time.sleep(1.0)
    kernel.manager.interrupt_kernel()
    messages = kernel.messages(request)
    (error,) = [m["content"] for m in messages if m["msg_type"] == "error"]
    assert error["ename"] == "KeyboardInterrupt"
    (report,) = reports(messages)
    assert "INPUT-BOUND" in report
    checks = kernel.run("from jupyter_gpuprof.probes import hooks; print(hooks.installed(), hooks.current())")
    assert any("False None" in m["content"].get("text", "") for m in checks)


@pytest.mark.slow
def test_live_line_updates_in_place_at_most_four_times_a_second(kernel: Kernel) -> None:
    began = time.monotonic()
    messages = kernel.run("%%gpuprof" + LOOP.format(n=600))
    seconds = time.monotonic() - began
    lines = [
        m["content"]["data"]["text/plain"]
        for m in messages
        if m["msg_type"] in ("display_data", "update_display_data")
        and "text/html" not in m["content"]["data"]
    ]
    assert 2 <= len(lines) <= 4 * seconds + 2
    assert "steps/s" in lines[1]
    assert "input wait" in lines[-2]
    assert (
        len(
            {
                m["content"]["transient"]["display_id"]
                for m in messages
                if m["msg_type"] == "update_display_data"
            }
        )
        == 1
    )
    assert not [m for m in messages if m["msg_type"].startswith("comm")], "a widget would open a subshell"


@pytest.mark.slow
def test_await_and_out_in_a_real_kernel(kernel: Kernel) -> None:
    messages = kernel.run(
        "%%gpuprof --no-live\nimport asyncio\nawait asyncio.sleep(0)" + LOOP.format(n=60) + "6 * 7"
    )
    (result,) = [m["content"]["data"]["text/plain"] for m in messages if m["msg_type"] == "execute_result"]
    assert result == "42"
    assert len(reports(messages)) == 1


@pytest.mark.slow
def test_two_kernels_save_into_one_ledger(kernel: Kernel) -> None:
    other = Kernel()
    try:
        other.run(SETUP)
        requests = [
            (k, k.start(f"%%gpuprof --quiet --name {name}" + LOOP.format(n=80)))
            for k, name in ((kernel, "one"), (other, "two"))
        ]
        for k, request in requests:
            k.messages(request)
    finally:
        other.stop()
    runs = {run.name: run for run in recent_runs()}
    assert set(runs) == {"one", "two"}
    assert all(run.steps.counted + run.steps.warmup == 40 for run in runs.values())
