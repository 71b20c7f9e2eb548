"""What the notebook shows: one live line while a cell runs, and the report at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof import clock

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


def show_timeline(run: Run) -> None:
    """Show the gpu ops of a run as Bokeh figures.

    The page stands in a frame of its own with its own BokehJS, so it needs nothing of the front end and
    still works in the saved notebook.

    Raises:
        ImportError: bokeh is not installed.
        GpuprofError: the run has no gpu ops.
    """
    import html

    from IPython.display import display

    from jupyter_gpuprof.views.timeline import timeline_page

    page = html.escape(timeline_page(run), quote=True)
    frame = f'<iframe srcdoc="{page}" style="width: 100%; height: 640px; border: 0" title="gpu ops"></iframe>'
    display({"text/html": frame, "text/plain": "The gpu ops of the run, to zoom into."}, raw=True)


class UpdatedLine:
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


class LiveLine(UpdatedLine):
    """Where a run is."""

    def show(self, progress: Progress) -> None:
        """Show where the run is."""
        from jupyter_gpuprof.views.live import live_text

        self._write(live_text(progress.step, progress.steps_per_s, progress.input_share, progress.warmup))


class ReadingLine(UpdatedLine):
    """How far files are read.

    Args:
        shell: the IPython shell.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._began_s = self._shown_s = clock.now_s()

    def show(self, done_bytes: int, total_bytes: int) -> None:
        """Show how much is read, at most four times a second."""
        from jupyter_gpuprof.views.live import reading_text

        now_s = clock.now_s()
        if now_s - self._shown_s >= 0.25:
            self._shown_s = now_s
            self._write(reading_text(done_bytes, total_bytes, now_s - self._began_s))
