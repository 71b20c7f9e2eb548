"""What every test needs: a ledger of its own, and proof that nothing of ours stays behind."""

from __future__ import annotations

import sys
import threading

import psutil
import pytest


@pytest.fixture(autouse=True)
def own_ledger(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go to a file of the test's own."""
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
    yield
    from jupyter_gpuprof.probes import hooks

    assert not hooks.installed(), "hooks of ours are still in torch"
    after = _torch_state()
    if before:
        assert after == before
    ours = [t for t in set(threading.enumerate()) - threads if "gpuprof" in t.name]
    assert not ours, f"threads of ours are left: {ours}"
    children = [p.cmdline() for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    assert not [c for c in children if any("gpuprof" in part for part in c)], children
