"""Suspends this kernel by the driver's checkpoint, and holds its next cell until the device memory is back.

Experimental. While it is suspended any call of the device waits for ever, also one from a destructor: so a
fresh process does the work (`suspend_child`), and nothing of ours here asks the device meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from IPython.core.error import InputRejected

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes import suspendable
from jupyter_gpuprof.probes.owndevice import own_reports
from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.suspension import Condition, SuspendReport
from jupyter_gpuprof.session.devices.suspend_child import BEGUN

#: How long a suspension or a return may take, and when a return is tried again.
LIMIT_S, AGAIN_S = 300.0, 5.0
#: Besides cells, these messages of a front end may lead to calls of the device.
_OTHER_MESSAGES = ("comm_open", "comm_msg", "comm_close", "complete_request", "inspect_request")

Helper = Callable[[dict[str, Any]], SuspendReport]
Tell = Callable[[SuspendReport], None]
_one = threading.RLock()
_gate: _Gate | None = None
_came_back = False


class Suspended(InputRejected):
    """A cell was not run, since the device memory of its kernel is still on the host."""

    def _render_traceback_(self) -> list[str]:
        return [f"gpuprof: {self}"]


def suspended() -> bool:
    """Whether the device memory of this kernel is on the host, or may be."""
    return _gate is not None


def came_back() -> bool:
    """Whether this kernel was suspended once, and came back: to end such a process has hung machines."""
    return _came_back and _gate is None


def suspend_device(
    shell: Any, *, told: Tell = lambda report: None, helper: Helper | None = None
) -> SuspendReport:
    """Suspend this kernel if everything holds that must.

    Args:
        shell: the IPython shell, whose next cell waits.
        told: hears of the return, and of each reason why it has to wait; in the cell that waits.
        helper: does the work; by default a fresh process.
    """
    global _gate
    with _one:
        if _gate is not None:
            return SuspendReport("suspend", "suspended", "It is suspended already.")
        ask = helper or _Helper()
        reports = own_reports(clock.now_s())
        _gate = gate = _Gate(shell, told, ask)  # first: from now on cells wait
        holds_cells = hasattr(shell, "ast_transformers")
        try:
            report = ask(
                {"goal": "suspend", "pid": os.getpid(), "own": suspendable.own_facts(),
                 "holds_cells": holds_cells}
            )  # fmt: skip
        except BaseException:
            gate.open()
            raise
        if report.ending == "unknown":
            held = sum(one.reserved_bytes for one in reports if not isinstance(one.reserved_bytes, Missing))
            uuids = tuple(one.device_uuid for one in reports)
            report = replace(report, devices=uuids, footprint_bytes=held)
        gate.suspension = report
        if report.ending in ("refused", "running", "gone"):
            gate.open()
        return report


class _Gate:
    """Holds cells, and messages that might ask the device, until its memory is back."""

    def __init__(self, shell: Any, told: Tell, helper: Helper) -> None:
        self.suspension: SuspendReport | None = None
        self._shell = shell
        self._told = told
        self._helper = helper
        self._pause = threading.Event()
        self._why = ""
        if shell is not None:
            shell.events.register("pre_execute", self.restore)
        if hasattr(shell, "ast_transformers"):
            shell.ast_transformers.append(self)
        handlers = getattr(getattr(shell, "kernel", None), "shell_handlers", {})
        self._handlers = {name: handlers[name] for name in _OTHER_MESSAGES if name in handlers}
        handlers.update({name: self._behind(handler) for name, handler in self._handlers.items()})

    def open(self) -> None:
        """Hold nothing any more."""
        global _gate
        if self._shell is not None:
            self._shell.events.unregister("pre_execute", self.restore)
        if hasattr(self._shell, "ast_transformers"):
            self._shell.ast_transformers.remove(self)
        if self._handlers:
            self._shell.kernel.shell_handlers.update(self._handlers)
        _gate = None

    def restore(self) -> None:
        """Wait until all is back, or the driver failed, or the person interrupts."""
        global _came_back
        try:
            with _one:
                while _gate is self and self.suspension is not None:
                    report = self._helper(
                        {"goal": "restore", "pid": os.getpid(), "devices": self.suspension.devices,
                         "footprint_bytes": encode(self.suspension.footprint_bytes)}
                    )  # fmt: skip
                    if report.ending == "running":
                        _came_back = True
                        self.open()
                    if report.sentence != self._why:
                        self._told(report)
                    self._why = report.sentence
                    if report.ending in ("running", "failed", "gone"):
                        return
                    self._pause.wait(AGAIN_S)
        except KeyboardInterrupt:
            self._why = self._why or "The wait was interrupted."

    def visit(self, tree: Any) -> Any:
        """Asked by IPython with each cell, after `restore`: a cell whose device is away does not run."""
        if _gate is self and self.suspension is not None:
            raise Suspended(f"The cell was not run: its kernel is still suspended. {self._why}")
        return tree

    def _behind(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def handle(*args: Any, **kwargs: Any) -> Any:
            self.restore()
            return handler(*args, **kwargs)

        return handle


class _Helper:
    """A fresh process for each errand; one that takes too long is left to itself, and awaited first.

    It is never killed: that would not bring back what it had begun. In a session of its own no interrupt
    meant for the cell reaches it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, told: dict[str, Any]) -> SuspendReport:
        answer = said = ""
        try:
            if self._process is not None:
                self._process.wait(LIMIT_S)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpuprof.session.devices.suspend_child"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
            answer, said = self._process.communicate(json.dumps(told), timeout=LIMIT_S)
            self._process = None
            return _report(json.loads(answer.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            return SuspendReport(told["goal"], "unknown", f"It takes more than {LIMIT_S:g} s.")
        except (OSError, ValueError, KeyError, IndexError) as error:
            why = [*said.strip().splitlines(), str(error)][-1 if not said.strip() else -2]
            begun = BEGUN in answer or told["goal"] == "restore"
            words = f"The process that does it failed: {why}."
            return SuspendReport(told["goal"], "unknown" if begun else "refused", words)


def _report(data: dict[str, Any]) -> SuspendReport:
    held: Number | dict[str, str] = data["footprint_bytes"]
    return SuspendReport(
        data["goal"], data["ending"], data["sentence"],
        tuple(Condition(**one) for one in data["conditions"]), tuple(data["devices"]),
        Missing(held["missing"]) if isinstance(held, dict) else held, data["took_s"],
    )  # fmt: skip
