"""The wheel brings everything: magic, server extension and panel, without Node and without the sources."""

from __future__ import annotations

import json
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


def test_binder_makes_a_clean_environment_that_has_all_three(built: Path, tmp_path: Path) -> None:
    """One installation for both: what Binder does, from the sdist; then the sources are taken away."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    # No Node: the PATH has the environment and a shell, which the scripts of Jupyter need.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "bash", "env", "uname", "dirname", "pwd"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    pip = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True)
    kept = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http")
    env = {
        "PIP_CACHE_DIR": pip.stdout.strip(),  # what was fetched once is not fetched again
        "PIP_COMPILE": "0",  # only what is imported below
        **{name: value for name, value in os.environ.items() if name.startswith(kept)},
        "PATH": f"{venv / 'bin'}{os.pathsep}{tools}",
        "HOME": str(tmp_path),
        "JUPYTER_NO_CONFIG": "1",
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
    }
    assert shutil.which("node", path=env["PATH"]) is None

    def run(*command: str, cwd: Path = tmp_path) -> str:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        return re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)

    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path / "sources", filter="data")
    (source,) = (tmp_path / "sources").iterdir()
    run("bash", "binder/postBuild", cwd=source)
    (saved,) = (tmp_path / "workspaces").glob("*.jupyterlab-workspace")
    assert "jupyter-gpuprof-panel" in saved.read_text()
    opened = json.loads(saved.read_text())["data"]["layout-restorer:data"]["main"]["current"]
    assert (ROOT / opened.partition(":")[2]).is_file()
    python = str(venv / "bin" / "python")
    asked = "from jupyter_gpuprof.probes.simulated import *; print(device_reader().read().devices[0].name)"
    assert "SIMULATED" in run("bash", str(source / "binder" / "start"), python, "-c", asked)

    shutil.rmtree(tmp_path / "sources")
    jupyter = str(venv / "bin" / "jupyter")
    assert re.search(r"jupyter-gpuprof v[\d.]+ enabled OK", run(jupyter, "labextension", "list"))
    assert re.search(r"jupyter_gpuprof [\d.]+ OK", run(jupyter, "server", "extension", "list"))
    magic = (
        "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance();"
        "s.run_line_magic('load_ext', 'jupyter_gpuprof'); assert 'gpuprof' in s.magics_manager.magics['cell']"
    )
    run(python, "-c", magic)
    (installed,) = venv.glob("lib/*/site-packages/jupyter_gpuprof-*.dist-info/RECORD")
    assert len(hashes(record(built))) > 100
    assert hashes(installed.read_text()) == hashes(record(built)), "made from the sdist it is the same wheel"


def record(built: Path) -> str:
    """The list of files of the wheel."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        return wheel.read(next(name for name in wheel.namelist() if name.endswith("RECORD"))).decode()


def hashes(record: str) -> dict[str, str]:
    """Of the files of the package and the panel, by name; what an installation adds is left out."""
    lines = [line.split(",") for line in record.splitlines()]
    found = {re.sub(r".*(?=share/jupyter|etc/jupyter)", "", name): hash for name, hash, _ in lines if hash}
    return {
        name: hash for name, hash in found.items() if name.startswith(("jupyter_gpuprof/", "share/", "etc/"))
    }
