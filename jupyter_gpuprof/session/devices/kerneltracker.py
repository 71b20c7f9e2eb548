"""What one kernel works on, and whether what was decided about it still holds."""

from __future__ import annotations

from jupyter_gpuprof.analysis.idleness import void
from jupyter_gpuprof.analysis.openrequests import OpenRequests
from jupyter_gpuprof.probes.processes import process_id
from jupyter_gpuprof.records.idleness import Decision, Process


class KernelTracker(OpenRequests):
    """The open requests of one kernel."""

    def why_void(self, decision: Decision, pid: int | None, now_s: float) -> str | None:
        """Why the decision must not be carried out any more; None if it may be.

        Ask, and begin to act, in one turn of the event loop.

        Args:
            decision: about this kernel.
            pid: of its process now.
            now_s: monotonic seconds.
        """
        id = process_id(pid) if pid is not None else None
        then = decision.process
        now = Process(id.pid, id.started_s, then.uid) if id is not None and then is not None else None
        return void(decision, self.version, now, self.count(now_s)[0])
