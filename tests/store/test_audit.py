"""What was done stays, newest first; what kernels say is there as long as they say it."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import LedgerError
from jupyter_gpuprof.records.audit import AuditRow
from jupyter_gpuprof.records.processes import KernelReport, ProcessId
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.store import audit
from jupyter_gpuprof.store.audit import add_audit, recent_audit
from jupyter_gpuprof.store.kernelreports import KeptKernel, KernelReports

ROW = AuditRow(
    "2026-01-31T09:30:00+00:00", "k", "a.ipynb", "shutdown", "reaper", "released", "It was idle.",
    ("holds 1 GiB",), ("GPU-0",), 2**30,
)  # fmt: skip
ME, OTHER = ProcessId(10, 5.25), ProcessId(11, 6.5)
REPORT = KernelReport(ME, "GPU-0", None, 1, 2, True, 100.0)


def test_rows_come_back_newest_first(tmp_path: Path):
    path = tmp_path / "ledger.db"
    unknown = replace(ROW, holder_id="second", freed_bytes=Missing("not measured"), evidence=())
    for row in (ROW, unknown):
        add_audit(row, path)
    assert recent_audit(path=path) == [replace(unknown, audit_id=2), replace(ROW, audit_id=1)]
    assert recent_audit(1, path) == [replace(unknown, audit_id=2)]


def test_the_log_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit, "MOST_ROWS", 3)
    for _ in range(5):
        add_audit(ROW, tmp_path / "ledger.db")
    assert [row.audit_id for row in recent_audit(path=tmp_path / "ledger.db")] == [5, 4, 3]


def test_a_log_that_cannot_be_read_is_one_sentence(tmp_path: Path):
    with pytest.raises(LedgerError, match="cannot be read"):
        recent_audit(path=tmp_path)


@pytest.fixture
def reports(tmp_path: Path):
    file = KernelReports(tmp_path / "ledger.db")
    yield file
    file.close()


def test_a_kernel_says_what_is_so_now(reports: KernelReports):
    keep = KeptKernel(OTHER, 50.0, math.inf, "a thread")
    reports.write(ME, [REPORT, replace(REPORT, device_uuid="", device_index=1)], None, 100.0)
    reports.write(OTHER, [], keep, 100.0)
    assert reports.read() == (
        (REPORT, replace(REPORT, device_uuid="", device_index=1)),
        (keep,),
    )
    missing = replace(REPORT, allocated_bytes=Missing("the kernel could not tell"), training_active=False)
    reports.write(ME, [missing], None, 100.0)
    reports.write(OTHER, [], None, 100.0)
    assert reports.read() == ((missing,), ())


def test_what_is_old_goes(reports: KernelReports):
    reports.write(ME, [REPORT], None, 100.0)
    reports.write(OTHER, [], None, 100.0 + 31 * 86400)
    assert reports.read() == ((), ())


def test_machines_that_share_the_file_do_not_mix(reports: KernelReports, tmp_path: Path, monkeypatch):
    reports.write(ME, [REPORT], None, 100.0)
    monkeypatch.setattr("platform.node", lambda: "another")
    there = KernelReports(tmp_path / "ledger.db")
    assert there.read() == ((), ())
    there.close()


def test_a_file_that_was_moved_aside_is_opened_anew(reports: KernelReports, tmp_path: Path):
    reports.write(ME, [REPORT], None, 100.0)
    (tmp_path / "ledger.db").rename(tmp_path / "aside.db")
    assert reports.read() == ((), ())


def test_a_locked_file_is_an_error_soon(tmp_path: Path):
    file = KernelReports(tmp_path / "ledger.db", timeout_s=0.05)
    file.write(ME, [], None, 1.0)
    other = sqlite3.connect(tmp_path / "ledger.db")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        file.write(ME, [REPORT], None, 2.0)
    other.rollback()
    other.close()
    file.close()
