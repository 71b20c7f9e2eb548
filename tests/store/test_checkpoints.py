"""Whatever happens during a save, the newest checkpoint that was complete can be loaded."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.errors import CheckpointError, UsageError
from jupyter_gpuprof.store import checkpointplaces
from jupyter_gpuprof.store.checkpointplaces import MANIFEST, Disk, Folder, place_of
from jupyter_gpuprof.store.checkpoints import Checkpoints, Part, Rejected
from jupyter_gpuprof.testing import FakeClock


class Killed(BaseException):
    """The process is gone."""


class MemoryDisk(Disk):
    """A real one that does not wait for the storage, and knows what would be lost with the power."""

    def __init__(self) -> None:
        self.unsafe: set[str] = set()

    def open_new(self, path: Path) -> BinaryIO:
        self.unsafe.add(str(path))
        return super().open_new(path)

    def sync(self, file: BinaryIO) -> None:
        self.unsafe.discard(file.name)

    def sync_folder(self, path: Path) -> None:
        pass


class DyingDisk(MemoryDisk):
    """The process is killed at its nth call: before it, in the middle of it, or just after.

    With `power`, files for which nobody waited lose their second half.
    """

    def __init__(self, nth: int, how: str, *, power: bool = False) -> None:
        super().__init__()
        self.left, self.how, self.power, self.calls = nth, how, power, 0

    def _do(self, work: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        self.calls += 1
        if self.left <= 0:
            raise Killed
        self.left -= 1
        if self.left:
            return work()
        {"before": lambda: None, "half": half, "after": work}[self.how]()
        if self.power:
            for path in self.unsafe:
                if os.path.exists(path):
                    os.truncate(path, os.path.getsize(path) // 2)
        raise Killed

    def make_folder(self, path: Path) -> None:
        self._do(lambda: super(DyingDisk, self).make_folder(path))

    def open_new(self, path: Path) -> BinaryIO:
        return self._do(lambda: super(DyingDisk, self).open_new(path))

    def write(self, file: BinaryIO, data: memoryview) -> int:
        return self._do(lambda: file.write(data), lambda: file.write(data[: len(data) // 2]))

    def sync(self, file: BinaryIO) -> None:
        self._do(lambda: super(DyingDisk, self).sync(file))

    def sync_folder(self, path: Path) -> None:
        self._do(lambda: None)

    def move(self, path: Path, to: Path) -> None:
        self._do(lambda: super(DyingDisk, self).move(path, to))

    def remove(self, path: Path) -> None:
        self._do(lambda: super(DyingDisk, self).remove(path))

    def remove_folder(self, path: Path) -> None:
        self._do(lambda: super(DyingDisk, self).remove_folder(path))


def content(step: int, file: str) -> bytes:
    return f"{file} of step {step} ".encode() * 40


def name_of(step: int, run: str = "aa") -> str:
    return f"step-{step:010d}-{run}"


def save(store: Checkpoints, step: int, run: str = "aa") -> None:
    def writer(file: str) -> Callable[[Any], object]:
        data = content(step, file)
        return lambda opened: (opened.write(memoryview(data)[:100]), opened.write(memoryview(data)[100:]))

    files = {file: writer(file) for file in ("state.pt", "rank0.pt")}
    store.save(name_of(step, run), files, {"step": step})


def store_in(root: Path, disk: Disk | None = None, keep: int = 3) -> Checkpoints:
    return Checkpoints(Folder(root, disk or MemoryDisk()), keep=keep)


def newest(root: Path) -> tuple[int | None, list[Rejected]]:
    """The step of the checkpoint that is taken, having looked at all of it."""
    rejected: list[Rejected] = []
    store = store_in(root)
    for manifest in store.walk(rejected):
        step = manifest.facts["step"]
        for file in manifest.parts:
            with store.open(manifest.name, file) as opened:
                assert opened.read() == content(step, file)
        return step, rejected
    return None, rejected


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = Checkpoints(Folder(tmp_path))  # a real disk
    save(store, 1)
    save(store, 2)
    assert newest(tmp_path) == (2, [])
    assert (tmp_path / "latest").read_text() == name_of(2) + "\n"
    manifest = json.loads((tmp_path / name_of(2) / MANIFEST).read_text())["body"]
    assert manifest["files"]["state.pt"][0] == len(content(2, "state.pt"))


def test_the_order_is_that_of_writing_not_of_steps(tmp_path: Path) -> None:
    """After going back to an older one, what is written then is the newest."""
    store = store_in(tmp_path)
    save(store, 9)
    save(store, 4, "bb")
    assert newest(tmp_path)[0] == 4


def test_so_many_are_kept(tmp_path: Path) -> None:
    store = store_in(tmp_path, keep=2)
    for step in range(1, 6):
        save(store, step)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", name_of(4), name_of(5)]


def calls_of_a_save(root: Path) -> int:
    disk = DyingDisk(10**9, "before")
    store = store_in(root, disk, keep=1)
    save(store, 1)
    before = disk.calls
    save(store, 2)
    return disk.calls - before


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("how", ["before", "half", "after"])
def test_killed_at_each_call(tmp_path: Path, how: str, power: bool) -> None:
    calls = calls_of_a_save(tmp_path / "counted")
    assert calls > 20
    seen = set()
    for nth in range(1, calls + 1):
        root = tmp_path / str(nth)
        save(store_in(root, keep=1), 1)
        with pytest.raises(Killed):
            save(store_in(root, DyingDisk(nth, how, power=power), keep=1), 2)
        step, rejected = newest(root)
        assert step in (1, 2), nth
        assert not rejected, "a half of one is not even seen"
        seen.add(step)
        place = Folder(root, MemoryDisk())
        place.claim()  # the next process takes away what was left
        place.release()
        assert not list(root.glob(".*.tmp"))
        save(store_in(root, keep=1), 3)
        assert newest(root)[0] == 3
    assert seen == {1, 2}


class FailingDisk(MemoryDisk):
    """Its nth call of a kind fails as told."""

    def __init__(self, kind: str, nth: int, error: int, *, does_it: bool = False) -> None:
        super().__init__()
        self.kind, self.left, self.error, self.does_it = kind, nth, error, does_it

    def _maybe(self, kind: str, work: Callable[[], Any]) -> Any:
        if kind == self.kind:
            self.left -= 1
            if self.left == 0:
                if self.does_it:
                    work()
                raise OSError(self.error, os.strerror(self.error))
        return work()

    def write(self, file: BinaryIO, data: memoryview) -> int:
        return self._maybe("write", lambda: file.write(data[:64]))  # and never all at once

    def sync(self, file: BinaryIO) -> None:
        self._maybe("sync", lambda: super(FailingDisk, self).sync(file))

    def move(self, path: Path, to: Path) -> None:
        self._maybe("move", lambda: super(FailingDisk, self).move(path, to))


def disk_was_enough(root: Path, disk: FailingDisk) -> bool:
    try:
        save(store_in(root, disk), 2)
    except CheckpointError as error:
        return "No space left on device" not in str(error)
    return disk.left > 0


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_full_disk(tmp_path: Path, kind: str) -> None:
    """Also one that says so only when it is asked to keep what it took."""
    for nth in range(1, 1000):
        root = tmp_path / str(nth)
        save(store_in(root), 1)
        disk = FailingDisk(kind, nth, errno.ENOSPC)
        if disk_was_enough(root, disk):
            break
        assert newest(root)[0] in (1, 2)  # 2 if only the pointer could not be written
        assert not list(root.glob(".step*"))
    assert nth > 3


def test_a_rename_whose_answer_was_lost(tmp_path: Path) -> None:
    """NFS asks again, and is told that there is nothing to rename."""
    for nth in range(1, 6):  # of two files, the manifest, the draft, the pointer
        root = tmp_path / str(nth)
        save(store_in(root), 1)
        disk = FailingDisk("move", nth, errno.ENOENT, does_it=True)
        save(store_in(root, disk), 2)
        assert disk.left <= 0
        assert newest(root) == (2, [])
        assert (root / "latest").read_text() == name_of(2) + "\n"


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EINVAL, errno.EIO])
def test_a_rename_that_fails(tmp_path: Path, error: int) -> None:
    for nth in range(1, 6):
        root = tmp_path / str(nth)
        save(store_in(root), 1)
        with pytest.raises(CheckpointError, match="could not be written"):
            save(store_in(root, FailingDisk("move", nth, error)), 2)
        assert newest(root)[0] == (2 if nth == 5 else 1)
        save(store_in(root), 3)
        assert newest(root)[0] == 3


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] = (data[at] + 1) % 256
    path.write_bytes(data)


@pytest.mark.parametrize("file", ["state.pt", "rank0.pt"])
@pytest.mark.parametrize("at", [0, 333, -1])
def test_a_byte_of_a_file(tmp_path: Path, file: str, at: int) -> None:
    for step in (1, 2):
        save(store_in(tmp_path), step)
    flip(tmp_path / name_of(2) / file, at)
    step, (rejected,) = newest(tmp_path)
    assert step == 1
    assert str(rejected) == f"{name_of(2)}: {file} is not what was written (its SHA-256 differs)"


def test_each_byte_of_the_manifest(tmp_path: Path) -> None:
    for step in (1, 2):
        save(store_in(tmp_path), step)
    path = tmp_path / name_of(2) / MANIFEST
    whole, accepted = path.read_bytes(), 0
    for at in range(0, len(whole), 2):
        path.write_bytes(whole)
        flip(path, at)
        step, rejected = newest(tmp_path)
        if step == 2:  # a space between two values
            accepted += 1
            assert chr(whole[at]).isspace()
        else:
            assert step == 1
            assert rejected[0].name == name_of(2)
    assert accepted < len(whole) / 4


def test_a_byte_of_the_pointer_does_not_matter(tmp_path: Path) -> None:
    save(store_in(tmp_path), 1)
    flip(tmp_path / "latest", 3)
    assert newest(tmp_path) == (1, [])


def test_files_cut_short_and_missing(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(store_in(tmp_path), step)
    os.truncate(tmp_path / name_of(3) / "state.pt", 10)
    (tmp_path / name_of(2) / "rank0.pt").unlink()
    step, rejected = newest(tmp_path)
    assert step == 1
    size = len(content(3, "state.pt"))
    assert [one.why for one in rejected] == [
        f"state.pt has 10 bytes instead of {size}",
        "rank0.pt is missing",
    ]


def test_a_checkpoint_that_cannot_be_read_back_costs_no_other_one(tmp_path: Path) -> None:
    class Lying(MemoryDisk):
        def move(self, path: Path, to: Path) -> None:
            super().move(path, to)
            if to.name.startswith("step-") and (to / "state.pt").exists():
                flip(to / "state.pt", 5)

    save(store_in(tmp_path, keep=1), 1)
    with pytest.raises(CheckpointError, match="cannot be read back"):
        save(store_in(tmp_path, Lying(), keep=1), 2)
    assert newest(tmp_path)[0] == 1
    assert (tmp_path / "latest").read_text() == name_of(1) + "\n"


def test_damaged_ones_do_not_push_out_the_last_good_one(tmp_path: Path) -> None:
    store = store_in(tmp_path, keep=2)
    save(store, 1)
    for step in (2, 3):
        save(store, step)
        flip(tmp_path / name_of(step) / "state.pt", 0)
    save(store, 4)
    assert newest(tmp_path)[0] == 4


def test_one_writer(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    place.claim()
    place.claim()
    code = (
        "import sys; from pathlib import Path; from jupyter_gpuprof.store.checkpointplaces import Folder\n"
        "try: Folder(Path(sys.argv[1])).claim()\n"
        "except Exception as error: print(error)"
    )
    import subprocess
    import sys

    def said() -> str:
        return subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout

    assert said().startswith("Another process saves its checkpoints in ")
    place.release()
    assert said() == ""


def test_two_writers_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def none(*facts: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", none)
    failed = []

    def work(run: str) -> None:
        place = Folder(tmp_path, MemoryDisk())
        place.claim()
        store = Checkpoints(place)
        for step in range(12):
            try:
                save(store, step, run)
            except CheckpointError as error:
                failed.append(str(error))

    threads = [threading.Thread(target=work, args=(run,)) for run in ("aa", "bb")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    step, rejected = newest(tmp_path)
    assert step in range(12)
    assert not rejected
    assert len(failed) < 24


def test_the_parts_of_other_ranks_are_awaited(tmp_path: Path) -> None:
    clock = FakeClock()
    store = Checkpoints(Folder(tmp_path, MemoryDisk()), sleep=clock.advance, now_s=lambda: clock.ns * 1e-9)
    other = Checkpoints(Folder(tmp_path, MemoryDisk()))
    other.write_part(name_of(1), "rank1.pt", lambda f: f.write(b"one"), announce=True)
    own = store.write_part(name_of(1), "rank0.pt", lambda f: f.write(b"zero"))
    parts = store.await_parts(name_of(1), ["rank1.pt"], 5.0)
    assert parts["rank1.pt"] == Part(3, "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed")
    store.commit(name_of(1), {**parts, "rank0.pt": own}, {"step": 1})
    other.await_commit(name_of(1), 0.0)
    with pytest.raises(CheckpointError, match=r"rank1\.pt of the checkpoint .* did not come within 5 s"):
        store.await_parts(name_of(2), ["rank1.pt"], 5.0)
    assert 5 <= clock.ns * 1e-9 < 6


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be read"):
        list(store_in(tmp_path / "file").walk([]))


OPERATIONS = st.lists(
    st.one_of(
        st.just(("save",)),
        st.tuples(st.just("kill"), st.integers(1, 60), st.sampled_from(["before", "half", "after"])),
        st.tuples(st.just("full"), st.integers(1, 40)),
        st.tuples(st.just("flip"), st.integers(0, 10**6), st.integers(0, 10**6)),
        st.tuples(st.just("lose"), st.integers(0, 10**6)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS, keep=st.integers(1, 3))
def test_any_sequence(tmp_path_factory: pytest.TempPathFactory, operations: list[Any], keep: int) -> None:
    """The newest that nobody damaged is taken; a save that ends badly never costs one."""
    root = tmp_path_factory.mktemp("any")
    whole: list[int] = []  # committed and undamaged, in the order of writing
    for step, (what, *how) in enumerate(operations, 1):
        files = sorted(p for p in root.glob("step-*/*"))
        if what == "save":
            save(store_in(root, keep=keep), step)
            whole.append(step)
        elif what in ("kill", "full"):
            disk = DyingDisk(how[0], how[1], power=True) if what == "kill" else None
            try:
                save(store_in(root, disk or FailingDisk("write", how[0], errno.ENOSPC), keep=keep), step)
            except (Killed, CheckpointError):
                pass
            if (root / name_of(step)).exists():
                whole.append(step)
        elif files:
            path = files[how[0] % len(files)]
            if what == "lose":
                path.unlink()
            else:
                data = path.read_bytes()
                if not data:
                    continue
                at = how[1] % len(data)
                if path.name == MANIFEST and chr(data[at]).isspace():
                    continue
                flip(path, at)
            damaged = int(path.parent.name.split("-")[1])
            whole = [one for one in whole if one != damaged]
        there = [one for one in whole if (root / name_of(one)).exists()]
        assert newest(root)[0] == (there[-1] if there else None)
        assert there or not whole, "a save takes only away what a newer whole one stands in for"
        whole = there


class TestObjects:
    """An object store, in memory."""

    @pytest.fixture
    def address(self, request: pytest.FixtureRequest) -> str:
        pytest.importorskip("fsspec")
        return f"memory://gpuprof-{request.node.name}/run"

    def test_saved_and_loaded(self, address: str) -> None:
        place = place_of(address)
        store = Checkpoints(place, keep=2)
        place.claim()
        assert list(store.walk([])) == []
        for step in (1, 2, 3):
            save(store, step)
        assert sorted(place.names()) == [name_of(2), name_of(3)]
        assert next(store.walk([])).facts == {"step": 3}
        place.release()

    def test_no_manifest_no_checkpoint(self, address: str) -> None:
        store = Checkpoints(place_of(address))
        save(store, 1)

        def dies(opened: Any) -> None:
            opened.write(b"half")
            raise Killed

        with pytest.raises(Killed):
            store.save(name_of(2), {"state.pt": dies}, {"step": 2})
        rejected: list[Rejected] = []
        assert next(store.walk(rejected)).facts == {"step": 1}
        assert not rejected

    def test_damaged(self, address: str) -> None:
        import fsspec

        store = Checkpoints(place_of(address))
        for step in (1, 2):
            save(store, step)
        fsspec.filesystem("memory").pipe_file(f"{address[9:]}/{name_of(2)}/state.pt", b"other")
        rejected: list[Rejected] = []
        assert next(store.walk(rejected)).facts == {"step": 1}
        assert rejected[0].why.startswith("state.pt has 5 bytes instead of ")

    def test_unknown_kind(self) -> None:
        pytest.importorskip("fsspec")
        with pytest.raises(UsageError, match="cannot be opened"):
            place_of("nosuchthing://bucket/run")

    def test_without_fsspec(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
        with pytest.raises(UsageError, match="fsspec is not installed"):
            place_of("s3://bucket/run")


def test_the_seam_is_all_that_changes_files() -> None:
    """What the tests above kill and fail is everything there is."""
    source = Path(checkpointplaces.__file__).read_text()
    folder = source.split("class Folder")[1].split("class Objects")[0]
    for call in (
        "os.replace",
        "os.rename",
        ".unlink(",
        ".rmdir(",
        "rmtree",
        ".mkdir(",
        "fsync",
        "write_text",
    ):
        assert call not in folder, call
