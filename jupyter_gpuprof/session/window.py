"""When a kernel window opens and closes within a run."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpuprof.clock import now_s
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.probes.kernelwindow import KernelWindow, why_no_window
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.records.trace import RankTrace

#: Steps of a window by default; one more at each end is recorded and dropped.
AUTO_STEPS = 5
_NO_DATA = "no kernel data: the window recorded nothing of the device"
#: Steps before the window: past the warm-up of most runs, early enough for short ones.
STEPS_BEFORE = 15


def parse_kernels(text: str) -> int | None:
    """Steps of the window: None for "auto", 0 for "off".

    Raises:
        OptionError: it is neither of these nor a number of steps.
    """
    if text == "auto":
        return None
    if text == "off":
        return 0
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise OptionError(f"--kernels takes auto, off or a number of steps, not {text!r}.")


class WindowControl:
    """Opens one window after some steps, closes it after some more, and lets the loop settle.

    While it is open the recorder is muted: the window's own steps, and those until the loader's head start
    from the profiler's own work is used up, are left out of the timing.

    Args:
        recorder: the run's.
        steps: as `parse_kernels` gives it.
        note: takes a remark for the report.
    """

    def __init__(self, recorder: Recorder, steps: int | None, note: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._asked = steps
        self._note = note
        self._seen = 0
        self._window: KernelWindow | None = None
        self._cooling = 0
        self._cost_s = 0.0
        self._tried_again = False
        self.trace: RankTrace | None = None
        self.why = "off" if steps == 0 else "the run was too short for one"

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self._asked == 0

    def begin_step(self) -> None:
        """Called at each boundary of a training step."""
        self._seen += 1
        if self._window is not None:
            self._window.begin_step()
            if self._window.steps >= self._wanted():
                self._close_timed()
        elif self._cooling:
            self._cooling -= 1
            if not self._cooling:
                self._unmute()
        elif self._seen > STEPS_BEFORE and not self.done:
            began = now_s()
            self._open()
            self._cost_s += now_s() - began

    def begin_fetch(self) -> None:
        """``next()`` is called inside an open window."""
        if self._window is not None:
            self._window.begin_fetch()

    def end_fetch(self) -> None:
        """``next()`` returned inside an open window."""
        if self._window is not None:
            self._window.end_fetch()

    def end(self) -> None:
        """The run ends, wherever it is."""
        if self._window is not None:
            self._close_timed()
        if self._recorder.muted:
            self._unmute()

    def _wanted(self) -> int:
        return AUTO_STEPS if self._asked is None else self._asked

    def _open(self) -> None:
        kind = self._recorder.backend.device_kind
        if self._asked is None and kind == "cpu":
            return self._give_up("on a CPU only when asked for: --kernels K")
        if self._recorder.backend.capturing():
            return None  # not now; perhaps at the next step
        why = why_no_window()
        if why:
            self._note(f"No kernel window: {why}.")
            return self._give_up(why)
        window = KernelWindow(kind, host_too=self._tried_again)
        try:
            window.start()
        except Exception as error:
            self._note(f"No kernel window: torch's profiler did not start ({error}).")
            return self._give_up("torch's profiler did not start")
        if not self._recorder.muted:
            self._recorder.simple("pause")
            self._recorder.muted = True
        window.begin_step()
        self._window = window
        return None

    def _close_timed(self) -> None:
        began = now_s()
        self._close()
        self._cost_s += now_s() - began
        if self.trace is not None:
            self._note(
                f"The kernel window took {self._cost_s:.2f} s to open and read; "
                "its steps are not in the timing."
            )

    def _close(self) -> None:
        window, self._window = self._window, None
        assert window is not None
        wanted, self._asked = self._asked, 0
        try:
            self.trace = window.stop()
        except Exception as error:
            self._note(f"The kernel window could not be read ({type(error).__name__}: {error}).")
        if self.trace is None and not self._tried_again and self._recorder.backend.device_kind != "cpu":
            self._tried_again, self._asked = True, wanted  # once more, with the host's operators
            self.why = _NO_DATA
            return
        if self.trace is None:
            self.why = _NO_DATA
            self._note(
                "No kernel data: the window recorded nothing of the device (another tool may hold its "
                "tracing). That does not mean that it was idle."
            )
        workers = self._recorder.sources.most_workers
        self._cooling = max(1, 2 * workers)

    def _unmute(self) -> None:
        self._cooling = 0
        self._recorder.observe(None)
        self._recorder.muted = False
        self._recorder.simple("resume")

    def _give_up(self, why: str) -> None:
        self._asked, self.why = 0, why
        self._recorder.observe(None)
        if self._recorder.muted:
            self._unmute()
