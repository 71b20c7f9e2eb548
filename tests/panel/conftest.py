"""JupyterLab with our panel in Debian's Chromium."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.realserver import Server, serving

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "jupyter_gpuprof" / "labextension"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
HAS_NOTEBOOK = importlib.util.find_spec("notebook") is not None
PANEL = "#jupyter-gpuprof-panel"
TAB = '[data-id="jupyter-gpuprof-panel"]'


def need_panel() -> None:
    """Skip, and say how not to, where the panel is not built."""
    if not (BUILT / "package.json").is_file():
        pytest.skip("THE PANEL IS NOT BUILT, SO IT IS NOT TESTED: run `make panel`")


def lab_config(folder: Path, *extensions: str) -> str:
    """The configuration of a JupyterLab that has nothing but our panel, from the checkout."""
    found = folder / "labextensions"
    found.mkdir(exist_ok=True)
    if not (found / "jupyter-gpuprof").exists():
        (found / "jupyter-gpuprof").symlink_to(BUILT)
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "notification.jupyterlab-settings").write_text(
        '{"fetchNews": "false", "checkForUpdates": false}'
    )
    enabled = dict.fromkeys(("jupyterlab", *extensions), True)
    return "\n".join(
        [
            f"c.ServerApp.jpserver_extensions = {enabled!r}",
            f"c.LabServerApp.extra_labextensions_path = [{str(found)!r}]",
            *(
                f"c.{app}.{name}_dir = {str(folder / where)!r}"
                for app in ("LabApp", "JupyterNotebookApp")
                for name, where in (("user_settings", "settings"), ("workspaces", "workspaces"))
            ),
        ]
    )


@pytest.fixture(scope="module")  # while it is open, playwright's event loop runs in this thread: not for ever
def chromium() -> Iterator[Any]:
    """A browser, for the tests of a module."""
    need_panel()
    if not CHROMIUM:
        pytest.skip("NO CHROMIUM, SO THE PANEL IS NOT TESTED IN A BROWSER: apt-get install chromium")
    api = pytest.importorskip(
        "playwright.sync_api", reason="THE PANEL IS NOT TESTED IN A BROWSER: no playwright"
    )
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        browser.contexts_of = {}
        yield browser
        browser.close()


@pytest.fixture
def log_in(chromium: Any) -> Callable[[Server], AbstractContextManager[Any]]:
    """A page that has logged in as a person does, by the form; it fails on an error of our scripts.

    What JupyterLab is made of is kept for the next page of the same server.
    """

    @contextmanager
    def logged_in(server: Server) -> Iterator[Any]:
        context = chromium.contexts_of.get(server.url)
        if context is None:
            context = chromium.new_context(viewport={"width": 1400, "height": 1800})
            chromium.contexts_of[server.url] = context
        context.clear_cookies()
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.urls, page.errors = [], []
        page.on("request", lambda request: page.urls.append(request.url))
        page.on("pageerror", lambda error: page.errors.append(f"{error.message}\n{error.stack}"))
        page.goto(f"{server.url}/login")
        page.fill("#password_input", server.token)
        page.click("#login_submit")
        try:
            yield page
            assert not page.errors
        finally:
            keep_picture(page)
            page.close()

    return logged_in


def keep_picture(page: Any, more: str = "") -> None:
    """A screenshot for the artefacts of CI, where it wants them."""
    folder = os.environ.get("GPUPROF_PICTURES")
    if folder:
        name = os.environ.get("PYTEST_CURRENT_TEST", "page").rpartition("::")[2].split(" ")[0]
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}{more.replace(' ', '-')}.png")


@pytest.fixture(scope="module")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab below a base URL, with the scripted monitor and a notebook that has runs."""
    need_panel()
    folder = tmp_path_factory.mktemp("lab")
    write_notebook(folder / "work" / "work" / "explore.ipynb")
    with serving(folder, lab_config(folder, "tests.panel.scriptedpanel"), base_url="/user/x/") as server:
        yield server


@pytest.fixture
def lab(lab_server: Server) -> Server:
    """That server, where nothing was done yet and nothing set."""
    for mine in ("jupyter-gpuprof", "@jupyterlab/apputils-extension/themes.jupyterlab-settings"):
        path = lab_server.log_file.parent / "settings" / mine
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert lab_server.call("POST", "gpuprof/test/log").status == 200
    return lab_server


def write_notebook(path: Path) -> None:
    """A notebook whose outputs carry the golden marks, and an older run's."""
    import nbformat.v4 as v4

    path.parent.mkdir(parents=True, exist_ok=True)
    run, scaling = json.loads((ROOT / "tests" / "golden" / "marks.json").read_text())
    older = {"run_id": "older", "name": "first try", "label": "unclear", "started_at": "2025-01-01"}
    cell = v4.new_code_cell("1 + 1")
    for mark in ({"jupyter_gpuprof": {"run": older}}, run, scaling):
        cell.outputs.append(v4.new_output("display_data", data={"text/plain": "report"}, metadata=mark))
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.write_text(json.dumps(v4.new_notebook(cells=[cell], metadata={"kernelspec": python})))


def show_panel(page: Any, server: Server, path: str = "work/explore.ipynb") -> Any:
    """Open a notebook, if any, and the panel."""
    page.goto(f"{server.url}/lab/tree/{path}?reset" if path else f"{server.url}/lab?reset")
    page.wait_for_selector(TAB)
    if path:
        page.wait_for_selector(".jp-Notebook .jp-Cell")
    if not page.is_visible(PANEL):
        page.click(TAB)
    page.wait_for_selector(f"{PANEL} .jp-gpupanel-device")
    return page.locator(PANEL)


def search_palette(page: Any, words: str) -> None:
    """Open the palette of commands and look for some."""
    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input:visible").fill(words)
