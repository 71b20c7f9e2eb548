"""What the notebook shows: one live line while a cell runs, and the report at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_gpuprof.records.run import Run
    from jupyter_gpuprof.session.profile import Progress


_RUN = ("jupyter_gpuprof.records.run", "Run")


def report_bundle(run: Run) -> dict[str, str]:
    """The report of a run as text and HTML in one bundle: front ends choose, files keep both."""
    from jupyter_gpuprof.views.html import run_html
    from jupyter_gpuprof.views.text import run_text

    return {"text/plain": run_text(run), "text/html": run_html(run)}


def register(shell: Any) -> None:
    """Let this shell show a `Run` as its report."""

    def bundle(run: Run, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return report_bundle(run)

    # By name: loading the extension does not import what a report needs.
    shell.display_formatter.mimebundle_formatter.for_type_by_name(*_RUN, bundle)


def unregister(shell: Any) -> None:
    """Undo `register`."""
    formatter = shell.display_formatter.mimebundle_formatter
    formatter.deferred_printers.pop(_RUN, None)
    formatter.pop(".".join(_RUN), None)


class LiveLine:
    """One line that is updated in place: a display in a kernel, a carriage return in a terminal.

    It is a display update and no widget on purpose: a widget makes the kernel open a subshell, and
    from then on Jupyter's own idle culler takes the running cell for an idle kernel.

    Args:
        shell: the IPython shell.
    """

    def __init__(self, shell: Any) -> None:
        self._in_kernel = hasattr(shell, "kernel")
        self._handle: Any = None
        self._width = 0

    def show(self, progress: Progress) -> None:
        """Show where the run is."""
        from jupyter_gpuprof.views.live import live_text

        self._write(live_text(progress.step, progress.steps_per_s, progress.input_share, progress.warmup))

    def finish(self, text: str) -> None:
        """Leave `text` in place of the line, if there ever was one."""
        if self._in_kernel:
            if self._handle is not None:
                self._write(text)
        elif self._width:
            self._write("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if not self._in_kernel:
            if sys.stderr.isatty():
                print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
                self._width = len(text)
            return
        from IPython.display import display

        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
