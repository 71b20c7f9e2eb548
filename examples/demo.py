"""Run the demonstration notebook without a front end and show what it found.

``python examples/demo.py`` executes demo.ipynb (a starved training loop, its verdict, the fix, the second
verdict) in a kernel of this interpreter, prints both reports and writes the executed notebook and a page.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import signal
import sys
from html import escape
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbclient import NotebookClient
    from nbformat import NotebookNode

    from jupyter_gpuprof import Run

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "demo.ipynb"
#: What the demonstration imports, and how pip calls it.
NEEDED = {
    "jupyter_gpuprof": "jupyter-gpuprof",
    "torch": "torch",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "nbclient": "nbclient",
    "nbformat": "nbformat",
    "ipykernel": "ipykernel",
}
PLAIN_CLOCKS = re.compile(r"plain clocks ([\d.]+) %")


class DemoError(Exception):
    """The demonstration did not show what it should; the text says what."""


def main() -> int:
    """Run the demonstration; the exit status."""
    parser = argparse.ArgumentParser(description="A starved training loop, its verdict, the fix, the proof.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for what is written")
    out = parser.parse_args().out.resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the kernel is to end then, too
    try:
        check_installed()
        demonstrate(out)
    except DemoError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; the kernel was ended.", file=sys.stderr)
        return 130
    return 0


def check_installed() -> None:
    """Raise a `DemoError` that says what to install, if anything is missing."""
    missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise DemoError(
            f"not installed for {sys.executable}: {', '.join(missing)}.\n"
            f"Install what the demo needs: {sys.executable} -m pip install -e '{HERE.parent}[demo]'"
        )


def demonstrate(out: Path) -> None:
    """Execute the notebook into `out`, show its two runs and check their verdicts."""
    out.mkdir(parents=True, exist_ok=True)
    ledger, executed, page = out / "ledger.db", out / "demo.executed.ipynb", out / "report.html"
    os.environ["JUPYTER_GPUPROF_DATABASE"] = str(ledger)  # the demo's own, in the kernel and here
    began = perf_counter()
    notebook = execute(executed)
    from jupyter_gpuprof import load_run

    before, after = load_run("starved"), load_run("fixed")
    page.write_text(report_page(before, after), encoding="utf-8")
    show(before, after)
    print(f"Executed notebook  {near(executed)}")
    print(f"Report page        {near(page)}")
    print(f"Ledger of the runs {near(ledger)}\n")
    clocks = plain_clocks(notebook)
    results = f"{outcome(before, clocks[0])}; after the fix: {outcome(after, clocks[1])}"
    print(f"First verdict: {results}. {perf_counter() - began:.0f} s in all.")
    check(before, after)


# -- the notebook --------------------------------------------------------------------------------


def execute(written: Path) -> NotebookNode:
    """The notebook with its cells run, in the folder of `written`, where it is kept, whole or not."""
    import nbformat
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = make_client(notebook, written.parent)
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    title = "the kernel's start"
    try:
        with client.setup_kernel(env={**os.environ, "PYTHONPATH": path}, cleanup_kc=True):
            for index, cell in enumerate(notebook.cells):
                title = heading(cell) or title
                if cell.cell_type == "code":
                    run_cell(client, index, title)
    except (CellExecutionError, DeadKernelError) as error:
        raise DemoError(f"the notebook failed at {title!r}.\n{error}") from None
    finally:
        nbformat.write(notebook, written)
    return notebook


def make_client(notebook: NotebookNode, folder: Path) -> NotebookClient:
    """What runs the notebook's cells, in a kernel of this interpreter; none needs to be registered."""
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    class ThisPython(KernelSpecManager):
        """Knows one kernel."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            options = ["-f", "{connection_file}", "--log-level=ERROR"]
            argv = [sys.executable, "-m", "ipykernel_launcher", *options]
            return KernelSpec(argv=argv, display_name="Python 3", language="python")

    class Client(NotebookClient):
        """Shows the profiler's live line in the terminal, too."""

        def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
            if msg["msg_type"] == "update_display_data":
                rewrite_line(msg["content"]["data"].get("text/plain", ""))
            return super().process_message(msg, cell, cell_index)

    return Client(
        notebook,
        km=AsyncKernelManager(kernel_spec_manager=ThisPython()),
        timeout=900,
        shutdown_kernel="immediate",
        resources={"metadata": {"path": str(folder)}},
    )


def heading(cell: NotebookNode) -> str:
    """The heading that a markdown cell begins with, or nothing."""
    first = cell.source.partition("\n")[0]
    return first.lstrip("# ") if cell.cell_type == "markdown" and first.startswith("#") else ""


def run_cell(client: NotebookClient, index: int, title: str) -> None:
    """Run the cell and say so."""
    began, cells = perf_counter(), client.nb.cells
    done, total = (sum(cell.cell_type == "code" for cell in some) for some in (cells[:index], cells))
    line = f"[{done + 1}/{total}] {title}"
    rewrite_line(f"{line} ...")
    client.execute_cell(cells[index], index)
    rewrite_line("")
    print(f"{line} ({perf_counter() - began:.1f} s)", flush=True)


def rewrite_line(text: str) -> None:
    """Replace the line that the cursor stands on; nothing where the output is no terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)


def plain_clocks(notebook: NotebookNode) -> list[float]:
    """The wait by plain clocks in both training cells, in per cent, as the notebook printed it."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    return [float(share) for share in PLAIN_CLOCKS.findall(printed)]


# -- the two runs --------------------------------------------------------------------------------


def show(before: Run, after: Run) -> None:
    """Print both reports and their comparison."""
    from jupyter_gpuprof.views.text import compare_text, run_text

    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    for text in (run_text(before, width), run_text(after, width), compare_text(before, after)):
        print(f"\n{'─' * width}\n{text}")


def report_page(before: Run, after: Run) -> str:
    """A page with the comparison and both reports."""
    from jupyter_gpuprof.views.html import compare_html, run_html
    from jupyter_gpuprof.views.style import page_sheet

    title = escape(f"gpuprof: {before.name} and {after.name}")
    reports = (compare_html(before, after), run_html(before), run_html(after))
    blocks = "".join(f"<div>\n{report}\n</div>\n" for report in reports)
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'/>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n"
        f"<title>{title}</title>\n<style>{page_sheet()} main > div {{ margin: 0 0 24px; }}</style>\n</head>\n"
        f"<body>\n<main>\n{blocks}</main>\n</body>\n</html>\n"
    )


def input_share(run: Run) -> float:
    """The share of the time that the run waited for input, the start of epochs included."""
    present = run.shares.present()
    return sum(present[part].value for part in ("exposed_input", "between.epoch_start") if part in present)


def outcome(run: Run, clocks: float) -> str:
    """A run's verdict in a few words, with the wait by the plain clocks, in per cent, beside it."""
    wait = f"input wait {100 * input_share(run):.1f} %, plain clocks say {clocks:.1f} %"
    return f"{run.verdict.label} ({wait})"


def check(before: Run, after: Run) -> None:
    """Raise a `DemoError` if the verdicts are not as they should be."""
    if before.verdict.label != "input-bound":
        raise DemoError(f"the first run should be input-bound, but is {before.verdict.label}.")
    if after.verdict.label == "input-bound":
        raise DemoError("the second run should not be input-bound any more, but is.")


def near(path: Path) -> str:
    """The path from here, if that is shorter."""
    return min(os.path.relpath(path), str(path), key=len)


if __name__ == "__main__":
    sys.exit(main())
