"""The panel in JupyterLab in a real browser, with a monitor that answers with the golden JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.panel.conftest import (
    PANEL,
    ROOT,
    TAB,
    keep_picture,
    lab_config,
    search_palette,
    show_panel,
    write_notebook,
)
from tests.panel.golden import KERNELS
from tests.server.realserver import Server, serving

pytestmark = pytest.mark.slow
LogIn = Callable[[Server], AbstractContextManager[Any]]
AXE = ROOT / "labextension" / "node_modules" / "axe-core" / "axe.min.js"


def log(server: Server) -> dict[str, Any]:
    return server.get("gpuprof/test/log").json()


def holder(panel: Any, n: int) -> Any:
    return panel.locator(f'[data-holder="{KERNELS[n]}"]')


def seconds(text: str) -> int:
    minutes, s = re.search(r"(\d+):(\d\d)", text).groups()
    return 60 * int(minutes) + int(s)


def test_what_a_person_sees(lab: Server, log_in: LogIn) -> None:
    with log_in(lab) as page:
        panel = show_panel(page, lab)
        for last in ("10.0 of 24.0 GPU-hours busy", "It is kept for 1 h", "Stops improving at 4"):
            panel.get_by_text(last, exact=False).first.wait_for()
        words = panel.inner_text()
        for said in (
            "simulated", "83 % active", "92.5 GiB / 140 GiB", "MIG: split into instances",
            "1.5 GiB held by others", "training", "finished, still holding", "kept for another",
            "orphan: its kernel is gone", "10.0 of 24.0 GPU-hours busy", "Stalled on input",
            "After 1 h of idleness", "c.GpuProfReaper", "cull_idle_timeout",
        ):  # fmt: skip
            assert said in words, said
        card = panel.locator(".jp-gpupanel-card")
        assert "input-bound" in card.inner_text()
        assert "input wait 60 %" in re.sub(r"\s+", " ", card.inner_text())
        assert "%gpuprof try num_workers=4" in card.inner_text()
        assert panel.locator(".jp-gpupanel-remedies > li").count() == 3
        assert "first try" in words
        assert panel.locator(".jp-gpupanel-curve circle").count() == 4
        assert "work/explore" not in page.locator(".jp-gpupanel-section summary").all_inner_texts()

        # The countdown ticks, and nothing moves while it does.
        fate = holder(panel, 1).locator(".jp-gpupanel-fate")
        box, before = panel.locator("section").last.bounding_box(), seconds(fate.inner_text())
        page.wait_for_timeout(3000)
        assert 2 <= before - seconds(fate.inner_text()) <= 5
        assert panel.locator("section").last.bounding_box() == box

        # One notice, updated and not repeated.
        assert page.locator(".Toastify__toast").count() == 1
        assert "GPU 42 %" in page.locator("#jp-main-statusbar").inner_text()
        assert not [url for url in page.urls if lab.token in url and "/gpuprof/" in url]
        assert not [url for url in page.urls if not url.startswith((lab.url, "data:", "blob:"))]
        assert {"devices", "holders", "status", "ledger", "audit", "run"} <= log(lab)["asked"].keys()


def test_keep_release_and_end(lab: Server, log_in: LogIn) -> None:
    with log_in(lab) as page:
        panel = show_panel(page, lab)
        holder(panel, 1).get_by_role("button", name="Keep 1 h").click()
        page.wait_for_function(
            "document.querySelector('#jupyter-gpuprof-panel').innerText.includes('for another 59:')"
        )
        assert log(lab)["done"] == [["keep", KERNELS[1], 1]]
        holder(panel, 1).get_by_role("button", name="End keep").click()
        page.get_by_text("explore.ipynb is kept no longer.").first.wait_for()
        holder(panel, 2).get_by_role("button", name="End keep").click()
        page.get_by_text("long-eval.ipynb is still kept for 50 min").first.wait_for()
        assert log(lab)["done"][1:] == [["keep", KERNELS[1], 0], ["keep", KERNELS[2], 0]]

        holder(panel, 1).get_by_role("button", name="Release now").click()
        dialog = page.locator(".jp-Dialog")
        assert "explore.ipynb" in dialog.inner_text()
        assert "41.0 GiB" in dialog.inner_text()
        dialog.get_by_role("button", name="Cancel").click()
        page.wait_for_selector(".jp-Dialog", state="detached")
        assert len(log(lab)["done"]) == 3, "it asks first"
        holder(panel, 1).get_by_role("button", name="Release now").click()
        page.locator(".jp-Dialog").get_by_role("button", name="Free").click()
        holder(panel, 1).wait_for(state="detached")
        assert log(lab)["done"][3] == ["release", KERNELS[1], "free"]
        page.get_by_text("41.0 GiB are free again.").first.wait_for()

        # What was not done stays on the page.
        holder(panel, 2).get_by_role("button", name="Release now").click()
        page.locator(".jp-Dialog").get_by_role("button", name="Shut down").click()
        page.locator(".Toastify__toast--warning", has_text="Memory is still held by process 4002.").wait_for()

        panel.get_by_role("button", name="End …").click()
        page.locator(".jp-Dialog").get_by_role("button", name="End").click()
        panel.locator('[data-holder="4711-1700000100"]').wait_for(state="detached")
        assert log(lab)["done"][-1] == ["end", "4711-1700000100"]


def test_the_running_list_the_palette_and_links(lab: Server, log_in: LogIn) -> None:
    with log_in(lab) as page:
        panel = show_panel(page, lab)
        page.click('[data-id="jp-running-sessions"]')
        page.get_by_text("GPU holders").first.wait_for()
        assert page.locator(".jp-RunningSessions-item", has_text="train-resnet.ipynb").count() >= 1
        page.get_by_text("| Idle").wait_for()  # the notebook takes the focus when its kernel is there
        search_palette(page, "GPU profiler")
        for label in (
            "Show the GPU Profiler",
            "Ask for Devices",
            "Release This Notebook’s Device",
            "Keep This",
        ):
            page.locator(".lm-CommandPalette-itemLabel", has_text=label).wait_for()
        page.locator(".lm-CommandPalette-item", has_text="Keep This Notebook’s Device for 1 h").click()
        page.get_by_text("explore.ipynb is kept for 1 h.").first.wait_for()
        assert log(lab)["done"] == [["keep", KERNELS[1], 1]]
        page.wait_for_selector(".Toastify__toast--warning", state="detached")  # its notice is taken away
        write_notebook(lab.log_file.parent / "work" / "work" / "train-resnet.ipynb")
        holder(panel, 0).get_by_role("button", name="train-resnet.ipynb", exact=True).click()
        page.locator(".lm-DockPanel-tabBar .lm-mod-current", has_text="train-resnet").wait_for()


def test_settings_hold_and_the_layout_comes_back(lab: Server, log_in: LogIn) -> None:
    with log_in(lab) as page:
        panel = show_panel(page, lab)

        def put(**values: Any) -> int:
            return lab.call(
                "PUT", "lab/api/settings/jupyter-gpuprof:plugin", {"raw": json.dumps(values)}
            ).status

        def reload() -> None:
            page.reload()
            page.wait_for_selector(f"{PANEL} .jp-gpupanel-device")

        page.get_by_text("GPU 42 %").wait_for()
        page.wait_for_timeout(1500)  # JupyterLab saves the layout a second after a change of it
        assert put(refreshSeconds=0.5) == 400, "the server keeps to the schema"
        reload()
        assert panel.is_visible(), "the layout came back"
        assert panel.evaluate("node => !!node.closest('#jp-right-stack')")
        before = log(lab)["asked"]["devices"]
        page.wait_for_timeout(3000)
        assert log(lab)["asked"]["devices"] - before <= 3
        assert put(side="left", showStatus=False, notify=False, refreshSeconds=1) == 204
        reload()
        assert panel.evaluate("node => !!node.closest('#jp-left-stack')")
        assert not page.get_by_text("GPU 42 %").is_visible()
        assert page.locator(".Toastify__toast").count() == 0

        # Hidden it asks nothing.
        page.click(TAB)
        page.wait_for_selector(PANEL, state="hidden")
        page.wait_for_timeout(500)
        before = log(lab)["asked"]["devices"]
        page.wait_for_timeout(2500)
        assert log(lab)["asked"]["devices"] == before
        page.click(TAB)
        page.wait_for_timeout(1500)
        assert log(lab)["asked"]["devices"] > before


def test_it_survives_a_restart_of_the_server(tmp_path: Path, log_in: LogIn) -> None:
    config = lab_config(tmp_path, "tests.panel.scriptedpanel")
    with serving(tmp_path, config, base_url="/user/x/") as server:
        port, token = server.port, server.token
        context = log_in(server)
        page = context.__enter__()
        panel = show_panel(page, server, path="")
    try:
        panel.get_by_text("The server does not answer").wait_for()
        assert "92.5 GiB" in panel.inner_text(), "what was known stays"
        same = f"{config}\nc.ServerApp.port = {port}\nc.IdentityProvider.token = {token!r}"
        with serving(tmp_path, same, base_url="/user/x/"):
            panel.get_by_text("The server does not answer").wait_for(state="detached", timeout=60_000)
            assert page.locator(".jp-gpupanel-trouble").inner_text() == ""
    finally:
        page.errors.clear()  # of JupyterLab itself, while the server is away
        context.__exit__(None, None, None)


def test_without_the_server_extension_it_says_so(lab: Server, log_in: LogIn) -> None:
    with log_in(lab) as page:
        # The server itself answers, as it does about a path that nobody has registered.
        page.route(
            re.compile("gpuprof/api/"),
            lambda route: route.continue_(url=route.request.url.replace("gpuprof/api", "nobody/api")),
        )
        page.goto(f"{lab.url}/lab?reset")
        page.click(TAB)
        page.get_by_text("server extension does not answer").wait_for()


def test_the_keyboard_reaches_all_and_no_theme_has_a_serious_violation_of_accessibility(
    lab: Server, log_in: LogIn
) -> None:
    if not AXE.is_file():
        pytest.skip("NO AXE-CORE, SO ACCESSIBILITY IS NOT TESTED: run `make panel`")
    with log_in(lab) as page:
        panel = show_panel(page, lab)
        panel.locator(".jp-gpupanel-card").wait_for()
        panel.locator("summary").first.focus()
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate(
                    "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
                )
            )
        wanted = {"Keep 1 h: explore.ipynb", "Release now …: explore.ipynb", "End …: crashed.ipynb"}
        assert wanted <= reached
        assert {"Copy: %gpuprof try num_workers=4", "long-eval.ipynb"} <= reached

        page.add_script_tag(path=str(AXE))
        grounds = set()
        for theme in ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"):
            page.locator(".lm-MenuBar-itemLabel", has_text="Settings").click()
            page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).hover()
            page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{theme}$")).click()
            page.wait_for_function(f"document.body.dataset.jpThemeName === '{theme}'")
            page.wait_for_timeout(500)
            grounds.add(panel.evaluate("node => getComputedStyle(node).backgroundColor"))
            found = page.evaluate(f"axe.run('{PANEL}').then(r => r.violations)")
            bad = [
                (v["id"], [f"{node['html'][:160]} | {node['failureSummary']}" for node in v["nodes"]][:3])
                for v in found
                if v["impact"] in ("serious", "critical")
            ]
            assert not bad, theme
            keep_picture(page, theme)
        assert len(grounds) >= 2
