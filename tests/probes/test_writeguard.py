"""A rerun that writes is stopped, however the cell came to write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import functools, json, logging, os, pathlib, sys, tempfile
import numpy as np, torch
os.chdir(sys.argv[1])
from jupyter_gpuprof.probes.writeguard import WriteGuard
scratch = pathlib.Path(sys.argv[2])
guard = WriteGuard(scratch)
guard.install()
weights = torch.ones(3)
ways = {
    "partial": lambda: functools.partial(torch.save, weights)("new.pt"),
    "exec": lambda: exec("open('old.txt', 'w').write('x')"),
    "memmap": lambda: np.memmap("new.bin", dtype="u1", mode="w+", shape=4),
    "handler": lambda: logging.FileHandler("new.log"),
    "append": lambda: pathlib.Path("old.txt").open("a"),
    "replace": lambda: os.replace(pathlib.Path(sys.argv[2], "mine"), "old.txt"),
    "remove": lambda: os.remove("old.txt"),
    "read": lambda: open("old.txt").read(),
    "scratch": lambda: torch.save(weights, scratch / "w.pt"),
    "temporary": lambda: tempfile.TemporaryFile(dir=scratch).write(b"x"),
    "null": lambda: open(os.devnull, "w").write("x"),
    "cache": lambda: (os.makedirs(".cache", exist_ok=True), open(".cache/x", "w").close()),
}
said = {}
(scratch / "mine").write_text("mine")
for name, way in ways.items():
    try:
        way()
        said[name] = ""
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps([said, guard.refused]))
"""


def test_every_way_of_writing_the_persons_files(tmp_path: Path) -> None:
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    work.mkdir()
    scratch.mkdir()
    (work / "old.txt").write_text("mine")
    command = [sys.executable, "-c", PROGRAM, str(work), str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said, refused = json.loads(done.stdout.splitlines()[-1])
    writes = ("partial", "exec", "memmap", "handler", "append", "replace", "remove")
    assert {name: said[name].split(":")[0] for name in said} == {
        name: "WritesFiles" if name in writes else "" for name in said
    }
    assert str(work / "new.pt") in said["partial"]
    assert refused == said["partial"].partition(": ")[2]
    assert (work / "old.txt").read_text() == "mine"
    assert {path.name for path in work.iterdir()} == {"old.txt", ".cache"}
