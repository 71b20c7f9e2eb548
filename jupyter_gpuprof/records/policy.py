"""What the reaper may do: the options, with their defaults, checked when they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.idleness import KernelFacts

PolicyAction = Literal["warn", "free", "offload", "suspend", "shutdown"]

#: Asked last, with the facts, before anything is done. Only True lets it be done; words are the reason
#: against it; an exception is one too.
PolicyHook = Callable[[KernelFacts], object]

_POSITIVE = ("idle_timeout_s", "keep_max_s")
_NOT_NEGATIVE = ("warn_before_s", "step_wait_s", "start_grace_s", "min_held_bytes")
_RATIOS = ("cpu_ratio", "device_ratio")
#: These hold for the server, not for a kind of kernel.
_NOT_BY_KERNELSPEC = {"kernelspecs", "orphans", "hook"}


#: Set by our server extension in the environment of its kernels while its own reaper is on.
SERVER_REAPER = "JUPYTER_GPUPROF_SERVER_REAPER"


@dataclass(frozen=True)
class Policy:
    """What the reaper may do.

    Args:
        enabled: decide at all.
        idle_timeout_s: how long a kernel must be idle, counted from the end of its last cell.
        warn_before_s: how long before the action the warning comes.
        action: the most that may be done. "shutdown" frees first, and shuts down what still holds.
        busy_timeout_s: after how long a cell counts as stalled in which neither processor nor device
            works (``input()``, a debugger); None never. Such a kernel is shut down if `action` is
            "shutdown", and else only warned.
        min_held_bytes: who holds less of a device is left alone.
        exempt: patterns of notebook paths that are left alone.
        orphans: "report" processes of dead kernels that still hold a device, or "end" them.
        keep_max_s: the longest that a kernel can be kept by request.
        dry_run: say what would be done, and do nothing.
        step_wait_s: how long a step has to show its effect before the next one.
        start_grace_s: how long a kernel is "starting".
        cpu_ratio: above this many processor cores a process tree works.
        device_ratio: above this share of the time a device works.
        kernelspecs: other values for kernels of a kernelspec, by its name and the option's.
        hook: see `PolicyHook`.

    Raises:
        OptionError: a value makes no sense.
    """

    enabled: bool = True
    idle_timeout_s: float = 3600.0
    warn_before_s: float = 300.0
    action: PolicyAction = "warn"
    busy_timeout_s: float | None = None
    min_held_bytes: int = 1
    exempt: tuple[str, ...] = ()
    orphans: Literal["report", "end"] = "report"
    keep_max_s: float = 24 * 3600.0
    dry_run: bool = False
    step_wait_s: float = 30.0
    start_grace_s: float = 60.0
    cpu_ratio: float = 0.05
    device_ratio: float = 0.01
    kernelspecs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    hook: PolicyHook | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _number(name, getattr(self, name), above=0)
        for name in _NOT_NEGATIVE:
            _number(name, getattr(self, name))
        for name in _RATIOS:
            _number(name, getattr(self, name), most=1)
        if self.busy_timeout_s is not None:
            _number("busy_timeout_s", self.busy_timeout_s, above=0)
        _one_of("action", self.action, get_args(PolicyAction))
        _one_of("orphans", self.orphans, ("report", "end"))
        if isinstance(self.exempt, str) or not all(isinstance(p, str) for p in self.exempt):
            raise OptionError(f"exempt takes a list of path patterns, not {self.exempt!r}.")
        object.__setattr__(self, "exempt", tuple(self.exempt))
        if self.hook is not None and not callable(self.hook):
            raise OptionError(f"hook takes a function, not {self.hook!r}.")
        for name in self.kernelspecs:
            self.for_kernelspec(name)

    def for_kernelspec(self, name: str) -> Policy:
        """The policy for kernels of that kernelspec.

        Raises:
            OptionError: its values make no sense.
        """
        changes = self.kernelspecs.get(name)
        if not changes:
            return self
        allowed = {f.name for f in fields(self)} - _NOT_BY_KERNELSPEC
        for option in changes:
            if option not in allowed:
                raise OptionError(f"kernelspecs[{name!r}] has no option {option!r}.")
        return replace(self, kernelspecs={}, **changes)


def _number(name: str, value: object, above: float | None = None, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise OptionError(f"{name} takes a number, not {value!r}.")
    if above is not None and value <= above:
        raise OptionError(f"{name} must be above {above}, not {value!r}.")
    if value < 0 or value > most:
        raise OptionError(f"{name} must be {'0 to 1' if most == 1 else 'at least 0'}, not {value!r}.")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(f"{name} takes {', '.join(allowed[:-1])} or {allowed[-1]}, not {value!r}.")
