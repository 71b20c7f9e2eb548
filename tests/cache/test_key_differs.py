"""Pairs that look alike and are not: none may have the key of the other."""

from __future__ import annotations

import collections
import functools
import re
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from jupyter_gpuprof import cached
from jupyter_gpuprof.session.cache.plan import plan_of


def key_of(thing: Any) -> str:
    plan = plan_of(thing, "it")
    assert not plan.hazards
    return plan.key


def made(source: str, **names: Any) -> Any:
    """`it` of a module of the person's."""
    space = {"__name__": "project_made", "functools": functools, **names}
    exec(source, space)
    return space["it"]


def scaled(factor: float) -> Any:
    return lambda x: x * factor


def chained(*steps: Any) -> Any:
    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run


def two_modules(size: int) -> Any:
    one, other = types.ModuleType("project_one"), types.ModuleType("project_other")
    exec("SIZE = 1\ndef f(x): return x + SIZE", vars(one))
    exec(f"SIZE = {size}\ndef g(x): return x + SIZE", vars(other))
    return made("def it(x): return other.g(one.f(x))", one=one, other=other)


WITHOUT_WRAPS = """
def twice(f):
    def both(*a): return f(*a)
    return both
@twice
def a(x): return x
@twice
def b(x): return x + {0}
def it(x): return b(a(x))
"""
REGISTERED = """
@functools.singledispatch
def it(x): return 1
@it.register
def _(x: int): return {0}
"""
HANDED_ON = """
def load(data, i): return data.size * i
class Data:
    def __init__(self, size): self.size = size
    def __len__(self): return 3
    def __getitem__(self, i): return load(self, i)
it = Data({0})
"""
OTHER_METHOD = """
class Step:
    def __init__(self, k): self.k = k
    def __call__(self, x): return x
    def apply(self, x): return x * self.k{1}
class Data:
    def __init__(self, k): self._steps = [Step(k)]
    @property
    def steps(self): return self._steps
    def __len__(self): return 3
    def __getitem__(self, i):
        for step in self.steps: i = step.apply(i)
        return i
it = Data({0})
"""
SET_BY_THE_CODE = """
class Data:
    def __init__(self, k): self.k = k
    def __len__(self): return 3
    def __getitem__(self, i):
        if self.k is None: self.k = 1
        return i * self.k
it = Data({0})
"""
ON_METHODS = """
class Data:
    K = {0}
    def __init__(self, k): self.k = k
    @functools.lru_cache
    def read(self, i): return self.k
    @functools.cached_property
    def more(self): return {1}
    @classmethod
    def of(cls, x): return cls.K + x
    def __len__(self): return 3
    def __getitem__(self, i): return self.read(i) + self.more + self.of(i)
it = Data({2})
"""
OF_A_LIST = """
class Data(list):
    def __getitem__(self, i): return super().__getitem__(i)
it = Data([{0}])
"""
CODE = {
    "closures of one code": (chained(scaled(2), scaled(3)), chained(scaled(2), scaled(4))),
    "lambdas of one name": (
        made("it = run(lambda x: x + 1, lambda x: x * 2)", run=chained),
        made("it = run(lambda x: x + 3, lambda x: x * 2)", run=chained),
    ),
    "one name in two modules": (two_modules(2), two_modules(3)),
    "a decorator without wraps": (made(WITHOUT_WRAPS.format(1)), made(WITHOUT_WRAPS.format(2))),
    "a registered function": (made(REGISTERED.format(2)), made(REGISTERED.format(3))),
    "self handed on": (made(HANDED_ON.format(1)), made(HANDED_ON.format(2))),
    "a method besides __call__": (made(OTHER_METHOD.format(1, "")), made(OTHER_METHOD.format(1, " + 1"))),
    "what such a method reads": (made(OTHER_METHOD.format(1, "")), made(OTHER_METHOD.format(2, ""))),
    "given, and set by the code too": (made(SET_BY_THE_CODE.format(2)), made(SET_BY_THE_CODE.format(3))),
    "what a kept method reads": (made(ON_METHODS.format(1, 1, 1)), made(ON_METHODS.format(1, 1, 2))),
    "a kept property": (made(ON_METHODS.format(1, 1, 1)), made(ON_METHODS.format(1, 2, 1))),
    "an attribute of the class": (made(ON_METHODS.format(1, 1, 1)), made(ON_METHODS.format(2, 1, 1))),
    "a data set that is a list": (made(OF_A_LIST.format(1)), made(OF_A_LIST.format(2))),
}


class MyList(list):
    pass


class MyText(str):
    pass


class MyTensor(torch.Tensor):
    pass


VALUES = {
    "list subclass": (MyList([1]), MyList([2])),
    "str subclass": (MyText("a"), MyText("b")),
    "factory": (collections.defaultdict(lambda: 1), collections.defaultdict(lambda: 2)),
    "mask": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0])),
    "dates": (np.array(["2020"], "M8[s]"), np.array(["2021"], "M8[s]")),
    "names of fields": (np.zeros(1, [("a", "i4")]), np.zeros(1, [("b", "i4")])),
    "pattern": (re.compile("a"), re.compile("a", re.IGNORECASE)),
    "tuples in a list": ([(1,)] * 100, [[1]] * 100),
    "tensor subclass": (torch.ones(2).as_subclass(MyTensor), torch.zeros(2).as_subclass(MyTensor)),
    "conjugate": (torch.tensor([1 + 1j]), torch.tensor([1 + 1j]).conj()),
    "bfloat16": (torch.ones(1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.bfloat16)),
    "empty": (torch.empty(0, 2), torch.empty(0, 3)),
}


@pytest.mark.parametrize("case", CODE)
def test_other_code_has_another_key(case: str) -> None:
    one, other = CODE[case]
    assert key_of(one) == key_of(one) != key_of(other)


@pytest.mark.parametrize("case", VALUES)
def test_another_value_has_another_key(case: str) -> None:
    one, other = VALUES[case]
    assert key_of(lambda i: (one, i)) == key_of(lambda i: (one, i))
    keys = [key_of(made("def it(i): return value", value=value)) for value in (one, other)]
    assert keys[0] != keys[1]


def test_tables_and_images_can_be_read() -> None:
    pandas, image = pytest.importorskip("pandas"), pytest.importorskip("PIL.Image")
    tables = [pandas.DataFrame({"label": ["a", last]}) for last in "bbc"]
    pictures = [image.new("L", (2, 2), colour) for colour in (0, 0, 1)]
    for three in (tables, pictures):
        one, same, other = (key_of(made("def it(i): return value", value=value)) for value in three)
        assert one == same != other


def test_what_the_code_sets_or_counts_makes_no_other_key() -> None:
    source = """
class Data:
    def __init__(self): self.reads, self.file = 0, None
    def __len__(self): return 3
    def __getitem__(self, i):
        self.reads += 1
        if self.file is None: self.file = open(null)
        if i >= len(self): raise IndexError
        return i
it = Data()
"""
    import os

    data = made(source, null=os.devnull)
    key = key_of(data)
    data[0]
    try:
        assert key_of(data) == key
    finally:
        data.file.close()


@pytest.mark.parametrize("call", ["hash(x)", "id(x)", "globals()['K']", "eval('K')"])
def test_what_differs_between_processes_or_cannot_be_seen_is_a_hazard(call: str) -> None:
    assert plan_of(made(f"K = 1\ndef it(x): return {call}"), "it").hazards[0].call.startswith("builtins.")


class Numbers:
    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> Any:
        return np.full(4, self.numbers[i])


def test_what_was_computed_after_a_change_in_place_gets_under_no_wrong_key() -> None:
    data = Numbers(1.0, 2.0, 3.0)
    kept = cached(data)
    data.numbers[1] = 7.0
    assert kept[1][0] == 7.0
    kept.flush()
    assert cached(Numbers(1.0, 2.0, 3.0))[1][0] == 2.0
    assert kept[1][0] == 7.0
    assert kept.key == cached(Numbers(1.0, 7.0, 3.0)).key


def test_an_epoch_after_a_change_in_place_reads_nothing_old() -> None:
    """A sampler asks for the length first."""
    data = Numbers(1.0, 2.0)
    kept = cached(data)
    loader = DataLoader(kept, batch_size=None)
    assert [float(x[0]) for x in loader] == [1.0, 2.0]
    kept.flush()
    data.numbers[1] = 7.0
    assert [float(x[0]) for x in loader] == [1.0, 7.0]


def test_a_worker_gets_the_key_of_the_data_as_it_is_sent() -> None:
    import pickle

    kept = cached(Numbers(1.0, 2.0))
    kept[0], kept[1], kept.flush()
    kept.dataset.numbers[1] = 7.0
    assert pickle.loads(pickle.dumps(kept))[1][0] == 7.0


class Factor:
    factor = 2

    def of(self, x: int) -> int:
        return x * self.factor


def test_an_attribute_of_the_class_that_is_set_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    thing = Factor()
    of = cached(thing.of)
    assert of(5) == 10
    monkeypatch.setattr(Factor, "factor", 3)
    assert of(5) == 15
    thing.factor = 4
    assert of(5) == 20


def test_no_item_beyond_the_end_is_read_back() -> None:
    class Squares:
        def __init__(self, count: int) -> None:
            self.count = count

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, i: int) -> int:
            if not 0 <= i < 9:
                raise IndexError(i)
            return i * i

    long = cached(Squares(9))
    assert [long[i] for i in range(9)] == [i * i for i in range(9)]
    long.flush()
    short = cached(Squares(4))
    assert short.key == long.key
    with pytest.raises(IndexError):
        short[-5]
    assert short[-1] == 9
    assert short[4] == 16  # as the data set says, which it asks


def test_a_tensor_that_would_come_back_otherwise_is_refused() -> None:
    from jupyter_gpuprof.errors import CacheRefused
    from jupyter_gpuprof.probes.itemlayout import pack, unpacker

    with pytest.raises(CacheRefused):
        pack(torch.ones(1, requires_grad=True))
    packed = pack(torch.tensor([1 + 2j]).conj())
    read = unpacker(packed.layout)(packed.data, 0, len(packed.data), packed.plain_at)
    assert read.tolist() == [1 - 2j]
