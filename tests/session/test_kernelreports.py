"""What a kernel tells its server through the ledger file."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes.processes import process_id
from jupyter_gpuprof.records.processes import KernelReport
from jupyter_gpuprof.session.devices import kernelreports
from jupyter_gpuprof.session.devices.keep import keep
from jupyter_gpuprof.session.devices.kernelreports import report_now
from jupyter_gpuprof.session.devices.reported import Reported
from jupyter_gpuprof.store.kernelreports import KernelReports


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernelreports, "_said", [])
    made = KernelReports(tmp_path / "ledger.db")
    yield made
    made.close()


def test_a_kernel_without_a_device_says_nothing(file: KernelReports, tmp_path: Path):
    assert not report_now(file)
    assert not (tmp_path / "ledger.db").exists()


def test_only_changes_are_written(file: KernelReports, monkeypatch: pytest.MonkeyPatch):
    me = process_id()
    report = KernelReport(me, "GPU-0", None, 1, 2, False, 5.0)
    monkeypatch.setattr(kernelreports, "own_reports", lambda at_s: (report,))
    assert report_now(file)
    assert not report_now(file)
    assert [(r.id, r.reserved_bytes) for r in file.read()[0]] == [(me, 2)]
    monkeypatch.setattr(kernelreports, "own_reports", lambda at_s: ())
    assert report_now(file)
    assert file.read() == ((), ())


def test_a_keep_arrives_in_the_servers_own_time(file: KernelReports):
    with keep("10m", why="why not"):
        report_now(file)
        reported = Reported(file)
        reported.read()
        (kept,) = reported.keeps.values()
        assert kept.until_s == pytest.approx(clock.now_s() + 600, abs=2)
        assert kept.why == "why not"
    report_now(file)
    reported.read()
    assert reported.keeps == {}


def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path, file: KernelReports):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    blocked = KernelReports(tmp_path / "blocked" / "ledger.db")
    with keep(why="x"):
        assert not report_now(blocked)
        assert report_now(file)
    report_now(file)
    Reported(blocked).read()
