"""``python -m tests.causes.objectstore LATENCY_MS FILE``: an object store in a process of its own.

Every object is that file, and every request is answered after the latency. The first line printed is the
port.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    latency_s = 0.0
    body = b""

    def do_GET(self) -> None:
        time.sleep(self.latency_s)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


@contextmanager
def serving(latency_ms: float, file: Path) -> Iterator[int]:
    """The port of a running store."""
    command = [sys.executable, "-m", __name__, str(latency_ms), str(file)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    Handler.latency_s, Handler.body = float(sys.argv[1]) / 1e3, Path(sys.argv[2]).read_bytes()
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
