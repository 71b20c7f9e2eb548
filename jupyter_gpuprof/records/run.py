"""The waist: measuring ends in one `Run`, showing begins from it.

A run is frozen, versioned and saveable. `Run.to_dict` is the JSON that docs/run.md describes; a run
from a live cell and a run from a stored trace are the same record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.codec import decode, encode
from jupyter_gpuprof.records.derived import Preparation
from jupyter_gpuprof.records.levers import Lever
from jupyter_gpuprof.records.ops import OpWindow
from jupyter_gpuprof.records.ranks import Ranks
from jupyter_gpuprof.records.reading import Estimate, Missing, Number, Share

#: Written into every run; raised whenever a field changes its meaning.
SCHEMA_VERSION = 1

NOT_SAMPLED = Missing("no fetch was sampled")
#: What a run says of gpu ops where nobody looked.
NO_WINDOW = Missing("no kernel window")
NO_SAMPLES = Missing("the stacks were not sampled")
NOT_PREPARED = Missing("no data set was looked at")

Label = Literal[
    "input-bound",
    "host-bound",
    "communication-bound",
    "oversized",
    "correctly sized",
    "compute-bound",
    "unclear",
]


@dataclass(frozen=True)
class Device:
    """What the run trained on."""

    kind: str  # "cpu", "cuda", "xpu", ... as torch names it
    name: str
    count: int
    memory_bytes: Number
    simulated: bool


@dataclass(frozen=True)
class Memory:
    """Peak of the framework's allocator in bytes, over the run, never reset by us."""

    peak_allocated_bytes: Number
    peak_reserved_bytes: Number


@dataclass(frozen=True)
class Steps:
    """How many steps were seen and how long they took.

    A step is one batch. `counted` are the steps behind the shares; `warmup` ones are kept apart;
    `failed` ones had no backward pass in a loop whose other steps had one. `typical_s` is the mean
    step without the fastest and slowest tenth and without anything between steps; `mean_s` is what a
    step costs all in, but for validation. `total_s` is the wall time of the counted and failed steps.
    """

    counted: int
    warmup: int
    failed: int
    optimizer_steps: Number
    typical_s: Number
    mean_s: Number
    total_s: float
    warmup_s: float


@dataclass(frozen=True)
class Between:
    """Host work between steps, by name, as shares of the wall time."""

    validation: Share
    checkpoint: Share
    epoch_start: Share
    other: Share


@dataclass(frozen=True)
class Shares:
    """Disjoint parts of the wall time of the counted steps; those present sum to 1."""

    device_compute: Share
    exposed_communication: Share
    exposed_input: Share
    copies: Share
    host_gap: Share
    between: Between

    def items(self) -> Iterator[tuple[str, Share]]:
        """Each part by name, the parts between steps as ``between.<name>``."""
        for name in ("device_compute", "exposed_communication", "exposed_input", "copies", "host_gap"):
            yield name, getattr(self, name)
        for name in ("epoch_start", "validation", "checkpoint", "other"):
            yield f"between.{name}", getattr(self.between, name)

    def present(self) -> dict[str, Estimate]:
        """The parts that have a number."""
        return {name: share for name, share in self.items() if isinstance(share, Estimate)}


@dataclass(frozen=True)
class Verdict:
    """What the step is bound by.

    `sentence` says why in one sentence; `reasons` are the numbers behind it; `also` the labels of
    the other findings; `near` the rules that nearly fired; `doubts` what weakens the verdict and
    what to do about it.
    """

    label: Label
    strength: Literal["strong", "moderate", "weak", "none"]
    sentence: str
    reasons: tuple[str, ...] = ()
    also: tuple[Label, ...] = ()
    near: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Remedy:
    """One change, the mean step time it should bring, and how that was predicted.

    `setting` is how ``%gpuprof try`` calls it ("num_workers=4"); empty where it cannot be tried for the
    person.
    """

    id: str
    title: str
    predicted_step_s: Number
    how: str
    setting: str = ""


@dataclass(frozen=True)
class Overhead:
    """What measuring cost, by our own clock inside the hooks."""

    per_step_s: Number
    ratio: Number  # of the wall time of the steps


@dataclass(frozen=True)
class Loader:
    """One source of batches as it was seen on the training thread.

    `role` is "training", "validation" or "inference". `wait_s` is host time inside ``next()``,
    `exposed_s` the part of it for which the device stood idle, both over all its fetches.
    `cpu_ratio` is the share of a sample of fetches in which the training thread was on a processor: low
    means that loading waits (for a disk, a network), high that it computes. Time in which it waited for a
    core is left out, where the system counts it.
    """

    name: str
    role: str
    fetches: int
    wait_s: float
    exposed_s: float
    batch_size: Number
    num_workers: Number
    prefetch_factor: Number
    pin_memory: bool | Missing
    persistent_workers: bool | Missing
    cpu_ratio: Number = NOT_SAMPLED


@dataclass(frozen=True)
class Run:
    """One profiled stretch of training, finished."""

    run_id: str
    name: str
    started_at: str  # UTC, ISO 8601
    device: Device
    clock: Literal["device", "host"]
    steps: Steps
    shares: Shares
    verdict: Verdict
    remedies: tuple[Remedy, ...]
    overhead: Overhead
    memory: Memory
    loaders: tuple[Loader, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = "live"  # "live" or "trace"
    ops: OpWindow | Missing = NO_WINDOW
    ranks: Ranks | None = None
    input_causes: Causes | Missing = NO_SAMPLES  # what making a batch consists of
    host_causes: Causes | Missing = NO_SAMPLES  # what the training thread does outside of fetching
    levers: tuple[Lever, ...] = ()
    no_help: tuple[str, ...] = ()  # what would not help, and why
    saves: Number = Missing("not counted")  # checkpoints that the training thread wrote
    preparation: Preparation | Missing = NOT_PREPARED  # how the training's data set makes its samples
    schema_version: int = field(default=SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The run as plain JSON values: seconds, shares 0 to 1, ``{"missing": why}`` for no number."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> Run:
        """The run of `to_dict`'s values.

        Raises:
            NewerSchemaError: the run was written by a newer version.
            RunFileError: the values are not those of a run.
        """
        return decode(Run, data, newest=SCHEMA_VERSION)

    def __str__(self) -> str:
        return f"{self.name}: {self.verdict.label}"
