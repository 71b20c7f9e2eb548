"""The changes that ``%gpuprof try`` can make, as the person writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jupyter_gpuprof.errors import OptionError

Value = bool | int | str


@dataclass(frozen=True)
class Setting:
    """One change: the setting's name, and the value to give it."""

    name: str
    value: Value

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def _whole(least: int) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        value = int(text)
        if value < least:
            raise ValueError
        return value

    return read


def _one_of(**values: Value) -> Callable[[str], Value]:
    known = {name.replace("_", "-"): value for name, value in values.items()}
    return lambda text: known[text.lower().replace("_", "-")]


_SWITCH = _one_of(true=True, false=False)
_ON = _one_of(true=True)
#: Name: how its value is read, what values it takes, an example.
_KNOWN: dict[str, tuple[Callable[[str], Value], str, str]] = {
    "num_workers": (_whole(0), "a number from 0", "num_workers=4"),
    "pin_memory": (_SWITCH, "True or False", "pin_memory=True"),
    "persistent_workers": (_SWITCH, "True or False", "persistent_workers=True"),
    "prefetch_factor": (_whole(1), "a number from 1", "prefetch_factor=4"),
    "batch_size": (_whole(1), "a number from 1", "batch_size=128"),
    "autocast": (
        _one_of(bfloat16="bfloat16", float16="float16", bf16="bfloat16", fp16="float16"),
        "bfloat16 or float16",
        "autocast=bfloat16",
    ),
    "compile": (
        _one_of(true=True, default=True, reduce_overhead="reduce-overhead", max_autotune="max-autotune"),
        "True, reduce-overhead or max-autotune",
        "compile=True",
    ),
    "channels_last": (_ON, "True", "channels_last=True"),
    "tf32": (_SWITCH, "True or False", "tf32=True"),
    "fused": (_SWITCH, "True or False", "fused=True"),
    "foreach": (_SWITCH, "True or False", "foreach=True"),
    "cudnn_benchmark": (_SWITCH, "True or False", "cudnn_benchmark=True"),
    "cache": (_ON, "True", "cache"),
}


def parse_settings(words: Iterable[str]) -> tuple[Setting, ...]:
    """Read ``name=value`` words; a name alone means True.

    Raises:
        OptionError: a name that is not known (the message lists them all), a value that its setting does
            not take, or a setting twice.
    """
    found: dict[str, Setting] = {}
    for word in words:
        name, _, text = word.strip().partition("=")
        name = name.strip().replace("-", "_")
        if name not in _KNOWN:
            examples = ", ".join(example for _, _, example in _KNOWN.values())
            raise OptionError(f"There is no setting {name!r} to try.", f"These can be tried: {examples}.")
        read, takes, example = _KNOWN[name]
        try:
            value = read(text.strip().strip("'\"").removeprefix("torch.") or "True")
        except (ValueError, KeyError):
            shown = f"not {text.strip()}" if text.strip() else "and none was given"
            raise OptionError(f"{name} takes {takes}, {shown}.", f"For example: {example}.") from None
        if name in found:
            raise OptionError(f"{name} was given twice.", "Give each setting once.")
        found[name] = Setting(name, value)
    return tuple(found.values())
