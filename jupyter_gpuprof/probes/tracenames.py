"""What the categories and names of trace events mean, over the versions of Kineto and its back ends."""

from __future__ import annotations

import re
from enum import IntEnum, auto
from functools import lru_cache

from jupyter_gpuprof.records.trace import OpKind


class Category(IntEnum):
    """The categories of events that we use; the first two are gpu ops."""

    KERNEL = auto()
    COPY = auto()
    HOST_OP = auto()
    ANNOTATION = auto()
    RUNTIME = auto()


class Role(IntEnum):
    """What an event of the host is to us."""

    STEP = auto()
    LOADER = auto()
    OPTIMIZER = auto()
    COLLECTIVE = auto()
    OP = auto()
    NOTHING = auto()


#: Kineto's categories, those of its first versions (capitalised) and of today. Synchronisation
#: ("cuda_sync", "overhead") and annotations drawn on the device ("gpu_user_annotation") are no gpu ops.
CATEGORIES = {
    "Kernel": Category.KERNEL,
    "Memcpy": Category.COPY,
    "Memset": Category.COPY,
    "Operator": Category.HOST_OP,
    "Runtime": Category.RUNTIME,
    "kernel": Category.KERNEL,
    "concurrent_kernel": Category.KERNEL,
    "hpu_op": Category.KERNEL,
    "gpu_memcpy": Category.COPY,
    "gpu_memset": Category.COPY,
    "cpu_op": Category.HOST_OP,
    "user_annotation": Category.ANNOTATION,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "xpu_runtime": Category.RUNTIME,
}
#: Event lists of the autograd profiler have no categories, but processes named so.
LEGACY_PROCESSES = {"CPU functions": Category.HOST_OP, "CUDA functions": Category.KERNEL}

# NCCL from 1 to symmetric kernels, RCCL, MSCCL(++), oneCCL, HCCL, NVSHMEM and peer-to-peer all-reduce.
_COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|oneccl|\bccl(?:::|_)|hccl|hcom_|xccl|nvshmem"
    r"|cross_device_reduce|multimem_|(?:one|two)_shot_all_?reduce"
)
_COPY = re.compile(r"Memcpy|Memset|__amd_rocclr_(?:copy|fill)Buffer")
_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|reduce|send|recv",
    re.IGNORECASE,
)
_HOST_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc|oneccl):")
_STARTS_COLLECTIVE = re.compile(r"c10d::|record_param_comms|(?:nccl|rccl|xccl):")
_LOADER = re.compile(r"enumerate\(Data(?:Loader|Pipe)\)#|.*train_dataloader_next$")
_ANNOTATION = re.compile(r".*#|DistributedDataParallel")
_ON_GPU = re.compile(r"cud(?:a|nn)|miopen|nccl:|xpu", re.IGNORECASE)
_RANK = re.compile(r"(?:rank|worker)[_.-]?(\d+)", re.IGNORECASE)


@lru_cache(maxsize=1 << 14)
def op_kind(name: str, category: Category) -> OpKind:
    """What a gpu op does."""
    if category == Category.COPY or _COPY.match(name):
        return OpKind.COPY
    # The name alone, not its argument types: any kernel may take a communicator.
    function = re.split(r"[(<]", name, maxsplit=1)[0].lower()
    return OpKind.COMMUNICATION if _COMMUNICATION.search(function) else OpKind.COMPUTE


@lru_cache(maxsize=1 << 14)
def host_role(name: str, category: Category) -> Role:
    """What an operator or an annotation of the host is to us."""
    if name.startswith("ProfilerStep"):
        return Role.STEP
    if name.startswith("Optimizer.step#"):
        return Role.OPTIMIZER
    if _LOADER.match(name):
        return Role.LOADER
    if _HOST_COLLECTIVE.match(name):
        return Role.COLLECTIVE
    # The first versions have annotations among the operators.
    if category != Category.HOST_OP or _STARTS_COLLECTIVE.match(name) or _ANNOTATION.match(name):
        return Role.NOTHING
    return Role.OP


def collective(name: str, annotated: str, group: str) -> str:
    """What a communication op does and in which process group, the same on every rank.

    Args:
        name: the op's name.
        annotated: what the trace says that it does; empty in older traces.
        group: the process group; empty in older traces.
    """
    if not annotated:
        found = _COLLECTIVE.search(name)
        annotated = found[0] if found else re.split(r"[(<]", name, maxsplit=1)[0]
    return f"{annotated} in process group {group}" if group else annotated


def runs_on_gpu(host_op: str) -> bool:
    """Whether an operator shows that the job used a GPU."""
    return _ON_GPU.search(host_op) is not None


def device_kind(device: str, runtime_call: str) -> str:
    """ "cuda", "rocm" or "xpu" from the device's name and any one call of its runtime."""
    if re.search(r"AMD|Radeon|Instinct", device) or runtime_call.startswith("hip"):
        return "rocm"
    return "xpu" if "Intel" in device or runtime_call.startswith(("ur", "ze")) else "cuda"


def rank_in_name(file_name: str) -> int | None:
    """The rank that a file's name tells."""
    found = _RANK.search(file_name)
    return int(found[1]) if found else None
