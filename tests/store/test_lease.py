"""Of several servers on one machine one accounts, and another one when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpuprof.store.lease import LASTS_S, Lease


@pytest.fixture
def two(tmp_path: Path) -> tuple[Lease, Lease]:
    return Lease(tmp_path / "ledger.db", "one"), Lease(tmp_path / "ledger.db", "two")


def test_one_has_it_at_a_time(two: tuple[Lease, Lease]):
    first, second = two
    for at in range(100):
        assert first.mine(float(at))
        assert not second.mine(float(at))


def test_the_next_one_takes_it_when_it_is_given_up_or_runs_out(two: tuple[Lease, Lease]):
    first, second = two
    assert first.mine(0.0)
    assert not second.mine(0.0)
    first.release()
    assert second.mine(6.0)
    assert not first.mine(7.0)
    assert first.mine(7.0 + LASTS_S + 1), "the other one has not renewed it"


def test_another_machine_with_the_same_file_has_its_own(two: tuple[Lease, Lease], monkeypatch):
    first, _ = two
    monkeypatch.setattr("platform.node", lambda: "another")
    there = Lease(first._path, "three")
    assert first.mine(0.0)
    assert there.mine(0.0)


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    alone = Lease(tmp_path / "blocked" / "ledger.db")
    assert alone.mine(0.0), "the seconds wait in memory"
    alone.release()
