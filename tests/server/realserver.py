"""A real jupyter_server in a process of its own, and one request to it."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A running server; `log` is what it has written."""

    port: int
    base_url: str
    token: str
    process: subprocess.Popen[bytes]
    log_file: Path
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_url.rstrip('/')}"

    def listens(self) -> bool:
        try:
            return self.get("api").status == 200
        except ConnectionRefusedError:
            return False

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: bool = True,
        chunked: bool = False,
    ) -> Reply:
        """One request; `path` is below the base URL, a body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if chunked:
            sent = iter([sent])
        auth = {"Authorization": f"token {self.token}"} if token else {}
        try:
            connection.request(
                method, self.base_url + path, sent, {**auth, **(headers or {})}, encode_chunked=chunked
            )
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.call(
            "GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )


def eventually(what: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.1)


@contextmanager
def serving(
    folder: Path,
    config: str,
    *,
    base_url: str = "/",
    env: Mapping[str, str] | None = None,
    wait_s: float = 30.0,
    every_s: float = 0.05,
) -> Iterator[Server]:
    """A server with nothing but what `config` says (a jupyter_server_config.py), ended by its pid.

    Args:
        folder: for its files; two servers may share one.
        config: more of its configuration.
        base_url: of the server.
        env: more of its environment.
        wait_s: how long it may take to start.
        every_s: how often to look whether it has.
    """
    token = secrets.token_hex(8)
    name = secrets.token_hex(4)
    runtime, work = folder / "runtime", folder / "work"
    for path in (runtime, work):
        path.mkdir(exist_ok=True)
    settings = folder / f"{name}.py"
    settings.write_text(
        f"c.ServerApp.base_url = {base_url!r}\nc.ServerApp.root_dir = {str(work)!r}\n"
        f"c.IdentityProvider.token = {token!r}\nc.ServerApp.open_browser = False\n"
        "c.ServerApp.allow_root = True\nc.ServerApp.ip = '127.0.0.1'\nc.ServerApp.port = 0\n"
        f"c.ServerApp.allow_unauthenticated_access = False\n{config}\n"
    )
    log_file = folder / f"{name}.log"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "JUPYTER_NO_CONFIG": "1",
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        **(env or {}),
    }
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", f"--config={settings}"],
            stdout=log, stderr=log, env=environment, cwd=work,
        )  # fmt: skip
    try:
        info = runtime / f"jpserver-{process.pid}.json"
        until = time.monotonic() + wait_s
        while not info.exists() or not info.read_text().strip().endswith("}"):
            assert process.poll() is None, log_file.read_text()
            assert time.monotonic() < until, log_file.read_text()
            time.sleep(every_s)
        told = json.loads(info.read_text())
        server = Server(told["port"], told["base_url"], token, process, log_file)
        while not server.listens():  # the file is written before it does
            assert time.monotonic() < until, log_file.read_text()
            time.sleep(every_s)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
