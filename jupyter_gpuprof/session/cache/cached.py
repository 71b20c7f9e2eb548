"""`cached`: a data set or a function of which the results are computed once and read back afterwards."""

from __future__ import annotations

import functools
import hashlib
import operator
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import CacheRefused, UsageError
from jupyter_gpuprof.probes.itemlayout import pack, unpacker
from jupyter_gpuprof.probes.valuedigest import Unreadable, ValueDigest
from jupyter_gpuprof.session.cache.plan import Plan, check_twice, inside_of, name_of, plan_of, spread
from jupyter_gpuprof.session.cache.split import Split, split_of, steps_of
from jupyter_gpuprof.store.derived import MISS, Derived
from jupyter_gpuprof.store.derivedinputs import identity_by_content, identity_by_status, remember_contents
from jupyter_gpuprof.store.derivedplace import cache_folder, is_known, limit_bytes
from jupyter_gpuprof.store.derivedshard import Result

_SPLIT = "cached(..., split=True) keeps what comes before and does the rest anew each time."
#: A function's first so many results are computed twice.
_CHECKED_CALLS = 3


def cached(
    source: Any,
    *,
    split: bool = False,
    deterministic: bool = False,
    by_content: bool = False,
    folder: str | Path | None = None,
) -> Any:
    """Compute the samples of a data set (or the results of a function) once, and read them back afterwards.

    They are found again in loader workers, other processes and later runs, as long as the code, the values it
    reads, the files, and the versions of the libraries are the same. What gives something else each time is
    refused, with the name of the call.

    Args:
        source: a map-style data set, or a function of plain arguments (also as a decorator).
        split: keep what comes before the first random step of the data set's ``transform`` (a Compose:
            whatever has ``.transforms``), and do the rest anew each time.
        deterministic: it is, whatever its code looks like: nothing is refused.
        by_content: tell files by their content, so that a folder may be moved; each is read once for it.
        folder: where to keep the results; by default in the person's cache directory.

    Returns:
        A data set or function to use instead.

    Raises:
        CacheRefused: the results cannot be kept; the message names the call.
        UsageError: it is neither a data set nor a function.
    """
    own = Path(folder).absolute() if folder is not None else None
    if isinstance(source, (CachedData, CachedFunction)):
        return source
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return CachedData(
            source, own or cache_folder(), split=split, deterministic=deterministic, by_content=by_content
        )
    if callable(source) and not isinstance(source, type) and not hasattr(source, "__iter__"):
        return CachedFunction(source, own, deterministic=deterministic, by_content=by_content)
    raise UsageError(
        f"{type(source).__qualname__} cannot be cached: it has no numbered items to keep.",
        "Cache a data set with len() and numbered items, or a function.",
    )


class _Kept:
    """What both kinds share: a plan, and the results kept under its key. To a worker only the plan goes."""

    def __init__(self, root: Path, plan: Plan, item_s: float, source: Any) -> None:
        self._root, self._plan, self._item_s = root, plan, item_s
        self._source, self._before = source, inside_of(source, plan.name)
        self._created_at = clock.utc_now()
        self._limit_bytes = limit_bytes()
        self._open()

    def _open(self) -> None:
        plan = self._plan
        about = {
            "name": plan.name,
            "created_at": self._created_at,
            "item_s": self._item_s,
            "parts": plan.parts,
        }
        self.key = plan.key
        self._derived = Derived(
            self._root, self.key, about, unpacker, self._limit_bytes, self.changed_in_place
        )
        self._changed = ""
        self.get, self.flush = self._derived.get, self._derived.flush
        self._warned = False

    @property
    def is_current(self) -> bool:
        """Whether what the results depend on is as it was."""
        return not self._changed and self._plan.is_current

    def changed_in_place(self) -> str:
        """Which value is not what it was, one sentence; "" in a worker that got the plan only.

        Asked before results are written, so that none gets under a key that is no longer its own.
        """
        if self._before and not self._changed:
            now = inside_of(self._source, self._plan.name)
            part = next((part for part in self._before if self._before[part] != now.get(part)), "")
            if part:
                self._changed = f"{part} was changed, so what was computed since the last write is not kept."
        return self._changed

    def keep(self, number: int, item: Any) -> None:
        """Keep a result that was just computed; what cannot be kept is a warning, once."""
        try:
            packed = pack(item)
            self._derived.keep(Result(number, packed.layout, packed.data, packed.plain_at))
            trouble = self._derived.trouble
        except CacheRefused as error:
            trouble = str(error)
        if trouble and not self._warned:
            self._warned = True
            warnings.warn(f"{trouble} Results are computed as before.", stacklevel=4)

    def __getstate__(self) -> dict[str, Any]:
        kept = Plan(self._plan.name, self._plan.parts)
        return {
            "_root": self._root,
            "_plan": kept,
            "_item_s": self._item_s,
            "_created_at": self._created_at,
            "_limit_bytes": self._limit_bytes,
            "_source": None,
            "_before": {},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()


class CachedData:
    """A map-style data set whose samples are computed once; see `cached`.

    Attributes:
        dataset: the one it stands for.
        key: what its samples are kept under.
    """

    def __init__(
        self, dataset: Any, root: Path, *, split: bool, deterministic: bool, by_content: bool
    ) -> None:
        self.dataset = dataset
        self._root, self._by_content = root, by_content
        self._asked = (split, deterministic)
        self._place: Any = None
        self._prepare()

    def _prepare(self) -> None:
        split, deterministic = self._asked
        self._split: Split | None = None
        self._source = self.dataset
        name = name_of(self.dataset)
        plan = plan_of(self.dataset, name, by_content=self._by_content)
        if deterministic:
            self._kept = _Kept(self._root, plan, 0.0, self.dataset)
        elif split:
            self._prepare_split(plan)
        else:
            hint = _SPLIT if split_of(self.dataset) is not None else ""
            plan.refuse_hazards(hint)
            self._check(plan, hint)
        if self._by_content:
            remember_contents()

    def _prepare_split(self, plan: Plan) -> None:
        """Cut where the code draws; if the samples still differ, one step earlier, and so on."""
        try:
            plan.refuse_hazards()
            self._check(plan, "")
            return
        except CacheRefused as error:
            refused = error
        found = split_of(self.dataset, most=None if plan.hazards else steps_of(self.dataset) - 1)
        while found is not None:
            try:
                self._split, self._source = found, found.dataset
                cut = plan_of(found.dataset, plan.name, by_content=self._by_content)
                cut.refuse_hazards()
                self._check(replace(cut, watched=cut.watched + plan.watched), "")
                return
            except CacheRefused as error:
                refused = error
            found = split_of(self.dataset, most=len(found.head.transforms) - 1)
        self._split, self._source = None, self.dataset
        raise refused

    def _check(self, plan: Plan, hint: str) -> None:
        item_s = 0.0
        numbers = spread(len(self.dataset))
        if not is_known(self._root, plan.key):
            item_s = check_twice(plan.name, self._compute, numbers, hint)
        elif self._split is not None and numbers:
            self._compute(numbers[0])  # where in the sample the pipeline's result is
        self._kept = _Kept(self._root, plan, item_s, self._source)

    def _compute(self, number: int) -> Any:
        item = self._source[number]
        if self._split is not None:
            place = self._split.head.place_in(item)
            if self._place is None:
                self._place = place
            elif place != self._place:
                raise CacheRefused(
                    "The pipeline cannot be split: its result is not always at the same place."
                )
        return item

    @property
    def key(self) -> str:
        """What the samples are kept under."""
        return self._kept.key

    @property
    def is_split(self) -> bool:
        """Whether the rest of its pipeline is done anew each time."""
        return self._split is not None

    @property
    def kept(self) -> str:
        """What is kept, in words."""
        if self._split is None:
            return "the whole sample"
        return f"what comes before {self._split.reason}"

    def __len__(self) -> int:
        self._kept.changed_in_place()  # samplers ask at each epoch: a good time to look, a millisecond
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        try:
            number = operator.index(index)
        except TypeError:
            return self.dataset[index]
        kept = self._kept
        if not kept.is_current:
            self._prepare()
            kept = self._kept
        if number < 0:
            number += len(self.dataset)
        if not 0 <= number < len(self.dataset):
            return self.dataset[index]  # what it says to that
        item = kept.get(number)
        if item is MISS:
            item = self._compute(number)
            kept.keep(number, item)
        return item if self._split is None else self._split.finish(item, self._place)

    def flush(self) -> bool:
        """Write what was computed; happens by itself every few seconds and when the process ends.

        Returns:
            False while another process writes.
        """
        return self._kept.flush()

    def __getstate__(self) -> dict[str, Any]:
        """To a worker go the data set and the key as they are now."""
        if not self._kept.is_current or self._kept.changed_in_place():
            self._prepare()
        return vars(self).copy()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)


class CachedFunction:
    """A function whose results are computed once for the same arguments; see `cached`."""

    def __init__(
        self, function: Callable[..., Any], root: Path | None, *, deterministic: bool, by_content: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._root = function, root
        self._deterministic, self._by_content = deterministic, by_content
        self._kept: _Kept | None = None
        self._left_to_check = 0 if deterministic else _CHECKED_CALLS
        self._digests = _argument_digests(by_content)

    @property
    def key(self) -> str:
        """What the results are kept under."""
        return self._prepared().key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result for these arguments."""
        kept = self._prepared()
        try:
            found = self._digests.token((args, tuple(sorted(kwargs.items()))), "argument")
        except Unreadable as error:
            raise CacheRefused(f"{error} is no argument that results can be kept by.") from None
        digest = hashlib.sha256(found).digest()
        number = int.from_bytes(digest[:8], "little", signed=True)
        item = kept.get(number)
        if item is not MISS and item[0] == digest:
            return item[1]

        def compute(_: int = 0) -> Any:
            return self._function(*args, **kwargs)

        if self._left_to_check:
            check_twice(name_of(self._function), compute, [0])
            self._left_to_check -= 1
        value = compute()
        kept.keep(number, (digest, value))
        return value

    def flush(self) -> bool:
        """Write what was computed, as that of a data set does."""
        return self._kept is None or self._kept.flush()

    def _prepared(self) -> _Kept:
        """The plan is made at the first call, when all names that the function reads are bound."""
        if self._kept is None or not self._kept.is_current:
            plan = plan_of(self._function, name_of(self._function), by_content=self._by_content)
            if not self._deterministic:
                plan.refuse_hazards()
            self._kept = _Kept(self._root or cache_folder(), plan, 0.0, self._function)
        return self._kept

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        raise UsageError(
            "A method cannot be cached in its class.",
            "Cache the bound method: self.read = cached(self.read).",
        )

    def __reduce__(self) -> Any:
        """By its name where it took the function's place, as a decorator does."""
        home, name = sys.modules.get(self.__module__), getattr(self, "__qualname__", "")
        if getattr(home, str(name), None) is self:
            return name
        return _rebuilt, (self._function, self._root, self._deterministic, self._by_content)


def _rebuilt(
    function: Callable[..., Any], root: Path | None, deterministic: bool, by_content: bool
) -> CachedFunction:
    return CachedFunction(function, root, deterministic=deterministic, by_content=by_content)


def _argument_digests(by_content: bool) -> ValueDigest:
    return ValueDigest(lambda thing, path: None, identity_by_content if by_content else identity_by_status)
