"""Names go to another process and come back as they were; what cannot go is named."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jupyter_gpuprof.errors import CannotShip
from jupyter_gpuprof.session.reruns.names import needed_names, read_names
from jupyter_gpuprof.session.reruns.shipping import Shipment, ship, unship
from tests import simdevice

NOTEBOOK = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
import torch.nn.functional as F

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return F.log_softmax(self.outer(self.inner(x)), -1)

class Data(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return Item(torch.tensor(i % 10))

class Item:
    def __init__(self, x):
        self.x = x

def collate(items):
    return [item.x for item in items]

torch.manual_seed(0)
model = Tied()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
loader = DataLoader(
    Data(), 8, shuffle=True, generator=torch.Generator().manual_seed(1), collate_fn=collate, num_workers=0
)
scale = 1.0

def train():
    global scale
    losses = []
    for items in loader:
        x = torch.stack(items)
        loss = F.nll_loss(model(x), x) * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    scale *= 2
    return losses
"""


def notebook(source: str = NOTEBOOK) -> dict[str, Any]:
    """The namespace of a kernel after that cell."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(source, namespace)
    return namespace


def there_and_back(cell: str, namespace: dict[str, Any], folder: Path) -> dict[str, Any]:
    ship(cell, namespace, folder / "names.pkl")
    return unship(folder / "names.pkl", types.ModuleType("__main__"))


def elsewhere(cell: str, namespace: dict[str, Any], folder: Path) -> Any:
    """What a cell leaves in `result`, run in a really fresh process."""
    ship(cell, namespace, folder / "names.pkl")
    program = (
        "import sys, json, pathlib\n"
        "from jupyter_gpuprof.session.reruns.shipping import unship\n"
        "names = unship(pathlib.Path(sys.argv[1]))\n"
        "exec(sys.argv[2], names)\n"
        "print(json.dumps(names['result']))\n"
    )
    command = [sys.executable, "-c", program, str(folder / "names.pkl"), cell]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# -- names


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("y = x + 1; print(y)", "x"),
        ("x = x + 1", "x"),
        ("x += 1", "x"),
        ("def f(a, b=c):\n    d = a\n    return d + e\nf(1)", "c e"),
        ("[a * b for a in c if (d := a)]", "b c"),
        ("f = lambda a: a + b", "b"),
        ("class A(B):\n    c = 1\n    def f(self): return d + c", "B c d"),
        ("for batch in loader:\n    loss = model(batch)\n    loss.backward()", "loader model"),
        ("for x[i] in y: pass", "x i y"),
        ("if a:\n    b = 1\nprint(b)", "a b"),
        ("if a:\n    b = 1\nelse:\n    b = 2\nprint(b)", "a"),
        ("with open(p) as f:\n    g = f\nprint(g)", "p"),
        ("try:\n    import q\nexcept E as e:\n    print(e)", "E"),
        ("while a:\n    b = 1", "a"),
        ("del a", "a"),
        ("import torch\ntorch.x", ""),
        ("match a:\n    case B(c=d) if e:\n        print(d, f)", "B a e f"),
        ("await a\nasync with b as c: pass", "a b"),
        ("def f():\n    global n\n    n = n + 1", "n"),
        ("print(len(x))", "x"),
        ("print = 1", ""),
        ("get_ipython().run_line_magic('a', 'b')", ""),
    ],
)
def test_needed_names(cell: str, names: str) -> None:
    assert needed_names(cell) == set(names.split())


def test_what_a_function_reads_later_may_have_been_bound_by_then() -> None:
    reads = read_names("def f(): return a + b\na = 1\nf()\nprint(c)\nif d: c = 1")
    assert reads.needed == {"a", "b", "c", "d"}
    assert reads.certain == {"c", "d"}


# -- what comes back


def test_what_names_share_stays_shared(tmp_path: Path) -> None:
    kernel = notebook()
    kernel["storage"] = torch.arange(10.0)
    kernel["tail"] = kernel["storage"][5:]
    here = there_and_back("model, optimizer, scheduler, storage, tail", kernel, tmp_path)
    parameter = next(here["model"].parameters())
    assert here["optimizer"].param_groups[0]["params"][0] is parameter
    assert here["scheduler"].optimizer is here["optimizer"]
    assert here["model"].outer.weight is here["model"].inner.weight
    assert torch.equal(parameter, next(kernel["model"].parameters()))
    assert parameter is not next(kernel["model"].parameters())
    here["storage"][5] = 99
    assert here["tail"][0] == 99


def test_a_cell_and_its_functions_see_the_same_globals(tmp_path: Path) -> None:
    kernel = notebook()
    here = there_and_back("scale = scale + 2; train()", kernel, tmp_path)
    exec("scale = scale + 2; losses = train()", here)
    assert here["scale"] == 6.0
    assert kernel["scale"] == 1.0
    assert "Data" in here, "a class that only an instance reaches"


def test_the_persons_objects_stay_as_they_are(tmp_path: Path) -> None:
    kernel = notebook()
    before = {name: id(value) for name, value in kernel.items()}
    weights = kernel["model"].inner.weight.detach().clone()
    state = torch.get_rng_state(), kernel["loader"].generator.get_state()
    here = there_and_back("train()", kernel, tmp_path)
    exec("train()", here)
    assert {name: id(value) for name, value in kernel.items()} == before
    assert torch.equal(kernel["model"].inner.weight, weights)
    assert not torch.equal(here["model"].inner.weight, weights)
    assert torch.equal(kernel["loader"].generator.get_state(), state[1])


def test_a_loader_leaves_its_running_workers_at_home(tmp_path: Path) -> None:
    kernel = notebook()
    exec("loader = DataLoader(Data(), 8, num_workers=1, persistent_workers=True, collate_fn=collate)", kernel)
    exec("batches = iter(loader); next(batches)", kernel)
    running = kernel["loader"]._iterator
    here = there_and_back("for batch in loader:\n    batches = iter(loader)", kernel, tmp_path)
    assert here["loader"]._iterator is None
    assert here["loader"].num_workers == 1
    assert kernel["loader"]._iterator is running
    assert len(list(running)) == 4
    with pytest.raises(CannotShip, match=r"`batches` cannot .* a running iterator of a DataLoader"):
        ship("next(batches)", kernel, tmp_path / "other.pkl")
    running._shutdown_workers()


def test_odd_but_common_things(tmp_path: Path) -> None:
    kernel = notebook()
    kernel.update(
        generator=torch.Generator().manual_seed(4),
        rng=np.random.default_rng(3),
        pattern=re.compile("a.b"),
        path=Path("x"),
        needs_grad=torch.ones(3, requires_grad=True),
        half=torch.ones(3, dtype=torch.bfloat16),
        sparse=torch.eye(3).to_sparse(),
        empty=torch.empty(0),
        out=sys.stdout,
        array=np.arange(1000.0).reshape(10, 100).T,
    )
    exec("norm = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))", kernel)
    cell = "generator, rng, pattern, path, needs_grad, half, sparse, empty, out, array, F, norm"
    here = there_and_back(cell, kernel, tmp_path)
    assert torch.equal(
        torch.rand(3, generator=here["generator"]), torch.rand(3, generator=kernel["generator"])
    )
    assert here["rng"].random() == kernel["rng"].random()
    assert (here["pattern"], here["path"], here["F"]) == (kernel["pattern"], Path("x"), kernel["F"])
    assert here["needs_grad"].requires_grad
    assert here["half"].dtype == torch.bfloat16
    assert torch.equal(here["sparse"].to_dense(), torch.eye(3))
    assert here["out"] is sys.stdout
    assert (here["array"] == kernel["array"]).all()
    x = torch.ones(1, 3)
    assert torch.equal(here["norm"](x), kernel["norm"](x))


@pytest.mark.slow
def test_compiled_models_are_compiled_again(tmp_path: Path) -> None:
    kernel = notebook()
    exec(
        "outside = torch.compile(model, backend='eager', fullgraph=True)\n"
        "inside = nn.Linear(2, 2); inside.compile(backend='eager', dynamic=True)\n"
        "fast = torch.compile(nn.Linear(2, 2), mode='reduce-overhead')\n"
        "double = torch.compile(lambda x: 2 * x, backend='eager')\n",
        kernel,
    )
    here = there_and_back("outside, inside, double, fast, model", kernel, tmp_path)
    assert here["outside"]._orig_mod is here["model"]
    x = torch.tensor([1, 2])
    assert torch.equal(here["outside"](x), kernel["model"](x))
    assert torch.equal(here["double"](x), 2 * x)
    assert torch.equal(here["inside"](torch.ones(2)), kernel["inside"](torch.ones(2)))
    assert here["inside"]._compiled_call_impl is not None
    assert here["fast"].dynamo_ctx.fullgraph is False
    assert here["outside"].dynamo_ctx.fullgraph is True


def test_a_shipment_says_what_went(tmp_path: Path) -> None:
    kernel = {"__name__": "__main__", "x": 1, "y": 2, "z": io.StringIO()}
    shipment = ship("print(x)", kernel, tmp_path / "names.pkl")
    size = (tmp_path / "names.pkl").stat().st_size
    assert shipment == Shipment(tmp_path / "names.pkl", ("x",), (), size, tuple(sys.path), os.getcwd())


def test_tensors_are_written_without_a_copy(tmp_path: Path) -> None:
    import tracemalloc

    kernel = {"__name__": "__main__", "x": torch.zeros(4_000_000), "y": np.zeros(2_000_000)}
    tracemalloc.start()  # counts Python's and numpy's memory, where a copy as bytes would be
    try:
        shipment = ship("x, y", kernel, tmp_path / "names.pkl")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert shipment.size_bytes > 32_000_000
    assert peak_bytes < 2_000_000


# -- what cannot go


class Client:
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Holder:
    def __init__(self, held: object) -> None:
        self.client = held


class Clean(Holder):
    def __getstate__(self) -> dict[str, Any]:
        return {"client": None}


def refusal(value: object, folder: Path) -> str:
    with pytest.raises(CannotShip) as caught:
        ship("print(thing)", {"__name__": "__main__", "thing": value}, folder / "names.pkl")
    assert not list(folder.iterdir()), "no file is left"
    return str(caught.value)


def test_the_culprit_is_named(tmp_path: Path) -> None:
    with socket.socket() as connection, open(os.devnull) as file, ThreadPoolExecutor(1) as pool:
        dataset = Holder({"a": [Holder(connection)]})
        loader = torch.utils.data.DataLoader([1, 2])
        loader.extra = Holder(pool)
        assert "holds an open socket, thing.client['a'][0].client." in refusal(dataset, tmp_path)
        assert "it is an open file." in refusal(file, tmp_path)
        assert "holds a pool of threads or processes, thing.extra.client." in refusal(loader, tmp_path)
        assert "it is a generator." in refusal((i for i in "ab"), tmp_path)
        assert "holds a lock, thing.client.lock. Create it inside" in refusal(Holder(Client()), tmp_path)
        there_and_back("print(thing)", {"__name__": "__main__", "thing": Clean(connection)}, tmp_path)


def test_a_lambda_with_a_lock(tmp_path: Path) -> None:
    kernel = notebook("import threading\nlock = threading.Lock()\nthing = lambda x: lock and x")
    with pytest.raises(CannotShip, match="`thing` cannot be sent to a fresh process: it holds a lock, lock"):
        ship("thing(1)", kernel, tmp_path / "names.pkl")


def test_what_is_not_needed_is_left_out(tmp_path: Path) -> None:
    kernel = {"__name__": "__main__", "x": 1, "file": threading.Lock(), "unused": threading.Lock()}
    cell = "def show(): print(file)\nfile = x\nshow()"
    assert ship(cell, kernel, tmp_path / "names.pkl").left_out == ("file",)


def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    class Impatient:
        def __reduce__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ship("x", {"__name__": "__main__", "x": Impatient()}, tmp_path / "names.pkl")
    assert not list(tmp_path.iterdir())


def test_a_full_disk(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    (tmp_path / "names.pkl").symlink_to("/dev/full")
    with pytest.raises(CannotShip, match="does not fit on the disk"):
        ship("x", {"__name__": "__main__", "x": bytes(10_000_000)}, tmp_path / "names.pkl")


# -- in a really fresh process


@pytest.mark.slow
def test_a_fresh_process_trains_as_the_kernel_would(tmp_path: Path) -> None:
    kernel = notebook()
    cell = "result = train() + train()"
    losses = elsewhere(cell, kernel, tmp_path)
    exec(cell, kernel)
    assert losses == pytest.approx(kernel["result"], rel=1e-5)


@pytest.mark.slow
def test_workers_of_a_fresh_process_know_the_notebooks_classes(tmp_path: Path) -> None:
    """What they send back is pickled by the name of its class."""
    kernel = notebook()
    exec("loader = DataLoader(Data(), 8, num_workers=1, collate_fn=list)", kernel)
    assert elsewhere(
        "result = [type(i).__name__ for items in loader for i in items][:1]", kernel, tmp_path
    ) == ["Item"]


def back_on_the_device(folder: str) -> dict[str, Any]:
    """On the simulated device: a model and its optimizer, trained a step, there and back."""
    kernel = notebook(
        "import torch\n"
        "model = torch.nn.Linear(3, 2).to('sim')\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)\n"
        "x = torch.ones(1, 3, device='sim')\n"
        "model(x).sum().backward(); optimizer.step()\n"
        "views = model.weight.detach()[1:]\n"
        "other = torch.ones(2, device='sim:1')\n"
    )
    here = there_and_back("model, optimizer, x, views, other", kernel, Path(folder))
    parameter = next(here["model"].parameters())
    return {
        "devices": [str(parameter.device), str(here["x"].device), str(here["other"].device)],
        "equal": torch.equal(parameter.cpu(), next(kernel["model"].parameters()).cpu()),
        "identity": here["optimizer"].param_groups[0]["params"][0] is parameter,
        "momentum": str(here["optimizer"].state[parameter]["momentum_buffer"].device),
        "output": here["model"](here["x"]).cpu().tolist() == kernel["model"](kernel["x"]).cpu().tolist(),
    }


@pytest.mark.slow
@pytest.mark.skipif(simdevice.why_not() is not None, reason=str(simdevice.why_not()))
def test_tensors_come_back_on_their_device(tmp_path: Path) -> None:
    assert simdevice.run(back_on_the_device, str(tmp_path)) == {
        "devices": ["sim:0", "sim:0", "sim:1"],
        "equal": True,
        "identity": True,
        "momentum": "sim:0",
        "output": True,
    }
