"""What every test needs: a ledger of its own, and proof that nothing of ours stays behind."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest


@pytest.fixture(autouse=True)
def own_ledger(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go to a file of the test's own, and text is as wide as without a terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
    folder = tmp_path_factory.mktemp("ledger")
    monkeypatch.setenv("JUPYTER_GPUPROF_DATABASE", str(folder / "ledger.db"))


def _torch_state() -> dict[str, object]:
    """What a leftover hook of ours would change."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    from torch.optim import optimizer
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return {
        "next": vars(_BaseDataLoaderIter)["__next__"],
        "iter": vars(DataLoader)["__iter__"],
        "backward": torch.autograd.backward,
        "grad": torch.autograd.grad,
        "save": torch.save,
        "to": vars(torch.Tensor).get("to"),
        "cuda": vars(torch.Tensor).get("cuda"),
        "optimizer hooks": len(optimizer._global_optimizer_post_hooks),
    }


@pytest.fixture(autouse=True)
def nothing_left_behind() -> object:
    """After each test torch is as it was, and no thread or process of ours is left."""
    before, threads = _torch_state(), set(threading.enumerate())
    known = {child.pid for child in psutil.Process().children()}  # of a fixture that several tests share
    yield
    from jupyter_gpuprof.probes import hooks

    assert not hooks.installed(), "hooks of ours are still in torch"
    after = _torch_state()
    if before:
        assert after == before
    ours = [t for t in set(threading.enumerate()) - threads if "gpuprof" in t.name]
    assert not ours, f"threads of ours are left: {ours}"
    living = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    children = [p.cmdline() for p in living if p.pid not in known]
    assert not [c for c in children if any("gpuprof" in part for part in c)], children


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Signal handlers are those from before: one of ours left behind is an error, others' are put back.

    A ServerApp of Jupyter's in this process takes SIGUSR1 and the like for itself, and keeps them.
    """
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    changed = {n: h for n in before if (h := signal.getsignal(n)) is not before[n] and h != before[n]}
    for number in changed:
        if before[number] is not None:  # else it was not set from Python, and cannot be set again
            signal.signal(number, before[number])
    ours = {n: h for n, h in changed.items() if _of_ours(h)}
    assert not ours, f"signal handlers of ours are left: {ours}"


def _of_ours(handler: object) -> bool:
    """Whether a function or a method of ours, or an object of a class of ours, handles the signal."""
    modules = (getattr(handler, "__module__", ""), type(getattr(handler, "__self__", handler)).__module__)
    return any((module or "").split(".")[0] == "jupyter_gpuprof" for module in modules)
