"""``with profile() as p``: a run from Python."""

from __future__ import annotations

import warnings
from types import TracebackType

from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.session.profile import Options, Session, StopProfiling


class profile:
    """Profile a block: ``with profile(name="baseline") as p: ...``; then ``p.run``.

    The block is not changed in any way; a run around it is paused meanwhile. An exception passes
    unchanged, and `run` is there all the same.

    Args:
        name: how to call the run.
        warmup: steps to leave out at the beginning; None chooses.
        steps: leave the block after so many counted steps.
        kernels: steps of the kernel window; 0 for none, None for a few where there is an accelerator.
        save: keep the run in the ledger database.

    Raises:
        OptionError: an option makes no sense.
    """

    def __init__(
        self,
        name: str = "",
        *,
        warmup: int | None = None,
        steps: int | None = None,
        kernels: int | None = None,
        save: bool = True,
    ) -> None:
        self._session = Session(Options(name or "profile", warmup, steps, kernels), save=save)

    @property
    def run(self) -> Run:
        """The finished run.

        Raises:
            RuntimeError: the block has not ended yet.
        """
        if self._session.run is None:
            raise RuntimeError("The profiled block has not ended yet: read .run after the with block.")
        return self._session.run

    def __enter__(self) -> profile:
        self._session.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        ended = isinstance(error, StopProfiling)
        self._session.ended_with(error)
        if ended:
            self._session.stopped_by_limit()
        try:
            self._session.finish()
        except Exception as failure:
            warnings.warn(f"jupyter_gpuprof could not finish its run: {failure}", stacklevel=2)
        return ended
