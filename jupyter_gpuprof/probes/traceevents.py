"""Trace events to a `RankTrace`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.tracejson import Args, Event
from jupyter_gpuprof.probes.tracenames import (
    CATEGORIES,
    LEGACY_PROCESSES,
    Category,
    Role,
    collective,
    device_kind,
    host_role,
    op_kind,
    rank_in_name,
    runs_on_gpu,
)
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device
from jupyter_gpuprof.records.trace import GpuOps, Marks, OpKind, RankTrace

#: Microseconds beyond which a time is nonsense: 285 years, what int64 nanoseconds can hold.
_LONGEST_US = 9e15
_NO_TIME = np.iinfo(np.int64).min


class TraceCollector:
    """Keeps of one rank's events what a `RankTrace` needs.

    Args:
        source: the file's name, for messages and as a last resort for the rank.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._events = 0
        self._without_time = 0
        self._impossible = 0
        self._name_ids: dict[str, int] = {}
        self._threads: dict[Any, int] = {}
        self._runtime_calls: set[str] = set()
        self._on_gpu = False
        self._roles: dict[tuple[str, Category], Role] = {}
        self._ops = _Rows(columns=5)
        self._host_ops = _Rows(columns=0)
        self._marks = {
            role: _Rows(columns=2) for role in (Role.STEP, Role.LOADER, Role.OPTIMIZER, Role.COLLECTIVE)
        }

    def add(self, events: list[Event]) -> None:
        """Take the next events, in any order."""
        self._events += len(events)
        runtime, copy, host_op = Category.RUNTIME, Category.COPY, Role.OP
        runtime_calls, roles = self._runtime_calls, self._roles
        add_op, add_host_op = self._ops.add, self._host_ops.add
        for event in events:
            if event.ph != "X":
                continue
            category = CATEGORIES.get(event.cat)
            if category is None:
                if event.cat or event.pid not in LEGACY_PROCESSES:
                    continue
                category = LEGACY_PROCESSES[event.pid]
            if category is runtime:
                runtime_calls.add(event.name)
            elif event.ts is None or event.dur is None:
                self._without_time += 1
            elif category <= copy:
                add_op((event.ts, event.dur, *self._op(event, category)))
            else:
                key = (event.name, category)
                role = roles.get(key) or self._new_role(*key)
                if role is host_op:
                    add_host_op((event.ts, event.dur))
                elif role in self._marks:
                    thread = self._threads.setdefault(event.tid, len(self._threads))
                    self._marks[role].add((event.ts, event.dur, self._name_id(event.name), thread))
        for rows in (self._ops, self._host_ops, *self._marks.values()):
            self._impossible += rows.pack()

    def finish(self, header: dict[str, Any], unreadable: int, complete: bool) -> RankTrace:
        """The trace of all events taken.

        Args:
            header: what the trace says about itself, as in its JSON.
            unreadable: how many events were no JSON.
            complete: whether the whole file was read.

        Raises:
            TraceError: there is nothing in it to judge.
        """
        base_ns = _integer(header.get("baseTimeNanoseconds"), 0)
        ops = _gpu_ops(*self._ops.sorted(base_ns))
        marks = {role: _marks(*rows.sorted(base_ns)) for role, rows in self._marks.items()}
        # Host ops matter where there are no gpu ops: then the host is what computes.
        host_op_ns = self._host_ops.sorted(base_ns)[0] if not len(ops) else np.empty((0, 2), dtype=np.int64)
        if not len(ops) and not len(host_op_ns) and not any(map(len, marks.values())):
            raise TraceError(f"{self._source} {self._why_empty(complete)}.")
        distributed = header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        return RankTrace(
            source=self._source,
            rank=_integer(distributed.get("rank"), rank_in_name(self._source)),
            world_size=_integer(distributed.get("world_size"), None),
            device=self._device(header, ops),
            names=tuple(self._name_ids),
            ops=ops,
            steps=marks[Role.STEP],
            loaders=marks[Role.LOADER],
            optimizers=marks[Role.OPTIMIZER],
            collectives=marks[Role.COLLECTIVE],
            host_op_ns=host_op_ns,
            events=self._events,
            complete=complete,
            notes=tuple(self._notes(header, unreadable, complete, len(ops))),
        )

    def _name_id(self, name: str) -> int:
        return self._name_ids.setdefault(name, len(self._name_ids))

    def _new_role(self, name: str, category: Category) -> Role:
        self._on_gpu = self._on_gpu or runs_on_gpu(name)
        role = self._roles[name, category] = host_role(name, category)
        return role

    def _op(self, event: Event, category: Category) -> tuple[int, int, int, int, int]:
        """Kind, device, stream, name and collective of a gpu op."""
        args = event.args or Args()
        kind = op_kind(event.name, category)
        device = args.device if type(args.device) is int else _integer(event.pid, _integer(event.tid, 0))
        stream = args.stream if type(args.stream) is int else _integer(args.stream, _integer(event.tid, -1))
        collective_id = -1
        if kind == OpKind.COMMUNICATION:
            group = "" if args.group is None else f"{args.group} {args.group_ranks or ''}".rstrip()
            collective_id = self._name_id(collective(event.name, str(args.collective or ""), group))
        return kind, device, stream, self._name_id(event.name), collective_id

    def _device(self, header: dict[str, Any], ops: GpuOps) -> Device:
        listed = _listed_devices(header)
        if not len(ops) and not self._used_gpu:
            unknown = Missing("a trace does not tell the memory of a CPU")
            return Device("cpu", "CPU", 1, unknown, simulated=False)
        used = Counter(ops.device.tolist()).most_common()
        properties = listed.get(used[0][0] if used else 0, {})
        name = str(properties.get("name") or "unknown")
        memory = _integer(properties.get("totalGlobalMem"), 0)
        return Device(
            kind=device_kind(name, next(iter(self._runtime_calls), "")),
            name=name,
            count=len(used),
            memory_bytes=memory if memory > 0 else Missing("the trace does not tell its device's memory"),
            simulated=False,
        )

    @property
    def _used_gpu(self) -> bool:
        """Whether the job used a GPU, by what its host did."""
        return bool(self._runtime_calls) or self._on_gpu

    def _why_empty(self, complete: bool) -> str:
        if not self._events:
            return "holds no events" if complete else "is cut off before its first event"
        what = "holds no gpu ops, no host ops and no step marks, so there is nothing to judge"
        return what if complete else f"is cut off; what could be read {what}"

    def _notes(self, header: dict[str, Any], unreadable: int, complete: bool, ops: int) -> list[str]:
        notes = []
        listed = len(_listed_devices(header))
        if listed and not ops and not self._used_gpu:
            notes.append(f"{self._source} lists {listed} GPUs but shows no work on them: the CPU is judged.")
        if not complete:
            notes.append(
                f"{self._source} is cut off: {self._events} events could be read. Ops of any step may be"
                " missing, so the device worked at least as long as stated."
            )
        for count, what in (
            (unreadable, "could not be read"),
            (self._without_time, "have no time or duration"),
            (self._impossible, "have a negative or impossible duration"),
        ):
            if count:
                notes.append(f"{self._source}: {count} of {self._events + unreadable} events {what}.")
        return notes


class _Rows:
    """Start, duration and some whole numbers per event of one kind, packed into arrays block by block."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[tuple[float, ...]] = []
        self._packed: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        #: Takes (microseconds, microseconds, columns...). A bound method: it runs for each event.
        self.add = self._rows.append

    def pack(self) -> int:
        """Turn what was added into arrays; returns how many rows were impossible and are left out."""
        if not self._rows:
            return 0
        ts, dur, *values = zip(*self._rows, strict=True)
        self._rows.clear()
        start_ns, length_ns = _nanoseconds(ts), _nanoseconds(dur)
        possible = (start_ns > _NO_TIME) & (length_ns >= 0)
        columns = np.array(values, dtype=np.int64).reshape(self._columns, len(ts)).T
        span_ns = np.column_stack((start_ns, start_ns + length_ns))
        self._packed.append((span_ns[possible], columns[possible]))
        return len(ts) - int(possible.sum())

    def sorted(self, base_ns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Spans of shape (n, 2) by start, `base_ns` added, and the columns, shape (n, columns)."""
        packed, self._packed = self._packed, []
        if not packed:
            return np.empty((0, 2), dtype=np.int64), np.empty((0, self._columns), dtype=np.int64)
        span_ns = np.concatenate([span for span, _ in packed])
        columns = np.concatenate([values for _, values in packed])
        order = np.argsort(span_ns[:, 0], kind="stable")
        return span_ns[order] + base_ns, columns[order]


def _nanoseconds(microseconds: tuple[float, ...]) -> NDArray[np.int64]:
    """Whole nanoseconds; `_NO_TIME` for what no clock shows."""
    us = np.array(microseconds)
    if us.dtype.kind != "i":
        us = us.astype(np.float64)
    possible = np.abs(us) < _LONGEST_US
    return np.where(possible, np.rint(np.where(possible, us, 0) * 1000), _NO_TIME).astype(np.int64)


def _listed_devices(header: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    """The properties of the machine's devices by their index."""
    listed = header.get("deviceProperties")
    return {p.get("id"): p for p in listed if isinstance(p, dict)} if isinstance(listed, list) else {}


def _gpu_ops(span_ns: NDArray[np.int64], columns: NDArray[np.int64]) -> GpuOps:
    kind, device, stream, name_id, collective_id = columns.T
    return GpuOps(
        span_ns,
        kind.astype(np.int8),
        device.astype(np.int32),
        np.ascontiguousarray(stream),
        name_id.astype(np.int32),
        collective_id.astype(np.int32),
    )


def _marks(span_ns: NDArray[np.int64], columns: NDArray[np.int64]) -> Marks:
    name_id, thread_id = columns.T
    return Marks(span_ns, name_id.astype(np.int32), thread_id.astype(np.int32))


def _integer(value: Any, default: Any) -> Any:
    """The value as an int, also from text ("7", "0x0", "stream 7"); else the default."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 1 << 62 else default
    if isinstance(value, str) and value:
        try:
            return _integer(int(value.split()[-1], 0), default)
        except (ValueError, IndexError):
            pass
    return default
