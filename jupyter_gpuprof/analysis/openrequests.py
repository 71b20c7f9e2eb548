"""Which requests a kernel is working on, from the status messages on its IOPub channel.

The server keeps one flag per kernel, and the last message wins: as soon as a widget opens a subshell,
that flag says "idle" while a cell runs. So a request is open here from its busy until *its own* idle.
"""

from __future__ import annotations

from jupyter_gpuprof.records.reading import Missing

NOT_KNOWN = Missing("we came too late to know what the kernel works on")
#: A message other than a cell (a widget's callback) is use once it has taken this long, in seconds.
LONG_MESSAGE_S = 5.0
_CELL = "execute_request"


class OpenRequests:
    """The open requests of one kernel. Knows neither clocks nor sockets.

    A client that connects late may have missed a busy, so that nothing is known until the kernel says
    "starting", or until a request of ours on the shell channel was answered (`confirm`).
    """

    def __init__(self) -> None:
        self.known = False
        #: Grows with every message that changes anything, and never goes back.
        self.version = 0
        #: When the last request that counts as use ended, in monotonic seconds.
        self.last_end_s: float | None = None
        self._open: dict[str, tuple[str, float]] = {}
        self._ours: set[str] = set()

    def status(self, state: str, parent_id: str, parent_type: str, at_s: float) -> None:
        """One status message.

        Args:
            state: its ``execution_state``.
            parent_id: message id in its parent header, "" without one.
            parent_type: message type in its parent header.
            at_s: when it came, in monotonic seconds.
        """
        if state in ("starting", "dead", "restarting", "autorestarting"):
            self.reset(known=state == "starting")
        elif parent_id in self._ours:
            if state == "idle":
                self._ours.discard(parent_id)
        elif state == "busy" and parent_id:
            if parent_id not in self._open:
                self._open[parent_id] = (parent_type, at_s)
                self.version += 1
        elif state == "idle" and parent_id:
            self._close(parent_id, parent_type, at_s)

    def ours(self, message_id: str) -> None:
        """A request that we are about to send: no use of the kernel by a person."""
        self._ours.add(message_id)

    def confirm(self) -> None:
        """A request of ours on the shell channel was answered: nothing that we missed is open."""
        self.known = True

    def reset(self, known: bool = False) -> None:
        """The kernel died or began anew: whatever was open is gone with its process.

        Args:
            known: nothing of the new process can have been missed.
        """
        self.version += 1
        self._open.clear()
        self._ours.clear()
        self.known = known

    def count(self, at_s: float) -> tuple[int | Missing, int]:
        """How many open requests are use of the kernel, and how many are not (yet)."""
        use = sum(_is_use(kind, at_s - since_s) for kind, since_s in self._open.values())
        return (use if use or self.known else NOT_KNOWN), len(self._open) - use

    def _close(self, parent_id: str, parent_type: str, at_s: float) -> None:
        kind, since_s = self._open.pop(parent_id, (parent_type, at_s))  # its busy may have been missed
        self.version += 1
        if _is_use(kind, at_s - since_s):
            self.last_end_s = at_s


def _is_use(kind: str, lasted_s: float) -> bool:
    """Completion, comms and subshells are chatter: they come with a reload of the page, too."""
    return kind == _CELL or lasted_s >= LONG_MESSAGE_S
