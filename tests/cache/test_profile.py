"""The profile: what a data set's code says, the remedy it gives, and what was computed again and again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpuprof import cached
from jupyter_gpuprof.analysis.repeats import repeat_sentences, repeated
from jupyter_gpuprof.cli.main import main
from jupyter_gpuprof.records.causes import Causes, CauseShare
from jupyter_gpuprof.records.derived import Preparation
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.session.cache.preparation import preparation_of
from jupyter_gpuprof.session.devices.ledger import ledger_report
from jupyter_gpuprof.store.runs import save_run
from tests.analysis.test_remedies_causes import by_id, causes, loader, ms, table, told
from tests.cache.pipeline import Files, Flip, Scale, ToTensor, write_files
from tests.views.conftest import _RUN


def test_preparation_by_the_code_alone(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data")
    whole, cut = Files(root, Scale(2)), Files(root, Scale(2), Flip(), ToTensor())
    prepared = preparation_of(whole)
    assert prepared == Preparation(prepared.key, "Files", "deterministic")
    assert preparation_of(cut).kind == "split"
    assert "random.random" in preparation_of(cut).reason
    assert preparation_of(Files(root, Flip(), Scale(2))).kind == "varying"
    assert preparation_of(cached(whole)) == Missing("its samples are cached already")
    assert whole.made == 16, "nothing of it was run but by cached()"
    other = write_files(tmp_path / "other", 3)
    assert preparation_of(Files(other, Scale(2))).key != preparation_of(Files(other, Scale(3))).key


def advice(preparation: Preparation | Missing):
    made = causes("input", 80.0, 1.0, decoding=0.5, transforming=0.3, reading=0.2)
    return told(table(INPUT=80, COMPUTE=10), loader(0), input_causes=made, preparation=preparation)


def test_the_remedy_follows_from_it() -> None:
    # A batch takes 80 ms, all of them waited for, and the step 10: what is kept falls away.
    whole = by_id(advice(Preparation("k", "Files", "deterministic")))["input.cache"]
    assert ms(whole) == pytest.approx(10 + 80 * 0.2)
    assert (whole.setting, "cached(dataset)" in whole.title) == ("cache", True)
    cut = by_id(advice(Preparation("k", "Files", "split", "random.random (a.py:3) draws random numbers")))
    assert ms(cut["input.cache"]) == pytest.approx(10 + 80 * 0.5)
    assert "split=True" in cut["input.cache"].title
    assert "random.random (a.py:3) draws random numbers, and stays" in cut["input.cache"].how
    none = advice(Preparation("k", "Files", "varying", "time.time reads the clock"))
    assert "input.cache" not in by_id(none)
    assert "Caching the samples: no, time.time reads the clock" in none.no_help
    already = advice(Missing("its samples are cached already"))
    assert "input.cache" not in by_id(already)


def a_run(number: int, kind: str = "deterministic", device: str = "cuda") -> Run:
    parts = tuple(
        CauseShare(name, Estimate(share, share, share))
        for name, share in (("decoding", 0.5), ("transforming", 0.3))
    )
    return replace(
        _RUN,
        run_id=f"r{number}",
        started_at=f"2026-01-0{number}T00:00:00+00:00",
        device=replace(_RUN.device, kind=device, count=2),
        steps=replace(_RUN.steps, total_s=1000.0),
        shares=replace(_RUN.shares, exposed_input=Estimate(0.25, 0.2, 0.3)),
        input_causes=Causes("input", 100, parts),
        preparation=Preparation("key", "Files", kind),
    )


def test_repeated_preprocessing_is_in_the_ledger() -> None:
    runs = [a_run(3), a_run(1), a_run(2)]
    (one,) = repeated(runs)
    # Two runs after the first, 2 devices, a quarter of 1000 s, 0.8 of a batch.
    assert (one.runs, one.idle_s) == (3, pytest.approx(2 * 2 * 250 * 0.8))
    (cut,) = repeated([a_run(n, "split") for n in (1, 2)])
    assert cut.idle_s == pytest.approx(2 * 250 * 0.5)
    assert repeated([a_run(1)]) == []
    assert repeated([a_run(1, "varying"), a_run(2, "varying")]) == []
    assert repeated([a_run(n, device="cpu") for n in (1, 2)]) == []
    for run in runs:
        save_run(run)
    assert repeat_sentences([one])[0] in ledger_report().notes
    assert "Files was repeated in 3 runs: 0.22 GPU-hours of idle device" in ledger_report().notes[-1]
    assert ledger_report(since_s=60).notes == ()


def test_the_command(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, status: int = 0) -> str:
        assert main(["cache", *words]) == status
        captured = capsys.readouterr()
        return captured.out + captured.err

    assert said("list") == f"The cache is empty ({cache}).\n"
    kept = cached(Files(write_files(tmp_path / "data"), Scale(2)))
    for i in range(20):
        kept[i]
    kept.flush()
    assert f"{kept.key[:10]}  Files       20" in said("list")
    assert json.loads(said("list", "--json"))["entries"][0]["items"] == 20
    shown = said("show", "Files")
    assert "code tests.cache.pipeline.Files.__getitem__" in shown
    assert "version numpy" in shown
    assert "20 results" in shown
    assert "whole" in said("verify")
    (path,) = cache.glob("*/*.shard")
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1
    path.write_bytes(raw)
    assert "1 damaged files put aside" in said("verify", kept.key[:6], status=1)
    assert "holds no 'nothing'" in said("show", "nothing", status=2)
    assert "A size is a number and a unit" in said("prune", "--to", "much", status=2)
    assert "Gone:" in said("prune", "--to", "0")
    assert not list(cache.glob("*/*"))
