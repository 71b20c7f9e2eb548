"""``jupyter gpuprof fleet`` as its parser gives it, in this process."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path

import pytest

from jupyter_gpuprof.cli.fleet import add_fleet
from jupyter_gpuprof.cli.main import main
from jupyter_gpuprof.errors import GpuprofError, OptionError, UsageError
from jupyter_gpuprof.records.ledger import LedgerRow
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device
from jupyter_gpuprof.records.spot import CheckpointCost, SaveTimes
from jupyter_gpuprof.session.fleet.policy import load_policy
from jupyter_gpuprof.store.ledger import LedgerWriter
from jupyter_gpuprof.store.ledgerjobs import ledger_jobs
from jupyter_gpuprof.store.trials import save_curve

DATA = Path(__file__).parents[1] / "data" / "fleet"
SACCT, TIRESIAS = DATA / "sacct_output.txt", DATA / "tiresias_60_job.csv"

POLICY = """\
pool:
  gpus: 16
  price: 2.0
teams:
  "": {guarantee: 12, borrow: 4, p90: 90s}
classes:
  release: {priority: 10, preemptible: false}
line: skip
aging: 1h
reclaim: {cycle: 1s, grace: 2m, teardown: 5s, start: 10s}
checkpoint: {interval: 30m, save: 40s, resume: 1m}
spot: {gpus: 4, between: 6h, notice: 30s, price: 0.5}
"""


def fleet(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_fleet(parser.add_subparsers(required=True))
    args = parser.parse_args(["fleet", *map(str, words)])
    status: int = args.act(args)
    return status


def policy(folder: Path, text: str = POLICY) -> Path:
    path = folder / "shared.yaml"
    path.write_text(text)
    return path


def test_a_report_in_text_json_html_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = {name: tmp_path / f"out.{name}" for name in ("json", "html", "figure")}
    pairs = [word for name, path in outputs.items() for word in (f"--{name}", path)]
    assert fleet("report", SACCT, "--price", "2", "--reserved", "ac10000=2", *pairs) == 0
    text = capsys.readouterr().out
    assert "933.3 GPU-hours allocated by 100 jobs" in text
    assert "p90 queue wait > 13 d" in text
    assert "All 122 rows were read" in text
    assert max(map(len, text.splitlines())) <= 100
    report = json.loads(outputs["json"].read_text())
    assert report["total"]["gpu_hours"] == pytest.approx(933.34, abs=0.005)
    assert report["total"]["waits"]["p90_s"] == {"missing": "not reached"}
    html = outputs["html"].read_text()
    assert html.count("<svg") == 2
    assert "<script" not in html
    assert "Bokeh" in outputs["figure"].read_text()


def test_jobs_without_waits_are_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet("report", TIRESIAS) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    first = rows.index(["GPUs", "GPU-hours", "busy", "jobs", "p50", "p90", "p99", "waiting"])
    counts = [int(row[3]) for row in rows[first + 1 : first + 5]]
    assert 0 not in counts
    assert sum(counts) == 60


def test_a_replay_against_reservations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = policy(tmp_path, 'pool: {gpus: 16, price: 2}\nteams: {"": {guarantee: 16}}\nline: fifo\n')
    out, page, what_if = (tmp_path / name for name in ("out.json", "out.html", "what-if.html"))
    words = (
        "--against",
        "reserved",
        "--gpus-today",
        "32",
        "--json",
        out,
        "--html",
        page,
        "--what-if",
        what_if,
    )
    assert fleet("replay", TIRESIAS, "--policy", plain, *words) == 0
    text = capsys.readouterr().out
    assert "A cut: a useful GPU-hour costs 49 % less" in text
    assert "(0 s before, 66 s after)" in text
    found = json.loads(out.read_text())
    assert (found["verdict"]["label"], found["after"]["waits"]["p90_s"]) == ("cut", 66)
    assert found["after"]["makespan_s"] == 3335
    assert "A cut" in page.read_text() or "Cut" in page.read_text()
    assert "Bokeh" in what_if.read_text()


def test_a_search_keeps_what_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = policy(tmp_path, 'pool: {gpus: 40}\nteams: {"": {guarantee: 40, p90: 90s}}\nline: fifo\n')
    assert fleet("replay", TIRESIAS, "--policy", asked, "--search") == 0
    text = capsys.readouterr().out
    assert "smallest pool that keeps each team's p90 within its limit has 16 GPUs" in " ".join(text.split())
    assert "with 15, p90 of all is" in " ".join(text.split()).lower()


def test_today_is_the_default_where_starts_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fleet("replay", SACCT, "--policy", policy(tmp_path)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "shared against today" in text
    assert "T_claim: a guarantee is honoured within 2 min 16 s" in text
    assert "32 jobs still run" in text or "jobs still run; they are replayed" in text


def test_every_key_of_a_policy(tmp_path: Path) -> None:
    read = load_policy(policy(tmp_path))
    assert (read.name, read.gpus, read.price, read.line, read.aging_s) == ("shared", 16, 2.0, "skip", 3600)
    assert dict(read.teams)[""].p90_s == 90
    assert read.reclaim.bound_s == 136
    assert (read.checkpoint.interval_s, read.checkpoint.save_s, read.checkpoint.resume_s) == (1800, 40, 60)
    assert (read.spot.gpus, read.spot.between_s, read.spot.notice_s, read.spot.price) == (4, 21600, 30, 0.5)
    assert dict(read.classes)["release"].preemptible is False
    nodes = load_policy(policy(tmp_path, "pool: {nodes: {count: 2, gpus: 8}}\n"))
    assert (nodes.gpus, nodes.nodes) == (16, (8, 8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("line: skip", "line: luck"), "shared.yaml, line 8, line takes fifo, skip or backfill, not 'luck'"),
        (("guarantee: 12", "guarantee: 20"), "guarantees add up to 20 GPUs, and the pool has 16"),
        (("teams:", "theme:"), "shared.yaml, line 4, theme is not known"),
        (("cycle: 1s", "cycel: 1s"), "shared.yaml, line 10, reclaim.cycel is not known"),
        (("aging: 1h", "aging: long"), "shared.yaml, line 9, aging takes a time such as 90s, 30m or 2h"),
        (("gpus: 16", "gpus: many"), "shared.yaml, line 2, pool.gpus takes a whole number"),
        (("priority: 10", "priority: high"), "line 7, classes.release takes|priority takes a whole number"),
        (("pool:\n", "pool: [\n"), "is no YAML"),
        (("pool:\n", "pool: &a\n  again: *a\n"), "is no YAML"),
        (("pool:\n", "pool:\n\tprice: 1\n"), "shared.yaml, line 2 is no YAML"),
        (("  price: 2.0", "  gpus: 8"), "line 3, pool.gpus is there twice, first in line 2"),
        (("gpus: 16", "nodes: {count: 1000000000, gpus: 8}"), "line 2, pool.nodes.count takes a whole"),
        (("between: 6h", "between: 0s"), "line 12, spot.between takes a time above 0"),
    ],
)
def test_a_wrong_policy_is_named_with_line_and_key(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        load_policy(policy(tmp_path, POLICY.replace(*change)))


def test_what_cannot_be_answered_says_so(tmp_path: Path) -> None:
    empty = policy(tmp_path, "pool: {gpus: 16}\n")
    with pytest.raises(UsageError, match="guarantees nothing"):
        fleet("replay", TIRESIAS, "--policy", empty, "--against", "reserved")
    with pytest.raises(UsageError, match="only 0 tell when they started"):
        fleet("replay", TIRESIAS, "--policy", empty, "--against", "today")
    waiting = tmp_path / "waiting.csv"
    waiting.write_text("id,gpus,asked\n1,2,0\n")
    with pytest.raises(UsageError, match=r"None of 1 jobs can be replayed \(it has not run"):
        fleet("replay", waiting, "--map", "id=id,gpus=gpus,submit=asked", "--policy", empty)
    with pytest.raises(OptionError, match="cannot be read"):
        fleet("replay", TIRESIAS, "--policy", tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    with pytest.raises(OptionError, match=r"binary\.yaml is no YAML"):
        load_policy(tmp_path / "binary.yaml")
    for price in ("-1", "nan"):
        with pytest.raises(SystemExit):
            fleet("report", SACCT, "--price", price)
    with pytest.raises(GpuprofError, match="cannot be written"):
        fleet("report", SACCT, "--json", tmp_path / "nowhere" / "x.json")


def test_the_ledger_as_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.db"
    writer = LedgerWriter(path)
    rows = [
        LedgerRow(hour, f"GPU-{device}", "H200", state, seconds, 1, "ann", "a.ipynb", measure="gr_active")
        for hour in (480_000, 480_001, 480_005)
        for device in range(2)
        for state, seconds in (("busy", 900.0), ("held_idle", 2700.0))
    ]
    assert writer.add(rows)
    writer.close()
    records = ledger_jobs(path)
    assert [(job.gpus, job.gpu_s, job.busy_ratio) for job in records.jobs] == [
        (2, 14_400, 0.25),
        (2, 7200, 0.25),
    ]
    assert all(isinstance(job.submit_s, Missing) for job in records.jobs)
    assert fleet("report", path, "--price", "2") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "6.0 GPU-hours allocated by 2 jobs; 25.0 % of them busy; queue waits are not told" in text
    assert "held by what is finished or crashed: 4.5 GPU-hours, which cost 9.00".lower() in text.lower()


def test_a_policy_is_emitted_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, path = tmp_path / "conf", policy(tmp_path)
    assert fleet("emit", "slurm", "--policy", path, "--checkpoint-p99", "3m") == 0
    printed = capsys.readouterr()
    assert "PreemptType=preempt/partition_prio" in printed.out
    # In the words and with the figure of the replay.
    assert (
        "T_claim: a guarantee is honoured within 2 min 16 s (cycle 1 s + notice 0 s + grace 120 s"
        in printed.err
    )
    first = next(line for line in printed.err.splitlines() if line.startswith("note: "))
    assert "the grace time of 120 s is shorter than the p99 of a save, 180 s" in first
    assert fleet("emit", "slurm", "--policy", path, "--out", out) == 0
    names = sorted(file.name for file in out.iterdir())
    assert names == ["gpuprof-partitions.conf", "gpuprof-sacctmgr.sh", "gpuprof-slurm.conf"]
    assert all((out / name).read_text() in printed.out for name in names)
    assert "shorter than the p99" not in capsys.readouterr().err  # the policy's own save takes 40 s
    (out / names[0]).write_text("mine")
    assert fleet("emit", "slurm", "--policy", path, "--out", out) == 0
    said = capsys.readouterr().out
    assert f"{names[0]} replaced; what it was is in {names[0]}.old" in said
    assert f"{names[1]} is there already, the same" in said
    assert (out / f"{names[0]}.old").read_text() == "mine"
    assert fleet("emit", "kueue", "--policy", path) == 0
    assert "kind: ClusterQueue" in capsys.readouterr().out
    with pytest.raises(UsageError, match="cannot be written to"):
        fleet("emit", "slurm", "--policy", path, "--out", path)


def test_the_grace_time_is_held_against_the_slowest_save_that_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = policy(tmp_path, POLICY.replace("save: 40s, ", ""))
    fleet("emit", "slurm", "--policy", path)
    assert "whether a save fits into the grace time is not known" in capsys.readouterr().err
    for number, (name, p99_s) in enumerate((("big", 500.0), ("small", 10.0), ("big", 150.0))):
        save_curve(measured_save(f"2026-01-0{number + 1}T00:00:00Z", name, p99_s))
    fleet("emit", "slurm", "--policy", path)
    said = capsys.readouterr().err
    assert "the p99 of a save, 150 s" in said
    assert "(measured of big)" in said
    fleet("emit", "slurm", "--policy", path, "--checkpoint-p99", "2m")
    assert "the p99 of a save" not in capsys.readouterr().err


def measured_save(started_at: str, name: str, p99_s: float) -> CheckpointCost:
    times = SaveTimes("torch.save", 5, 1e9, 1.0, 1.0, p99_s, p99_s, 1.0)
    device = Device("cuda", "H200", 1, Missing("not asked"), simulated=False)
    return CheckpointCost(started_at, "", name, started_at, device, "", (), 1e9, (times,), "")


def test_ctrl_c_ends_a_search_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("jupyter_gpuprof.session.fleet.comparison.workload", stop)
    out = tmp_path / "out.json"
    words = ["fleet", "replay", TIRESIAS, "--policy", policy(tmp_path), "--search", "--json", out]
    assert main([str(word) for word in words]) == 130
    assert capsys.readouterr() == ("", "jupyter gpuprof: stopped.\n")
    assert not out.exists()
