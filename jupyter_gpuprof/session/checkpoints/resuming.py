"""Put a checkpoint back: the newest that is whole, of the same things, batches and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof.errors import CheckpointError
from jupyter_gpuprof.probes import resumestate
from jupyter_gpuprof.probes.loaderposition import LoaderPosition, moved
from jupyter_gpuprof.probes.rankagreement import Ranks
from jupyter_gpuprof.store.checkpoints import Checkpoints, Manifest, Rejected

_ELSEWHERE = "Name another folder to begin anew."


@dataclass(frozen=True)
class Start:
    """Where a loop begins.

    Args:
        step: how many steps were made.
        epoch: how many passes over the first loader were ended.
        batch: how many batches of the next pass were handed out; the loader goes on behind them.
        checkpoint: what it goes on from; "" for a new run.
        rejected: newer checkpoints that were passed over, and why.
        notes: what is not as it was, in sentences.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    checkpoint: str = ""
    rejected: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.checkpoint:
            return " ".join(("A new run.", *self.notes))
        where = f"step {self.step} (epoch {self.epoch}, batch {self.batch})"
        return " ".join((f"Goes on at {where} from {self.checkpoint}.", *self.notes))


def resume_from(
    store: Checkpoints,
    ranks: Ranks,
    things: Mapping[str, Any],
    positions: Mapping[str, LoaderPosition],
    *,
    remap: bool,
) -> Start:
    """Put the newest checkpoint back into the things; see `Checkpointer.resume`."""
    found, rejected = _newest(store, ranks)
    if not found:
        return Start()
    manifest = store.manifest(found)
    facts = manifest.facts
    _check_things(manifest, things)
    batches = _batches(manifest, ranks, positions, remap=remap)
    shared = _read(store, manifest, "state.pt")
    own = _read(store, manifest, f"rank{ranks.rank % facts['ranks']}.pt")
    for name, thing in things.items():
        if name not in positions:
            _put_back(name, thing, shared[name])
    for name, position in positions.items():
        state = own["loaders"][name]
        same = batches[name] == state["batch"] and ranks.world == facts["ranks"]
        position.resume({**state, "batch": batches[name]}, own["random"], same_batches=same)
    absent = resumestate.restore_random(own["random"])
    first = next(iter(batches.values()), 0)
    return Start(facts["step"], facts["epoch"], first, found, rejected, _notes(facts, ranks, absent))


def _newest(store: Checkpoints, ranks: Ranks) -> tuple[str, tuple[Rejected, ...]]:
    """The checkpoint that all ranks take; rank 0 chooses.

    Raises:
        CheckpointError: there are some, and none can be taken.
    """
    chosen, rejected, problem = "", list[Rejected](), ""
    if ranks.rank == 0:
        try:
            for manifest in store.walk(rejected):
                try:
                    with store.open(manifest.name, "state.pt") as opened:
                        resumestate.read(opened)
                except (OSError, ValueError) as error:
                    rejected.append(Rejected(manifest.name, f"state.pt cannot be read ({error})"))
                    continue
                chosen = manifest.name
                break
        except CheckpointError as error:
            problem = str(error)
    chosen, rejected, problem = ranks.same((chosen, rejected, problem))
    if problem:
        raise CheckpointError(problem, " ")
    if rejected and not chosen:
        raise CheckpointError(
            f"None of the {len(rejected)} checkpoints in {store.place} can be taken: "
            f"{'; '.join(map(str, rejected))}.",
            f"A new run would overwrite the chance to mend them. {_ELSEWHERE}",
        )
    return chosen, tuple(rejected)


def _read(store: Checkpoints, manifest: Manifest, file: str) -> Any:
    try:
        with store.open(manifest.name, file) as opened:
            return resumestate.read(opened)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} of {manifest.name} cannot be read ({error}).") from None


def _check_things(manifest: Manifest, things: Mapping[str, Any]) -> None:
    had = manifest.facts["things"]
    only_there, only_here = sorted(had.keys() - things.keys()), sorted(things.keys() - had.keys())
    if only_there or only_here:
        missing = [f"it holds {', '.join(only_there)}, not given here"] if only_there else []
        missing += [f"it does not hold {', '.join(only_here)}"] if only_here else []
        raise CheckpointError(
            f"{manifest.name} is of other things: {'; '.join(missing)}.", f"Give the same. {_ELSEWHERE}"
        )


def _batches(
    manifest: Manifest, ranks: Ranks, positions: Mapping[str, LoaderPosition], *, remap: bool
) -> dict[str, int]:
    """The batch of each loader to go on at.

    Raises:
        CheckpointError: batches or ranks are others, and that was not allowed or does not come out.
    """
    facts, found = manifest.facts, {}
    changed = []
    if facts["ranks"] != ranks.world:
        changed.append(f"{facts['ranks']} ranks then, {ranks.world} now")
    for name, position in positions.items():
        was, now = facts["geometry"][name], position.geometry()
        differ = [key for key in was | now if was.get(key) != now.get(key)]
        changed += [f"{name}: {key} {was.get(key)} then, {now.get(key)} now" for key in differ]
        batch = facts["batches"][name]
        dealt = ranks.world == facts["ranks"] or "num_replicas" in differ
        place = (moved(batch, was, now) if dealt else None) if changed else batch
        if changed and remap and place is None:
            raise CheckpointError(
                f"The place in {name} cannot be carried over ({'; '.join(changed)}).",
                "The samples read until then must come out as whole batches of all ranks.",
            )
        found[name] = batch if place is None else place
    if changed and not remap:
        raise CheckpointError(
            f"{manifest.name} is of other batches: {'; '.join(changed)}.",
            "Go on as before, or allow it: resume(remap=True).",
        )
    return found


def _put_back(name: str, thing: Any, state: Any) -> None:
    if isinstance(thing, dict):
        thing.clear()
        thing.update(state)
        return
    try:
        thing.load_state_dict(state)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split())[:300]
        raise CheckpointError(f"The state of {name} does not fit it: {text}", _ELSEWHERE) from None


def _notes(facts: Mapping[str, Any], ranks: Ranks, absent: list[str]) -> tuple[str, ...]:
    notes = [f"The random state of {name} has no device here." for name in absent]
    if facts["ranks"] != ranks.world:
        notes.append(f"It had {facts['ranks']} ranks: the random states are not those of a straight run.")
    torch = resumestate.versions()["torch"]
    if facts["versions"]["torch"] != torch:
        notes.append(f"It was saved with torch {facts['versions']['torch']}, this is {torch}.")
    return tuple(notes)
