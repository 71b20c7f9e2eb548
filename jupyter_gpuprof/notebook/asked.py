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
from jupyter_gpuprof.session.kernelreports import report_now
from jupyter_gpuprof.session.release import offload_device, release_device
from jupyter_gpuprof.session.releasehooks import call_release_hooks


def asked(action: str, until_unix_s: float) -> str:
    """Do it, and say what came of it.

    Args:
        action: "free", "offload", or "shutdown": call the functions of `on_release`.
        until_unix_s: the server waits until then. A kernel that comes to it later was at work meanwhile,
            and does nothing.
    """
    if clock.unix_ns() * 1e-9 > until_unix_s:
        return json.dumps({"remarks": ["It was asked too late."]})
    if action == "shutdown":
        return json.dumps({"remarks": list(call_release_hooks())})
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    namespace: dict[str, Any] = shell.user_ns if shell is not None else {}
    if action == "offload":
        report = offload_device(namespace, shell, returned=_returned)
    else:
        report = release_device(namespace, shell)
    report_now()
    return json.dumps(encode(report))


def _returned(report: Any) -> None:
    """In the cell before which it all came back."""
    from jupyter_gpuprof.views.release_text import return_line

    print(return_line(report))
    report_now()
