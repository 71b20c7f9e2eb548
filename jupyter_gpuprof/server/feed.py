"""One kernel: listens to what it works on, and asks it things without counting as its use.

The sockets are our own, through the kernel manager, so that its keys are used; those of the web pages are
not touched. A kernel that was restarted is another process, perhaps at other ports: `refresh` looks.
"""

from __future__ import annotations

import ast
import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from jupyter_client.session import Session

from jupyter_gpuprof import clock
from jupyter_gpuprof.records.idleness import Decision
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.session.devices.kerneltracker import KernelTracker

#: Probes are repeated after so long, in seconds, while it is not known what the kernel works on.
PROBE_EVERY_S = 2.0
#: Sends output as if the last cell had printed it; needs nothing of us in the kernel's environment.
_SAY = (
    '(lambda k: (k.session.send(k.iopub_socket, "stream", {content!r}, parent={parent!r}, ident=b"stream"),'
    ' "{{}}")[1])(__import__("IPython").get_ipython().kernel)'
)
_NOT_HERE = Missing("its messages are on another machine")


class NoAnswer(Exception):
    """The kernel did not answer in time, or what was asked failed in it; the message says what.

    Attributes:
        not_installed: its environment lacks this package, or has too old a one.
    """

    not_installed = False


class KernelFeed:
    """The open requests of one kernel of this server.

    Args:
        kernel_id: Jupyter's name of it.
        manager: its kernel manager.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self, kernel_id: str, manager: Any, *, clock: Callable[[], int] = clock.now_ns, log: logging.Logger
    ) -> None:
        self.kernel_id = kernel_id
        self.manager = manager
        self.requests = KernelTracker()
        self._clock = clock
        self._log = log
        self._where: tuple[object, ...] | None = None
        self._session: Session | None = None
        self._iopub: Any = None
        self._shell: Any = None
        self._probe = ""
        self._probed_s = 0.0
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._idles: dict[str, asyncio.Future[None]] = {}
        self._last_cell: dict[str, Any] | None = None  # the header of its request

    @property
    def pid(self) -> int | None:
        """Its process here; None for a kernel on another machine, or one without a process."""
        pid = getattr(getattr(self.manager, "provisioner", None), "pid", None)
        return pid if isinstance(pid, int) and pid > 0 else None

    @property
    def remote(self) -> bool:
        """Whether it runs on another machine: a gateway's, or one whose provisioner has no processes."""
        provisioner = getattr(self.manager, "provisioner", None)
        return provisioner is None or not hasattr(provisioner, "pid")

    def count(self) -> tuple[int | Missing, int]:
        """Open requests that are use, and others; see `KernelTracker.count`."""
        return (_NOT_HERE, 0) if self.remote else self.requests.count(self._clock() * 1e-9)

    def why_void(self, decision: Decision) -> str | None:
        """Why a decision about it does not hold any more; see `KernelTracker.why_void`."""
        return self.requests.why_void(decision, self.pid, self._clock() * 1e-9)

    def refresh(self) -> None:
        """Follow the kernel to its present process and ports, and find out what it works on."""
        if self.pid is None:
            return
        where = (self.pid, self.manager.ip, self.manager.iopub_port, self.manager.shell_port)
        if where != self._where:
            again = self._where is not None
            self.close()
            self._open()
            self._where = where
            if again:
                self.requests.reset()
                self._last_cell = None
        now_s = self._clock() * 1e-9
        if not self.requests.known and now_s - self._probed_s >= PROBE_EVERY_S:
            self._probed_s = now_s
            self._probe = self._send("kernel_info_request", {})

    async def ask(self, expression: str, limit_s: float) -> Any:
        """The value of an expression of Python that gives a string of JSON, evaluated between two cells.

        Raises:
            NoAnswer: there was none in time, or it raised.
        """
        content = {
            "code": "",
            "silent": True,
            "store_history": False,
            "user_expressions": {"gpuprof": expression},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        if self._shell is None:
            raise NoAnswer("the kernel cannot be reached from here")
        active, server_active = self._activity()
        version = self.requests.version
        message = self._send("execute_request", content)
        answer = self._answers[message] = asyncio.get_running_loop().create_future()
        try:
            reply = await asyncio.wait_for(answer, limit_s)
        except asyncio.TimeoutError:
            raise NoAnswer(f"the kernel did not answer within {limit_s:g} s") from None
        finally:
            self._answers.pop(message, None)
            asyncio.get_running_loop().call_later(0.2, self._restore, version, active, server_active)
        return _value(reply.get("content", {}))

    async def say(self, text: str, limit_s: float) -> None:
        """Show a line below the last cell that was run, in every front end that shows the notebook.

        Raises:
            NoAnswer: it cannot be shown: no cell was seen, or the kernel is not one of IPython.
        """
        if self._last_cell is None:
            raise NoAnswer("no cell was seen")
        content = {"name": "stdout", "text": f"{text}\n"}
        await self.ask(_SAY.format(content=content, parent={"header": self._last_cell}), limit_s)

    async def caught_up(self, limit_s: float) -> None:
        """Wait until the kernel has taken up all that was sent to it before now, and that is known here.

        What comes from several senders a kernel takes in turn; the second message finds that everyone had
        his turn.

        Raises:
            NoAnswer: it did not within that many seconds, as while a cell runs.
        """
        if self._shell is None:
            raise NoAnswer("the kernel cannot be reached from here")
        until_s = self._clock() * 1e-9 + limit_s
        for _ in range(2):
            message = self._send("kernel_info_request", {})
            loop = asyncio.get_running_loop()
            answer = self._answers[message] = loop.create_future()
            idle = self._idles[message] = loop.create_future()
            try:
                both = asyncio.gather(answer, idle)
                await asyncio.wait_for(both, max(until_s - self._clock() * 1e-9, 0.0))
            except asyncio.TimeoutError:
                raise NoAnswer(f"the kernel did not answer within {limit_s:g} s, something runs") from None
            finally:
                self._answers.pop(message, None)
                self._idles.pop(message, None)

    def close(self) -> None:
        """Let go of the sockets."""
        for stream in (self._iopub, self._shell):
            if stream is not None and not stream.closed():
                stream.close(linger=0)
        self._iopub = self._shell = None
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(NoAnswer("the kernel was restarted or ended meanwhile"))
        self._where = None

    def _open(self) -> None:
        kernel = self.manager
        # A session of our own: one session takes each message once.
        self._session = Session(config=kernel.session.config, key=kernel.session.key)
        self._iopub = kernel.connect_iopub()
        self._iopub.on_recv(self._on_iopub)
        self._shell = kernel.connect_shell()
        self._shell.on_recv(self._on_shell)
        self._probed_s = 0.0
        self._probe = ""

    def _send(self, kind: str, content: dict[str, Any]) -> str:
        assert self._session is not None
        message = self._session.msg(kind, content=content)
        message_id: str = message["header"]["msg_id"]
        self.requests.ours(message_id)
        self._session.send(self._shell, message)
        return message_id

    def _on_iopub(self, frames: list[bytes]) -> None:
        message = self._read(frames, only=(b'"status"', b'"execute_input"'))
        kind = message["header"].get("msg_type") if message is not None else ""
        if message is None or kind not in ("status", "execute_input"):
            return
        parent = message.get("parent_header") or {}
        if kind == "execute_input":  # a silent request has none
            self._last_cell = {**parent, "date": str(parent.get("date", ""))}
            return
        state = str(message["content"].get("execution_state", ""))
        parent_id = str(parent.get("msg_id", ""))
        self.requests.status(state, parent_id, str(parent.get("msg_type", "")), self._clock() * 1e-9)
        # That our own probe was answered is known here and not on the shell channel: from now on no
        # message on this channel is missed, and what was before it is done.
        if state == "idle" and parent_id and parent_id == self._probe:
            self.requests.confirm()
        idle = self._idles.get(parent_id)
        if state == "idle" and idle is not None and not idle.done():
            idle.set_result(None)

    def _on_shell(self, frames: list[bytes]) -> None:
        message = self._read(frames)
        parent_id = str(((message or {}).get("parent_header") or {}).get("msg_id", ""))
        answer = self._answers.get(parent_id)
        if message is not None and answer is not None and not answer.done():
            answer.set_result(message)

    def _read(self, frames: list[bytes], only: tuple[bytes, ...] = ()) -> dict[str, Any] | None:
        """A message, its signature checked; None for none, or one whose header has nothing of `only`."""
        assert self._session is not None
        try:
            parts: list[Any] = self._session.feed_identities(frames)[1]
            if only and not any(kind in parts[1] for kind in only):
                return None  # output, of which there may be very much
            found: dict[str, Any] = self._session.deserialize(parts)
        except Exception as error:
            self._log.debug("gpuprof: a message of kernel %s cannot be read: %s", self.kernel_id, error)
            return None
        return found

    def _activity(self) -> tuple[Any, Any]:
        return (
            getattr(self.manager, "last_activity", None),
            getattr(self.manager.parent, "last_kernel_activity", None),
        )

    def _restore(self, version: int, active: Any, server_active: Any) -> None:
        """The server's own clocks of idleness go on as if we had asked nothing, unless somebody else did."""
        if self.requests.version != version or active is None:
            return
        mapping = self.manager.parent
        ours = getattr(self.manager, "last_activity", None)
        self.manager.last_activity = active
        if server_active is not None and getattr(mapping, "last_kernel_activity", None) == ours:
            mapping.last_kernel_activity = server_active


def _value(content: dict[str, Any]) -> Any:
    """The JSON in an execute reply."""
    if content.get("status") != "ok":
        raise NoAnswer(f"the kernel could not run it ({content.get('ename') or content.get('status')})")
    said = content.get("user_expressions", {}).get("gpuprof", {})
    if said.get("status") != "ok":
        failed = NoAnswer(f"it failed in the kernel ({said.get('ename')}: {said.get('evalue')})")
        failed.not_installed = said.get("ename") in ("ModuleNotFoundError", "ImportError")
        raise failed
    try:
        return json.loads(ast.literal_eval(said["data"]["text/plain"]))
    except (KeyError, ValueError, SyntaxError, TypeError) as error:
        raise NoAnswer("the kernel's answer cannot be read") from error
