"""What the panel costs: its download, one poll with 8 devices and 40 holders, and JupyterLab's start with it.

    python benchmarks/panel.py [--starts N]

The first two need a built panel (``make panel``); the starts need Chromium and playwright too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jupyter_gpuprof.views.sighting_json import devices_json, holders_json  # noqa: E402
from tests.panel.golden import NOW_S, sighting  # noqa: E402

BUILT = ROOT / "jupyter_gpuprof" / "labextension"


def download() -> None:
    files = list((BUILT / "static").glob("*.js"))
    raw = [path.read_bytes() for path in files]
    packed = sum(len(gzip.compress(script)) for script in raw)
    print(f"download: {sum(map(len, raw)) / 1e3:.1f} kB, gzip {packed / 1e3:.1f} kB")


def poll() -> None:
    seen = sighting()
    one = seen.snapshot.devices[0]
    devices = tuple(replace(one, index=n, uuid=f"GPU-{n}") for n in range(8))
    kernel = seen.kernels[1]
    kernels = tuple(
        replace(kernel, facts=replace(kernel.facts, kernel_id=f"{n:08x}-0000-4000-8000-000000000000"))
        for n in range(40)
    )
    seen = replace(seen, snapshot=replace(seen.snapshot, devices=devices), kernels=kernels)
    begun = time.perf_counter()
    for _ in range(100):
        answers = [json.dumps(devices_json(seen, NOW_S)), json.dumps(holders_json(seen, NOW_S, {}))]
    took_s = (time.perf_counter() - begun) / 100
    sizes = [len(answer) for answer in answers]
    packed = [len(gzip.compress(answer.encode())) for answer in answers]
    print(
        f"poll of 8 devices and 40 holders: {1e3 * took_s:.2f} ms, "
        f"{sum(sizes) / 1e3:.1f} kB (devices {sizes[0] / 1e3:.1f}, holders {sizes[1] / 1e3:.1f}), "
        f"gzip {sum(packed) / 1e3:.1f} kB"
    )


def starts(count: int) -> None:
    from playwright.sync_api import sync_playwright

    from tests.panel.conftest import CHROMIUM, FLAGS, lab_config
    from tests.server.realserver import serving

    times: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        bare = lab_config(folder).replace(str(folder / "labextensions"), str(folder / "none"))
        with (
            serving(folder, bare) as without,
            serving(folder, lab_config(folder, "jupyter_gpuprof")) as with_it,
        ):
            for n in range(count + 1):
                for key, server in (("without", without), ("with", with_it)):
                    context = browser.new_context()
                    page = context.new_page()
                    page.goto(f"{server.url}/login")
                    page.fill("#password_input", server.token)
                    page.click("#login_submit")
                    begun = time.perf_counter()
                    page.goto(f"{server.url}/lab?reset")
                    page.wait_for_selector(".jp-Launcher, .jp-LauncherCard")
                    if n:  # the first one warms up
                        times[key].append(time.perf_counter() - begun)
                    context.close()
        browser.close()
    medians = {key: statistics.median(values) for key, values in times.items()}
    more_s = medians["with"] - medians["without"]
    print(
        f"start of JupyterLab: {1e3 * medians['without']:.0f} ms without, {1e3 * medians['with']:.0f} ms "
        f"with the panel ({1e3 * more_s:+.0f} ms; medians of {count})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=0, help="how often to start JupyterLab")
    args = parser.parse_args()
    download()
    poll()
    if args.starts:
        starts(args.starts)
