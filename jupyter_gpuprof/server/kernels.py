"""All kernels of this server: which there are, whose notebooks they are, and a feed for each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.records.idleness import Keep
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sighting import SeenKernel
from jupyter_gpuprof.server.feed import KernelFeed

#: How often the sessions are asked for while no kernel comes or goes, in seconds: notebooks are renamed.
_SESSIONS_EVERY_S = 5.0
_NO_SESSIONS = Missing("the server does not tell its sessions")


class Kernels:
    """The kernels of one server. Used on its event loop only.

    Args:
        kernel_manager: the server's ``MappingKernelManager``.
        session_manager: the server's, which knows the notebooks.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        kernel_manager: Any,
        session_manager: Any,
        *,
        clock: Callable[[], int] = clock.now_ns,
        log: logging.Logger,
    ) -> None:
        self.feeds: dict[str, KernelFeed] = {}
        self.keeps: dict[str, Keep] = {}
        self._manager = kernel_manager
        self._sessions = session_manager
        self._clock = clock
        self._log = log
        self._paths: dict[str, str] | Missing = {}
        self._asked: tuple[frozenset[str], float] = (frozenset(), float("-inf"))

    async def look(self) -> tuple[SeenKernel, ...]:
        """The kernels as of now; feeds follow them."""
        managers = self._managers()
        for kernel_id in self.feeds.keys() - managers.keys():
            self.feeds.pop(kernel_id).close()
            self.keeps.pop(kernel_id, None)
        for kernel_id, manager in managers.items():
            feed = self.feeds.get(kernel_id)
            if feed is None or feed.manager is not manager:
                if feed is not None:
                    feed.close()
                feed = KernelFeed(kernel_id, manager, clock=self._clock, log=self._log)
                self.feeds[kernel_id] = feed
            try:
                feed.refresh()
            except Exception as error:  # ports that are not there yet, a kernel that is just ending
                self._log.debug("gpuprof: kernel %s cannot be listened to: %s", kernel_id, error)
        await self._ask_for_paths()
        here = (feed for feed in self.feeds.values() if feed.remote or feed.pid is not None)
        return tuple(self._seen(feed) for feed in here)

    def seen(self, kernel_id: str) -> bool:
        """Whether the server has the kernel at this moment."""
        return kernel_id in self._managers()

    def warnings(self) -> list[str]:
        """What a person should know about the server's own culler."""
        timeout_s = getattr(self._manager, "cull_idle_timeout", 0)
        if not timeout_s or timeout_s <= 0:
            return []
        return [
            f"The server's own culler is on, too (cull_idle_timeout = {timeout_s} s): it knows nothing of"
            " devices, and takes a running cell for idle as soon as a widget is on the page."
        ]

    def close(self) -> None:
        """Let go of all kernels."""
        for feed in self.feeds.values():
            feed.close()
        self.feeds.clear()

    def _managers(self) -> dict[str, Any]:
        found = {}
        for kernel_id in self._manager.list_kernel_ids():
            try:
                found[kernel_id] = self._manager.get_kernel(kernel_id)
            except KeyError:  # it went meanwhile
                continue
        return found

    async def _ask_for_paths(self) -> None:
        """Notebook by kernel id."""
        present, now_s = frozenset(self.feeds), self._clock() * 1e-9
        paths = {} if isinstance(self._paths, Missing) else self._paths
        nameless = any(name not in paths and not feed.remote for name, feed in self.feeds.items())
        # A session is made a moment after its kernel.
        if present == self._asked[0] and not nameless and now_s - self._asked[1] < _SESSIONS_EVERY_S:
            return
        self._asked = (present, now_s)
        try:
            sessions = await self._sessions.list_sessions()
            self._paths = {session["kernel"]["id"]: session.get("path") or "" for session in sessions}
        except Exception as error:
            self._log.debug("gpuprof: sessions cannot be listed: %s", error)
            self._paths = _NO_SESSIONS

    def _seen(self, feed: KernelFeed) -> SeenKernel:
        paths = self._paths
        use, others = feed.count()
        try:
            connections = self._manager.kernel_model(feed.kernel_id).get(
                "connections", Missing("not counted")
            )
        except Exception:  # it is just starting or ending
            connections = Missing("not counted")
        return SeenKernel(
            kernel_id=feed.kernel_id,
            path=paths if isinstance(paths, Missing) else paths.get(feed.kernel_id, ""),
            kernelspec=str(getattr(feed.manager, "kernel_name", "")),
            pid=feed.pid,
            version=feed.requests.version,
            open_requests=use,
            open_messages=others,
            last_end_s=feed.requests.last_end_s,
            keep=self.keeps.get(feed.kernel_id),
            connections=connections,
        )
