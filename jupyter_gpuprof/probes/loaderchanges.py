"""Change DataLoaders: those that live, in place, and those that the cell makes, as it makes them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

NAMES = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "batch_size", "cache")
#: Arguments that say how items become batches; `arguments_of` works them out.
_BATCHING = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")
#: What a loader without workers does not take.
_OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
_PLAIN = (bool, int, float, str)
#: What Hugging Face's Trainer, which makes its loaders itself, calls these.
_OF_TRAINER = {
    "num_workers": "dataloader_num_workers",
    "pin_memory": "dataloader_pin_memory",
    "persistent_workers": "dataloader_persistent_workers",
    "prefetch_factor": "dataloader_prefetch_factor",
    "batch_size": "per_device_train_batch_size",
}
#: The cache holds so many batches.
CACHED_BATCHES = 4


class CachedItems:
    """A map-style dataset that serves a few ready items again and again.

    It costs next to nothing, which is the most that any cache of derived data can save.

    Args:
        dataset: the dataset it stands for.
        items: its first items.
        words: how a person writes what stands for it; ``{}`` is its name.
    """

    def __init__(self, dataset: Any, items: Any, words: str = "[{0}[i] for i in range(len({0}))]") -> None:
        self.dataset = dataset
        self.items = items
        self.words = words

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.items[index % len(self.items)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)


def arguments_of(loader: Any) -> dict[str, Any]:
    """Arguments of ``DataLoader(...)`` that make the same loader again."""
    from torch.utils.data import BatchSampler, IterableDataset

    parameters = inspect.signature(_init()).parameters
    found = {n: getattr(loader, n) for n in parameters if n not in _BATCHING and hasattr(loader, n)}
    stream = isinstance(loader.dataset, IterableDataset)
    batches = loader.batch_sampler
    if batches is not None and (type(batches) is not BatchSampler or loader.batch_size is None):
        return found | {"batch_sampler": batches}
    found["batch_size"] = loader.batch_size
    if batches is not None:
        found["drop_last"] = loader.drop_last
    if not stream:
        found["sampler"] = loader.sampler
    return found


def changed(arguments: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Arguments of ``DataLoader(...)`` with the change, and what of it could not be made."""
    from torch.utils.data import BatchSampler

    new = dict(arguments)
    problems = []
    for name in ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor"):
        if name in wanted:
            new[name] = wanted[name]
    if not new.get("num_workers"):
        problems = [
            f"{name} needs num_workers above 0"
            for name in ("persistent_workers", "prefetch_factor")
            if wanted.get(name)
        ]
        new = {name: value for name, value in new.items() if name not in _OF_WORKERS}
    batches = new.get("batch_sampler")
    if "batch_size" in wanted:
        items = _items(new.get("dataset"))
        if items is not None and wanted["batch_size"] > items:
            problems.append(f"batch_size: {wanted['batch_size']} is more than the {items} items there are")
        elif type(batches) is BatchSampler:
            new["batch_sampler"] = BatchSampler(batches.sampler, wanted["batch_size"], batches.drop_last)
        elif batches is not None:
            problems.append(f"batch_size: the batches come from a {type(batches).__name__}")
        elif new.get("batch_size", 1) is None:
            problems.append("batch_size: the items are batches already")
        else:
            new["batch_size"] = wanted["batch_size"]
    if wanted.get("cache"):
        size = getattr(new.get("batch_sampler"), "batch_size", None) or new.get("batch_size", 1) or 1
        try:
            make = wanted["cache"] if callable(wanted["cache"]) else None
            new["dataset"] = _cached(new["dataset"], CACHED_BATCHES * size, make)
        except Exception as error:
            problems.append(f"cache: {error or type(error).__name__}")
    return new, problems


def _items(dataset: Any) -> int | None:
    """How many items a data set has; None where it does not tell."""
    try:
        return len(dataset)
    except Exception:
        return None


def rebuild(loader: Any, wanted: Mapping[str, Any]) -> list[str]:
    """Change a loader that lives; it stays the same object.

    Returns:
        What could not be changed, and why.
    """
    from torch.utils.data import DataLoader

    kind = type(loader)
    if kind.__init__ is not DataLoader.__init__:
        if any(isinstance(part, DataLoader) for part in vars(loader).values()):
            return []  # it wraps another one, whose turn comes
        return [f"a {kind.__name__} has an __init__ of its own, so it cannot be made anew"]
    arguments, problems = changed(arguments_of(loader), wanted)
    try:
        vars(loader).update(vars(DataLoader(**arguments)))
    except Exception as error:
        problems.append(f"a {kind.__name__} cannot be made anew: {error}")
    return problems


@contextmanager
def change_new_loaders(
    wanted: Mapping[str, Any], made: Callable[[list[str], Sequence[str]], None]
) -> Iterator[None]:
    """Change each DataLoader that is made meanwhile.

    `made` is told what could not be changed in it, and the lines that change it for good.
    """
    from torch.utils.data import DataLoader

    original = DataLoader.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = dict(signature.bind(self, *args, **kwargs).arguments)
        except TypeError:
            original(self, *args, **kwargs)  # it shall say so itself
            return
        del given["self"]
        given, problems = changed(given, wanted)
        original(self, **given)
        made(problems, _line_where_made(wanted, sys._getframe(1).f_globals.get("__name__", "")))

    DataLoader.__init__ = __init__  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataLoader.__init__ = original  # type: ignore[method-assign]


def _line_where_made(wanted: Mapping[str, Any], module: str) -> list[str]:
    """What to write where a loader is made by code of `module`."""
    words = {name: value for name, value in wanted.items() if name != "cache"}
    package = module.partition(".")[0]
    if (
        package in ("accelerate", "lightning", "pytorch_lightning") or not words
    ):  # they make another's loader anew
        return []
    owner = "DataLoader"
    if package == "transformers":
        owner, words = "TrainingArguments", {_OF_TRAINER[name]: value for name, value in words.items()}
    return [f"{owner}(..., {', '.join(f'{name}={value!r}' for name, value in words.items())})"]


def lines_of(loader: Any, name: str, name_of: Callable[[object], str]) -> list[str]:
    """What to write to get this loader.

    Args:
        loader: as it is now.
        name: of the loader.
        name_of: gives the name of an object, "" if it has none.
    """
    from torch.utils.data import RandomSampler, SequentialSampler
    from torch.utils.data._utils import collate

    given = arguments_of(loader)
    dataset = given.pop("dataset")
    lines = []
    if isinstance(dataset, CachedItems):
        source = name_of(dataset.dataset) or f"{name}.dataset"
        if dataset.words.startswith("cached("):
            lines.append("from jupyter_gpuprof import cached")
        lines.append(f"items = {dataset.words.format(source)}")
    sampler = given.get("sampler")
    if type(sampler) is SequentialSampler:
        del given["sampler"]
    elif type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None:
        given["sampler"] = None
        given["shuffle"] = True
    if given["collate_fn"] in (collate.default_collate, collate.default_convert):
        del given["collate_fn"]
    if given["prefetch_factor"] == 2:
        del given["prefetch_factor"]
    words = ["items" if lines else name_of(dataset) or f"{name}.dataset"]
    parameters = inspect.signature(_init()).parameters
    for key in sorted(given, key=list(parameters).index):
        value = given[key]
        if value is None or (isinstance(value, _PLAIN) and value == parameters[key].default):
            continue
        words.append(f"{key}={_shown(value, f'{name}.{key}', name_of)}")
    lines.append(f"{name} = {type(loader).__name__}({', '.join(words)})")
    return lines


def _shown(value: Any, place: str, name_of: Callable[[object], str]) -> str:
    """An argument as Python; `place` is where it can be had otherwise."""
    from torch.utils.data import BatchSampler

    if isinstance(value, _PLAIN):
        return repr(value)
    if hasattr(value, "get_start_method"):
        return repr(value.get_start_method())
    if type(value) is BatchSampler:
        sampler = name_of(value.sampler) or f"{place}.sampler"
        return f"BatchSampler({sampler}, {value.batch_size}, {value.drop_last})"
    return name_of(value) or place


class _First:
    """The first items of a data set."""

    def __init__(self, dataset: Any, count: int) -> None:
        self._dataset, self._count = dataset, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]


def _cached(dataset: Any, count: int, make: Callable[[Any], tuple[Any, str]] | None) -> CachedItems:
    from torch.utils.data import IterableDataset

    if isinstance(dataset, CachedItems):
        return dataset
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"the items of a {type(dataset).__name__}, a stream, have no numbers to keep them by"
        )
    items = []
    for index in range(min(count, len(dataset))):
        try:
            items.append(dataset[index])
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ValueError(f"item {index} of the {type(dataset).__name__} cannot be read: {why}") from None
    if make is None:
        return CachedItems(dataset, items)
    kept, words = make(dataset)
    for index in range(len(items)):
        kept[index]
    kept.flush()
    return CachedItems(dataset, _First(kept, len(items)), words)


def _init() -> Any:
    from torch.utils.data import DataLoader

    return inspect.unwrap(DataLoader.__init__)
