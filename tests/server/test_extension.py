"""The extension in a server of its own process, and the commands that ask about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpuprof.server.config import GpuProf, GpuProfReaper
from tests.fakenvml import GIB, FakeNvml, Gpu, why_not
from tests.server.loading import loading
from tests.server.realserver import ROOT, eventually, serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

ON = "c.ServerApp.jpserver_extensions = {'jupyter_gpuprof': True}\nc.GpuProf.sample_period = 0.3\n"
COMMAND = (
    "import argparse, sys; from jupyter_gpuprof.cli.devices import add_commands;"
    "p = argparse.ArgumentParser(); add_commands(p.add_subparsers()); a = p.parse_args(); sys.exit(a.act(a))"
)


def command(env: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, **env}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_shows_its_holders_and_stops_cleanly(tmp_path: Path):
    nvml = FakeNvml(tmp_path, [Gpu()])
    config = f"{ON}c.GpuProfReaper.action = 'free'\nc.MappingKernelManager.cull_idle_timeout = 500\n"
    with serving(tmp_path, config, env=nvml.env) as server:
        body = {"path": "b.ipynb", "name": "b.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
        reply = server.call("POST", "api/sessions", body, {"Content-Type": "application/json"})
        assert reply.status == 201, reply.body
        kernel_id = reply.json()["kernel"]["id"]

        def holder() -> dict:
            found = server.get("gpuprof/api/v1/holders").json()["holders"]
            return found[0] if found else {}

        eventually(lambda: holder().get("state") == "starting")
        nvml.set(0, processes={holder()["pid"]: GIB}, used_bytes=GIB)
        eventually(lambda: holder()["holds"])
        assert (holder()["kernel_id"], holder()["path"]) == (kernel_id, "b.ipynb")
        assert holder()["held_bytes"] == GIB
        device = server.get("gpuprof/api/v1/devices").json()["devices"][0]
        assert [(h["path"], h["held_bytes"]) for h in device["holders"]] == [("b.ipynb", GIB)]
        status = server.get("gpuprof/api/v1/status").json()
        assert status["reaper"]["action"] == "free"
        assert "own culler is on, too" in status["warnings"][0]
        assert "action free; idle timeout 60 min" in server.log.replace("  ", " ")

        env = {**nvml.env, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
        assert "b.ipynb" in command(env, "holders")
        assert "Action free" in command(env, "reaper").replace("Reaper on: a", "A")
        told = json.loads(command({**nvml.env, "JUPYTER_RUNTIME_DIR": str(tmp_path)}, "holders", "--json"))
        alone = next(h for h in told["holders"] if h["kernel_id"] == kernel_id)
        assert (alone["held_bytes"], alone["path"].endswith("b.ipynb")) == (GIB, True)
        assert "b.ipynb 1.0 GiB" in command(nvml.env, "devices")
        assert "held" in command(nvml.env, "ledger", "--since", "1h").lower()
    assert "Traceback" not in server.log


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("c.GpuProfReaper.idle_timout = 5", "no option 'idle_timout'. Is 'idle_timeout' meant?"),
        ("c.GpuProf.price = -1.0", "GpuProf.price must be above 0"),
    ],
)
def test_with_a_wrong_option_the_server_does_not_start(tmp_path: Path, wrong: str, words: str):
    with pytest.raises(AssertionError) as ended, serving(tmp_path, f"{ON}{wrong}\n"):
        pass
    log = str(ended.value)  # `serving` shows it where the process has ended
    assert words in log
    assert "does not start with half a policy" in log
    assert "Traceback" not in log


def test_help_lists_our_options_with_their_defaults():
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpuprof.server", "--help-all"], capture_output=True, text=True,
        cwd=ROOT, check=True, timeout=60,
    )  # fmt: skip
    ours = done.stdout[done.stdout.index("GpuProf(Configurable) options") :]
    for kind in (GpuProf, GpuProfReaper):
        for name in kind.class_trait_names(config=True):
            told = ours[ours.index(f"--{kind.__name__}.{name}=") :].split("\n--")[0]
            assert "Default:" in told, name
            assert len(told.splitlines()) >= 3, name


def test_loading_it_waits_with_what_is_heavy(tmp_path: Path):
    heavy = ("torch", "pynvml", "psutil", "numpy", "scipy", "yaml", "bokeh", "jupyter_gpuprof.records.run")
    _, loaded = loading(tmp_path, *heavy)
    assert loaded <= {"yaml"}  # the server's own events
