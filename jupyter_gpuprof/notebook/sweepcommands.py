"""What a sweep has cost, and what of that was for nothing; live while it goes on."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.notebook import output
from jupyter_gpuprof.notebook.parsing import Command, option, outputs, parser_of

if TYPE_CHECKING:
    from jupyter_gpuprof.notebook.magics import GpuprofMagics
    from jupyter_gpuprof.records.sweep import SweepReport

#: Seconds between two looks at the study; a study that stands still for so long is done.
_PERIOD_S, _STILL_S = 2.0, 30.0
#: The page has taken BokehJS out of the first display by then.
_LIBRARY_S = 2.0


def _sweep(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.session.sweeps.report import sweep_reader, sweep_report

    output.check_writable(args)
    read = sweep_reader(args.study, magics.ip.user_ns)
    report = sweep_report(read, args.cap)
    if args.live:
        report = _follow(magics.ip, report, lambda: sweep_report(read, args.cap))
    output.write_record(report, args)
    if args.figure:
        from jupyter_gpuprof.views.sweep_figure import sweep_page

        output.show_page(sweep_page(report), "sweep", "Trials over GPU-hours, to zoom into.")
    return None if args.live else report


def _follow(shell: Any, report: SweepReport, look: Any) -> SweepReport:
    """Show the study until it stands still or the person interrupts."""
    shown = SweepDisplay(shell)
    changed_s = clock.now_s()
    try:
        while clock.now_s() - changed_s < _STILL_S:
            shown.show(report)
            time.sleep(_PERIOD_S)
            latest = look()
            if latest.sweep != report.sweep:
                changed_s = clock.now_s()
            report = latest
    except KeyboardInterrupt:
        pass  # that is how one looks away
    shown.end(report)
    return report


class SweepDisplay(output.UpdatedLine):
    """A sweep while it goes on: a figure and a report in a kernel, a line and then the report in a terminal.

    Args:
        shell: the IPython shell.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._figure: Any = None
        self._report: Any = None
        self._began_s = float("inf")

    def show(self, report: SweepReport) -> None:
        """Show where it stands."""
        if not self._in_kernel:
            self._write(f"gpuprof sweep: {report.sentence}")
            return
        if self._figure is None and report.sweep.trials:
            self._begin(report)
        elif clock.now_s() - self._began_s > _LIBRARY_S:
            self._settle(report)
        self._update(report)

    def end(self, report: SweepReport) -> None:
        """Leave the report."""
        if not self._in_kernel:
            from jupyter_gpuprof.views.sweep_text import sweep_text

            self.finish("")
            print(sweep_text(report), file=sys.stdout)
            return
        self._settle(report)
        self._update(report)

    def _begin(self, report: SweepReport) -> None:
        from IPython.display import display

        from jupyter_gpuprof.views.sweep_figure import live_figure_html

        try:
            html = live_figure_html(report, library=True)
        except ImportError:
            self._figure = False  # without bokeh the report has its still picture
            return
        self._began_s = clock.now_s()
        self._figure = display(_bundle("The trials as a figure.", html), raw=True, display_id=True)

    def _settle(self, report: SweepReport) -> None:
        """Replace the figure by itself without BokehJS, once."""
        if self._figure and self._began_s < float("inf"):
            from jupyter_gpuprof.views.sweep_figure import live_figure_html

            self._figure.update(_bundle("The trials as a figure.", live_figure_html(report)), raw=True)
            self._began_s = float("inf")

    def _update(self, report: SweepReport) -> None:
        from IPython.display import display

        from jupyter_gpuprof.views.sweep_figure import live_report_html
        from jupyter_gpuprof.views.sweep_text import sweep_text

        bundle = _bundle(sweep_text(report), live_report_html(report))
        if self._report is None:
            self._report = display(bundle, raw=True, display_id=True)
        else:
            self._report.update(bundle, raw=True)


def _bundle(text: str, html: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": html}


SWEEP_COMMANDS: dict[str, Command] = {
    "sweep": Command(
        parser_of(
            "sweep",
            option("study"),
            option("--cap", type=float, default=None, metavar="GPU_HOURS"),
            option("--live", action="store_true"),
            option("--figure", action="store_true"),
            *outputs(),
        ),
        _sweep,
    ),
}
