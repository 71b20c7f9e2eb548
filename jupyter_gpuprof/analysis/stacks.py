"""What one sampled stack does, found by searching from its innermost frame outwards."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from jupyter_gpuprof.analysis.frames import HOST, INPUT, is_own, is_plumbing, library, short_name
from jupyter_gpuprof.records.samples import Frame

_LOADER = "torch/utils/data/dataloader.py"
_WORKER = "torch/utils/data/_utils/worker.py"
_FETCHER = "torch/utils/data/_utils/fetch.py"
_QUEUE = "multiprocessing/queues.py"
#: Innermost where the training thread waits for the worker's answer.
_ASKING = frozenset(
    {
        "multiprocessing/connection.py",
        "multiprocessing/reduction.py",
        "multiprocessing/resource_sharer.py",
        "socket.py",
    }
)
_BACKWARD = ("torch/_tensor.py", "torch/autograd/__init__.py")
_UNPICKLING = re.compile(
    r"torch/multiprocessing/|torch/utils/data/_utils/pin_memory|multiprocessing/re(duction|source_)"
)
_CAST = re.compile(r"\.to\(\s*(dtype|torch\.(b?float|half|double|int|u?int\d|long|bool|short))")


def input_activity(frames: Sequence[Frame]) -> tuple[str, Frame | None]:
    """What a stack inside a fetch does for the batch, and the person's innermost line in it.

    A library's frame tells by its file and function, a line of the person's own by what it calls, then by
    the name of its function. What is done with a sample and has no other name is transforming. Sleeping
    is reading inside something that reads.
    """
    made = _making(frames)
    inside, own, outside = _around_own(made)
    sleeps = False
    for frame in inside:
        found = INPUT.of_library(frame) or (INPUT.of_call(frame.text) if frame is made[0] else "")
        if found and found != "sleeping":
            return found, own
        sleeps = sleeps or found == "sleeping"
    called = INPUT.of_call(own.text) if own is not None else ""
    if called and called != "sleeping":
        return called, own
    named = next((name for frame in outside if is_own(frame) if (name := INPUT.of_function(frame))), "")
    known = [INPUT.of_library(frame) for frame in outside if not is_own(frame)]
    if sleeps or called == "sleeping":
        return "reading" if "reading" in (named, *known) else "other", own
    if named:
        return named, own
    if "collating" in known or any(_collates(frame) for frame in made):
        return "collating", own
    return "transforming" if own is not None else "other", own


def host_activity(
    frames: Sequence[Frame], training: Collection[tuple[str, str]] = ()
) -> tuple[str, Frame | None]:
    """What a stack of the training thread outside of a fetch does, and the person's innermost line in it.

    All that happens inside writing a checkpoint is that; then comes waiting for the device and moving
    data, then what it is done for (logging, metrics), then torch's own work.

    Args:
        frames: the stack, innermost first.
        training: functions that the whole of the training is in (`around_backward`): whatever they are
            called ("report_training"), that says nothing of a part of it.
    """
    worked = [frame for frame in frames if not is_plumbing(frame.file)]
    inside, own, outside = _around_own(worked)
    found = [HOST.of_library(frame) for frame in inside]
    if inside and found[0] in ("", "logging", "metrics"):
        found.insert(0, HOST.of_call(inside[0].text))
    if own is not None and not any(found):
        called = HOST.of_call(own.text)
        found.append("launching" if called == "moving data" and _CAST.search(own.text) else called)
    telling = [frame for frame in outside if (frame.file, frame.function) not in training]
    named = [HOST.of_function(frame) if is_own(frame) else HOST.of_library(frame) for frame in telling]
    if "checkpoint" in (*found, *named):
        return "checkpoint", own
    for wanted, told in ((("synchronising", "moving data"), found), (("logging", "metrics"), found + named)):
        activity = next((name for name in told if name in wanted), "")
        if activity:
            return activity, own
    if "launching" in found or named[:1] == ["launching"]:
        return "launching", own
    return "python" if own is not None else "other", own


def around_backward(frames: Sequence[Frame]) -> set[tuple[str, str]]:
    """The person's own functions, by file and name, around a backward pass; empty if there is none."""
    if not any(short_name(frame) == "backward" and library(frame.file) in _BACKWARD for frame in frames):
        return set()
    return {(frame.file, frame.function) for frame in frames if is_own(frame)}


def is_idle(frames: Sequence[Frame]) -> bool:
    """Whether a loader's worker (or its thread that sends batches) waits for something to do."""
    if frames and library(frames[0].file) == "threading.py":
        return True
    gets = any(short_name(frame) == "get" and library(frame.file) == _QUEUE for frame in frames)
    return gets and any(library(frame.file) == _WORKER for frame in frames)


def takes_over(frames: Sequence[Frame]) -> bool:
    """Whether the training thread unpickles or pins a batch that a worker made.

    To take over shared memory it asks a thread of the worker for it; on crowded cores that thread comes late,
    and this one waits for the worker, as it does for the batch itself.
    """
    if frames and library(frames[0].file) in _ASKING:
        return False
    for frame in frames:
        file = library(frame.file)
        if _UNPICKLING.match(file) or (file == _QUEUE and "loads(" in frame.text):
            return True
        if file == _LOADER:
            break
    return False


def waits_for_workers(frames: Sequence[Frame]) -> bool:
    """Whether the training thread waits until a worker has made a batch."""
    gets = any("get_data" in frame.function and library(frame.file) == _LOADER for frame in frames)
    return gets and not takes_over(frames)


def _making(frames: Sequence[Frame]) -> list[Frame]:
    """The frames that make the batch: those inside of what asks for it."""
    made: list[Frame] = []
    for frame in frames:
        file = library(frame.file)
        if file in (_LOADER, _WORKER) or (made and file.startswith("jupyter_gpuprof/")):
            if not made and "put(" in frame.text:  # a worker hands its batch to the queue
                made.append(frame)
            break
        if not is_plumbing(frame.file):
            made.append(frame)
    return made


def _around_own(frames: Sequence[Frame]) -> tuple[list[Frame], Frame | None, list[Frame]]:
    """The frames inside the person's innermost one, that one, and all from that one on."""
    first = next((i for i, frame in enumerate(frames) if is_own(frame)), len(frames))
    return list(frames[:first]), frames[first] if first < len(frames) else None, list(frames[first:])


def _collates(frame: Frame) -> bool:
    return "collate_fn(" in frame.text and library(frame.file) == _FETCHER
