"""The notebooks that a newcomer reads: they run without a front end, and what is kept of them is clean."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("0*.ipynb"))
#: What each must say at its end, whatever the machine.
SAID = {
    "01": "What to try|Nothing",
    "02": r"num_workers=2: [\d.]+x faster",
    "03": "before and after",
    "04": "Throughput over CPU processes",
    "05": r"(?s)SIMULATED \(host memory\).*orphan: its kernel is gone.*shutdown +released",
    "06": "8 devices at 20 % do the work of 1.6; at 60 % the same work fits on 3",
}


def text_of(notebook: object) -> str:
    """All that its outputs say as plain text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(
        output.get("text")
        or output.get("data", {}).get("text/plain", "")
        or "\n".join(output.get("traceback", []))
        for output in outputs
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_and_names_no_machine(path: Path) -> None:
    assert path.stat().st_size < 300_000
    notebook = nbformat.read(path, 4)
    assert re.search(SAID[path.stem[:2]], text_of(notebook))
    assert not re.search(r"/(home|root|tmp|Users)/", path.read_text())
    kinds = [output.output_type for cell in notebook.cells for output in cell.get("outputs", [])]
    assert kinds
    assert "error" not in kinds


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_without_a_front_end(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, 4)
    shutil.copytree(EXAMPLES.parent / "tests" / "data" / "traces", tmp_path / "tests" / "data" / "traces")
    here = tmp_path / "examples"
    here.mkdir()
    shutil.copy(EXAMPLES / "neighbours.py", here)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(here)}}).execute()
    assert re.search(SAID[path.stem[:2]], text_of(notebook))
