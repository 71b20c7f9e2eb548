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
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(own / "compiled"))  # torch would name a folder for good
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


BY_HAND = """
texts = [hash(str(i)) % 97 for i in range(12)]  # another number in each process
loader = DataLoader([torch.full((3,), float(text)) for text in texts], 4, shuffle=True)
first = 0
if os.path.exists("checkpoints/last.pt"):
    state = torch.load("checkpoints/last.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"]
for epoch in range(first, 3):
    torch.manual_seed(epoch)
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1},
               "checkpoints/last.pt")
"""


@pytest.mark.slow
def test_a_loop_that_saves_by_hand_after_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder was made by an earlier cell; what hangs on the process's hashes is not compared."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    only = ("in the middle of epoch", "while it saves")
    audit = audit_cell(Cell(BY_HAND), None, notebook().namespace, folders=["checkpoints"], only=only)
    assert [(case.outcome, case.missing, case.went_on_after) for case in audit.cases[:2]] == [
        ("not tested", "", 0),
        ("identical", "", 3),
    ]
    assert [case.missing for case in audit.cases[2:]] == ["half-written file", ""]
    assert "Two straight runs do not agree in their content of the samples, losses" in audit.notes[0]


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
