"""The unit tests of the TypeScript, run by Node's own runner."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.panel.conftest import ROOT, need_panel

pytestmark = pytest.mark.slow
SOURCES = ROOT / "labextension"


def test_the_pure_parts_of_the_panel() -> None:
    need_panel()
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    node = shutil.which("node", path=path)
    if node is None or not (SOURCES / "lib").is_dir():
        pytest.skip("THE TYPESCRIPT IS NOT TESTED: run `make panel`, which also gets Node")
    done = subprocess.run([node, "--test"], cwd=SOURCES, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"# pass (\d+)", done.stdout).group(1)) >= 15
