"""Everything that we raise on purpose.

    GpuprofError
    ├── UsageError          the person asked for something that cannot be
    │   ├── OptionError     an option's value makes no sense
    │   └── WritesFiles     a cell that is to be rerun writes files
    ├── CannotShip          a name of the cell cannot be sent to a fresh process
    ├── NoCellError         no cell was profiled that could be rerun
    ├── RerunError          a rerun of the cell gave nothing to compare
    ├── CacheRefused        a result cannot be kept and read back instead of being computed
    ├── CheckpointError     a checkpoint cannot be written or read
    ├── RunFileError        a run cannot be read
    │   └── NewerSchemaError  it was written by a newer version of us
    ├── LedgerError         the ledger file cannot be read
    ├── RunNotFound         no such run in the ledger
    ├── HolderNotFound      no such kernel or process
    ├── SweepOver           the budget of a study is spent
    ├── ReleaseRefused      a device cannot be freed without touching work, or what is not ours
    └── TraceError          a stored trace cannot be read

Each message is one sentence that says what happened; ``hint`` says what to do. The doors print both
and no traceback of ours.
"""


class GpuprofError(Exception):
    """The root of the tree: a sentence for a person and a hint what to do.

    Args:
        message: what happened, one sentence.
        hint: what to do about it, one sentence.
    """

    hint = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} {self.hint}" if self.hint else message


class UsageError(GpuprofError):
    """What was asked for cannot be done as asked."""


class OptionError(UsageError):
    """An option has a value that makes no sense."""

    hint = "See %gpuprof help."


class WritesFiles(UsageError):
    """The cell that is to be rerun writes files, and each rerun would write them again."""

    hint = "With --allow-writes it is rerun all the same."


class CannotShip(GpuprofError):
    """A name that the cell needs cannot be sent to a fresh process."""

    hint = "Create it inside the cell, or give its class a __getstate__ that leaves it out."


class RunFileError(GpuprofError):
    """A run cannot be read from its file."""

    hint = "Run files are the JSON that --json writes."


class NewerSchemaError(RunFileError):
    """The run was written by a newer jupyter_gpuprof than this one."""

    hint = "Upgrade with: pip install --upgrade jupyter-gpuprof"


class LedgerError(GpuprofError):
    """The ledger file cannot be read."""

    hint = "Move it away to begin a new one, or name another with JUPYTER_GPUPROF_DATABASE."


class RunNotFound(GpuprofError):
    """The ledger holds no such run."""

    hint = "%gpuprof history lists the runs."


class TraceError(GpuprofError):
    """A stored trace cannot be read or holds nothing to judge."""

    hint = "Expected a trace exported by torch.profiler (.json, .json.gz, .tar.gz or a folder of ranks)."


class NoCellError(GpuprofError):
    """There is no profiled cell to rerun."""

    hint = "Put %%gpuprof on top of a training cell and run it first."


class RerunError(GpuprofError):
    """A rerun of the profiled cell failed, hung, or counted no step."""

    hint = "Nothing of yours was changed."


class HolderNotFound(GpuprofError):
    """This server has no such kernel, or the process is gone."""

    hint = "The list of holders is read anew every second."


class ReleaseRefused(GpuprofError):
    """Freeing the device would touch work in progress, or what is not certainly ours."""

    hint = "Nothing was done."


class CheckpointError(GpuprofError):
    """A checkpoint could not be written, or none can be read."""

    hint = "The checkpoints that were complete before are untouched."


class CacheRefused(GpuprofError):
    """What is computed cannot be kept and read back later: it differs each time, or is no plain data."""

    hint = "docs/cache.md says what can be kept."


class SweepOver(GpuprofError):
    """The budget of a study is spent or has expired, so that no new trial starts."""

    hint = "A SweepBudget with more gpu_hours or a later expires goes on with the study."


class PrometheusError(GpuprofError):
    """A Prometheus server cannot be asked, or does not answer with numbers."""

    hint = "Its web page shows whether it runs and what it scrapes."
