"""A real Jupyter server in this process, real kernels, and the pretended driver below the real pynvml."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_gpuprof.server.app import GpuprofServer
from jupyter_gpuprof.server.service import ServerMonitor
from tests.fakenvml import GIB, FakeNvml, Gpu

#: Fast enough for a test, slow enough for a busy machine: a look later than three periods starts all
#: clocks of idleness anew.
PERIOD_S = 0.4


class Live:
    """One server. All methods are to be awaited on its loop."""

    def __init__(self, app: ServerApp, monitor: ServerMonitor, nvml: FakeNvml) -> None:
        self.app = app
        self.monitor = monitor
        self.nvml = nvml
        self.events: list[dict[str, Any]] = []
        self.clients: list[Any] = []
        self.started: list[psutil.Process] = []  # what a failed test would leave behind

    async def kernel(self, path: str = "work/a.ipynb", held_bytes: int = GIB) -> str:
        """A kernel with a session, which holds memory of device 0."""
        session = await self.app.session_manager.create_session(
            path=path, name=path, type="notebook", kernel_name="python3"
        )
        kernel_id = session["kernel"]["id"]
        if held_bytes:
            self.hold(self.pid(kernel_id), held_bytes)
        return kernel_id

    def pid(self, kernel_id: str) -> int:
        return self.app.kernel_manager.get_kernel(kernel_id).provisioner.pid

    def hold(self, pid: int, size: int = GIB) -> None:
        """Let the driver list the process."""
        processes = {**self.nvml.devices[0].processes, pid: size}
        self.nvml.set(0, processes=processes, used_bytes=sum(processes.values()))

    def let_go(self, pid: int) -> None:
        """The driver has noticed that the process is gone."""
        processes = {p: size for p, size in self.nvml.devices[0].processes.items() if p != pid}
        self.nvml.set(0, processes=processes, used_bytes=sum(processes.values()))

    async def driver(self) -> None:
        """What the real driver does: forget processes that have ended."""
        while True:
            for pid in list(self.nvml.devices[0].processes):
                if not runs(pid):
                    self.let_go(pid)
            await asyncio.sleep(0.1)

    async def client(self, kernel_id: str) -> Any:
        client = self.app.kernel_manager.get_kernel(kernel_id).client()
        client.start_channels()
        await client.wait_for_ready(timeout=30)
        self.clients.append(client)
        return client

    async def run(self, client: Any, code: str) -> dict[str, Any]:
        """Run a cell to its end."""
        message = client.execute(code)
        while True:
            reply = await client.get_shell_msg(timeout=15)
            if reply["parent_header"].get("msg_id") == message:
                return reply["content"]

    def holder(self, kernel_id: str) -> dict[str, Any]:
        found = [h for h in self.monitor.holders()["holders"] if h["holder_id"] == kernel_id]
        return found[0] if found else {"state": "not seen", "reaper": {}}

    async def until(self, what: Callable[[], object], limit_s: float = 25.0, every_s: float = 0.05) -> Any:
        """Wait until something is so."""
        until = time.monotonic() + limit_s
        while not (value := what()):
            if time.monotonic() > until:
                raise AssertionError(f"it did not come: {self.monitor.holders()}\n{self.actions()}")
            await asyncio.sleep(every_s)
        return value

    def actions(self, kernel_id: str | None = None) -> list[tuple[str, str]]:
        """What was done, oldest first."""
        rows = reversed(self.monitor.audit()["rows"])
        return [(r["action"], r["outcome"]) for r in rows if kernel_id in (None, r["holder_id"])]

    async def _listen(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        self.events.append(data)


def runs(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@asynccontextmanager
async def server(folder: Path, nvml: FakeNvml, **reaper: Any) -> AsyncIterator[Live]:
    """A server with these options of the reaper."""
    config = Config()
    config.ServerApp.update(
        {"jpserver_extensions": {"jupyter_gpuprof": True}, "root_dir": str(folder), "open_browser": False,
         "allow_root": True, "log_level": "WARN"}
    )  # fmt: skip
    config.GpuProf.sample_period = PERIOD_S
    usual = {
        "idle_timeout": 2.5, "warn_before": 0.6, "step_wait": 0.5, "start_grace": 0.0, "cpu_ratio": 0.15
    }  # fmt: skip
    config.GpuProfReaper.update({**usual, **reaper})
    ServerApp.clear_instance()
    app = ServerApp.instance(config=config)
    app.initialize(argv=[], find_extensions=False, new_httpserver=False)
    try:
        extension = next(iter(app.extension_manager.extension_apps["jupyter_gpuprof"]))
        assert isinstance(extension, GpuprofServer)
        live = Live(app, extension.monitor, nvml)
        schema = "https://schema.jupyter.org/jupyter_gpuprof/reaper/v1"
        app.event_logger.add_listener(schema_id=schema, listener=live._listen)
        yield live
    finally:
        for client in live.clients:
            client.stop_channels()
        for process in live.started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()  # psutil compares the start time
        await app.cleanup_extensions()
        await app.kernel_manager.shutdown_all(now=True)
        app.session_manager.close()
        ServerApp.clear_instance()


def play(folder: Path, scenario: Callable[[Live], Awaitable[None]], **reaper: Any) -> None:
    """Run a scenario in a server of its own."""

    async def all_of_it() -> None:
        async with server(folder, nvml, **reaper) as live:
            driver = asyncio.ensure_future(live.driver())
            try:
                await asyncio.wait_for(scenario(live), 60)
            finally:
                driver.cancel()

    nvml = FakeNvml(folder, [Gpu()])
    with nvml.in_process():
        asyncio.run(all_of_it())
