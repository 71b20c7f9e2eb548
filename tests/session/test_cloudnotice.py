"""What a cloud's metadata service says, from a real HTTP server that answers as theirs do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from jupyter_gpuprof.probes.cloudnotice import announced, cloud_here
from jupyter_gpuprof.session.checkpoints import notices
from jupyter_gpuprof.session.checkpoints.notices import Notices


class Service(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, str]] = {}

    def _answer(self) -> None:
        path, headers = self.path.partition("?")[0], self.headers
        known = {
            "/latest/meta-data/spot/instance-action": headers["X-aws-ec2-metadata-token"] == "secret",
            "/latest/api/token": self.command == "PUT",
            "/computeMetadata/v1/instance/preempted": headers["Metadata-Flavor"] == "Google",
            "/metadata/scheduledevents": headers["Metadata"] == "true",
        }
        found = self.answers.get(path)
        allowed = known.get(path, False)
        self.send_response(404 if found is None else 200 if allowed else 403)
        self.end_headers()
        if found is not None and allowed:
            self.wfile.write(found.encode())

    do_GET = do_PUT = _answer

    def log_message(self, *facts: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    Service.answers = {"/latest/api/token": "secret"}
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


CASES = [
    (
        "aws",
        "/latest/meta-data/spot/instance-action",
        json.dumps({"action": "terminate", "time": "2026-01-01T08:00:00Z"}),
        "AWS will terminate the instance at 2026-01-01T08:00:00Z",
    ),
    ("gcp", "/computeMetadata/v1/instance/preempted", "TRUE\n", "Google Cloud preempts the instance"),
    (
        "azure",
        "/metadata/scheduledevents",
        json.dumps({"Events": [{"EventType": "Reboot"}, {"EventType": "Preempt"}]}),
        "Azure has scheduled: Preempt",
    ),
]


@pytest.mark.parametrize(("cloud", "path", "answer", "words"), CASES, ids=[case[0] for case in CASES])
def test_announced(service: str, cloud: str, path: str, answer: str, words: str) -> None:
    assert announced(cloud, service) == ""
    Service.answers[path] = {"gcp": "FALSE", "azure": '{"Events": []}'}.get(cloud, "no JSON")
    assert announced(cloud, service) == ""
    Service.answers[path] = answer
    assert announced(cloud, service) == words


def test_no_service() -> None:
    assert announced("aws", "http://127.0.0.1:9") == ""


@pytest.mark.parametrize(
    ("vendor", "cloud"),
    [("Amazon EC2", "aws"), ("Google", "gcp"), ("Microsoft Corporation", "azure"), ("QEMU", "")],
)
def test_cloud_here(tmp_path: Path, vendor: str, cloud: str) -> None:
    assert cloud_here(tmp_path) == ""
    (tmp_path / "sys_vendor").write_text(vendor + "\n")
    assert cloud_here(tmp_path) == cloud


def test_asked_only_inside_a_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def answer(cloud: str) -> str:
        asked.set()
        return f"{cloud} says so"

    monkeypatch.setattr(notices, "announced", answer)
    monkeypatch.setattr(notices, "_POLL_S", 0.01)
    monkeypatch.setattr(notices, "cloud_here", lambda: "")
    outside = Notices()
    outside.start()
    assert outside._poller is None
    outside.stop()
    monkeypatch.setattr(notices, "cloud_here", lambda: "gcp")
    inside = Notices()
    inside.start()
    assert asked.wait(10)
    inside.stop()
    assert inside.look()
    assert inside.reason == "gcp says so"
