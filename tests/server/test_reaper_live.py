"""The reaper in a real server: what it does to real kernels, and what it must not do.

Numbers of traps are those of the reference on peers (33 ways in which cullers go wrong).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from jupyter_gpuprof.errors import HolderNotFound, OptionError, ReleaseRefused
from jupyter_gpuprof.server import actions
from tests.fakenvml import GIB, why_not
from tests.server.live import PERIOD_S, Live, play, runs
from tests.session.live import steady

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

#: Two children that survive a clean shutdown: in a session of its own, and a grandchild whose parent ended.
CHILDREN = """
import subprocess, sys
nap = [sys.executable, "-c", "import time; time.sleep(300)"]
child = subprocess.Popen(nap, start_new_session=True)
twice = (
    "import subprocess, sys\\n"
    "nap = [sys.executable, '-c', 'import time; time.sleep(300)']\\n"
    "print(subprocess.Popen(nap, start_new_session=True, stdout=subprocess.DEVNULL).pid)"
)
grandchild = int(subprocess.run([sys.executable, "-c", twice], stdout=subprocess.PIPE, text=True).stdout)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "VERIFY_S", 4.0)


async def children(live: Live, client: object) -> tuple[int, int]:
    """Start them, let the driver list them, and wait until they were seen."""
    reply = await live.run(client, CHILDREN)
    assert reply["status"] == "ok", reply
    message = client.execute("", silent=True, user_expressions={"pids": "(child.pid, grandchild)"})
    while True:
        reply = await client.get_shell_msg(timeout=20)
        if reply["parent_header"].get("msg_id") == message:
            break
    pids = eval(reply["content"]["user_expressions"]["pids"]["data"]["text/plain"])
    for pid in pids:
        live.started.append(psutil.Process(pid))
        live.hold(pid, GIB)
    return pids


@steady
def test_an_idle_kernel_is_warned_freed_and_shut_down_with_what_it_started(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        pid = live.pid(kernel_id)
        client = await live.client(kernel_id)
        await live.run(
            client,
            "from jupyter_gpuprof.session.devices.releasehooks import on_release\n"
            "import pathlib\n"
            f"on_release(lambda: pathlib.Path({str(tmp_path / 'saved')!r}).touch())",
        )
        pids = await children(live, client)
        ended = time.monotonic()
        await live.until(lambda: set(live.actions(kernel_id)) >= {("shutdown", "released")})
        assert 2.5 <= time.monotonic() - ended < 15.0
        assert live.actions(kernel_id) == [("warn", "done"), ("free", "done"), ("shutdown", "released")]
        assert not [p for p in (pid, *pids) if runs(p)]
        assert (tmp_path / "saved").exists()
        assert kernel_id not in live.app.kernel_manager
        assert await live.app.session_manager.list_sessions() == []
        row = live.monitor.audit(1)["rows"][0]
        assert (row["path"], row["by"], row["freed_bytes"]) == ("work/a.ipynb", "reaper", 3 * GIB)
        assert "What it had started was ended, too" in row["sentence"]
        warning = live.events[0]
        assert (warning["action"], warning["next_action"], warning["due_in_s"]) == ("warn", "free", 0.6)
        assert len(live.events) == 3

    play(tmp_path, scenario, action="shutdown")


@steady
def test_trap_1_a_running_cell_is_left_alone_though_the_server_says_idle(tmp_path: Path):
    """And trap 2: the clock begins at the end of the cell."""

    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        model = live.app.kernel_manager.kernel_model
        cell = asyncio.ensure_future(live.run(client, "import time; time.sleep(6)"))
        await live.until(lambda: live.holder(kernel_id)["state"] == "running a cell")
        message = client.session.msg("create_subshell_request", {})
        client.control_channel.send(message)
        await live.until(lambda: model(kernel_id)["execution_state"] == "idle")
        while not cell.done():
            assert live.holder(kernel_id)["state"] == "running a cell"
            assert not live.actions(kernel_id)
            await asyncio.sleep(0.2)
        ended = time.monotonic()
        await live.until(lambda: live.actions(kernel_id))
        assert time.monotonic() - ended > 1.5, "it is warned from the end of the cell on"
        assert kernel_id in live.app.kernel_manager

    play(tmp_path, scenario, action="shutdown", idle_timeout=4.5)


@steady
def test_a_keep_prevents_and_is_bounded(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        await live.until(lambda: live.holder(kernel_id)["state"] == "idle")
        answer = await live.monitor.keep(kernel_id, 100, "a long evaluation", "ann")
        assert answer["granted_s"] == 3600.0
        await asyncio.sleep(3.5)
        holder = live.holder(kernel_id)
        assert "a long evaluation" in holder["reaper"]["sentence"]
        assert 3500 < holder["keep"]["until_in_s"] <= 3600
        assert not {"free", "shutdown"} & dict(live.actions(kernel_id)).keys()
        await live.monitor.keep(kernel_id, 0)
        await live.until(lambda: ("shutdown", "released") in live.actions(kernel_id))
        with pytest.raises(HolderNotFound):
            await live.monitor.keep(kernel_id, 1)

        kernel_id = await live.kernel("other.ipynb")
        client = await live.client(kernel_id)
        await live.run(
            client,
            "from jupyter_gpuprof.session.devices.keep import keep\n"
            "from jupyter_gpuprof.session.devices.kernelreports import report_now\n"
            "kept = keep('10m', why='from the kernel'); report_now()",
        )
        holder = await live.until(lambda: live.holder(kernel_id).get("keep") and live.holder(kernel_id))
        assert holder["keep"]["why"] == "from the kernel"
        answer = await live.monitor.keep(kernel_id, 0, by="ann")
        assert (answer["ended"], answer["keep"]["why"]) == (False, "from the kernel")
        row = live.monitor.audit(1)["rows"][0]
        assert row["outcome"] == "failed"
        assert "made in the kernel itself stands for 10 min: ann asked" in row["sentence"]

    play(tmp_path, scenario, action="shutdown", keep_max=3600.0)


@steady
def test_trap_17_a_cell_between_decision_and_shutdown_cancels_it(tmp_path: Path, monkeypatch):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)

        async def saved(self: actions.Actions, feed: object) -> tuple[str, str]:
            client.execute("import time; time.sleep(3)")
            await live.until(lambda: feed.count()[0] == 1)
            return "", ""

        monkeypatch.setattr(actions.Actions, "_saved", saved)
        await live.until(lambda: ("shutdown", "cancelled") in live.actions(kernel_id))
        assert "a message came after the decision" in live.monitor.audit(1)["rows"][0]["sentence"]
        assert kernel_id in live.app.kernel_manager
        await live.until(lambda: live.holder(kernel_id)["state"] == "running a cell")

    play(tmp_path, scenario, action="shutdown")


@steady
def test_traps_4_and_6_work_without_a_cell(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        await live.run(
            client,
            "import threading, time\n"
            "until = time.time() + 4\n"
            "def work():\n    while time.time() < until: pass\n"
            "threading.Thread(target=work).start()",
        )
        await live.until(lambda: live.holder(kernel_id)["state"] == "background work")
        await asyncio.sleep(2.0)
        assert not live.actions(kernel_id)
        await live.run(
            client,
            "import subprocess, sys\n"
            "code = 'import time; t = time.time() + 4\\nwhile time.time() < t: pass'\n"
            "subprocess.Popen([sys.executable, '-c', code], start_new_session=True)",
        )
        await asyncio.sleep(3 * PERIOD_S)
        assert live.holder(kernel_id)["state"] == "background work"
        assert not live.actions(kernel_id)

    play(tmp_path, scenario, action="shutdown", idle_timeout=8.0)


@steady
def test_trap_8_waiting_for_input_is_a_state_of_its_own(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        client.execute("input('?')", allow_stdin=True)
        await live.until(lambda: live.holder(kernel_id)["state"] == "waiting for input")
        await live.until(lambda: live.actions(kernel_id))
        await asyncio.sleep(1.5)
        assert live.actions(kernel_id) == [("warn", "done")], "free would have to wait for the cell"
        client.input("done")
        await live.until(lambda: live.holder(kernel_id)["state"] == "idle")

    play(tmp_path, scenario, action="free", busy_timeout=2.0, warn_before=0.5, idle_timeout=30.0)


@steady
def test_traps_13_15_and_20_a_killed_kernel_and_its_restarts(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        pids = await children(live, client)
        pid = live.pid(kernel_id)
        await asyncio.sleep(3 * PERIOD_S)
        client.execute("import time; time.sleep(60)")
        await live.until(lambda: live.holder(kernel_id)["state"] == "running a cell")
        os.kill(pid, signal.SIGKILL)
        await live.until(lambda: live.pid(kernel_id) != pid)  # the server's restarter
        live.hold(live.pid(kernel_id))
        await live.until(lambda: live.holder(kernel_id)["state"] == "idle")

        orphans = live.monitor.holders()["orphans"]
        assert sorted(o["pid"] for o in orphans) == sorted(pids)
        assert all(o["certain"] and o["held_bytes"] == GIB for o in orphans)
        assert all(o["reaper"]["reason"] == "orphans are only reported" for o in orphans), orphans
        answer = await live.monitor.end_orphan(orphans[0]["orphan_id"], "ann")
        assert (answer["outcome"], answer["freed_bytes"]) == ("released", GIB)
        assert [runs(orphan["pid"]) for orphan in orphans] == [False, True]
        with pytest.raises(HolderNotFound):
            await live.monitor.end_orphan(orphans[0]["orphan_id"])

        await live.app.kernel_manager.restart_kernel(kernel_id)  # as from the menu
        live.hold(live.pid(kernel_id))
        await live.until(lambda: live.holder(kernel_id).get("pid") == live.pid(kernel_id))
        await live.until(lambda: live.holder(kernel_id)["state"] == "idle")
        cell = asyncio.ensure_future(live.run(client, "import time; time.sleep(1.5)"))
        await live.until(lambda: live.holder(kernel_id)["state"] == "running a cell")
        await cell
        await live.until(lambda: live.holder(kernel_id)["state"] == "idle")
        await live.monitor.end_orphan(orphans[1]["orphan_id"])

    play(tmp_path, scenario, idle_timeout=600.0)


@steady
def test_a_hung_driver_stops_neither_the_server_nor_is_it_taken_for_idleness(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        await live.until(lambda: live.holder(kernel_id)["state"] == "idle")
        live.nvml.hang(30.0)
        longest, last, until = 0.0, time.monotonic(), time.monotonic() + 5.0
        while time.monotonic() < until:
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert longest < 0.5
        answer = live.monitor.devices()
        assert answer["state"] == "unknown"
        assert "not answered" in answer["reason"]
        assert "shutdown" not in dict(live.actions(kernel_id))
        assert live.holder(kernel_id)["state"] == "unknown"
        live.nvml.heal()
        await live.until(lambda: live.monitor.devices()["state"] == "ok")

    play(tmp_path, scenario, action="shutdown")


@steady
def test_a_person_frees_an_idle_kernel_and_not_a_working_one(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        await live.until(lambda: live.holder(kernel_id)["state"] == "idle")
        kernel = live.app.kernel_manager.get_kernel(kernel_id)
        active = kernel.last_activity
        answer = await live.monitor.release(kernel_id, "free", "ann")
        assert answer["outcome"] == "done"
        assert answer["still_held"] == []
        refused = await live.monitor.release(kernel_id, "suspend", "ann")  # here is no driver that could
        assert refused["outcome"] == "failed"
        assert "conditions do not hold" in refused["sentence"]
        assert "Checked, and so: the system is Linux" in refused["sentence"]
        await asyncio.sleep(0.4)
        assert kernel.last_activity == active, "asking is no activity for the server's culler either"
        reply = await live.run(client, "_ip = get_ipython(); n = _ip.execution_count")
        assert reply["execution_count"] == 1, "the notebook sees nothing of it"
        with pytest.raises(OptionError):
            await live.monitor.release(kernel_id, "kill")
        client.execute("import time; time.sleep(2)")
        await live.until(lambda: live.holder(kernel_id)["state"] == "running a cell")
        with pytest.raises(ReleaseRefused, match="a cell runs"):
            await live.monitor.release(kernel_id, "shutdown", "ann")
        assert live.monitor.audit(1)["rows"][0]["by"] == "ann"

    play(tmp_path, scenario, idle_timeout=600.0)


@steady
def test_a_warning_stands_below_the_last_cell_and_is_no_use(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        await live.run(client, "mine = 1")
        client.execute("", silent=True)  # of an extension of the front end: no cell
        manager = live.app.kernel_manager.get_kernel(kernel_id)
        await asyncio.sleep(0.5)
        active = manager.last_activity
        await live.until(lambda: live.actions(kernel_id))
        cell, warning = "", None
        while warning is None:
            message = await client.get_iopub_msg(timeout=10)
            if message["msg_type"] == "execute_input" and message["content"]["code"] == "mine = 1":
                cell = message["parent_header"]["msg_id"]
            if message["msg_type"] == "stream":
                warning = message
        assert warning["parent_header"]["msg_id"] == cell
        assert "is idle for" in warning["content"]["text"]
        assert "memory that nobody uses is freed" in warning["content"]["text"]
        assert "%gpuprof keep 2h" in warning["content"]["text"]
        await asyncio.sleep(0.5)
        assert manager.last_activity == active
        reply = await live.run(client, "get_ipython().execution_count")
        assert reply["execution_count"] == 2

    play(tmp_path, scenario, action="free", warn_before=60.0, idle_timeout=62.5, step_wait=60.0)


@steady
def test_a_dry_run_does_nothing(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        await live.until(lambda: len(live.actions(kernel_id)) == 3)
        assert live.actions(kernel_id) == [(a, "would be done") for a in ("warn", "free", "shutdown")]
        assert kernel_id in live.app.kernel_manager
        assert live.monitor.ledger("notebook")["groups"][0]["key"] == "work/a.ipynb"

    play(tmp_path, scenario, action="shutdown", dry_run=True)


@steady
@pytest.mark.parametrize("seconds", [1.0, 6.0], ids=["a short cell", "a long one"])
def test_a_cell_that_waited_while_a_save_took_long_cancels_the_shutdown(tmp_path: Path, seconds: float):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        begun = tmp_path / "begun"
        await live.run(
            client,
            "from jupyter_gpuprof.session.devices.releasehooks import on_release\nimport pathlib, time\n"
            f"on_release(lambda: (pathlib.Path({str(begun)!r}).touch(), time.sleep(2)))",
        )
        await live.until(begun.exists)
        await asyncio.sleep(0.5)
        await live.run(client, f"time.sleep({seconds}); pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
        assert (tmp_path / "ran").exists()
        await live.until(lambda: ("shutdown", "cancelled") in live.actions(kernel_id))
        assert ("shutdown", "released") not in live.actions(kernel_id)

    play(tmp_path, scenario, action="shutdown")


@steady
def test_a_save_that_fails_stops_the_shutdown_once(tmp_path: Path):
    async def scenario(live: Live) -> None:
        kernel_id = await live.kernel()
        client = await live.client(kernel_id)
        await live.run(
            client,
            "from jupyter_gpuprof.session.devices.releasehooks import on_release\non_release(lambda: 1 / 0)",
        )
        await live.until(lambda: ("shutdown", "released") in live.actions(kernel_id))
        once = [("warn", "done"), ("free", "done")]
        assert live.actions(kernel_id) == [
            *once, ("shutdown", "cancelled"), *once, ("shutdown", "released")
        ]  # fmt: skip
        said = [r["sentence"] for r in live.monitor.audit()["rows"] if r["action"] == "shutdown"]
        assert all("ZeroDivisionError" in sentence for sentence in said)
        assert "after another idle timeout" in said[1]

    play(tmp_path, scenario, action="shutdown")
