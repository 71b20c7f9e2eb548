"""What is known of processes and of the kernels they may belong to."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.records.reading import Missing, Number


@dataclass(frozen=True)
class ProcessId:
    """A process for certain: pids are used again, pids with a start time are not (until the next boot).

    Args:
        pid: in the namespace of whoever read it.
        started_s: when it began, in seconds; on Linux since boot, so that no change of the clock moves it.
    """

    pid: int
    started_s: float


@dataclass(frozen=True)
class KernelTag:
    """What Jupyter writes into a kernel's environment, and its children inherit.

    Args:
        server_pid: ``JPY_PARENT_PID``, the server that started the kernel.
        session_name: ``JPY_SESSION_NAME``, the notebook; empty for a kernel without a session.
    """

    server_pid: int
    session_name: str = ""


@dataclass(frozen=True)
class ProcessFacts:
    """One process.

    Args:
        id: which.
        parent_pid: 0 where it has none here.
        uid: whose it is; None where the system does not tell.
        cpu_s: processor seconds of its threads and of the children it has waited for, so that the sum over
            a tree stays when a child ends.
        namespace_pids: its pids from our namespace inwards; one alone outside of containers.
        tag: of the environment it began with; None where it has none or may not be read.
        has_device_open: whether it has a device file open; missing where it was not looked up or cannot be.
    """

    id: ProcessId
    parent_pid: int
    uid: int | None
    cpu_s: float
    namespace_pids: tuple[int, ...] = ()
    tag: KernelTag | None = None
    has_device_open: bool | Missing = Missing("not looked up")


@dataclass(frozen=True)
class KernelProcess:
    """A kernel that this server started, running or gone.

    Args:
        kernel_id: Jupyter's name of it.
        path: its notebook; empty where no session has it.
        id: its process; None for a kernel on another machine.
        tag: of its environment, read while it lived.
        descendants: processes seen below it while it lived. They stay its own after their parents ended.
    """

    kernel_id: str
    path: str
    id: ProcessId | None
    tag: KernelTag | None = None
    descendants: frozenset[ProcessId] = frozenset()


@dataclass(frozen=True)
class KernelReport:
    """What a kernel says of itself through the ledger, since the driver may list it by a foreign pid.

    Args:
        id: its process, as it sees itself.
        device_uuid: with or without the driver's "GPU-"; empty where the framework does not tell.
        device_index: the driver's index, used where there is no uuid.
        allocated_bytes: tensors.
        reserved_bytes: tensors and the framework's cache.
        training_active: whether it is inside a training loop.
        at_s: monotonic time of the report in seconds.
        run_id: of the profiled run that is on, "" without one.
        input_ratio: the share of its time in which the device waits for input, by the run's step timing.
        study, trial: of the sweep that it works for, "" without one.
    """

    id: ProcessId
    device_uuid: str
    device_index: int | None
    allocated_bytes: Number
    reserved_bytes: Number
    training_active: bool
    at_s: float
    run_id: str = ""
    input_ratio: Number = Missing("no run measures it")
    study: str = ""
    trial: str = ""
