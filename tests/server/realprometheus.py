"""A real Prometheus that scrapes what a test tells it to."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import jupyter_gpuprof

RULES = Path(jupyter_gpuprof.__file__).parent / "fleet" / "recording_rules.yml"
PROMETHEUS = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(
    not PROMETHEUS, reason="prometheus is not installed (Debian: apt-get install prometheus)"
)


class Prometheus:
    """A running one, and what it answers."""

    def __init__(self, port: int) -> None:
        self.port = port

    def query(self, expression: str) -> list[dict[str, Any]]:
        arguments = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{arguments}"
        with urllib.request.urlopen(url, timeout=10) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def number(self, expression: str) -> float | None:
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def wait(self, expression: str, seconds: float = 20.0) -> float:
        """Its value, as soon as it is there and not 0."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if number := self.number(expression):
                    return number
            except OSError:
                pass  # it has not started yet
            time.sleep(0.2)
        raise AssertionError(f"no value of {expression}")


@contextmanager
def scraping(folder: Path, jobs: dict[str, tuple[int, str, str]]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes, ended by its pid.

    Args:
        folder: for its files.
        jobs: port, path and token by name.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": name,
                "metrics_path": path,
                "authorization": {"type": "token", "credentials": token},
                "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
            }
            for name, (target, path, token) in jobs.items()
        ],
    }
    settings = folder / "prometheus.yml"
    settings.write_text(yaml.safe_dump(configuration))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [PROMETHEUS, f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
            stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
