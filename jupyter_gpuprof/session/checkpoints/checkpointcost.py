"""``%gpuprof checkpoint``: real saves and loads of what the cell trains, timed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.probes import checkpointfiles as files
from jupyter_gpuprof.probes import machine, trainedstate
from jupyter_gpuprof.probes.rankagreement import Ranks
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.spot import CheckpointCost, SaveTimes
from jupyter_gpuprof.records.spotwords import span
from jupyter_gpuprof.session.checkpoints.timedsaves import Way, temporary_in, time_saves
from jupyter_gpuprof.session.reruns.cell import Cell, plain_source
from jupyter_gpuprof.session.reruns.culprit import find_culprit, first_line
from jupyter_gpuprof.session.reruns.trial import RerunProgress
from jupyter_gpuprof.store.filesystem import is_local
from jupyter_gpuprof.store.runs import new_run_id
from jupyter_gpuprof.store.trials import save_curve

#: Saves of each kind.
REPEATS = 5
#: Left free beside a checkpoint, as a share of it.
_ROOM = 0.1

NOTHING_FOUND = "No model, optimizer or anything else with a state was found among the cell's variables."

Progress = Callable[[RerunProgress], None]


def measure_checkpoint(
    cell: Cell | None,
    run: Run | None,
    namespace: Mapping[str, Any],
    *,
    folder: Path,
    save: str = "",
    load: str = "",
    repeats: int = REPEATS,
    progress: Progress | None = None,
) -> CheckpointCost:
    """Save and load what the cell trains, several times in each way, and take all of it away again.

    In a job of several ranks all of them call it, and rank 0 keeps the record.

    Args:
        cell: the last profiled cell, whose variables are looked at; all variables without one.
        run: the run it gave.
        namespace: the kernel's.
        folder: where checkpoints would go; each save goes to a new temporary folder in there.
        save: the person's own function of a path; without one, torch.save of all states.
        load: the one that reads it back; it may change the person's objects.
        repeats: how often each way is timed.
        progress: told where it is.

    Raises:
        OptionError: a name is that of no such function, or a number makes no sense.
        UsageError: there is nothing to save, it cannot be saved, or not there.
    """
    if repeats < 1:
        raise OptionError(f"A save is timed once or more, not {repeats} times.")
    if load and not save:
        raise OptionError("--load reads what --save writes: name both.")
    own = _own_way(namespace, save, load) if save else None
    found = trainedstate.find_state(_variables(cell, namespace))
    if not found and own is None:
        raise UsageError(
            NOTHING_FOUND, "Name the function that saves: %gpuprof checkpoint --save fn --load fn."
        )
    notes: list[str] = []
    state = trainedstate.state_of(found) if found else {}
    parts = trainedstate.parts_of(found, state) if found else ()
    notes += _notes_on(found, folder)
    started_at, started_s = clock.utc_now(), clock.now_s()
    ranks = Ranks()
    ways = _ways(found, own, notes, ranks, sharded=trainedstate.is_sharded(state))
    timed: list[SaveTimes] = []
    with temporary_in(folder, ranks) as place, files.without_remarks():
        _check_room(folder, sum(part.state_bytes for part in parts))
        for number, way in enumerate(ways):

            def on_repeat(repeat: int, number: int = number, way: Way = way) -> None:
                if progress is not None:
                    done = (number + repeat / repeats) / len(ways)
                    progress(RerunProgress(f"saving: {way.how}", done, clock.now_s() - started_s))

            try:
                timed.append(time_saves(way, place, repeats, on_repeat, ranks))
            except Exception as error:
                if number == 0:
                    raise _refusal(error, way, state, folder) from error
                notes.append(f"The {way.how} save failed: {first_line(error)}.")
    device = run.device if run is not None else machine.describe_device(machine.accelerator_in_use())
    parameters: Number = trainedstate.parameter_bytes(found) or Missing("no model was found")
    cost = CheckpointCost(
        cost_id=new_run_id(started_at),
        run_id=run.run_id if run is not None else "",
        run_name=run.name if run is not None else "notebook",
        started_at=started_at,
        device=device,
        folder=str(folder),
        parts=parts,
        parameter_bytes=parameters,
        ways=tuple(timed),
        sentence=_sentence(timed[0], parameters),
        notes=tuple(notes),
    )
    if not ranks.rank:
        save_curve(cost)
    return cost


def _own_way(namespace: Mapping[str, Any], save: str, load: str) -> Way:
    saver = own_function(namespace, save, "--save")
    loader = own_function(namespace, load, "--load") if load else None

    def write(path: Path) -> files.Wait | None:
        answer = saver(str(path))
        return files.waiting_for(answer)

    return Way("yours", write, None if loader is None else lambda path: loader(str(path)))


def own_function(namespace: Mapping[str, Any], name: str, option: str) -> Callable[[str], Any]:
    """The person's function, which has to take a path."""
    function = namespace.get(name)
    if not callable(function):
        what = "is no function" if name in namespace else "is not in this notebook"
        raise OptionError(f"{option} names `{name}`, which {what}.", "It is called with the path to use.")
    with suppress(ValueError):  # written in C: it does not tell
        try:
            inspect.signature(function).bind("path")
        except TypeError:
            raise OptionError(
                f"`{name}` cannot be called with a path alone.",
                f"For example: def {name}(path): torch.save(model.state_dict(), path)",
            ) from None
    return function  # type: ignore[no-any-return]


def _variables(cell: Cell | None, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that the cell names, itself or in the notebook's functions and classes it calls."""
    if cell is None:
        return {name: value for name, value in namespace.items() if not name.startswith("_")}
    tree = ast.parse(plain_source(cell.source))
    queue = [compile(tree, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)]
    found: dict[str, Any] = {}
    while queue:
        code = queue.pop()
        queue += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            if name in namespace and name not in found:
                found[name] = namespace[name]
                queue += _codes(namespace[name])
    return found


def _codes(value: object) -> list[CodeType]:
    """The code of a function, or of a class's functions, of the notebook."""
    if isinstance(value, type) and value.__module__ == "__main__":
        return [code for member in vars(value).values() for code in _codes(member)]
    return [value.__code__] if isinstance(value, FunctionType) else []


def _ways(
    found: Sequence[trainedstate.Stateful], own: Way | None, notes: list[str], ranks: Ranks, *, sharded: bool
) -> list[Way]:
    """The ways of saving, the one to go by first. Each save asks for the state anew, as a loop would."""
    ways = [own] if own is not None else []
    if not found:
        return ways
    objects = list(found)
    if sharded:
        notes.append("Each rank holds a part of the state: torch.distributed.checkpoint saves that.")
    elif own is None:

        def plain(path: Path) -> None:
            state = trainedstate.state_of(objects)  # all ranks may have to give their part of it
            if not ranks.rank:
                files.save_plain(state, path)

        def read(path: Path) -> None:
            if not files.load_plain(path) and _CODE not in notes:
                notes.append(_CODE)

        ways.append(Way("torch.save", plain, read))
    why = files.why_not_asynchronous()
    if why:
        if not ways:
            raise UsageError(f"A state of which each rank holds a part cannot be saved: {why}.")
        notes.append(f"No save in the background was timed: {why}.")
        return ways

    group = Ranks().group  # its own: the thread that saves talks to the other ranks while this one does

    def background(path: Path) -> files.Wait:
        return files.save_asynchronously(trainedstate.state_of(objects), path, group)

    def read_shards(path: Path) -> None:
        files.load_distributed(trainedstate.state_of(objects), path, group)

    ways.append(Way("asynchronous", background, read_shards))
    return ways


_CODE = "The state holds more than tensors and plain data: loading it runs what the file says."


def _check_room(folder: Path, needed: int) -> None:
    free = files.free_bytes(folder)
    if not isinstance(free, Missing) and free < needed * (1 + _ROOM):
        raise UsageError(
            f"A checkpoint needs {needed / 1e9:.3g} GB, and {folder} has {free / 1e9:.3g} GB free.",
            "Name another one with --to.",
        )


def _refusal(error: Exception, way: Way, state: Mapping[str, Any], folder: Path) -> Exception:
    """What went wrong with a save, in a sentence."""
    if isinstance(error, UsageError):
        return error
    if isinstance(error, OSError) and error.errno:
        return UsageError(f"Nothing could be saved in {folder} ({error.strerror}).")
    if way.how == "yours":
        return UsageError(f"The function failed with {type(error).__name__}: {first_line(error)}.")

    def why(value: object) -> Exception | None:
        try:
            files.save_nowhere(value)
        except Exception as reason:
            return reason
        return None

    for name, part in state.items():
        if why(part) is not None:
            path, what = find_culprit(part, name, why)
            return UsageError(
                f"The state of `{name}` cannot be pickled: {path} is {what}.",
                "Leave it out of its state_dict(), or name a function that saves with --save.",
            )
    return UsageError(f"The state cannot be saved: {first_line(error)}.")


def _notes_on(found: Sequence[trainedstate.Stateful], folder: Path) -> list[str]:
    notes = []
    if found and not any(one.kind == "optimizer" for one in found):
        notes.append("No optimizer was found among the variables: its state is usually the larger part.")
    for name in trainedstate.without_state(list(found)):
        notes.append(f"`{name}` holds no state: either it never has one, or it has made no step yet.")
    if is_local(folder):
        notes.append(
            "The folder is on a disk of this machine: an interruption may take it along. "
            "Checkpoints of spot capacity belong on a storage that stays."
        )
    return notes


def _sentence(times: SaveTimes, parameters: Number) -> str:
    words = (
        f"A checkpoint stops training for {span(times.blocking_s)} and is safe after {span(times.durable_s)}"
    )
    if not isinstance(times.load_s, Missing):
        words += f"; reading it back takes {span(times.load_s)}"
    if not isinstance(parameters, Missing) and not isinstance(times.size_bytes, Missing):
        words += f". It is {times.size_bytes / parameters:.3g} times as large as the parameters"
    return f"{words}."
