"""Device seconds are all there, whatever happened to the file or to a writer."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import LedgerError
from jupyter_gpuprof.records.ledger import LedgerRow
from jupyter_gpuprof.store import database
from jupyter_gpuprof.store.database import MIGRATIONS, open_database
from jupyter_gpuprof.store.filesystem import is_local
from jupyter_gpuprof.store.ledger import ROW_BYTES, LedgerWriter, ledger_sums

HOUR = 490_000  # 2025-11-24, 16 h
ROW = LedgerRow(HOUR, "GPU-1", "H200", "busy", 10.0, 1, user="ann", notebook="a.ipynb", measure="util_nvml")
CHILD = Path(__file__).with_name("ledger_child.py")


@pytest.fixture
def ledger(tmp_path: Path):
    writer = LedgerWriter(tmp_path / "ledger.db", timeout_s=0.05)
    yield writer
    writer.close()


def whole(path: Path, **wanted: str) -> float:
    """Seconds in the file by a query of our own."""
    with sqlite3.connect(path) as connection:
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        query = f"SELECT COALESCE(SUM(seconds), 0) FROM device_seconds WHERE {where}"
        (seconds,) = connection.execute(query, tuple(wanted.values())).fetchone()
    connection.close()
    return seconds


def test_seconds_of_the_same_kind_are_added(ledger: LedgerWriter):
    assert ledger.add([ROW, ROW])
    assert ledger.add([replace(ROW, seconds=5.0), replace(ROW, state="held_idle")])
    sums, devices = ledger_sums("notebook", path=ledger.path)
    assert {(s.key, s.state): (s.seconds, s.samples) for s in sums} == {
        ("a.ipynb", "busy"): (25.0, 3),
        ("a.ipynb", "held_idle"): (10.0, 1),
    }
    assert devices == 1


def test_sums_by_everything(ledger: LedgerWriter):
    ledger.add([ROW, replace(ROW, device_uuid="GPU-2", user="bob", hour=HOUR + 24)])
    keys = {by: sorted({s.key for s in ledger_sums(by, path=ledger.path)[0]}) for by in
            ("notebook", "device", "user", "day")}  # fmt: skip
    assert keys == {
        "notebook": ["a.ipynb"],
        "device": ["H200, GPU-1", "H200, GPU-2"],
        "user": ["ann", "bob"],
        "day": ["2025-11-24", "2025-11-25"],
    }


def test_since_and_until(ledger: LedgerWriter):
    ledger.add([replace(ROW, hour=HOUR + i) for i in range(10)])
    sums, _ = ledger_sums(
        "day", since_unix_s=(HOUR + 3) * 3600 + 5, until_unix_s=(HOUR + 5) * 3600, path=ledger.path
    )
    assert sum(s.seconds for s in sums) == 30.0


def test_an_empty_ledger(tmp_path: Path):
    assert ledger_sums("user", path=tmp_path / "new.db") == ([], 0)


def test_a_ledger_that_cannot_be_read_is_one_sentence(tmp_path: Path):
    with pytest.raises(LedgerError, match="cannot be read"):
        ledger_sums("user", path=tmp_path)


def test_a_file_of_before_gets_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "old.db"
    monkeypatch.setattr(database, "MIGRATIONS", MIGRATIONS[:1])
    with open_database(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    monkeypatch.undo()
    writer = LedgerWriter(path)
    assert writer.add([ROW])
    writer.close()
    assert whole(path) == 10.0


def test_a_damaged_file_is_moved_aside_and_said_so(tmp_path: Path):
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database" * 1000)
    writer = LedgerWriter(path)
    assert writer.add([ROW])
    assert "damaged" in writer.remarks[0]
    writer.close()
    assert whole(path) == 10.0
    assert len(list(tmp_path.glob("*.broken-*"))) == 1


def test_a_file_damaged_in_use_is_moved_aside_at_the_next_ticks(ledger: LedgerWriter, tmp_path: Path):
    ledger.add([replace(ROW, hour=HOUR + i) for i in range(500)])
    with open_database(ledger.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(ledger.path, "r+b") as file:
        file.write(b"\xff" * ledger.path.stat().st_size)
    for i in range(3):
        if ledger.add([replace(ROW, hour=HOUR + 600 + i)]):
            break
    assert "damaged" in ledger.remarks[0]
    ledger.add([ROW])
    sums, _ = ledger_sums("day", path=ledger.path)
    assert sum(s.seconds for s in sums) == 10.0 * (i + 2), "what waited is in the new file"


def test_a_file_that_another_process_moved_aside_is_opened_anew(ledger: LedgerWriter, tmp_path: Path):
    ledger.add([ROW])
    ledger.path.rename(tmp_path / "aside.db")
    assert ledger.add([replace(ROW, seconds=7.0)])
    assert whole(ledger.path) == 7.0


def test_what_a_locked_file_does_not_take_comes_later(ledger: LedgerWriter):
    ledger.add([ROW])
    other = sqlite3.connect(ledger.path)
    other.execute("BEGIN EXCLUSIVE")
    for _ in range(5):
        assert not ledger.add([ROW])
    assert "locked" in ledger.trouble
    assert "1 rows wait" in ledger.trouble
    other.rollback()
    other.close()
    assert ledger.add([ROW])
    assert ledger.trouble == ""
    assert whole(ledger.path) == 70.0


def test_what_waits_has_bounds(ledger: LedgerWriter, tmp_path: Path):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    blocked = LedgerWriter(tmp_path / "blocked" / "ledger.db")
    assert not blocked.add(replace(ROW, hour=hour) for hour in range(20_050))
    assert "cannot be written" in blocked.trouble
    assert blocked.lost_s == 500.0
    blocked.close()


def test_a_full_disk_loses_nothing(tmp_path: Path):
    """The file may not grow beyond a limit, as on a full disk; then there is room again."""
    program = f"""
import resource
from pathlib import Path
from dataclasses import replace
from tests.store.test_ledger import ROW
from jupyter_gpuprof.store.ledger import LedgerWriter
ledger = LedgerWriter(Path({str(tmp_path / "ledger.db")!r}))
assert ledger.add([ROW])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
written = [ledger.add([replace(ROW, notebook="x" * 1000 + str(i))]) for i in range(300)]
assert written[0] and not written[-1], written
assert "cannot be written" in ledger.trouble
print(ledger.trouble)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert ledger.add([ROW]), ledger.trouble
assert not ledger.lost_s
ledger.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=CHILD.parents[2]
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert whole(tmp_path / "ledger.db") == 3020.0


def start(path: Path, user: str, ticks: int) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(path), user, str(ticks)], stdout=subprocess.PIPE, text=True
    )  # fmt: skip


@pytest.mark.slow
def test_two_processes_write_at_once(tmp_path: Path):
    path = tmp_path / "ledger.db"
    children = [start(path, user, 300) for user in ("ann", "bob")]
    for child in children:
        child.communicate(timeout=60)
        assert child.returncode == 0
    assert (whole(path, user="ann"), whole(path, user="bob")) == (300.0, 300.0)


@pytest.mark.slow
def test_a_killed_writer_loses_one_sample_at_most(tmp_path: Path):
    path = tmp_path / "ledger.db"
    child = start(path, "ann", 100_000)
    said = 0
    while said < 200:
        said = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    said = int([said, *child.stdout.read().split()][-1])
    child.wait()
    with open_database(path, remarks := []):
        pass
    assert remarks == []
    assert said <= whole(path) <= said + 1


def test_threads_may_take_turns(ledger: LedgerWriter):
    threads = [threading.Thread(target=ledger.add, args=([ROW],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert whole(ledger.path) == 80.0


def test_what_is_old_or_too_much_is_deleted(ledger: LedgerWriter):
    ledger.add([replace(ROW, hour=HOUR + i) for i in range(100)])
    now_s = (HOUR + 100) * 3600.0
    assert ledger.prune(now_s, keep_days=3) == 28
    assert whole(ledger.path) == 720.0
    assert ledger.prune(now_s, keep_days=3) == 0
    assert ledger.prune(now_s, most_bytes=10 * ROW_BYTES) == 62
    with sqlite3.connect(ledger.path) as connection:
        assert connection.execute("SELECT MIN(hour) FROM device_seconds").fetchone() == (HOUR + 90,)
    connection.close()


def test_nobody_waits_for_a_reader(ledger: LedgerWriter):
    ledger.add([ROW])
    reader = sqlite3.connect(ledger.path)
    rows = reader.execute("SELECT * FROM device_seconds")
    rows.fetchone()
    assert ledger.add([replace(ROW, hour=HOUR + 1)])
    reader.close()


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/ann/my\\040scratch tmpfs rw 0 0
none /data 9p rw 0 0
host:/x /data2 fuse.sshfs rw 0 0
/dev/vdb /homework xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/var/x.db", True),
        ("/home/ann/x.db", False),
        ("/home/ann/my scratch/x.db", True),
        ("/homework/x.db", True),
        ("/data/x.db", False),
        ("/data2/x.db", False),
    ],
)
def test_network_file_systems_are_known(path: str, local: bool):
    assert is_local(Path(path), MOUNTS) is local


def test_where_nothing_is_known_the_file_system_is_not_taken_for_local():
    assert not is_local(Path("/x.db"), "")
    assert not is_local(Path("/x.db"), "odd\n")


@pytest.mark.parametrize(("local", "mode"), [(True, "wal"), (False, "delete")])
def test_the_journal_suits_the_file_system(tmp_path: Path, monkeypatch, local: bool, mode: str):
    path = tmp_path / "ledger.db"
    for now in (not local, local):  # a file that was moved there is changed
        monkeypatch.setattr(database, "is_local", lambda path, now=now: now)
        with open_database(path) as connection:
            found = connection.execute("PRAGMA journal_mode").fetchone()[0]
    assert found == mode
