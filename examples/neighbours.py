"""A Jupyter server with a simulated device, and the notebooks that somebody left open on it."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.display import SVG
from jupyter_client import BlockingKernelClient

#: An hour of idleness in ten seconds: nobody wants to wait for it here.
HURRIED = {"idle_timeout": 10, "warn_before": 5, "step_wait": 1, "start_grace": 0, "action": "shutdown"}


class Neighbours:
    """The server; it ends with this kernel at the latest. Its files lie in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        runtime = folder / "runtime"
        # Here, so that the commands of this notebook ask this server and no other one.
        os.environ["JUPYTER_RUNTIME_DIR"] = str(runtime)
        os.environ["JUPYTER_GPUPROF_DATABASE"] = str(folder / "ledger.db")
        os.environ["JUPYTER_GPUPROF_SIMULATED"] = "1"
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        os.environ["COLUMNS"] = "130"
        without = {name: value for name, value in os.environ.items() if not name.startswith("JPY_")}
        (folder / "notebooks").mkdir()
        options = [f"--GpuProfReaper.{name}={value}" for name, value in HURRIED.items()]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--ServerApp.port=0",
             "--ServerApp.jpserver_extensions={'jupyter_gpuprof': True}",
             f"--ServerApp.root_dir={folder / 'notebooks'}", *options],
            env=without, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        atexit.register(self.close)
        told = runtime / f"jpserver-{self._process.pid}.json"
        self._told = self._until(lambda: json.loads(told.read_text()))
        self._until(self.holders)
        self._clients: dict[str, BlockingKernelClient] = {}
        self._kernels: dict[str, str] = {}

    def open(self, path: str, code: str, *, wait: bool = True) -> None:
        """Open a notebook and run a cell in it."""
        kernel = {"kernel": {"name": "python3"}, "path": path, "name": path, "type": "notebook"}
        self._kernels[path] = name = self._ask("POST", "api/sessions", kernel)["kernel"]["id"]
        client = BlockingKernelClient()
        client.load_connection_file(f"{os.environ['JUPYTER_RUNTIME_DIR']}/kernel-{name}.json")
        client.start_channels(hb=False)  # a busy machine misses beats
        self._clients[path] = client
        client.wait_for_ready(timeout=60)
        if wait:
            client.execute_interactive(code, timeout=60, output_hook=lambda message: None)
        else:
            client.execute(code)

    def crash(self, path: str) -> None:
        """Kill its kernel, as the system does with one that wants too much memory."""
        pid = self._until(lambda: next(h["pid"] for h in self.holders()["holders"] if h["path"] == path))
        time.sleep(2)  # the server looks once a second, and must have seen what the kernel started
        os.kill(pid, signal.SIGKILL)
        self._ask("DELETE", f"api/kernels/{self._kernels[path]}")

    def wait_until_gone(self, path: str) -> None:
        """Wait until a notebook holds nothing any more."""
        self._until(lambda: next(iter({path} - {h["path"] for h in self.holders()["holders"]})))

    def holders(self) -> Any:
        """What the server answers to ``GET gpuprof/api/v1/holders``."""
        return self._ask("GET", "gpuprof/api/v1/holders")

    def picture(self) -> SVG:
        """The device's memory by who holds it."""
        devices = self._ask("GET", "gpuprof/api/v1/devices")["devices"]
        return SVG(memory_bars(self.holders(), devices[0]["name"]))

    def close(self) -> None:
        """End the server and everything that was opened on it."""
        if self._process.poll() is None:
            for orphan in self.holders()["orphans"]:
                self._ask("POST", f"gpuprof/api/v1/orphans/{orphan['orphan_id']}/end", {})
            self._process.terminate()
            self._process.wait(30)
        for client in self._clients.values():
            client.stop_channels()
        self._clients.clear()
        self._log.close()
        self._folder.cleanup()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self._told['token']}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._told["url"] + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def _until(self, what: Callable[[], Any], limit_s: float = 60.0) -> Any:
        """What a question answers, once it can be answered."""
        until = time.monotonic() + limit_s
        while True:
            try:
                return what()
            except urllib.error.HTTPError:
                raise
            except (OSError, ValueError, StopIteration):  # not written, not listening, not seen yet
                if self._process.poll() is not None or time.monotonic() > until:
                    self._log.flush()
                    raise RuntimeError(Path(self._log.name).read_text()) from None
            time.sleep(0.1)


def memory_bars(answer: Any, device: str) -> str:
    """One bar for each holder, as an SVG picture.

    Args:
        answer: of ``holders``.
        device: its name, as a title.
    """
    rows = [(h["path"], h["state"], h["held_bytes"]) for h in answer["holders"] if h["holds"]]
    rows += [(orphan["path"], "orphan", orphan["held_bytes"]) for orphan in answer["orphans"]]
    most = max((held for _, _, held in rows), default=1)
    colours = {"idle": "#e08a00", "orphan": "#c62828"}
    text = [f"<text x='8' y='20' font-weight='600'>Memory held of {device}</text>"]
    for n, (path, state, held) in enumerate(rows):
        y = 34 + 28 * n
        text.append(
            f"<text x='8' y='{y + 14}'>{path}</text>"
            f"<rect x='150' y='{y}' width='{300 * held / most:.0f}' height='19' rx='2'"
            f" fill='{colours.get(state, '#2e7d32')}'/>"
            f"<text x='{158 + 300 * held / most:.0f}' y='{y + 14}'>{held / 2**20:.0f} MiB, {state}</text>"
        )
    height = 44 + 28 * len(rows)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='680' height='{height}' viewBox='0 0 680 {height}'"
        " font-family='sans-serif' font-size='13'>"
        f"<rect width='680' height='{height}' fill='#fff'/>{''.join(text)}</svg>"
    )
