"""The panel over a real server: a pretended driver, real kernels, a profiled cell, a child that outlives its
kernel."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakenvml import GIB, FakeNvml, Gpu, why_not
from tests.panel.conftest import HAS_NOTEBOOK, PANEL, lab_config, need_panel, search_palette, show_panel
from tests.server.realserver import Server, eventually, serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
LogIn = Callable[[Server], AbstractContextManager[Any]]

#: The child is in a session of its own, so it survives its kernel.
BEGIN = """
%load_ext jupyter_gpuprof
import subprocess, sys, time, torch
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print("child", child.pid)
"""
LOOP = """
%%gpuprof --name slow-loader
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): time.sleep(0.01); return torch.ones(8)
model = torch.nn.Linear(8, 1); opt = torch.optim.SGD(model.parameters(), 0.1)
for x in torch.utils.data.DataLoader(Slow()):
    opt.zero_grad(); model(x).sum().backward(); opt.step()
"""
REAPER = """
c.GpuProf.sample_period = 0.5
c.GpuProfReaper.action = "free"
c.GpuProfReaper.idle_timeout = 600
c.GpuProfReaper.warn_before = 60
c.GpuProfReaper.start_grace = 0
"""


def write(path: Path) -> None:
    import nbformat
    import nbformat.v4 as v4

    cells = [v4.new_code_cell(text.strip()) for text in (BEGIN, LOOP)]
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(v4.new_notebook(cells=cells, metadata={"kernelspec": python}), path)


class Machine:
    """The server, and the driver below it."""

    def __init__(self, server: Server, nvml: FakeNvml) -> None:
        self.server, self.nvml = server, nvml

    def holders(self) -> dict[str, Any]:
        return self.server.get("gpuprof/api/v1/holders").json()

    def hold(self, *pids: int) -> None:
        """The driver lists these and no others."""
        self.nvml.set(0, processes=dict.fromkeys(pids, 4 * GIB), used_bytes=4 * GIB * len(pids))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    need_panel()
    folder = tmp_path_factory.mktemp("machine")
    for name in ("loop.ipynb", "seven.ipynb"):
        write(folder / "work" / name)
    nvml = FakeNvml(folder, [Gpu(utilisation=0)])
    env = {**nvml.env, "JUPYTER_GPUPROF_DATABASE": str(folder / "ledger.db")}
    config = lab_config(folder, "jupyter_gpuprof", *["notebook"] * HAS_NOTEBOOK) + REAPER
    with serving(folder, config, base_url="/user/x/", env=env) as server:
        yield Machine(server, nvml)


def test_a_notebook_from_its_first_cell_to_its_orphan(machine: Machine, log_in: LogIn) -> None:
    with log_in(machine.server) as page:
        panel = show_panel(page, machine.server, "loop.ipynb")
        panel.get_by_text("No run yet.").wait_for()
        eventually(lambda: machine.holders()["holders"])
        kernel = machine.holders()["holders"][0]
        machine.hold(kernel["pid"])
        row = panel.locator(f'[data-holder="{kernel["holder_id"]}"]')
        row.wait_for()
        assert "loop.ipynb" in row.inner_text()
        assert "4.0 GiB" in row.inner_text()

        cells = page.locator(".jp-Notebook .jp-CodeCell")
        cells.nth(0).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        printed = cells.nth(0).locator(".jp-OutputArea-output", has_text="child")
        printed.wait_for(timeout=60_000)
        child = int(printed.inner_text().split()[-1])
        machine.hold(kernel["pid"], child)
        eventually(lambda: machine.holders()["holders"][0]["held_bytes"] == 8 * GIB)

        cells.nth(1).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        card = panel.locator(".jp-gpupanel-card")
        card.wait_for(timeout=60_000)
        assert "input-bound" in card.inner_text()
        assert panel.locator(".jp-gpupanel-remedies > li").count() >= 1

        row.locator(".jp-gpupanel-fate").wait_for(timeout=30_000)
        assert "warning in 9:" in row.inner_text() or "warning in 8:" in row.inner_text()
        row.get_by_role("button", name="Keep 1 h").click()
        row.get_by_text("kept for another").wait_for()

        os.kill(kernel["pid"], signal.SIGKILL)
        machine.hold(child)
        try:
            machine.server.call("DELETE", f"api/kernels/{kernel['kernel_id']}")
            panel.get_by_role("button", name="End …").click()
            page.locator(".jp-Dialog").get_by_role("button", name="End").click()
            eventually(lambda: not _runs(child))
            machine.hold()
            panel.get_by_text("No notebook of this server holds a device.").wait_for()
        finally:
            if _runs(child):
                os.kill(child, signal.SIGKILL)
        assert not [url for url in page.urls if machine.server.token in url and "/gpuprof/" in url]


@pytest.mark.skipif(not HAS_NOTEBOOK, reason="NOTEBOOK 7 IS NOT TESTED: pip install notebook")
def test_the_magic_and_the_panel_in_notebook_7(machine: Machine, log_in: LogIn) -> None:
    machine.hold()
    with log_in(machine.server) as page:
        page.goto(f"{machine.server.url}/notebooks/seven.ipynb")
        cells = page.locator(".jp-Notebook .jp-CodeCell")
        for n in range(2):
            cells.nth(n).locator(".cm-content").click()
            page.keyboard.press("Shift+Enter")
        cells.nth(1).locator(".jp-OutputArea-output .jp-gpuprof-report").wait_for(timeout=60_000)
        search_palette(page, "Show the GPU Profiler")
        page.keyboard.press("Enter")
        panel = page.locator(PANEL)
        panel.locator(".jp-gpupanel-card", has_text="input-bound").wait_for()
        panel.get_by_text("No notebook of this server holds a device.").wait_for()
        # Notebook 7.6 has errors of its own, without us too: these are ours.
        page.errors[:] = [error for error in page.errors if "jupyter-gpuprof" in error]
        (kernel,) = [h for h in machine.holders()["holders"] if h["path"] == "seven.ipynb"]
        machine.hold(kernel["pid"])
        panel.locator(f'[data-holder="{kernel["holder_id"]}"]', has_text="seven.ipynb").wait_for()
        child = int(cells.nth(0).locator(".jp-OutputArea-output", has_text="child").inner_text().split()[-1])
        os.kill(child, signal.SIGKILL)
    machine.hold()
    machine.server.call("DELETE", f"api/kernels/{kernel['kernel_id']}")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
