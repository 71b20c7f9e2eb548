"""Word that this process will be ended: signals, and what a cloud announces.

It is noted here and acted on later: nothing is saved inside a signal's handler, where half a step may be
done. The training loop looks at the end of each step.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from jupyter_gpuprof.probes.cloudnotice import announced, cloud_here

#: Kubernetes, Slurm and torchrun send the first; the others are what a Slurm job is told to ask for.
_SIGNALS = ("SIGTERM", "SIGUSR1", "SIGUSR2")
_POLL_S = 5.0


class Notices:
    """Listens from `start` to `stop`.

    The user signals are listened to only where nobody else does. A signal that comes again before the loop
    has looked once does what it did before: a loop that hangs can still be ended.
    """

    def __init__(self) -> None:
        #: Why this process will be ended; "" as long as nobody said so.
        self.reason = ""
        #: What the process should exit with, as a shell would say it.
        self.exit_code = 128 + signal.SIGTERM
        #: User signals that somebody else handles; they are not ours to take.
        self.left: tuple[str, ...] = ()
        self._seen = False
        self._before: dict[int, Any] = {}
        self._stopped = threading.Event()
        self._poller: threading.Thread | None = None

    def start(self) -> None:
        """Listen; to signals only where this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                number = getattr(signal, name, None)
                if number is None:
                    continue
                if name != "SIGTERM" and signal.getsignal(number) is not signal.SIG_DFL:
                    self.left += (name,)
                    continue
                self._before[number] = signal.signal(number, self._note)
        cloud = cloud_here()
        if cloud:
            self._poller = threading.Thread(
                target=self._poll, args=(cloud,), name="gpuprof cloud notices", daemon=True
            )
            self._poller.start()

    def stop(self) -> None:
        """Listen no longer; handlers that somebody put over ours stay."""
        self._stopped.set()
        if self._poller is not None:
            self._poller.join()
        if threading.current_thread() is threading.main_thread():
            for number in self._before:
                if signal.getsignal(number) == self._note:
                    signal.signal(number, self._under(number))

    def look(self) -> bool:
        """Whether the process will be ended; called at the end of each step."""
        if not self.reason:
            return False
        self._seen = True
        return True

    def _note(self, number: int, frame: Any) -> None:
        if self.reason and not (self._seen or self._stopped.is_set()):
            signal.signal(number, self._under(number))
            os.kill(os.getpid(), number)
            return
        self.exit_code = 128 + number
        self.reason = self.reason or f"{signal.Signals(number).name} came"

    def _under(self, number: int) -> Any:
        """What handled it before; one of us that listens no longer is passed over."""
        before = self._before[number]
        other = getattr(before, "__self__", None)
        if isinstance(other, Notices) and other._stopped.is_set():
            return other._under(number)
        return signal.SIG_DFL if before is None else before

    def _poll(self, cloud: str) -> None:
        while not self._stopped.wait(_POLL_S):
            found = announced(cloud)
            if found:
                self.reason = self.reason or found
                return
