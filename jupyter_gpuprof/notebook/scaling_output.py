"""What the notebook shows of a scaling: a figure and a report while it goes on, and both at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.notebook.output import UpdatedLine

if TYPE_CHECKING:
    from jupyter_gpuprof.records.scaling import Scaling, ScalingProgress

#: Updates no closer to each other than this.
_PERIOD_S = 0.25
#: The page has taken BokehJS out of the first display by then.
_LIBRARY_S = 2.0


class ScalingDisplay(UpdatedLine):
    """The curve of a scaling: two displays in a kernel, a line and then the report in a terminal.

    The figure is drawn once, with BokehJS, and soon replaced by itself without BokehJS, which the page
    keeps; so the saved notebook never holds the library for long. The report is updated in place, and
    its updates reach the figure in the page. Both are display updates, no widgets (see `UpdatedLine`).

    Args:
        shell: the IPython shell.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._figure: Any = None
        self._report: Any = None
        self._shown_s, self._began_s = float("-inf"), float("inf")

    def show(self, scaling: Scaling, progress: ScalingProgress | None = None) -> None:
        """Show where the scaling stands, at most four times a second."""
        now_s = clock.now_s()
        if now_s - self._shown_s < _PERIOD_S:
            return
        self._shown_s = now_s
        if not self._in_kernel:
            from jupyter_gpuprof.views.scaling_text import scaling_line

            self._write(scaling_line(scaling, progress))
        elif self._report is None:
            self._begin(scaling, progress, now_s)
        else:
            if now_s - self._began_s > _LIBRARY_S:
                self._settle(scaling, progress)
                self._began_s = float("inf")
            self._report.update(_report_bundle(scaling, progress), raw=True)

    def end(self, scaling: Scaling) -> None:
        """Leave the finished curve, or what there is of it."""
        from jupyter_gpuprof.views.marks import scaling_mark

        if not self._in_kernel:
            from jupyter_gpuprof.views.scaling_text import scaling_text

            self.finish("")
            print(scaling_text(scaling), file=sys.stdout)
            return
        if self._report is None:
            self._begin(scaling, None, clock.now_s())
        self._settle(scaling, None)
        self._report.update(_report_bundle(scaling, None), raw=True, metadata=scaling_mark(scaling))

    def _begin(self, scaling: Scaling, progress: ScalingProgress | None, now_s: float) -> None:
        from IPython.display import display

        self._began_s = now_s
        try:
            bundle = _figure_bundle(scaling, progress, library=True)
        except ImportError:
            pass  # without bokeh the report has its still picture
        else:
            self._figure = display(bundle, raw=True, display_id=True)
        self._report = display(_report_bundle(scaling, progress), raw=True, display_id=True)

    def _settle(self, scaling: Scaling, progress: ScalingProgress | None) -> None:
        """Replace the figure by itself without BokehJS."""
        if self._figure is not None:
            self._figure.update(_figure_bundle(scaling, progress, library=False), raw=True)


def _figure_bundle(scaling: Scaling, progress: ScalingProgress | None, library: bool) -> dict[str, str]:
    from jupyter_gpuprof.views.scaling_figure import figure_html

    html = figure_html(scaling, progress, library=library)
    return {"text/plain": "The curve as a figure.", "text/html": html}


def _report_bundle(scaling: Scaling, progress: ScalingProgress | None) -> dict[str, str]:
    from jupyter_gpuprof.views.scaling_figure import report_html
    from jupyter_gpuprof.views.scaling_text import scaling_text

    return {
        "text/plain": scaling_text(scaling, progress=progress),
        "text/html": report_html(scaling, progress),
    }
