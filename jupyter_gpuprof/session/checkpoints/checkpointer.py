"""Checkpoints that work: complete, whole, in the background, and taken up again at the same batch."""

from __future__ import annotations

import os
import secrets
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof._version import __version__
from jupyter_gpuprof.errors import CheckpointError, GpuprofError, OptionError, UsageError
from jupyter_gpuprof.probes import hooks, machine, resumestate, trainedstate
from jupyter_gpuprof.probes.loaderposition import LoaderPosition, is_loader
from jupyter_gpuprof.probes.rankagreement import Ranks
from jupyter_gpuprof.session.checkpoints.notices import Notices
from jupyter_gpuprof.session.checkpoints.resuming import Start, resume_from
from jupyter_gpuprof.session.devices.keep import parse_span
from jupyter_gpuprof.store.checkpointplaces import place_of
from jupyter_gpuprof.store.checkpoints import Checkpoints, Part

#: A rank waits so long for the parts of the others.
_PATIENCE_S = 600.0
_NOTHING, _DUE, _NOTICE = range(3)


class Interruption(SystemExit):
    """Ends the loop after its state was saved because the process will be ended.

    The exit code is what a shell gives for the signal, so that a scheduler sees that the job is not done.
    """


class Checkpointer:
    """Saves the complete state of a training loop, and takes it up again at the same batch.

    ::

        with Checkpointer("checkpoints", model=model, optimizer=optimizer, loader=loader) as ck:
            start = ck.resume()
            for epoch in range(start.epoch, epochs):
                for batch in loader:
                    ...  # forward, backward, optimizer.step()
                    ck.step()

    What is given by name is saved: whatever has ``state_dict`` and ``load_state_dict``, dicts of plain data,
    and loaders, of which the place is kept. The random states of Python, numpy, torch and the devices are
    always part of it. All ranks of a job make one, with the same folder, and call the same methods.

    Args:
        folder: where the checkpoints go; an address such as "s3://bucket/run" needs fsspec.
        every: how often to save: a time ("10m"), or a number of steps.
        keep: how many checkpoints are kept.
        async_: write in the background, from a copy in the host's memory.
        things: what to save, by name; None is left out.

    Raises:
        OptionError: a number makes no sense.
        UsageError: a thing has no state, or the folder cannot be written, or another process writes there.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: str | int = "10m",
        keep: int = 3,
        async_: bool = True,
        **things: Any,
    ) -> None:
        if machine.import_torch() is None:
            raise UsageError("Checkpoints are written by torch, which is not installed.")
        if keep < 1:
            raise OptionError(f"One checkpoint or more is kept, not {keep}.")
        self._every_s = parse_span(every) if isinstance(every, str) else None
        self._every_steps = every if isinstance(every, int) else None
        if not (self._every_s or self._every_steps or 0) > 0:
            raise OptionError(f"A checkpoint is written every so many minutes or steps, not every {every!r}.")
        #: Steps made, by this process and those that it goes on from.
        self.step_count = 0
        #: The newest checkpoint that is safe; "" before there is one.
        self.newest = ""
        self._things = {name: thing for name, thing in things.items() if thing is not None}
        self._async = async_
        self._ranks = Ranks()
        self._place = place_of(folder)
        self._store = Checkpoints(self._place, keep=keep)
        self._claim(folder)
        self._run = self._ranks.same(secrets.token_hex(4))
        self._positions: dict[str, LoaderPosition] = {}
        self._unhook: list[Any] = []
        self._boundary = _Boundary()
        self._take(self._things)
        for position in self._positions.values():
            position.others = [other for other in self._positions.values() if other is not position]
        self._staging = resumestate.Staging()
        self._writing: threading.Thread | None = None
        self._failure: Exception | None = None
        self._checked = self._closed = False
        self._wanted = _NOTHING
        self._begun, self._saved_step, self._saved_s = 0, 0, clock.now_s()
        self._notices = Notices()
        self._notices.start()

    def resume(self, *, remap: bool = False) -> Start:
        """Put the newest checkpoint that is whole back into the things; without any, nothing happens.

        Args:
            remap: go on with another size of the batch or number of ranks too, where the samples read until
                then come out as whole batches.

        Raises:
            CheckpointError: there are checkpoints, and none can be taken; or it is of another model, other
                batches or another number of ranks.
        """
        start = resume_from(self._store, self._ranks, self._things, self._positions, remap=remap)
        for one in start.rejected:
            warnings.warn(f"A checkpoint was passed over. {one}.", stacklevel=2)
        self.step_count = self._saved_step = start.step
        self.newest = start.checkpoint
        self._saved_s = clock.now_s()
        left = [f"{name} is handled by something else here, and left to it." for name in self._notices.left]
        return replace(start, notes=(*start.notes, *left))

    def step(self) -> None:
        """A step is done: save if that is due, or if the process will be ended.

        Call it once for each batch, after the optimizer. Where gradients are accumulated over several
        batches, a save waits for the optimizer's step.

        Raises:
            Interruption: the process will be ended, and the state is safe.
            UsageError: a state is no plain data.
        """
        self.step_count += 1
        for position in self._positions.values():
            position.stepped()
        self._wanted = max(self._wanted, self._ranks.highest(self._asked()))
        if not self._boundary.take() and self._unhook:
            return
        if not self._checked:
            resumestate.plain(self._states())  # says so now, not in ten minutes
            self._checked = True
        if self._wanted:
            self._act()

    def save(self) -> str:
        """Save now, and wait until it is safe.

        Returns:
            The name of the checkpoint.

        Raises:
            CheckpointError: it could not be written.
            UsageError: a state is no plain data.
        """
        self.wait()
        if self.newest and self._saved_step == self.step_count:
            return self.newest
        hooks.saving(lambda: self._begin("asked for", background=False))
        self.wait()
        return self.newest

    def wait(self) -> None:
        """Wait for a save that goes on in the background.

        Raises:
            CheckpointError: it failed.
        """
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Wait for the last save, and leave loaders, optimizers and signals as they were.

        Raises:
            CheckpointError: the last save failed.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.wait()
        finally:
            self._notices.stop()
            self._ranks.close()
            for position in self._positions.values():
                position.detach()
            for handle in self._unhook:
                handle.remove()
            self._place.release()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _claim(self, folder: str | os.PathLike[str]) -> None:
        if self._ranks.rank:
            return
        try:
            self._place.claim()
        except OSError as error:
            raise UsageError(
                f"The folder {os.fspath(folder)} cannot be written ({error.strerror or error}).",
                "Name another one for the checkpoints.",
            ) from None

    def _take(self, things: Mapping[str, Any]) -> None:
        for name, thing in things.items():
            if is_loader(thing):
                self._positions[name] = LoaderPosition(name, thing)
                continue
            stateful = hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")
            if not stateful and not isinstance(thing, dict):
                raise UsageError(
                    f"{name} is a {type(thing).__name__}, which has no state_dict() and load_state_dict().",
                    "Put plain values into a dict.",
                )
            if hasattr(thing, "register_step_post_hook"):
                self._unhook.append(thing.register_step_post_hook(self._boundary))

    def _asked(self) -> int:
        if self._notices.look():
            return _NOTICE
        if self._ranks.rank:
            return _NOTHING  # what is due is for rank 0 to say
        writing = self._writing is not None and self._writing.is_alive()
        return _DUE if not writing and self._is_due() else _NOTHING

    def _is_due(self) -> bool:
        if self._every_s is not None:
            return clock.now_s() - self._saved_s >= self._every_s
        return self.step_count - self._saved_step >= (self._every_steps or 0)

    def _act(self) -> None:
        wanted, self._wanted = self._wanted, _NOTHING
        self._ranks.forget()
        self._guarded(self.wait)
        last = wanted == _NOTICE
        if not (self.newest and self._saved_step == self.step_count):
            why = "a notice" if last else "due"
            self._guarded(lambda: hooks.saving(lambda: self._begin(why, background=not last)))
        if last:
            self._guarded(self.wait)
            trainedstate.finish_devices()  # ending in the middle of a collective harms the other ranks
            self.close()
            raise Interruption(self._notices.exit_code)

    def _guarded(self, work: Callable[[], object]) -> None:
        """A save that fails is told; the training goes on, and the next one is tried when it is due."""
        try:
            work()
        except CheckpointError as error:
            held = self.newest or "none"
            warnings.warn(f"{error} The newest that is safe: {held}.", stacklevel=4)

    def _states(self) -> dict[str, Any]:
        return {
            name: dict(thing) if isinstance(thing, dict) else thing.state_dict()
            for name, thing in self._things.items()
            if name not in self._positions
        }

    def _begin(self, why: str, *, background: bool) -> None:
        """Collect the state now, and write it, in a thread of its own or here."""
        self._saved_step, self._saved_s = self.step_count, clock.now_s()
        state: dict[str, Any] = {
            "shared": self._states() if self._ranks.rank == 0 else {},
            "own": {
                "random": resumestate.random_states(),
                "loaders": {name: position.state() for name, position in self._positions.items()},
            },
        }
        self._begun += 1  # a step may be saved once more, after a save that failed
        name = f"step-{self.step_count:010d}-{self._run}-{self._begun}"
        facts = self._facts(why)
        state = self._staging.copy(state) if background and self._async else resumestate.plain(state)

        def work() -> None:
            try:
                self._write(name, state, facts)
                self.newest = name
            except GpuprofError as error:
                self._failure = error
            except Exception as error:
                self._failure = CheckpointError(f"The checkpoint {name} could not be written ({error}).")

        if background and self._async:
            self._writing = threading.Thread(target=work, name="gpuprof checkpoint")
            self._writing.start()
        else:
            work()
            self.wait()

    def _write(self, name: str, state: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        rank, store = self._ranks.rank, self._store

        def part(file: str, content: object) -> Part:
            return store.write_part(
                name, file, lambda opened: resumestate.write(content, opened), announce=rank > 0
            )

        own = part(f"rank{rank}.pt", state["own"])
        if rank:
            store.await_commit(name, _PATIENCE_S)
            return
        parts = {"state.pt": part("state.pt", state["shared"]), "rank0.pt": own}
        others = [f"rank{other}.pt" for other in range(1, self._ranks.world)]
        store.commit(name, parts | store.await_parts(name, others, _PATIENCE_S), facts)

    def _facts(self, why: str) -> dict[str, Any]:
        first = next(iter(self._positions.values()), None)
        return {
            "step": self.step_count,
            "epoch": first.passes if first is not None else 0,
            "batch": first.batch if first is not None else 0,
            "why": why,
            "saved_at": clock.utc_now(),
            "ranks": self._ranks.world,
            "batches": {name: position.batch for name, position in self._positions.items()},
            "geometry": {name: position.geometry() for name, position in self._positions.items()},
            "things": {name: type(thing).__name__ for name, thing in self._things.items()},
            "versions": {**resumestate.versions(), "jupyter_gpuprof": __version__},
        }


class _Boundary:
    """Whether an optimizer stepped: between two of its steps, gradients are part of the state."""

    def __init__(self) -> None:
        self._stepped = False

    def __call__(self, *facts: Any) -> None:
        self._stepped = True

    def take(self) -> bool:
        """Whether one did since the last call."""
        stepped, self._stepped = self._stepped, False
        return stepped
