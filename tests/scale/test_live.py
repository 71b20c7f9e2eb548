"""Real ranks on this machine: they compute what the cell means, and nothing of the notebook changes."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_gpuprof.errors import RerunError, UsageError
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.scaling import Scaling
from jupyter_gpuprof.store.trials import find_curve
from tests.scale.cells import CELL, namespace, points, scale
from tests.session.live import steady

pytestmark = pytest.mark.slow

#: 4 MB of gradients a step; each sample says which it is.
BIG = """
import copy, hashlib, json
model = torch.nn.Sequential(torch.nn.Linear(16, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
                            torch.nn.ReLU(), torch.nn.Linear(1024, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
data = TensorDataset(torch.randn(49, 16), torch.randint(0, 4, (49,)), torch.arange(49))
loader = DataLoader(data, batch_size=4, shuffle=True)
model(data[0][0]).sum().backward()
optimizer.step()
"""
#: Leaves what each rank saw, lost and came to.
TELLING = """
torch.manual_seed(5)
losses, epochs = [], []
average = copy.deepcopy(model)
try:
    for epoch in range(20):
        epochs.append([])
        for x, y, number in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, now in zip(average.parameters(), model.parameters()):
                    mean.lerp_(now, 0.1)
            losses.append(loss.item())
            epochs[-1] += number.tolist()
finally:
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    told = {"losses": losses, "epochs": epochs, "weights": hashlib.sha256(weights).hexdigest(),
            "average": [bool(average(data[0][0]).isfinite().all()), type(model).__name__]}
    name = os.environ.get("WORLD_SIZE", "1") + "-" + os.environ.get("RANK", "0") + ".json"
    with open(os.path.join(folder, name), "w") as file:
        json.dump(told, file)
"""


def state_of(names: dict[str, Any]) -> bytes:
    """Everything that a run in this process would change."""
    model, optimizer, loader = names["model"], names["optimizer"], names["loader"]
    return pickle.dumps(
        [
            [p.detach().numpy().tobytes() for p in model.parameters()],
            [p.grad.numpy().tobytes() for p in model.parameters()],
            {k: v["momentum_buffer"].numpy().tobytes() for k, v in optimizer.state_dict()["state"].items()},
            [type(model), id(loader.batch_sampler), id(loader.sampler), loader.batch_size],
            [torch.get_rng_state().numpy().tobytes(), random.getstate()],
            [name for name in names if not name.startswith("__")],
        ]
    )


def test_one_and_two_ranks(tmp_path: Path) -> None:
    names = namespace(BIG)
    names["folder"] = str(tmp_path)
    before = state_of(names)
    curve = scale(TELLING, names, (1, 2))
    assert state_of(names) == before

    told = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(told) == {"1-0", "2-0", "2-1"}
    # Both ranks hold the same weights, and not those of a rank alone.
    assert told["2-0"]["weights"] == told["2-1"]["weights"] != told["1-0"]["weights"]
    assert told["2-0"]["losses"] != told["2-1"]["losses"]
    assert told["2-0"]["average"] == [True, "Sequential"]
    # Each sample once an epoch, but for one that makes the ranks equal.
    for epoch in (0, 1):
        seen = Counter(told["2-0"]["epochs"][epoch] + told["2-1"]["epochs"][epoch])
        assert (set(seen), sum(seen.values())) == (set(range(49)), 50)
    # One rank loses what the plain cell loses.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        exec(TELLING, names)
    finally:
        torch.set_num_threads(threads)
    alone = told["1-0"]["losses"]
    assert 20 < len(alone) < 40
    assert names["losses"][: len(alone)] == alone

    one, two = curve.points
    assert isinstance(one.exposed_communication, Missing)
    assert isinstance(two.exposed_communication, Estimate)
    assert two.exposed_communication.value > 0.02
    assert not isinstance(two.throughput, Missing)
    assert two.efficiency == pytest.approx(two.throughput / one.throughput / 2)
    assert 0 < float(one.startup_s) < 120
    assert (curve.mode, curve.backend, curve.ranks, curve.steps) == ("weak", "local", "CPU processes", 20)
    assert find_curve(Scaling, "last") == curve
    body = curve.to_dict()
    assert {"schema_version", "mode", "backend", "points", "fit", "worth_it_count", "verdict"} <= set(body)
    assert {
        "count", "throughput", "efficiency", "low", "high", "exposed_communication", "exposed_input",
        "peak_memory_bytes", "repeats",
    } <= set(body["points"][0])  # fmt: skip
    assert Scaling.from_dict(json.loads(json.dumps(body))) == curve


def why(cell: str, names: dict[str, Any], **options: Any) -> str:
    """Why no count could be measured."""
    with pytest.raises(RerunError) as failure:
        scale(cell, names, **options)
    return str(failure.value)


def test_a_model_that_is_not_called_as_a_whole() -> None:
    cell = CELL.replace("model(x)", "model[2](model[1](model[0](x)))")
    assert "the ranks' models differ at the end: the cell does not call the model" in why(cell, namespace())


MADE_INSIDE = """
torch.manual_seed(int(os.environ.get("RANK", "0")))
made = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 16))
judge = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.LeakyReLU(), torch.nn.Linear(8, 1))
for_made = torch.optim.Adam(made.parameters(), 1e-3)
for_judge = torch.optim.Adam(judge.parameters(), 1e-3)
logits = torch.nn.functional.binary_cross_entropy_with_logits
for epoch in range(20):
    for step, (x, _) in enumerate(DataLoader(data, batch_size=4, shuffle=True)):
        ones, fake = torch.ones(len(x), 1), made(torch.randn(len(x), 16))
        for_judge.zero_grad()
        (logits(judge(x), ones) + logits(judge(fake.detach()), 0 * ones)).backward()
        for_judge.step()
        (logits(judge(fake), ones) / 2).backward()
        if step % 2:
            for_made.step()
            for_made.zero_grad()
"""


def test_two_models_made_inside_with_an_optimizer_each_and_accumulation() -> None:
    (point,) = scale(MADE_INSIDE, namespace()).points
    assert point.outcome == "measured"


BRANCHES = """
class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 4), torch.nn.Linear(16, 4)
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        return (self.first if self.turn % 2 else self.second)(x)

model = Branches()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""


def test_parameters_that_not_every_step_uses() -> None:
    curve = scale(CELL, namespace(BRANCHES))
    assert curve.points[0].outcome == "measured"
    assert any("not used in every step" in note for note in curve.notes)


def test_a_compiled_model() -> None:
    cell = "model = torch.compile(model, backend='eager')\n" + CELL
    assert scale(cell, namespace()).points[0].outcome == "measured"


STREAM = """
class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        index, of = (info.id, info.num_workers) if info is not None else (0, 1)
        for i in range(index, 240, of):
            yield data[i]

loader = DataLoader(Stream(), batch_size=4, num_workers=1)
"""


def test_a_stream_in_strong_mode() -> None:
    curve = scale(CELL, namespace(STREAM), mode="strong")
    assert curve.points[0].outcome == "measured"
    assert "strong" in curve.mode


def test_what_cannot_be_divided() -> None:
    assert "A batch of 1 cannot be divided among 2 ranks" in why(
        CELL, namespace("loader = DataLoader(data, batch_size=1)"), mode="strong"
    )


def test_a_cell_that_runs_no_step() -> None:
    assert "(1: no training step was counted)" in why("x = 1 + 1", namespace(), counts=(1,))


SLOW_RANK = CELL.replace(
    "        optimizer.zero_grad()",
    "        time.sleep(0.03 if os.environ['RANK'] == '1' else 0.002)\n        optimizer.zero_grad()",
)


@steady
def test_a_rank_that_is_late_is_named() -> None:
    curve = scale(SLOW_RANK, namespace())
    assert any("ank 1 is probably late" in note for note in curve.notes), curve.notes
    assert isinstance(curve.points[0].exposed_communication, Estimate)


#: One disk, which all ranks share: whoever reads keeps the others waiting.
ONE_DISK = """
import fcntl
class OnDisk(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, i):
        with open(lock, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.004)
        return data[i]

loader = DataLoader(OnDisk(), batch_size=4)
"""
WORKING = CELL.replace("cross_entropy", "time.sleep(0.006); cross_entropy")


@steady
def test_a_loader_that_is_the_bottleneck(tmp_path: Path) -> None:
    names = namespace(ONE_DISK)
    names["lock"] = str(tmp_path / "lock")
    curve = scale(WORKING, names, (1, 2), steps=25)
    at = points(curve)
    assert float(at[2].efficiency) < 0.9
    assert at[1].exposed_input.value == pytest.approx(16 / 22, abs=0.12)
    assert at[2].exposed_input.value > 0.4
    assert curve.verdict.label == "input-bound", curve.verdict
    assert curve.worth_it_count == 1


# -- cells that distribute their work by themselves --------------------------------------------------------

ITSELF = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
parallel = DistributedDataParallel(model)
mine = torch.utils.data.DistributedSampler(data)
for epoch in range(20):
    for x, y in DataLoader(data, batch_size=4, sampler=mine):
        optimizer.zero_grad()
        cross_entropy(parallel(x), y).backward()
        optimizer.step()
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(20):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(cross_entropy(model(x), y))
        optimizer.step()
"""
LIGHTNING = """
import lightning.pytorch as pl
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def training_step(self, batch, index):
        return cross_entropy(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

pl.Trainer(
    accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=4, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
).fit(Module(), loader)
"""


@pytest.mark.parametrize(
    ("library", "cell"), [("torch", ITSELF), ("accelerate", ACCELERATE), ("lightning", LIGHTNING)]
)
def test_a_cell_that_does_it_by_itself(library: str, cell: str) -> None:
    pytest.importorskip(library)
    curve = scale(cell, namespace())
    assert curve.points[0].outcome == "measured"
    assert curve.notes[0] == "The cell distributes its work by itself and was left to do so."


def test_an_accelerator_made_before_the_cell() -> None:
    pytest.importorskip("accelerate")
    names = namespace("from accelerate import Accelerator\naccelerator = Accelerator(cpu=True)\n")
    with pytest.raises(UsageError, match="Make it inside the profiled cell"):
        scale(
            CELL.replace("cross_entropy(model(x), y).backward()", "accelerator.backward(model(x).sum())"),
            names,
        )
