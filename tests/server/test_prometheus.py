"""The text for Prometheus, the rules and the dashboard over it, and a real Prometheus that scrapes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

import jupyter_gpuprof
from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import LedgerError
from jupyter_gpuprof.records.ledger import STATES, LedgerRow
from jupyter_gpuprof.server.prometheus import exposition
from jupyter_gpuprof.store.ledger import LedgerWriter
from tests.server.realprometheus import RULES, needs_prometheus, scraping
from tests.server.realserver import serving
from tests.server.scriptedmonitor import CONFIG, DEVICES, GIB, ScriptedMonitor

FLEET = Path(jupyter_gpuprof.__file__).parent / "fleet"
DASHBOARD = FLEET / "grafana_dashboard.json"
PROMTOOL = shutil.which("promtool")
HOW = "is not installed (Debian: apt-get install prometheus)"
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason=f"promtool {HOW}")
MID_MONTH = datetime(2026, 3, 15, 12, 30, tzinfo=timezone.utc)

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Series:
    """The samples, by name and labels."""
    found: Series = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, inside, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', inside or "")
        labels = frozenset(
            (k, v.replace(r"\n", "\n").replace(r"\"", '"').replace(r"\\", "\\")) for k, v in pairs
        )
        assert (name, labels) not in found, "a series comes once"
        found[name, labels] = float(value)
    return found


def value(series: Series, metric: str, /, **labels: str) -> float | None:
    return series.get((metric, frozenset(labels.items())))


def families(text: str) -> dict[str, str]:
    """The kind of each metric."""
    return dict(re.findall(r"# TYPE (\w+) (\w+)", text))


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_to(moment: datetime) -> int:
        monkeypatch.setattr(clock, "unix_ns", lambda: round(moment.timestamp() * 1e9))
        return int(moment.timestamp() // 3600)

    return set_to


def write(rows: list[LedgerRow]) -> None:
    writer = LedgerWriter()
    assert writer.add(rows), writer.trouble
    writer.close()


# The text ------------------------------------------------------------------------------------------


def test_seconds_are_those_of_the_ledger_by_state_and_device(at: Any) -> None:
    hour = at(MID_MONTH)
    uuid, name = DEVICES[0]
    rows = [
        LedgerRow(hour - i, uuid, name, state, 1.5 * (i + 1), 1, notebook=notebook)
        for i, state in enumerate(STATES)
        for notebook in ("a.ipynb", "b.ipynb")
    ]
    write([*rows, LedgerRow(hour, DEVICES[1][0], DEVICES[1][1], "busy", 9.0)])
    series = parsed(exposition(ScriptedMonitor()))
    for i, state in enumerate(STATES):
        told = value(series, "gpuprof_device_seconds_total", uuid=uuid, name=name, state=state)
        assert told == pytest.approx(2 * 1.5 * (i + 1))
    odd = {"uuid": DEVICES[1][0], "name": DEVICES[1][1]}
    assert value(series, "gpuprof_device_seconds_total", **odd, state="busy") == 9.0
    assert value(series, "gpuprof_device_seconds_total", **odd, state="free") == 0.0  # seen, and never free


def test_counters_begin_with_the_month(at: Any) -> None:
    first = datetime(2026, 3, 1, tzinfo=timezone.utc)
    hour = int(first.timestamp() // 3600)
    write(
        [LedgerRow(hour - 1, "GPU-1", "Fake", "busy", 1000.0), LedgerRow(hour, "GPU-1", "Fake", "busy", 5.0)]
    )
    for seconds in (0.3, 0.9, 1.0, 1.5, 59.0, 3601.0, 31 * 86400 - 1):
        at(datetime.fromtimestamp(first.timestamp() + seconds, timezone.utc))
        series = parsed(exposition(ScriptedMonitor()))
        labels = {"uuid": "GPU-1", "name": "Fake", "state": "busy"}
        assert value(series, "gpuprof_device_seconds_total", **labels) == 5.0, seconds


def test_what_is_deleted_of_the_ledger_does_not_take_counters_back(at: Any) -> None:
    hour = at(MID_MONTH)
    write([LedgerRow(hour - 24 * day, "GPU-1", "Fake", "busy", 60.0) for day in range(90)])
    before = parsed(exposition(ScriptedMonitor()))
    writer = LedgerWriter()
    assert writer.prune(MID_MONTH.timestamp(), keep_days=40)
    writer.close()
    after = parsed(exposition(ScriptedMonitor()))
    assert {k: v for k, v in before.items() if k[0].endswith("_total")} == {
        k: v for k, v in after.items() if k[0].endswith("_total")
    }


def test_what_is_not_known_has_no_sample() -> None:
    series = parsed(exposition(ScriptedMonitor()))
    lost = {"uuid": DEVICES[1][0], "name": DEVICES[1][1]}
    assert value(series, "gpuprof_device_up", **lost) == 0
    assert value(series, "gpuprof_device_memory_used_bytes", **lost) is None
    assert value(series, "gpuprof_device_memory_total_bytes", **lost) == 140 * GIB
    assert not [
        labels for name, labels in series if name == "gpuprof_busy_ratio" and ("uuid", "GPU-2") in labels
    ]


def test_the_better_measure_of_busy_is_taken() -> None:
    series = parsed(exposition(ScriptedMonitor()))
    own = {"uuid": "GPU-1", "name": "Fake H200"}
    assert value(series, "gpuprof_busy_ratio", **own, measure="gr_active") == 0.75

    class WithoutGpm(ScriptedMonitor):
        def devices(self) -> Any:
            told = super().devices()
            told["devices"][0]["gpm"] = {"missing": "not a Hopper"}
            return told

    assert value(parsed(exposition(WithoutGpm())), "gpuprof_busy_ratio", **own, measure="util_nvml") == 0.9


def test_holders_and_what_the_reaper_did_are_counted() -> None:
    series = parsed(exposition(ScriptedMonitor()))
    assert value(series, "gpuprof_holders", state="training") == 1
    assert value(series, "gpuprof_holders", state="orphan") == 1
    # Two warnings of now; not the one of 2020, and not what a person asked for.
    assert value(series, "gpuprof_reaper_actions_total", action="warn", outcome="done") == 2
    assert value(series, "gpuprof_reaper_actions_total", action="free", outcome="would be done") == 1
    assert value(series, "gpuprof_reaper_actions_total", action="shutdown", outcome="done") == 0
    assert not [labels for name, labels in series if ("action", "keep") in labels]


def test_a_ledger_that_cannot_be_read_leaves_the_rest() -> None:
    class Unreadable(ScriptedMonitor):
        def ledger(self, *args: Any) -> Any:
            raise LedgerError("The ledger cannot be read.")

    text = exposition(Unreadable())
    series = parsed(text)
    assert value(series, "gpuprof_ledger_readable") == 0
    assert value(series, "gpuprof_holders", state="idle") == 1
    assert not [name for name, _ in series if name.endswith("_seconds_total")]
    assert value(parsed(exposition(ScriptedMonitor())), "gpuprof_ledger_readable") == 1


def test_nothing_of_the_notebooks_is_told() -> None:
    write([LedgerRow(1, "GPU-1", "Fake", "busy", 1.0, notebook="secret.ipynb", user="ann")])
    text = exposition(ScriptedMonitor())
    assert "ipynb" not in text
    assert "ann" not in text


@needs_promtool
@pytest.mark.slow
def test_names_and_text_are_as_prometheus_wants_them() -> None:
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=exposition(ScriptedMonitor()).encode(),
                          capture_output=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


# Rules and dashboard -------------------------------------------------------------------------------


def expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


#: Of Kueue and of exporters for Slurm, which have no samples here (tests/session/test_fleet_prometheus.py).
WAITS = {f"{name}_wait_time_seconds_bucket" for name in ("kueue_admission", "slurm_job", "slurm_queue")}


def names(expression: str) -> set[str]:
    found = re.findall(
        r"(?<![\w:$])(?:\w+:)*(?:gpuprof|kueue|slurm)_\w+(?::\w+)*", re.sub(r'"[^"]*"', '""', expression)
    )
    return set(found)


def test_rules_and_dashboard_ask_for_what_there_is() -> None:
    there = set(families(exposition(ScriptedMonitor()))) | WAITS
    for rule in rules():
        assert names(rule["expr"]), rule
        assert names(rule["expr"]) <= there, rule
        there.add(rule["record"])
    for expression in expressions():
        assert names(expression), expression
        assert names(expression) <= there, expression


def test_every_rule_is_shown_and_every_state_named() -> None:
    asked = {name for text in (*expressions(), *(r["expr"] for r in rules())) for name in names(text)}
    assert {rule["record"] for rule in rules()} <= asked
    states = set(re.findall(r'state[=!~]+"([^"]+)"', RULES.read_text()))
    assert {state for some in states for state in some.split("|")} <= set(STATES)


def test_panels_have_their_own_places_and_ids() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells, panel["title"]
        assert max(x for x, _ in own) < 24, panel["title"]
        cells |= own


@needs_promtool
@pytest.mark.slow
def test_promtool_likes_the_rules() -> None:
    done = subprocess.run([PROMTOOL, "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules())} rules found" in done.stdout


# A real Prometheus ---------------------------------------------------------------------------------


@pytest.mark.slow
@needs_prometheus
def test_a_real_prometheus_scrapes_a_real_server(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    ledger = tmp_path / "ledger.db"
    env = {"JUPYTER_GPUPROF_DATABASE": str(ledger)}
    writer = LedgerWriter(ledger)
    total = 'sum(gpuprof_device_seconds_total{job="ours"})'

    def work(seconds: float) -> None:
        """Twenty times as fast as life: a device that is busy for a fifth of the time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            hour = int(clock.unix_ns() * 1e-9 // 3600)
            assert writer.add([LedgerRow(hour, *DEVICES[0], state, s, 1) for state, s in
                               (("busy", 0.2), ("input_stall", 0.3), ("held_idle", 0.5))])  # fmt: skip
            time.sleep(0.05)

    work(0.1)
    with serving(tmp_path, CONFIG, env=env, base_url="/user/x/") as server:
        ours = (server.port, "/user/x/gpuprof/metrics", server.token)
        with scraping(folder, {"ours": ours, "stranger": (*ours[:2], "wrong")}) as prometheus:
            assert prometheus.wait('up{job="ours"}') == 1
            assert prometheus.wait('up{job="stranger"} == bool 0') == 1
            first = prometheus.wait(total)
            work(2.5)
            assert prometheus.wait(f"{total} > {first}") > first
            written = sum(parsed_total(server.get("gpuprof/metrics").body.decode()).values())
            assert prometheus.wait(f"{total} >= {written - 1e-6}") == pytest.approx(written, abs=1e-6)
            # The recording rules, against what was written: a fifth busy, three tenths waiting for input.
            assert prometheus.wait("gpuprof_busy_ratio:rate5m") == pytest.approx(0.2, abs=1e-6)
            assert prometheus.wait("gpuprof_coverage_ratio:rate5m") == pytest.approx(1.0)
            per_state = {r["metric"]["state"]: float(r["value"][1]) for r in
                         prometheus.query("state:gpuprof_devices:rate5m")}  # fmt: skip
            assert per_state.keys() == set(STATES)
            assert per_state["input_stall"] / per_state["busy"] == pytest.approx(1.5, rel=1e-6)
            lost = {r["metric"]["place"] for r in prometheus.query("place:gpuprof_devices_lost:rate5m")}
            assert len(lost) == 3
            # Everything the dashboard asks for can be asked; what the scripted devices tell is answered.
            for expression in expressions():
                if "queue_wait" in expression:
                    continue
                filled = expression.replace("$__range_s", "300").replace("$__range", "5m")
                prometheus.wait(f"count({filled})", 5.0)
            seen = prometheus.wait(total)
    # A restart of the server: the counters go on where they were.
    with serving(tmp_path, CONFIG, env=env) as again:
        after = sum(parsed_total(again.get("gpuprof/metrics").body.decode()).values())
        assert after >= seen
    writer.close()


def parsed_total(text: str) -> dict[Any, float]:
    return {key: number for key, number in parsed(text).items() if key[0] == "gpuprof_device_seconds_total"}
