"""What the server asks of this kernel, answered as one line of JSON.

The server sends an expression to be evaluated between two cells, so that nothing of it shows in the
notebook: no output, no entry of the history, no name in the namespace.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.session.devices.kernelreports import report_now
from jupyter_gpuprof.session.devices.release import offload_device, release_device
from jupyter_gpuprof.session.devices.releasehooks import call_release_hooks

#: To end a process that was suspended and came back has hung machines.
_SUSPEND_FIRST = (
    "It is not ended: it was suspended once (experimental), and to end such a process has hung machines. "
    "Suspend it again, or restart it from the notebook."
)


def asked(action: str, until_unix_s: float) -> str:
    """Do it, and say what came of it.

    Args:
        action: "free", "offload", "suspend", or "shutdown": call the functions of `on_release`.
        until_unix_s: the server waits until then. A kernel that comes to it later was at work meanwhile,
            and does nothing.
    """
    if clock.unix_ns() * 1e-9 > until_unix_s:
        return json.dumps({"remarks": ["It was asked too late."]})
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    suspension = sys.modules.get("jupyter_gpuprof.session.devices.suspend")
    if suspension is not None and suspension.suspended():  # whatever asks the device now waits for ever
        words = "Its device memory is on the host already (suspended, experimental)."
        return json.dumps({"remarks": [words]} if action == "shutdown" else {"refused": words})
    if action == "shutdown":
        remarks = call_release_hooks()
        if suspension is not None and suspension.came_back():
            return json.dumps({"remarks": remarks, "refused": _SUSPEND_FIRST})
        return json.dumps({"remarks": remarks})
    if action == "suspend":
        return _suspend(shell)
    namespace: dict[str, Any] = shell.user_ns if shell is not None else {}
    if action == "offload":
        report = offload_device(namespace, shell, returned=_returned)
    else:
        report = release_device(namespace, shell)
    report_now()
    return json.dumps(encode(report))


def _suspend(shell: Any) -> str:
    from jupyter_gpuprof.session.devices.suspend import suspend_device
    from jupyter_gpuprof.views.suspend_text import suspend_note

    report = suspend_device(shell, told=_back)
    note = suspend_note(report)
    report_now()
    if report.ending != "suspended":
        return json.dumps({"refused": note})
    return json.dumps({"remarks": [note], "freed_bytes": encode(report.footprint_bytes)})


def _back(report: Any) -> None:
    """In the cell that waited for it."""
    from jupyter_gpuprof.views.suspend_text import restore_line

    print(restore_line(report), flush=True)
    report_now()


def _returned(report: Any) -> None:
    """In the cell before which it all came back."""
    from jupyter_gpuprof.views.release_text import return_line

    print(return_line(report))
    report_now()
