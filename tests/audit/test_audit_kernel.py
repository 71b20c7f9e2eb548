"""``%gpuprof audit`` in a real kernel: interrupted, then whole, and what ``%gpuprof spot`` makes of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.audit.cells import OURS, SETUP
from tests.notebook.test_kernel import Kernel

pytestmark = pytest.mark.slow


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Of a short name: workers make sockets in it, whose paths may have 107 bytes; pytest's own is longer."""
    with tempfile.TemporaryDirectory(prefix="gp") as folder:
        yield Path(folder)


@pytest.fixture
def kernel(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(temporary))
    kernel = Kernel()
    kernel.run("%load_ext jupyter_gpuprof")
    kernel.run(SETUP.replace("epochs = 4", "epochs = 2"))
    yield kernel
    kernel.stop()


def texts(messages: list[dict[str, Any]]) -> str:
    """All that was printed and shown."""
    return "".join(
        m["content"].get("text", "") + m["content"].get("data", {}).get("text/plain", "") for m in messages
    )


def test_a_newcomer_audits_and_spot_knows(kernel: Kernel, temporary: Path) -> None:
    kernel.run(f"%%gpuprof --quiet\n{OURS}")
    request = kernel.start("%gpuprof audit")
    said = texts(kernel.messages(request, until="update_display_data"))
    assert "straight" in said, said
    kernel.manager.interrupt_kernel()
    said = texts(kernel.messages(request))
    assert "audit was interrupted; nothing was changed" in said
    assert "Traceback" not in said
    assert psutil.Process(kernel.manager.provisioner.process.pid).children() == []
    assert list(temporary.glob("gpuprof*")) == []

    said = texts(kernel.messages(kernel.start("%gpuprof audit --steps 6"), timeout=200))
    assert "Resumes identically" in said, said
    said = texts(kernel.run("%gpuprof spot --between 6h --restart 2m --checkpoint 5s"))
    assert "the resume audit passed" in said
