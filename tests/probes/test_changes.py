"""Each setting of ``%gpuprof try``, made in real objects of torch: what changes, what stays, what is said."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.probes.changes import Applied, apply
from jupyter_gpuprof.probes.reach import reachable
from jupyter_gpuprof.records.levers import KNOWN
from jupyter_gpuprof.records.settings import Setting, parse_settings


class Numbers(Dataset):
    """Items that count how often they were made."""

    def __init__(self, items: int = 40) -> None:
        self.items, self.made = items, 0

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> torch.Tensor:
        self.made += 1
        return torch.tensor(float(i))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def change(words: str, **namespace: Any) -> Applied:
    return apply(parse_settings(words.split()), namespace)


def run(applied: Applied, cell: str, **namespace: Any) -> dict[str, Any]:
    with ExitStack() as stack:
        for context in applied.contexts:
            stack.enter_context(context)
        exec(cell, namespace)
    return namespace


# -- what the person writes


def test_settings_are_read() -> None:
    words = ["num_workers=4", "pin-memory=true", "autocast=torch.bfloat16", "compile=max-autotune", "cache"]
    assert parse_settings(words) == (
        Setting("num_workers", 4),
        Setting("pin_memory", True),
        Setting("autocast", "bfloat16"),
        Setting("compile", "max-autotune"),
        Setting("cache", True),
    )
    assert parse_settings([]) == ()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "workers=4",
            "no setting 'workers' to try. These can be tried: num_workers=4, .*autocast=bfloat16, .*cache",
        ),
        ("num_workers=-1", "num_workers takes a number from 0, not -1. For example: num_workers=4"),
        ("batch_size=0", "takes a number from 1"),
        ("batch_size", "and none was given"),
        ("autocast=int8", "bfloat16 or float16, not int8"),
        ("compile=fast", "True, reduce-overhead or max-autotune"),
        ("cache=False", "cache takes True"),
        ("tf32=1 ", "True or False"),
        ("cache cache=True", "twice"),
    ],
)
def test_settings_that_make_no_sense(words: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_settings(words.split())


@pytest.mark.parametrize("lever", [lever for lever in KNOWN if lever.setting], ids=lambda lever: lever.id)
def test_what_the_levers_name_can_be_tried(lever: Any) -> None:
    assert len(parse_settings([lever.setting])) == 1


# -- loaders that live


def test_a_loader_is_made_anew_in_place() -> None:
    dataset, generator = Numbers(), torch.Generator().manual_seed(3)
    train = DataLoader(dataset, 8, shuffle=True, drop_last=True, generator=generator, collate_fn=list)
    sampler, order = train.sampler, train
    train.note = "mine"  # type: ignore[attr-defined]
    applied = change("num_workers=2 prefetch_factor=3 persistent_workers=True", train=train, dataset=dataset)
    assert applied.not_applied == ()
    assert order is train
    assert (train.num_workers, train.prefetch_factor, train.persistent_workers) == (2, 3, True)
    assert train.sampler is sampler
    assert train.batch_sampler.sampler is sampler
    assert (train.batch_size, train.drop_last, train.generator, train.collate_fn) == (
        8,
        True,
        generator,
        list,
    )
    assert train.note == "mine"  # type: ignore[attr-defined]
    assert applied.lines == (
        "train = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, collate_fn=list, "
        "drop_last=True, generator=train.generator, prefetch_factor=3, persistent_workers=True)",
    )


def test_the_line_makes_the_same_loader() -> None:
    dataset = Numbers()
    loader = DataLoader(dataset, 4, sampler=SequentialSampler(dataset), num_workers=0)
    (line,) = change("pin_memory=True", loader=loader, dataset=dataset).lines
    assert line == "loader = DataLoader(dataset, batch_size=4, pin_memory=True)"
    names: dict[str, Any] = {"DataLoader": DataLoader, "dataset": dataset}
    exec(line, names)
    assert names["loader"].pin_memory is True


def test_without_workers_what_belongs_to_them_goes() -> None:
    loader = DataLoader(
        Numbers(), 8, num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=9,
        multiprocessing_context="fork",
    )  # fmt: skip
    applied = change("num_workers=0", loader=loader)
    assert applied.not_applied == ()
    assert next(batch.tolist() for batch in loader) == list(range(8))
    assert (loader.num_workers, loader.persistent_workers, loader.timeout) == (0, False, 0)


def test_what_needs_workers_says_so() -> None:
    applied = change("persistent_workers=True", loader=DataLoader(Numbers()))
    assert applied.not_applied == ("persistent_workers needs num_workers above 0",)
    assert applied.lines == ()


def test_the_batch_size() -> None:
    dataset = Numbers()
    plain = DataLoader(dataset, 4, drop_last=True)
    given = DataLoader(dataset, batch_sampler=BatchSampler(SequentialSampler(dataset), 4, False))
    own = DataLoader(dataset, batch_sampler=[[1, 2], [3]])
    whole = DataLoader(dataset, batch_size=None)
    stream = DataLoader(Stream(), 2)
    applied = change("batch_size=16", plain=plain, given=given, own=own, whole=whole, stream=stream)
    assert [len(batch) for batch in plain] == [16, 16]
    assert [len(batch) for batch in given] == [16, 16, 8]
    assert [len(batch) for batch in stream] == [10]
    assert [len(batch) for batch in own] == [2, 1]
    assert set(applied.not_applied) == {
        "batch_size: the batches come from a list",
        "batch_size: the items are batches already",
    }
    sampler = "BatchSampler(given.batch_sampler.sampler, 16, False)"
    assert f"given = DataLoader(given.dataset, batch_sampler={sampler})" in applied.lines


def test_a_loader_inside_of_other_things() -> None:
    loader = DataLoader(Numbers(), 4)
    holder = type("Holder", (), {})()
    holder.parts = {"train": [loader]}
    (applied, hidden) = (change("num_workers=1", holder=holder), lambda: loader)
    assert loader.num_workers == 1
    assert applied.lines == ()
    change("num_workers=2", f=hidden)
    assert loader.num_workers == 2


def test_a_loader_with_an_init_of_its_own_is_named() -> None:
    class Mine(DataLoader):
        def __init__(self, dataset: Any, extra: int) -> None:
            super().__init__(dataset)

    class Plain(DataLoader):
        pass

    applied = change("num_workers=1", a=Mine(Numbers(), 1), b=Plain(Numbers()))
    assert applied.not_applied == ("a Mine has an __init__ of its own, so it cannot be made anew",)
    assert applied.lines == ("b = Plain(b.dataset, num_workers=1)",)


def test_a_cache_serves_a_few_ready_items() -> None:
    dataset = Numbers(40)
    loader = DataLoader(dataset, 5, shuffle=True)
    applied = change("cache", loader=loader, dataset=dataset)
    made = dataset.made
    assert made == 20  # four batches
    batches = [batch.tolist() for _ in range(3) for batch in loader]
    assert dataset.made == made
    assert len(batches) == 24
    assert {x for batch in batches for x in batch} == set(range(20))
    assert loader.dataset.items is not None
    assert loader.dataset.made == made  # its own attributes are still there
    assert applied.lines == (
        "items = [dataset[i] for i in range(len(dataset))]",
        "loader = DataLoader(items, batch_size=5, shuffle=True)",
    )


def test_what_cannot_be_cached_is_named() -> None:
    class ByName(Numbers):
        def __getitem__(self, key: Any) -> Any:
            return {"a": 1}[key]

    applied = change("cache", a=DataLoader(Stream()), b=DataLoader(ByName()))
    assert applied.not_applied == (
        "cache: the items of a Stream, a stream, have no numbers to keep them by",
        "cache: item 0 of the ByName cannot be read: KeyError: 0",
    )


def test_no_loader_at_all() -> None:
    applied = change("num_workers=1 batch_size=4", x=1)
    run(applied, "pass")
    assert applied.not_applied == ("num_workers, batch_size: no DataLoader was found",)


# -- loaders that the cell makes


def test_a_loader_that_the_cell_makes() -> None:
    applied = change("num_workers=0 batch_size=10 cache", x=1)
    dataset, signature = Numbers(), inspect.signature(DataLoader.__init__)
    cell = (
        "class Own(DataLoader):\n"
        "    def __init__(self, d): super().__init__(d, 3, shuffle=True, num_workers=0)\n"
        "sizes = [len(b) for b in DataLoader(dataset, 4, True)] + [len(b) for b in Own(dataset)]\n"
        "import inspect; signature = inspect.signature(DataLoader.__init__)\n"
    )
    after = run(applied, cell, DataLoader=DataLoader, dataset=dataset)
    assert after["sizes"] == [10] * 8
    assert dataset.made == 80
    assert after["signature"] == signature
    assert applied.not_applied == ()
    assert applied.lines == ("DataLoader(..., num_workers=0, batch_size=10)",)
    assert len(next(iter(DataLoader(dataset, 4)))) == 4, "only while the cell runs"


def test_a_wrong_loader_is_still_the_persons_own_error() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        run(change("num_workers=0"), "DataLoader([1], nonsense=2)", DataLoader=DataLoader)


@pytest.mark.slow
def test_a_loader_prepared_by_accelerate() -> None:
    from accelerate import Accelerator

    loader = Accelerator(cpu=True).prepare(DataLoader(Numbers(), 4))
    applied = change("batch_size=8 num_workers=1", loader=loader)
    assert applied.not_applied == ()
    assert [len(batch) for batch in loader] == [8] * 5
    assert loader.num_workers == 1


# -- models, optimizers, switches


def conv() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))


def test_channels_last() -> None:
    model = conv()
    weight = next(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    applied = change("channels_last=True", model=model, optimizer=optimizer)
    assert next(model.parameters()) is weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert applied.lines == ("model = model.to(memory_format=torch.channels_last)",)
    assert change("channels_last=True", model=nn.Linear(2, 2)).not_applied == (
        "channels_last: no model with convolutions over two dimensions was found outside the cell",
    )


def test_compile_takes_each_whole_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[nn.Module, dict[str, Any]]] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compiled.append((self, options)))
    model = conv()
    applied = change("compile=reduce-overhead", model=model, head=model[2], loss=nn.MSELoss())
    assert compiled == [(model, {"mode": "reduce-overhead"})]
    assert applied.lines == ('model.compile(mode="reduce-overhead")',)
    assert change("compile=True", model=model).lines == ("model.compile()",)
    assert change("compile=True").not_applied == ("compile: no model was found outside the cell",)


@pytest.mark.slow
def test_what_is_compiled_already_is_named() -> None:
    model = nn.Linear(2, 2)
    applied = change("compile=True", net=torch.compile(model, backend="eager"))
    assert applied.not_applied == ("compile: net is compiled already",)
    change("compile=True", net=model)
    assert model._compiled_call_impl is not None


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("form", ["fused", "foreach"])
def test_an_optimizer_goes_on_in_its_other_form(kind: Any, form: str) -> None:
    """With state from before: the same steps as without the change."""
    weights = []
    for settings in ("", f"{form}=True"):
        model = conv()
        optimizer = kind(model.parameters(), 1e-2)
        for step in range(4):
            if step == 2:
                applied = change(settings, model=model, optimizer=optimizer)
            optimizer.zero_grad()
            model(torch.ones(1, 3, 8, 8)).sum().backward()
            optimizer.step()
        weights.append(model[0].weight)
    assert torch.allclose(weights[0], weights[1], atol=1e-6)
    assert optimizer.param_groups[0][form] is True
    assert applied.not_applied == ()
    call = f"torch.optim.{kind.__name__}(model.parameters(), lr=0.01, {form}=True)"
    assert applied.lines == (f"optimizer = {call}",)


def test_an_optimizer_without_that_form() -> None:
    optimizer = torch.optim.LBFGS(conv().parameters())
    assert change("fused=True", opt=optimizer).not_applied == ("fused: LBFGS has no such form",)
    assert change("fused=True").not_applied == ("fused: no optimizer was found",)


def test_an_optimizer_that_the_cell_makes() -> None:
    applied = change("fused=True", model=conv())
    cell = "optimizer = torch.optim.AdamW(model.parameters())"
    after = run(applied, cell, torch=torch, model=conv())
    assert after["optimizer"].param_groups[0]["fused"] is True
    assert applied.not_applied == ()
    assert applied.lines == ("fused=True in the optimizer's arguments",)


def test_autocast_around_the_cell_trains_the_weights() -> None:
    """Each forward pass sees the weights as the last step left them."""
    model = conv()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    applied = change("autocast=bfloat16", model=model)
    cell = (
        "outputs = []\n"
        "for _ in range(3):\n"
        "    optimizer.zero_grad(); y = model(x); outputs.append(y.sum().item())\n"
        "    y.sum().backward(); optimizer.step()\n"
    )
    after = run(applied, cell, model=model, optimizer=optimizer, x=torch.ones(1, 3, 8, 8))
    assert after["y"].dtype == torch.bfloat16
    assert len(set(after["outputs"])) == 3
    assert not torch.is_autocast_enabled("cpu")
    assert applied.lines == (
        'with torch.autocast("cpu", torch.bfloat16):  # around the forward pass and the loss',
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_switches_of_devices_that_are_not_there() -> None:
    assert change("tf32=True cudnn_benchmark=True").not_applied == (
        "tf32: there is no NVIDIA device",
        "cudnn_benchmark: there is no cuDNN",
    )


def test_no_settings_change_nothing() -> None:
    applied = change("", loader=DataLoader(Numbers()))
    assert (applied.contexts, applied.lines, applied.not_applied) == ([], (), ())


def test_reachable_does_not_go_through_modules_and_classes() -> None:
    class Holder:
        shared = ([1], [2])

    inner = [object()]
    holder = Holder()
    holder.x = {"a": (inner, torch)}  # type: ignore[attr-defined]
    found = list(reachable([holder, lambda: inner]))
    assert any(thing is inner for thing in found)
    assert not any(thing is Holder.shared for thing in found)
    assert sum(thing is inner for thing in found) == 1
    assert len(found) < 20
    assert len(list(reachable([[[] for _ in range(100)]], most=10))) == 10


def test_data_sets_of_tensors_stay_whole() -> None:
    loader = DataLoader(TensorDataset(torch.arange(6.0)), 2)
    change("batch_size=3", loader=loader)
    assert [x.tolist() for (x,) in loader] == [[0, 1, 2], [3, 4, 5]]
