"""From the words of a person to a study, and from the study to its report."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import GpuprofError, OptionError, UsageError
from jupyter_gpuprof.planning.sweepreport import conclude_sweep
from jupyter_gpuprof.records.sweep import Sweep, SweepReport
from jupyter_gpuprof.session.sweeps.plainbook import PlainBook
from jupyter_gpuprof.store.database import readable
from jupyter_gpuprof.store.sweeps import SweepFile

_HINT = "Name a variable that holds a study or a SweepBudget, STORAGE::NAME of Optuna, or a budget's study."


def sweep_reader(wanted: str, names: Mapping[str, Any] | None = None) -> Callable[[], Sweep]:
    """What reads a study each time it is called.

    Args:
        wanted: a name in `names` (an Optuna study, a guard of one, a `SweepBudget`); ``storage::name`` of an
            Optuna study, the storage an address or an SQLite file; or the name of a plain loop's study.
        names: of the notebook.

    Raises:
        UsageError: there is no such study.
        LedgerError: the ledger cannot be read.
    """
    thing = (names or {}).get(wanted)
    if thing is not None:
        return _of_object(wanted, thing)
    if "::" in wanted:
        return _of_storage(*wanted.rsplit("::", 1))
    file = SweepFile(wanted)
    with readable():
        if not file.exists():
            raise UsageError(f"There is no study {wanted!r}.", _HINT)
    return PlainBook(wanted, file).sweep


def sweep_report(read: Callable[[], Sweep], cap_hours: float | None = None) -> SweepReport:
    """What ``%gpuprof sweep`` says of a study as it is now.

    Args:
        read: of `sweep_reader`.
        cap_hours: the cap to replay; None for the study's own.

    Raises:
        OptionError: the cap is not above 0.
        UsageError: the study cannot be read.
    """
    if cap_hours is not None and not cap_hours > 0:
        raise OptionError(f"--cap takes GPU-hours above 0, not {cap_hours:g}.")
    try:
        sweep = read()
    except GpuprofError:
        raise
    except (OSError, sqlite3.Error, ValueError, KeyError, RuntimeError) as error:
        raise UsageError(f"The study cannot be read: {error}.") from error
    return conclude_sweep(
        sweep, now_unix_s=clock.unix_ns() * 1e-9, made_at=clock.utc_now(), cap_hours=cap_hours
    )


def _of_object(name: str, thing: Any) -> Callable[[], Sweep]:
    sweep = getattr(thing, "sweep", None)
    if callable(sweep):
        return sweep  # type: ignore[no-any-return]
    study = getattr(thing, "study", thing)
    if hasattr(study, "get_trials") and hasattr(study, "study_name"):
        from jupyter_gpuprof.session.sweeps.optunastudy import sweep_of

        return lambda: sweep_of(study)
    raise UsageError(f"{name} is no study: it is a {type(thing).__name__}.", _HINT)


def _of_storage(storage: str, name: str) -> Callable[[], Sweep]:
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            "Studies of Optuna need optuna.", 'Install it with: pip install "jupyter-gpuprof[sweeps]"'
        ) from error
    from jupyter_gpuprof.session.sweeps.optunastudy import sweep_of

    path = Path(storage.removeprefix("sqlite:///")).expanduser()
    if "://" not in storage or storage.startswith("sqlite:///"):
        if not path.is_file():  # Optuna would make an empty one
            raise UsageError(f"There is no storage {storage}.", _HINT)
        storage = f"sqlite:///{path}"
    try:
        study = optuna.load_study(study_name=name, storage=storage)
    except Exception as error:
        raise UsageError(f"The study {name!r} cannot be loaded from {storage}: {error}.", _HINT) from error
    return lambda: sweep_of(study)
