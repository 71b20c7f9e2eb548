"""``jupyter gpuprof scale`` on a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpuprof.cli.main import main
from jupyter_gpuprof.probes.machine import usable_cores
from tests.cli.test_command import command

SCRIPT = """
import sys, torch
from dataclasses import dataclass
from pathlib import Path
from torch.utils.data import DataLoader, TensorDataset

@dataclass
class Settings:
    rate: float

def main():
    assert Path(__file__).name == "train.py"
    assert __import__("pickle").loads(__import__("pickle").dumps(Settings(1.0))) == Settings(1.0)
    settings = Settings(float(sys.argv[1]))
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), settings.rate)
    data = TensorDataset(torch.randn(400, 8), torch.randint(0, 4, (400,)))
    for epoch in range(9):
        for x, y in DataLoader(data, batch_size=4, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="two ranks need two cores")
def test_a_script_and_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = command(
        *("scale", "1", "2", "--mode", "strong", "--repeats", "1", "--steps", "20", "--price", "2"),
        *("--json", "c.json", "--html", "c.html", "--", "train.py", "0.1"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "scaling of train, strong scaling (the batch of all CPU processes together is fixed)" in done.stdout
    )
    curve = json.loads((tmp_path / "c.json").read_text())
    assert [point["count"] for point in curve["points"]] == [1, 2]
    assert [point["outcome"] for point in curve["points"]] == ["measured", "measured"]
    assert (curve["mode"], curve["backend"], curve["finished"]) == ("strong", "local", True)
    assert "money_per_million_samples" in curve["costs"][0]
    assert "<svg" in (tmp_path / "c.html").read_text()
    shown = command("show", "scale", "--html", tmp_path / "again.html")
    assert shown.stdout == done.stdout
    assert (tmp_path / "again.html").read_text() == (tmp_path / "c.html").read_text()
    assert command("show", tmp_path / "c.json").stdout == done.stdout
    assert curve["scaling_id"] in command("history").stdout


def test_manifests_for_kubernetes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scale", "1", "4", "--on", "kubernetes", "--gpus-per-node", "2"]
    words += ["--image", "me/train:1", "--namespace", "lab", "--claim", "results"]
    assert main([*words, "--dry-run", "--steps", "50", "--", "train.py", "--lr", "0.1"]) == 0
    out = capsys.readouterr().out
    assert out.count("kind: JobSet") == 2
    for part in (
        '"me/train:1"',
        "nvidia.com/gpu: 2",
        '"lab"',
        '"results"',
        '"train.py", "--lr", "0.1"',
        "=50",
    ):
        assert part in out, part
    assert main([*words, "--", "train.py"]) == 2
    assert "Add --dry-run." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1", "2"], "A script is needed after the counts."),
        (["1", "--", "no-such.py"], "no-such.py cannot be read"),
        (
            ["1", "--json", "/no/such/folder/c.json", "--", __file__],
            "/no/such/folder/c.json cannot be written.",
        ),
        (["1", "1", "--", __file__], "A device count comes twice in 1 1."),
    ],
)
def test_what_is_refused(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", *words]) == 2
    assert sentence in capsys.readouterr().err
