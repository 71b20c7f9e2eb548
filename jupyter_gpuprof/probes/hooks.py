"""What we put into torch while a run is on, and take out again.

Reference-counted: the first run installs, the last one removes. A hook looks up the innermost run and
does nothing for any other thread than that run's. A failure inside a hook is ours alone; the original
is always called, once, and its result and exceptions pass unchanged.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from jupyter_gpuprof.clock import now_ns, thread_ns
from jupyter_gpuprof.probes import calls, ddp
from jupyter_gpuprof.probes.autogradgraph import inside_backward
from jupyter_gpuprof.probes.fetch import RECORDED
from jupyter_gpuprof.probes.levers import LeverProbe
from jupyter_gpuprof.probes.recorder import BACKWARD, SAMPLE_MASK, Recorder
from jupyter_gpuprof.probes.sources import Source

_stack: list[Recorder] = []
_current: Recorder | None = None
_undo: list[Callable[[], None]] = []
_copies = False  # whether copies to a device are marked too
_looking: LeverProbe | None = None  # what still looks for the levers of the innermost run
_lock = threading.RLock()


def current() -> Recorder | None:
    """The innermost run that records, if any."""
    return _current if _current is not None and _current.active else None


def installed() -> bool:
    """Whether anything of ours is in torch."""
    return bool(_undo)


def push(recorder: Recorder) -> None:
    """Begin to record; a run that was on is paused."""
    global _current
    with _lock:
        if not _undo:
            _install()
        _tell_around(recorder, "pause")
        if _current is not None and _current.thread != recorder.thread:
            _current.disturbed = True  # from here on it misses its steps
        _stack.append(recorder)
        _current = recorder
        _set_looking()


def pop(recorder: Recorder) -> None:
    """Stop recording; the run around it goes on. Everything is removed with the last one."""
    global _current
    with _lock:
        if recorder in _stack:
            _stack.remove(recorder)
        _current = _stack[-1] if _stack else None
        _set_looking()
        if _current is None:
            _remove()
        else:
            _tell_around(recorder, "resume")


def _set_looking() -> None:
    global _looking
    _looking = None if _current is None or _current.levers.done else _current.levers


def _look(*, tensors: Any = None, optimizer: Any = None) -> None:
    """Show a backward pass that begins, or an optimizer that stepped, until enough was seen."""
    probe, recorder = _looking, _current
    if probe is None or recorder is None:
        return
    if get_ident() != recorder.thread and not inside_backward():
        return  # autograd's own thread is the run's, where a checkpoint is computed again
    start = now_ns()
    if optimizer is not None:
        probe.optimizer(optimizer)
    else:
        probe.backward(tensors)
    recorder.cost_ns += now_ns() - start
    if probe.done:
        _set_looking()


def _tell_around(recorder: Recorder, kind: str) -> None:
    """Pause or resume the run around `recorder`'s."""
    around = _current
    if around is None or around is recorder or not around.active or around.thread != recorder.thread:
        return
    try:
        around.simple(kind)
        if kind == "resume":
            around.gap()
    except Exception as error:
        around.failed(error)


def _forget() -> None:
    """In a forked process (a loader's worker) no run is on, though our hooks are in there too."""
    global _current
    _current = None
    _stack.clear()
    _set_looking()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _install() -> None:
    if "torch" not in sys.modules:
        return  # the session imports torch first where there is one
    try:
        _patch_loader()
        _patch_training()
        calls.patch_saving(_patch, _mine)
        ddp.patch(_patch, _undo, _mine)
    except BaseException:
        _remove()
        raise


def _remove() -> None:
    global _copies
    _copies = False
    while _undo:
        _undo.pop()()


def _patch(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace ``owner.name`` by ``wrap(original)``; undone only while it is still ours."""
    original, inherited = getattr(owner, name), name not in vars(owner)
    replacement = wrap(original)
    functools.update_wrapper(replacement, original)
    setattr(owner, name, replacement)

    def undo() -> None:
        if vars(owner).get(name) is not replacement:
            return  # somebody patched over ours, which does nothing by itself
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)

    _undo.append(undo)


def _mine() -> Recorder | None:
    """The run to record into, if this is its training thread."""
    recorder = _current
    if recorder is None or recorder.failures_left <= 0 or get_ident() != recorder.thread:
        return None
    return recorder


def saving(work: Callable[[], None]) -> None:
    """Do work that a checkpoint of our own takes on the training thread: a run counts it as saving."""
    calls.saving(_mine, work)


def begin_fetch(source_of: Callable[[Recorder, Any], Source], of: Any = None) -> Recorder | None:
    """A fetch begins on this thread; the run that `end_fetch` must be told, if one records it.

    Args:
        source_of: tells where it fetches from, given the run and `of`.
        of: whatever that needs.

    Raises:
        BaseException: the run's own request to end the cell here, at the boundary of a step.
    """
    recorder = _current
    if recorder is None or recorder.thread != get_ident() or recorder.failures_left <= 0:
        return None
    try:
        recorder.begin_fetch(source_of(recorder, of))
    except Exception as error:
        recorder.failed(error)
        return None
    if recorder.stop_request is not None and recorder.at_boundary:
        end_fetch(recorder, "error", batch=False)
        raise recorder.take_stop_request()
    return recorder


def end_fetch(recorder: Recorder, outcome: str, *, batch: bool = True) -> None:
    """The fetch ended: "batch", "stop" or "error"; `batch` is False if what came is no batch."""
    try:
        recorder.end_fetch(outcome, batch=batch)
    except Exception as error:
        recorder.failed(error)


def _patch_loader() -> None:
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def wrap_next(original: Any) -> Any:
        def __next__(iterator: Any) -> Any:
            __tracebackhide__ = True
            recorder = _current
            # The quick way, in one piece: with torch's own work in between, each Python call of ours
            # costs about a microsecond. It does what begin_fetch and end_fetch do for a plain fetch.
            if recorder is not None and recorder.quick and recorder.thread == get_ident():
                start, pending = now_ns(), recorder.pending
                known = recorder.sources.by_iterator.get(id(iterator))
                if (
                    known is not None
                    and known[0]() is iterator
                    and not recorder.opened
                    and len(pending) < recorder.drain_at
                    and start < recorder.drain_due_ns
                ):
                    source = known[1]
                    fetch = recorder.spare  # no new object, whose making is a call as well
                    fetch.source = fetch.told = source
                    fetch.start, fetch.how, fetch.inner = start, RECORDED, None
                    pending.append(("begin_fetch", start, None))
                    recorder.opened.append(fetch)
                    sampled = not source.fetches & SAMPLE_MASK
                    cpu_ns = thread_ns() if sampled else 0
                    began = now_ns()
                    try:
                        batch = original(iterator)
                    except BaseException as error:
                        end_fetch(recorder, "stop" if isinstance(error, StopIteration) else "error")
                        raise
                    now = now_ns()
                    recorder.opened.pop()
                    if sampled:
                        source.cpu_ns += thread_ns() - cpu_ns
                        source.sampled_ns += now - began
                    source.fetches += 1
                    source.wait_ns += now - start
                    if fetch.how == RECORDED:
                        first = source.fresh and source.workers > 0
                        payload = (source.key, source.origin, "batch", recorder.grad_enabled(), first)
                        recorder.pending.append(("end_fetch", now, payload))
                    source.fresh = False
                    recorder.cost_ns += now_ns() - now + began - start
                    return batch
            recorder = begin_fetch(_of_iterator, iterator)
            if recorder is None:
                return elsewhere(original, iterator)
            outcome = "error"
            try:
                batch = original(iterator)
                outcome = "batch"
                return batch
            except StopIteration:
                outcome = "stop"
                raise
            finally:
                end_fetch(recorder, outcome)

        return __next__

    def wrap_iter(original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            __tracebackhide__ = True
            recorder = _mine()
            if recorder is None:
                return original(loader)
            source = iterator = loan = None
            try:
                source = recorder.begin_iter(loader)
            except Exception as error:
                recorder.failed(error)
            try:
                if recorder.lend is not None and (loan := recorder.lend(loader)) is not None:
                    loan.give()
                iterator = original(loader)
                return iterator
            finally:
                try:
                    if loan is not None:
                        loan.take_back()
                    recorder.end_iter(source, loader, iterator)
                except Exception as error:
                    recorder.failed(error)

        return __iter__

    _patch(_BaseDataLoaderIter, "__next__", wrap_next)
    _patch(DataLoader, "__iter__", wrap_iter)


def _of_iterator(recorder: Recorder, iterator: Any) -> Source:
    return recorder.sources.of_iterator(iterator)


def elsewhere(fetch: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A fetch that no run records; on another thread (a prefetcher's) counted, never a stall."""
    recorder = _current
    if recorder is None or get_ident() == recorder.thread:
        return fetch(*args, **kwargs)
    start = now_ns()
    batch = fetch(*args, **kwargs)
    recorder.off_thread(now_ns() - start)
    return batch


def name_loader(loader: Any, name: str) -> None:
    """Call a DataLoader so in the report of the run that is on."""
    recorder = _mine()
    if recorder is None:
        return
    try:
        recorder.sources.of_loader(loader).name = name
    except Exception as error:
        recorder.failed(error)


def _adopt(recorder: Recorder) -> bool:
    """Training on another thread than the one that began the run: follow it, if ours did nothing yet."""
    if recorder.optimizer_steps or recorder.opened or any(s.fetches for s in recorder.sources.all):
        return False
    recorder.thread = get_ident()
    return True


def _patch_training() -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def trained(recorder: Recorder | None, tensors: Any, whole: bool) -> None:
        if recorder is None or recorder.failures_left <= 0:
            return
        try:
            if recorder.thread == get_ident() or _adopt(recorder):
                recorder.backward(tensors, whole)
        except Exception as error:
            recorder.failed(error)

    def wrap_backward(original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if _looking is not None:
                _look(tensors=tensors)
            result = original(tensors, *args, **kwargs)
            recorder = _current
            if recorder is None:
                return result
            if (
                recorder.quick
                and recorder.thread == get_ident()
                and recorder.on_device is None
                and not recorder.opened
                and not recorder.in_tail
                and len(recorder.pending) < recorder.drain_at
            ):
                recorder.backwards += 1
                recorder.pending.append(BACKWARD)
            else:
                trained(recorder, tensors, True)
            return result

        return backward

    def wrap_grad(original: Any) -> Any:
        def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            result = original(outputs, *args, **kwargs)
            recorder = _current
            # Forces and penalties are gradients too: only where nothing else trains is this training.
            if recorder is not None and not recorder.backwards and not recorder.optimizer_steps:
                trained(recorder, outputs, False)
            return result

        return grad

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if _looking is not None:
            _look(optimizer=optimizer)
        recorder = _current
        if recorder is None or recorder.failures_left <= 0:
            return
        if (
            recorder.quick
            and recorder.thread == get_ident()
            and not recorder.opened
            and len(recorder.pending) < recorder.drain_at
        ):
            recorder.optimizer_steps += 1
            recorder.pending.append(("optimizer", now_ns(), None))
            return
        try:
            if recorder.thread == get_ident() or _adopt(recorder):
                recorder.optimizer()
        except Exception as error:
            recorder.failed(error)
        if recorder.stop_request is not None and recorder.ends_by_optimizer:
            raise recorder.take_stop_request()

    _patch(torch.autograd, "backward", wrap_backward)  # Tensor.backward calls it
    _patch(torch.autograd, "grad", wrap_grad)
    _undo.append(register_optimizer_step_post_hook(stepped).remove)


def patch_copies() -> None:
    """Also mark copies of a batch from the host to the device; only where there is a device."""
    global _copies
    if not _copies and _undo:
        _copies = True
        calls.patch_copies(_patch, _mine)
