"""What the notebook shows: one live line while a cell runs, and the report at its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import GpuprofError, OptionError

if TYPE_CHECKING:
    from jupyter_gpuprof.records.run import Run
    from jupyter_gpuprof.session.profile import Progress
    from jupyter_gpuprof.session.reruns.trial import RerunProgress


#: Records that are shown as their reports: their module, the modules of their painters, and what these are
#: called there. Loading the extension imports none of them.
_SHOWN = {
    "Run": ("run", "text", "html", "run"),
    "Trial": ("trial", "trial_text", "trial_html", "trial"),
    "BatchCurve": ("batch", "batch_text", "batch_html", "batch"),
    "Scaling": ("scaling", "scaling_text", "scaling_html", "scaling"),
    "CheckpointCost": ("spot", "checkpoint_text", "checkpoint_html", "checkpoint"),
    "SpotDecision": ("spot", "spot_text", "spot_html", "spot"),
    "SweepReport": ("sweep", "sweep_text", "sweep_html", "sweep"),
    "ResumeAudit": ("resumeaudit", "resumeaudit_text", "resumeaudit_html", "audit"),
}


def bundle_of(record: Any) -> dict[str, str]:
    """The report of one of our records as text and HTML: front ends choose, files keep both."""
    _, text, html, name = _SHOWN[type(record).__name__]
    painters = (import_module(f"jupyter_gpuprof.views.{module}") for module in (text, html))
    to_text, to_html = (
        getattr(module, f"{name}_{kind}") for module, kind in zip(painters, ("text", "html"), strict=True)
    )
    return {"text/plain": to_text(record), "text/html": to_html(record)}


def register(shell: Any) -> None:
    """Let this shell show our records as their reports."""

    def bundle(record: Any, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return bundle_of(record)

    for shown in _shown_types():
        shell.display_formatter.mimebundle_formatter.for_type_by_name(*shown, bundle)


def unregister(shell: Any) -> None:
    """Undo `register`."""
    formatter = shell.display_formatter.mimebundle_formatter
    for shown in _shown_types():
        formatter.deferred_printers.pop(shown, None)
        formatter.pop(".".join(shown), None)


def _shown_types() -> Iterator[tuple[str, str]]:
    for name, (module, *_) in _SHOWN.items():
        yield f"jupyter_gpuprof.records.{module}", name


def show(text: str, html: str) -> None:
    """Show something as text and HTML."""
    from IPython.display import display

    display({"text/plain": text, "text/html": html}, raw=True)


def show_timeline(run: Run) -> None:
    """Show the gpu ops of a run as Bokeh figures.

    Raises:
        ImportError: bokeh is not installed.
        GpuprofError: the run has no gpu ops.
    """
    from jupyter_gpuprof.views.timeline import timeline_page

    show_page(timeline_page(run), "gpu ops", "The gpu ops of the run, to zoom into.")


def show_page(page: str, title: str, text: str) -> None:
    """Show a page of Bokeh figures in a frame of its own.

    It has its own BokehJS, so it needs nothing of the front end and still works in the saved notebook.

    Args:
        page: its HTML.
        title: of the frame.
        text: for front ends that show no HTML.
    """
    import html

    from IPython.display import display

    source = html.escape(page, quote=True)
    frame = (
        f'<iframe srcdoc="{source}" style="width: 100%; height: 640px; border: 0" title="{title}"></iframe>'
    )
    display({"text/html": frame, "text/plain": text}, raw=True)


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


class RerunLine(UpdatedLine):
    """How far a series of reruns is.

    Args:
        shell: the IPython shell.
        name: of the command.
    """

    def __init__(self, shell: Any, name: str) -> None:
        super().__init__(shell)
        self._name = name
        self._shown_s = clock.now_s()

    def show(self, progress: RerunProgress) -> None:
        """Show it, at most four times a second."""
        from jupyter_gpuprof.views.live import rerun_text

        now_s = clock.now_s()
        if now_s - self._shown_s >= 0.25:
            self._shown_s = now_s
            self._write(rerun_text(self._name, progress.what, progress.done, progress.elapsed_s))


def write_outputs(run: Run, args: Any) -> None:
    """Write what ``--json``, ``--html`` and ``--timeline`` name."""
    from jupyter_gpuprof.store.runs import write_run
    from jupyter_gpuprof.views.html import run_page

    outputs = (
        (args.json, lambda path: write_run(run, path)),
        (args.html, lambda path: path.write_text(run_page(run), encoding="utf-8")),
        (args.timeline, lambda path: _write_timeline(run, path)),
    )
    for path, write in outputs:
        if path is None:
            continue
        try:
            write(path)
        except (OSError, ImportError, GpuprofError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            print(f"gpuprof: {path} was not written: {why}", file=sys.stderr)


def _write_timeline(run: Run, path: Path) -> None:
    from jupyter_gpuprof.views.timeline import timeline_page

    path.write_text(timeline_page(run), encoding="utf-8")


def unwritable(path: Path | None) -> str:
    """Why nothing can be written there, or ""."""
    if path is None:
        return ""
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return ""


def measured(shell: Any, args: Any, name: str, measure: Callable[..., Any]) -> Any:
    """Measure something that takes a while, under a line that tells how far it is, and write what came of it.

    Args:
        shell: the IPython shell.
        args: with ``json`` and ``html``, paths or None.
        name: of the command.
        measure: called with ``progress``; gives the record.

    Raises:
        OptionError: a path cannot be written.
    """
    check_writable(args)
    line = RerunLine(shell, name)
    try:
        record = measure(progress=line.show)
    finally:
        line.finish("")
    write_record(record, args)
    return record


def check_writable(args: Any) -> None:
    """Refuse before minutes of measuring what could not be written after them.

    Raises:
        OptionError: one of ``json`` and ``html`` cannot be written.
    """
    for path in (args.json, args.html):
        if why := unwritable(path):
            raise OptionError(f"{path} cannot be written: {why}.", "Name a file in a folder that exists.")


def write_record(record: Any, args: Any) -> None:
    """Write what ``--json`` and ``--html`` of a command name."""
    texts = (
        (args.json, lambda: json.dumps(record.to_dict(), indent=2) + "\n"),
        (args.html, lambda: page_of(record)),
    )
    for path, text in texts:
        if path is None:
            continue
        try:
            path.write_text(text(), encoding="utf-8")
        except OSError as error:
            print(f"gpuprof: {path} was not written: {error.strerror}", file=sys.stderr)


def page_of(record: Any) -> str:
    """One of our records as an HTML page of its own."""
    from jupyter_gpuprof.views.html import page

    return page(bundle_of(record)["text/html"], f"gpuprof: {getattr(record, 'run_name', '')}")
