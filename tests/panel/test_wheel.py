"""The wheel brings everything: magic, server extension and panel, without Node and without the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.panel.conftest import BUILT, ROOT, need_panel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_panel()
    pytest.importorskip(
        "hatchling", reason="THE WHEEL IS NOT TESTED: run `make panel`, which installs hatchling"
    )
    if (BUILT / "build_log.json").exists():
        pytest.skip("THE WHEEL IS NOT TESTED: the panel was built for development, run `make panel`")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder


def contents(built: Path) -> dict[str, bytes]:
    """Every file of the wheel and the sdist, by name."""
    found = {}
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        found.update({f"wheel:{name}": wheel.read(name) for name in wheel.namelist()})
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        for member in sdist.getmembers():
            if member.isfile():
                found[f"sdist:{member.name.partition('/')[2]}"] = sdist.extractfile(member).read()
    return found


def test_both_are_small_and_have_what_they_need(built: Path) -> None:
    for path in built.iterdir():
        assert path.stat().st_size < 1_000_000, path.name
    names = contents(built).keys()
    shared = [name for name in names if name.startswith("wheel:") and ".data/data/" in name]
    ends = {name.partition(".data/data/")[2] for name in shared}
    assert "etc/jupyter/jupyter_server_config.d/jupyter_gpuprof.json" in ends
    assert "share/jupyter/labextensions/jupyter-gpuprof/install.json" in ends
    assert [name for name in ends if re.search(r"jupyter-gpuprof/static/remoteEntry\.\w+\.js", name)]
    for name in ("labextension/yarn.lock", "hatch_build.py", "jupyter_gpuprof/labextension/package.json"):
        assert f"sdist:{name}" in names, name
    assert not [name for name in names if "node_modules" in name or "build_log" in name]


def test_nothing_of_this_machine_is_in_them(built: Path) -> None:
    here = (str(ROOT), str(Path.home() / ".cache"))
    for name, body in contents(built).items():
        assert not [path for path in here if path.encode() in body], name


def test_a_clean_environment_has_all_three(built: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    # No Node: the PATH has the environment and a shell, which the scripts of Jupyter need.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "bash", "env", "uname", "dirname", "pwd"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    kept = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http")
    env = {
        **{name: value for name, value in os.environ.items() if name.startswith(kept)},
        "PATH": f"{venv / 'bin'}{os.pathsep}{tools}",
        "HOME": str(tmp_path),
        "JUPYTER_NO_CONFIG": "1",
    }

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-2000:]
        return re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)

    wheel = next(built.glob("*.whl"))
    run(str(venv / "bin" / "python"), "-m", "pip", "install", "-q", f"{wheel}[notebook]", "jupyterlab>=4.2")
    jupyter = str(venv / "bin" / "jupyter")
    assert re.search(r"jupyter-gpuprof v[\d.]+ enabled OK", run(jupyter, "labextension", "list"))
    assert re.search(r"jupyter_gpuprof [\d.]+ OK", run(jupyter, "server", "extension", "list"))
    magic = (
        "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance();"
        "s.run_line_magic('load_ext', 'jupyter_gpuprof'); assert 'gpuprof' in s.magics_manager.magics['cell']"
    )
    run(str(venv / "bin" / "python"), "-c", magic)

    # What Binder does after its own installation, here from the sdist.
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path / "sources", filter="data")
    (source,) = (tmp_path / "sources").iterdir()
    env["JUPYTERLAB_WORKSPACES_DIR"] = str(tmp_path / "workspaces")
    done = subprocess.run(
        ["bash", "binder/postBuild"], cwd=source, env=env, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-2000:]
    saved = list((tmp_path / "workspaces").glob("*.jupyterlab-workspace"))
    assert "jupyter-gpuprof-panel" in saved[0].read_text()
