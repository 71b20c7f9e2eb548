"""The command as a person types it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Slow(Dataset):
    def __len__(self): return 80
    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.randn(8), i % 4

def main():
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in DataLoader(Slow(), batch_size=2, num_workers=WORKERS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print("arguments:", sys.argv[1:], __name__)

if __name__ == "__main__":
    main()
    END
"""


def command(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jupyter_gpuprof.cli.main", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, timeout=120, env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip


def script(folder: Path, end: str = "pass", workers: int = 0) -> Path:
    path = folder / "train.py"
    path.write_text(TRAIN.replace("END", end).replace("WORKERS", str(workers)))
    return path


@pytest.mark.slow
def test_run_profiles_a_script_unchanged(tmp_path: Path) -> None:
    done = command(
        "run", "--json", tmp_path / "r.json", "--html", tmp_path / "r.html", script(tmp_path), "--lr", "0.1"
    )
    assert done.returncode == 0, done.stderr
    assert "arguments: ['--lr', '0.1'] __main__" in done.stdout
    assert "INPUT-BOUND" in done.stdout
    run = json.loads((tmp_path / "r.json").read_text())
    assert run["name"] == "train"
    assert run["verdict"]["label"] == "input-bound"
    assert run["steps"]["counted"] + run["steps"]["warmup"] == 40
    assert "input wait" in (tmp_path / "r.html").read_text()
    assert "train" in command("history").stdout
    shown = command("show", "last", "--json", tmp_path / "again.json")
    assert "INPUT-BOUND" in shown.stdout
    assert json.loads((tmp_path / "again.json").read_text()) == run
    assert "input wait" in command("compare", "last", tmp_path / "r.json").stdout
    assert "train: input-bound" in command("status").stdout


@pytest.mark.slow
def test_loader_workers_work(tmp_path: Path) -> None:
    done = command("run", script(tmp_path, workers=2))
    assert done.returncode == 0, done.stderr
    assert "2 workers" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('bye')", 1, "bye"),
        ("raise ValueError('oh no')", 1, "ValueError: oh no"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
    ],
)
def test_the_scripts_own_end_is_kept_and_reported(tmp_path: Path, end: str, status: int, text: str) -> None:
    done = command("run", script(tmp_path, end))
    assert done.returncode == status
    assert "INPUT-BOUND" in done.stdout
    assert text in done.stderr
    assert "jupyter_gpuprof" not in done.stderr


@pytest.mark.slow
def test_steps_ends_a_script(tmp_path: Path) -> None:
    done = command("run", "--steps", "10", "--warmup", "5", "--json", tmp_path / "r.json", script(tmp_path))
    assert done.returncode == 0
    assert json.loads((tmp_path / "r.json").read_text())["steps"]["counted"] == 10


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "nowhere.py"], "nowhere.py cannot be read"),
        (["run", "--steps", "0", "x.py"], "cannot end after 0 steps"),
        (["run", "--json", "no/such/folder/r.json", "x.py"], "cannot be written"),
        (["show", "nothing"], "holds no run 'nothing'"),
        (["show", "nowhere.json"], "cannot be read"),
        (["run", "broken.py"], "no Python that runs here"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    (tmp_path / "broken.py").write_text("for x in\n")
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_no_command_says_which_there_are() -> None:
    done = command()
    assert done.returncode == 2
    assert "COMMAND" in done.stderr


def test_jupyter_finds_the_subcommand() -> None:
    jupyter = Path(sys.executable).with_name("jupyter")
    if not jupyter.exists():
        pytest.skip("no jupyter command in this environment")
    done = subprocess.run([jupyter, "gpuprof", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.strip().count(".") == 2


TRACES = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.slow
def test_trace_writes_what_is_asked_for(tmp_path: Path) -> None:
    outputs = [f"--{kind}={tmp_path / name}" for kind, name in
               (("json", "r.json"), ("html", "r.html"), ("timeline", "t.html"))]  # fmt: skip
    done = command("trace", TRACES / "dlrm_8ranks_kineto.tar.gz", "--name", "dlrm", *outputs)
    assert done.returncode == 0, done.stderr
    assert "HOST-BOUND" in done.stdout
    assert "Rank 7 is late" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["ranks"]["late_rank"] == 7
    assert "Rank 7 is late" in (tmp_path / "r.html").read_text()
    assert "Bokeh" in (tmp_path / "t.html").read_text()


def test_a_broken_trace_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("nothing")
    done = command("trace", tmp_path / "x.json")
    assert done.returncode == 2
    assert "x.json" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


AROUND = """
import dataclasses, time, torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)

class Augmented(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            time.sleep(0.01)
            yield batch

def augment(loader):
    for batch in loader:
        time.sleep(0.01)
        yield batch

@dataclasses.dataclass
class Settings:
    rate: float = 0.1

assert Settings.__annotations__["rate"] is float, "the script's own annotations"
data = torch.randn(60, 8)
for x in BATCHES:
    optimizer.zero_grad()
    model(x).sum().backward()
    time.sleep(0.004)
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    "batches", ["augment(DataLoader(data))", "map(lambda b: (time.sleep(0.01), b)[1], DataLoader(data))",
                "Augmented(data)", "enumerate_only(DataLoader(data))"],
)  # fmt: skip
def test_work_around_a_loader_is_waited_for_too(tmp_path: Path, batches: str) -> None:
    source = AROUND.replace("BATCHES", batches)
    if "enumerate_only" in batches:  # nothing but a loader: no wait is made up
        source = source.replace(batches, "(b for _, b in enumerate(DataLoader(data)))")
    (tmp_path / "train.py").write_text(source)
    done = command("run", "--json", tmp_path / "r.json", tmp_path / "train.py")
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "r.json").read_text())
    assert run["steps"]["counted"] + run["steps"]["warmup"] == 60
    share = run["shares"]["exposed_input"]["value"]
    if "enumerate_only" in batches:
        assert share < 0.1
    else:
        assert share == pytest.approx(10 / 14.5, abs=0.08)
        assert run["verdict"]["label"] == "input-bound"
    assert run["loaders"][0]["num_workers"] == 0, "the loader behind it is known"


def test_a_ledger_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_GPUPROF_DATABASE", str(tmp_path))  # a folder
    for arguments in (["history"], ["show", "last"], ["compare", "a", "b"]):
        done = command(*arguments)
        assert done.returncode == 2
        assert "ledger cannot be read" in done.stderr
        assert "Traceback" not in done.stderr
