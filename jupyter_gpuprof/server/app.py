"""The extension of the Jupyter server: options in, monitor begun, routes registered."""

from __future__ import annotations

import os
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from tornado.ioloop import IOLoop

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.policy import SERVER_REAPER
from jupyter_gpuprof.server.config import GpuProf, GpuProfReaper, read_options
from jupyter_gpuprof.server.routes import register
from jupyter_gpuprof.server.service import ServerMonitor
from jupyter_gpuprof.session.devices.servermonitor import server_monitor
from jupyter_gpuprof.views.policy_text import policy_line


class GpuprofServer(ExtensionApp):
    """Who holds which device, the GPU-hours, and the reaper."""

    name = "jupyter_gpuprof"
    description = "A Jupyter server that knows who holds which device; all options of `jupyter server` hold."
    load_other_extensions = True
    classes = [GpuProf, GpuProfReaper]  # noqa: RUF012  for --help-all
    monitor: ServerMonitor | None = None

    def initialize_handlers(self) -> None:
        """Everything is put together here; nothing is looked at before the server's loop runs."""
        app = self.serverapp
        assert app is not None
        try:
            general, policy = read_options(self.config, parent=self)
        except OptionError as error:  # as for a wrong value of the server's own options
            self.log.critical("gpuprof: %s The server does not start with half a policy.", error)
            app.exit(1)
        devices = server_monitor(
            policy=policy,
            interval_s=general.sample_period,
            allocation=general.detected_allocation(),
            keep_days=general.retention_days,
        )
        self.monitor = ServerMonitor(
            devices,
            app.kernel_manager,
            app.session_manager,
            events=app.event_logger,
            price=general.price,
            log=self.log,
        )
        register(app.web_app, self.monitor)
        self.log.info("gpuprof: %s", policy_line(policy))
        if policy.enabled:  # the kernels inherit it, and leave it to us
            os.environ[SERVER_REAPER] = "1"
        IOLoop.current().add_callback(self.monitor.begin)

    async def stop_extension(self) -> None:
        """At the end of the server."""
        if self.monitor is not None:
            monitor, self.monitor = self.monitor, None
            os.environ.pop(SERVER_REAPER, None)
            await monitor.end()


def points() -> list[dict[str, Any]]:
    """For ``_jupyter_server_extension_points``."""
    return [{"module": "jupyter_gpuprof.server.app", "app": GpuprofServer}]
