"""The main job, as a person runs it: ``python examples/demo.py``."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo.py"

for module in ("nbclient", "nbformat", "ipykernel", "PIL", "sklearn", "torch"):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"the demo needs {module}", allow_module_level=True)


class Finished:
    """What one run of the demo left behind."""

    def __init__(self, out: Path) -> None:
        command = [sys.executable, str(DEMO), "--out", str(out)]
        self.process = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=out.parent)
        self.text = self.process.stdout
        self.out = out

    def run(self, name: str) -> dict[str, Any]:
        """The saved run of that name, from the demo's own ledger."""
        with sqlite3.connect(self.out / "ledger.db") as ledger:
            (body,) = ledger.execute("SELECT body FROM runs WHERE name = ?", (name,)).fetchone()
        return json.loads(body)

    def outputs(self) -> list[dict[str, Any]]:
        """All outputs of the executed notebook."""
        notebook = json.loads((self.out / "demo.executed.ipynb").read_text(encoding="utf-8"))
        return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]

    def plain_clocks(self) -> list[float]:
        """What plain clocks in the two cells say of the wait over the counted steps, as shares."""
        printed = "".join("".join(o["text"]) for o in self.outputs() if o["output_type"] == "stream")
        return [float(share) / 100 for share in re.findall(r"plain clocks ([\d.]+) %", printed)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The demo, run once for all tests."""
    return Finished(tmp_path_factory.mktemp("demo") / "out")


def input_wait(run: dict[str, Any]) -> float:
    """The share of time that a run waited for input, the start of epochs included."""
    return run["shares"]["exposed_input"]["value"] + run["shares"]["between"]["epoch_start"]["value"]


@pytest.mark.slow
def test_demo_succeeds_and_says_where_everything_is(demo: Finished) -> None:
    assert demo.process.returncode == 0, demo.process.stderr + demo.text
    assert "Traceback" not in demo.process.stderr
    for name in ("demo.executed.ipynb", "report.html", "ledger.db"):
        assert name in demo.text
        assert (demo.out / name).stat().st_size > 1000
    last = demo.text.strip().splitlines()[-1]
    assert last.startswith("First verdict: input-bound (input wait ")
    assert "after the fix: " in last


@pytest.mark.slow
def test_starved_loop_is_input_bound_as_plain_clocks_say(demo: Finished) -> None:
    run = demo.run("starved")
    assert run["verdict"]["label"] == "input-bound"
    assert run["verdict"]["strength"] == "strong"
    assert run["steps"]["counted"] >= 60
    assert input_wait(run) == pytest.approx(demo.plain_clocks()[0], abs=0.03)
    assert run["remedies"][0]["id"] == "input.remove-stall"


@pytest.mark.slow
def test_fixed_loop_is_not_input_bound(demo: Finished) -> None:
    before, after = demo.run("starved"), demo.run("fixed")
    assert after["verdict"]["label"] == "compute-bound"
    assert after["steps"]["counted"] >= 60
    assert input_wait(after) < 0.1
    assert demo.plain_clocks()[1] < 0.1
    waits_s = [input_wait(run) * run["steps"]["mean_s"] for run in (before, after)]
    assert waits_s[1] < 0.2 * waits_s[0]  # the whole step may be slower on a machine that became busy


@pytest.mark.slow
def test_executed_notebook_holds_both_reports_as_text_and_html(demo: Finished) -> None:
    outputs = demo.outputs()
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [o for o in outputs if o.get("name") == "stderr" and "gpuprof" in "".join(o["text"])]
    bundles = [output["data"] for output in outputs if "text/html" in output.get("data", {})]
    plain = ["".join(bundle["text/plain"]) for bundle in bundles]
    html = ["".join(bundle["text/html"]) for bundle in bundles]
    heads = ["gpuprof: starved", "gpuprof: fixed", "gpuprof: before and after"]
    assert [text.splitlines()[0] for text in plain] == heads
    assert "INPUT-BOUND (strong)" in plain[0]
    assert "Input-bound" in html[0]
    assert all("<style>" in page and "<script" not in page for page in html)


@pytest.mark.slow
def test_terminal_shows_both_reports_and_the_page_holds_them(demo: Finished) -> None:
    for head in ("gpuprof: starved", "gpuprof: fixed", "gpuprof: before and after", "What to try"):
        assert head in demo.text
    page = (demo.out / "report.html").read_text(encoding="utf-8")
    for label in ("Comparison of starved and fixed", "profile of starved", "profile of fixed"):
        assert label in page


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals work another way there")
def test_interrupted_demo_leaves_no_kernel(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "[1/" in process.stdout.readline()  # the first cell has run, so there is a kernel
        kernels = psutil.Process(process.pid).children(recursive=True)
        assert kernels
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.strip() == "demo: interrupted; the kernel was ended."
    deadline = time.monotonic() + 5
    while any(kernel.is_running() for kernel in kernels) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [kernel for kernel in kernels if kernel.is_running()]


def load_demo() -> ModuleType:
    """examples/demo.py as a module."""
    spec = importlib.util.spec_from_file_location("demo_under_test", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_missing_package_is_one_sentence_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load_demo()
    monkeypatch.setitem(module.NEEDED, "no_such_module_here", "some-package")
    monkeypatch.setattr(sys, "argv", ["demo.py", "--out", str(tmp_path / "out")])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert module.main() == 1
    finally:
        signal.signal(signal.SIGTERM, handler)
    error = capsys.readouterr().err
    assert "some-package" in error
    assert "pip install -e" in error
    assert not (tmp_path / "out").exists()


def test_wrong_verdicts_are_an_error() -> None:
    from types import SimpleNamespace

    module = load_demo()

    def run(label: str) -> SimpleNamespace:
        return SimpleNamespace(verdict=SimpleNamespace(label=label))

    module.check(run("input-bound"), run("compute-bound"))
    with pytest.raises(module.DemoError, match="first run should be input-bound, but is unclear"):
        module.check(run("unclear"), run("compute-bound"))
    with pytest.raises(module.DemoError, match="second run should not be input-bound"):
        module.check(run("input-bound"), run("input-bound"))


def test_committed_notebook_is_clean() -> None:
    text = (DEMO.parent / "demo.ipynb").read_text(encoding="utf-8")
    cells = json.loads(text)["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
    assert os.sep + "home" + os.sep not in text
    assert str(ROOT) not in text
