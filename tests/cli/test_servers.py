"""The commands that ask running servers: real ones, one that does not let us in, and one that is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpuprof.cli.main import main
from tests.server.realserver import serving

pytestmark = pytest.mark.slow


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
    return folder


EXTENSION = 'c.ServerApp.jpserver_extensions = {"jupyter_gpuprof": True}\n'


def test_status_tells_the_servers_settings(
    tmp_path: Path, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = EXTENSION + 'c.GpuProfReaper.idle_timeout = 1234\nc.GpuProfReaper.action = "free"\n'
    with serving(tmp_path, config):
        assert main(["status"]) == 0
        told = capsys.readouterr().out
        assert main(["status", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
    assert "action free; idle timeout 20 min 34 s" in told
    assert answer["servers"][0]["reaper"]["idle_timeout_s"] == 1234
    assert answer["trouble"] == []


def test_a_server_that_lets_nobody_in_is_named(
    tmp_path: Path, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, EXTENSION):
        (described,) = runtime.glob("jpserver-*.json")
        server = json.loads(described.read_text())
        described.write_text(json.dumps({**server, "token": ""}))  # as with a password
        assert main(["reaper"]) == 0
    told = capsys.readouterr().out
    assert f"The server at {server['url']} does not answer this command: Forbidden." in told
    assert "No server of yours" not in told


def test_a_server_that_is_gone_is_not_asked(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    server = {"url": "http://127.0.0.1:9/", "token": "secret", "pid": gone.pid}
    (runtime / "jpserver-1.json").write_text(json.dumps(server))
    assert main(["reaper"]) == 0
    assert "No server of yours with this extension is running." in capsys.readouterr().out


def test_the_ledger_takes_the_price_of_the_servers_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))

    def price(*words: str) -> object:
        assert main(["ledger", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)["price"]

    assert price() == {"missing": "no price was given"}
    (tmp_path / "jupyter_server_config.py").write_text("c.GpuProf.price = 2.5\n")
    assert price() == 2.5
    assert price("--price", "3") == 3.0
    (tmp_path / "jupyter_gpuprof_config.json").write_text('{"GpuProf": {"price": 4}}')
    assert price() == 4.0
    (tmp_path / "jupyter_gpuprof_config.json").write_text('{"GpuProf": {"price": "much"}}')
    assert main(["ledger"]) == 2
    assert "c.GpuProf.price must be above 0, not 'much'. --price says" in capsys.readouterr().err
    (tmp_path / "jupyter_server_config.py").write_text("1 / 0\n")
    assert main(["ledger"]) == 2
    assert "jupyter_server_config cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price", "-1"], "A device hour costs a number from 0 on, not -1."),
        (["--price", "nan"], "A device hour costs a number from 0 on, not nan."),
        (["--price", "inf"], "A device hour costs a number from 0 on, not inf."),
        (["--since", "0d"], "The ledger is summed over a time above 0, not 0 s."),
    ],
)
def test_the_ledger_takes_no_nonsense(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", *words]) == 2
    assert said in capsys.readouterr().err
    assert main(["ledger", "--price", "0", "--since", "999999999d"]) == 0  # longer than there are dates


def test_devices_are_those_of_a_running_server(
    tmp_path: Path, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, EXTENSION) as server:
        assert main(["devices", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert [told["url"].split(":")[-1] for told in answer["servers"]] == [f"{server.port}/"]
        assert answer["servers"][0]["devices"] == []
        assert main(["devices"]) == 0
        assert f":{server.port}/" in capsys.readouterr().out
    assert main(["devices", "--json"]) == 0
    assert "servers" not in json.loads(capsys.readouterr().out)


def test_watching_the_ledger(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("jupyter_gpuprof.cli.devices.time.sleep", sleep)
    assert main(["ledger", "--watch", "5"]) == 130
    assert waits == [5.0, 5.0, 5.0]
    assert capsys.readouterr().out == "The ledger is empty.\n" * 3
