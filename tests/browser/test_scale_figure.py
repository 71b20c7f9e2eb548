"""The live figure of a scaling in JupyterLab, in a real browser that reaches nothing but the server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from jupyter_gpuprof.probes.machine import usable_cores
from tests.server.realserver import Server, serving

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
CONFIG = """
c.ServerApp.jpserver_extensions = {{"jupyterlab": True}}
c.LabApp.expose_app_in_browser = True
c.LabApp.extension_manager = "readonly"
c.LabApp.user_settings_dir = {settings!r}
c.LabApp.workspaces_dir = {workspaces!r}
"""
CELLS = (
    """\
%load_ext jupyter_gpuprof
import time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = TensorDataset(torch.randn(400, 8), torch.randint(0, 4, (400,)))
""",
    """\
%%gpuprof --quiet --steps 30 --name thumbnails
for epoch in range(90):
    for x, y in DataLoader(data, batch_size=4):
        time.sleep(0.02)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
""",
    "%gpuprof scale 1 2 --repeats 1 --steps 150",
)
#: What the page shows of the curve: the figures' data, and the still pictures with their visible points.
STATE = """() => ({
  figures: (window.Bokeh?.documents ?? []).map(page => Object.fromEntries(["points", "running"].map(
    name => [name, page.get_model_by_name("gpuprof " + name)?.data.count.length]))),
  drawn: [...document.querySelectorAll("div.jp-gpuprof-figure")].filter(e => e.childElementCount > 1).length,
  stills: [...document.querySelectorAll("[data-gpuprof-still]")].filter(e => e.offsetParent !== null)
    .map(e => e.querySelectorAll("circle").length),
  prompts: [...document.querySelectorAll(".jp-InputArea-prompt")].map(e => e.innerText.trim()),
  left: [...document.querySelectorAll(".jp-OutputArea-output")].some(e => / left/.test(e.innerText)),
})"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Server]:
    """JupyterLab with a notebook that profiles a cell and scales it."""
    pytest.importorskip("jupyterlab", reason="THE LIVE FIGURE IS NOT TESTED: no jupyterlab")
    pytest.importorskip("bokeh")
    import nbformat.v4 as v4

    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = v4.new_notebook(
        cells=[v4.new_code_cell(source) for source in CELLS], metadata={"kernelspec": python}
    )
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "scale.ipynb").write_text(json.dumps(notebook))
    settings = tmp_path / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(
        '{"fetchNews": "false", "checkForUpdates": false}'
    )
    config = CONFIG.format(settings=str(tmp_path / "settings"), workspaces=str(tmp_path / "workspaces"))
    with serving(tmp_path, config) as server:
        yield server


@pytest.fixture
def page(lab: Server) -> Iterator[Any]:
    """A page that is offline but for the server; it fails on an error of a script."""
    if not CHROMIUM:
        pytest.skip("NO CHROMIUM, SO THE LIVE FIGURE IS NOT TESTED: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="THE LIVE FIGURE IS NOT TESTED: no playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_context(viewport={"width": 1300, "height": 1700}).new_page()
        page.set_default_timeout(90_000)
        elsewhere: list[str] = []
        errors: list[str] = []

        def only_here(route: Any) -> None:
            if urlsplit(route.request.url).hostname in ("127.0.0.1", None):
                route.continue_()
            else:
                elsewhere.append(route.request.url)
                route.abort()

        page.route("**/*", only_here)
        page.on("pageerror", lambda error: errors.append(str(error)))
        try:
            yield page
        finally:
            browser.close()
        assert not elsewhere
        assert not errors


@pytest.mark.skipif(usable_cores() < 2, reason="two ranks need two cores")
def test_during_the_run_after_it_after_a_reload_and_in_the_file(
    lab: Server, page: Any, tmp_path: Path
) -> None:
    page.goto(f"{lab.url}/lab/tree/scale.ipynb?token={lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector("text=/Python 3.*Idle/")
    page.click(".jp-CodeCell .cm-content")
    for _ in CELLS:
        page.keyboard.press("Shift+Enter")

    # While it runs: the first point, and the throughput of what is on.
    page.wait_for_function(
        f"state => (({STATE})()).figures.some(f => f.points === 1 && f.running === 1)", timeout=120_000
    )
    page.screenshot(path=tmp_path / "running.png")
    state = page.evaluate(STATE)
    assert state["drawn"] == 1
    assert state["stills"] == [], "the figure stands for the still picture"
    assert "[*]:" in state["prompts"]
    assert state["left"]

    # After it, also in a second view of the same output.
    page.wait_for_function(f"() => !({STATE})().prompts.includes('[*]:')", timeout=120_000)
    page.wait_for_function(f"() => ({STATE})().figures.some(f => f.points === 2 && f.running === 0)")
    page.screenshot(path=tmp_path / "finished.png")
    page.locator(".jp-gpuprof-label").last.click(button="right")
    page.click('text="Create New View for Cell Output"')
    page.wait_for_function(f"() => ({STATE})().drawn === 2 && ({STATE})().figures.every(f => f.points === 2)")
    page.screenshot(path=tmp_path / "second.png")

    # In the file: the finished curve, without the library.
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    file = tmp_path / "work" / "scale.ipynb"
    page.wait_for_timeout(500)
    scaled = json.loads(file.read_text())["cells"][len(CELLS) - 1]
    assert len(json.dumps(scaled)) < 300_000
    htmls = ["".join(output["data"].get("text/html", "")) for output in scaled["outputs"]]
    assert sum(html.count("data-gpuprof-still=") for html in htmls) >= 1
    assert "2 CPU processes" in "".join("".join(o["data"]["text/plain"]) for o in scaled["outputs"])
    assert not any("BokehJS" in html for html in htmls)

    # After a reload there is no library: the still picture stands, with both points.
    page.reload()
    page.wait_for_selector(".jp-Notebook [data-gpuprof-still]")
    page.wait_for_timeout(1500)
    page.screenshot(path=tmp_path / "reloaded.png")
    state = page.evaluate(STATE)
    assert state["drawn"] == 0
    assert state["stills"], "no picture"
    assert all(points == 2 for points in state["stills"])
