"""The whole of ``%gpuprof audit``: our Checkpointer, the person's files, and what is left behind."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpuprof.errors import OptionError, RerunError
from jupyter_gpuprof.session.audit.audit import audit_cell, audit_of
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.trial import RerunProgress
from jupyter_gpuprof.store.records import load_record
from tests.audit.cells import OURS, OWN_SETUP, notebook


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cell's folder holds what the person had there, and the temporary one nothing of ours."""
    own = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "mine").write_text("mine")
    yield
    left = [*own.glob("gpuprof*"), *own.glob("pymp*")]  # torch may leave a cache there
    shutil.rmtree(own)
    assert left == []
    assert [p.name for p in tmp_path.rglob("*")] == ["checkpoints", "mine"]
    assert (tmp_path / "checkpoints" / "mine").read_text() == "mine"


@pytest.mark.slow
def test_our_checkpointer_passes_and_spot_knows() -> None:
    cell, seen = Cell(f"%%gpuprof --name x\n{OURS}", "2026-12-01-aaaaaa"), list[RerunProgress]()
    assert audit_of(cell) == "never ran"
    space = notebook().namespace
    before = [p.detach().clone() for p in space["model"].parameters()]
    audit = audit_cell(cell, None, space, only=("twice", "with 2"), progress=seen.append)
    assert [(case.name, case.outcome, case.compared) for case in audit.cases] == [
        ("twice within epoch 0", "identical", 7),
        ("with 2 loader workers", "identical", 4),
    ]
    assert (audit.outcome, audit.steps, audit.epoch_steps) == ("identical", 8, 3)
    assert [list(p.flatten()) for p in before] == [list(p.flatten()) for p in space["model"].parameters()]
    assert audit_of(Cell(f"%%gpuprof\n{OURS}")) == "passed"
    assert audit_of(Cell(f"{OURS}\nprint()")) == "never ran"
    assert load_record("audit") == audit
    assert 0 <= seen[0].done <= seen[-1].done <= 1


REFUSED = """
for x in loader:
    model(x).sum().backward()
    torch.save(model.state_dict(), "checkpoints/mine")
"""


@pytest.mark.slow
def test_the_persons_files_are_refused_and_named() -> None:
    with pytest.raises(RerunError, match=r"writes .*checkpoints/mine, which .*--folder"):
        audit_cell(Cell(REFUSED), None, notebook().namespace)


@pytest.mark.slow
def test_an_interrupt_leaves_nothing() -> None:
    def stop(progress: RerunProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit_cell(Cell(OURS), None, notebook().namespace, progress=stop)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"save": "save"}, "both --save and --load"),
        ({"save": "nothing", "load": "load"}, "`nothing`, which is not in this notebook"),
        ({"save": "epochs", "load": "load"}, "`epochs`, which is no function"),
        ({"steps": 1}, "2 or more"),
        ({"folders": ["/somewhere"]}, "neither a variable nor a folder below"),
        ({"folders": ["../out"]}, "neither a variable nor a folder below"),
    ],
)
def test_bad_options_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        audit_cell(Cell(OURS), None, notebook(OWN_SETUP).namespace, **options)
