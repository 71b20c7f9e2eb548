"""`fleet report --prometheus`: a real Prometheus that scrapes scripted exporters, and servers that fail."""

from __future__ import annotations

import argparse
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from jupyter_gpuprof.cli.fleet import add_fleet
from jupyter_gpuprof.errors import PrometheusError, UsageError
from jupyter_gpuprof.planning.histogramwaits import waits_of_buckets
from jupyter_gpuprof.probes.prometheusquery import query
from jupyter_gpuprof.records.reading import Missing
from tests.server.realprometheus import needs_prometheus, scraping

#: Waits of Kueue's jobs since the last scrape, up to each bound: p90 of vision is amid 10 to 60 s.
BUCKETS = {
    "vision": {"1": 40, "10": 80, "60": 100, "+Inf": 100},
    "speech": {"1": 0, "10": 0, "60": 10, "+Inf": 100},
}


@contextmanager
def answering(reply: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[int]:
    """A server of this process; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply(self)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def says(text: str, status: int = 200) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    def reply(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "text/plain; version=0.0.4")
        handler.end_headers()
        handler.wfile.write(text.encode())

    return reply


class Exporters:
    """DCGM's, Kueue's and ours in one text; counters grow by the same from scrape to scrape."""

    def __init__(self) -> None:
        self.scrapes = 0

    def __call__(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        self.scrapes += 1
        lines = [
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",pod="a",namespace="vision"} 0.9',
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",pod="b",namespace="vision"} 0.5',
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="2",pod="c",namespace="speech"} 0.1',
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3"} 0',  # nobody has it
            'DCGM_FI_DEV_GPU_UTIL{gpu="0",pod="a",namespace="vision"} 100',  # the worse measure
        ]
        for team, buckets in BUCKETS.items():
            for bound, count in buckets.items():
                lines.append(
                    f'kueue_admission_wait_time_seconds_bucket{{cluster_queue="{team}",le="{bound}"}}'
                    f" {count * self.scrapes}"
                )
        for state, share in (("busy", 0.2), ("held_idle", 0.5), ("unknown", 0.1), ("free", 0.2)):
            labels = f'uuid="GPU-1",name="H200",state="{state}"'
            lines.append(f"gpuprof_device_seconds_total{{{labels}}} {share * self.scrapes}")
        says("\n".join(lines) + "\n")(handler)


def report(*words: str | Path) -> None:
    parser = argparse.ArgumentParser()
    add_fleet(parser.add_subparsers(required=True))
    args = parser.parse_args(["fleet", "report", *map(str, words)])
    args.act(args)


def recent_jobs(folder: Path, gpus: int) -> Path:
    """Four minutes of one job of speech, up to now."""
    now = datetime.now(timezone.utc)
    begun = now - timedelta(minutes=4)
    path = folder / "jobs.csv"
    path.write_text(f"id,gpus,asked,began,ended,team\n1,{gpus},{begun},{begun},{now},speech\n")
    return path


@pytest.mark.slow
@needs_prometheus
def test_a_real_prometheus_tells_busy_and_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    exporters = Exporters()
    with answering(exporters) as port, scraping(folder, {"all": (port, "/metrics", "")}) as prometheus:
        # The recording rules and the panel, by Prometheus's own quantile.
        all_p90_s = prometheus.wait("gpuprof_queue_wait_p90_seconds:rate1h")
        assert all_p90_s == 60  # 110 of 200 within the last bound
        vision = prometheus.wait('team:gpuprof_queue_wait_p90_seconds:rate1h{queue="kueue",team="vision"}')
        assert vision == pytest.approx(35)
        prometheus.wait("count_over_time(DCGM_FI_DEV_GPU_UTIL[1m]) > 2")

        url = f"http://127.0.0.1:{prometheus.port}/"
        mapping = "id=id,gpus=gpus,submit=asked,start=began,end=ended,team=team"
        jobs = recent_jobs(tmp_path, gpus=1000)
        report(jobs, "--map", mapping, "--prometheus", url, "--json", out, "--html", page)
        text = " ".join(capsys.readouterr().out.split())
        found = json.loads(out.read_text())
        dcgm, vision_row, speech_row, ours = found["observed"]
        assert (dcgm["measure"], dcgm["key"]) == ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "")
        assert dcgm["busy_ratio"]["value"] == pytest.approx(0.5)
        # The records tell of far more than the seconds in which this Prometheus was there.
        assert dcgm["busy_ratio"]["low"] < 0.01
        assert dcgm["busy_ratio"]["high"] > 0.99
        assert dcgm["coverage_ratio"] == pytest.approx(3 * dcgm_hours(vision_row) / 2 / dcgm["gpu_hours"])
        assert (vision_row["key"], vision_row["busy_ratio"]) == ("vision", pytest.approx(0.7))
        assert (speech_row["key"], speech_row["busy_ratio"]["value"]) == ("speech", pytest.approx(0.1))
        assert ours["measure"] == "gpuprof_device_seconds_total"
        # 2 busy of 7 seen and 8 allocated; 1 of 8 nobody saw.
        assert ours["busy_ratio"]["value"] == pytest.approx(2 / 7)
        assert ours["busy_ratio"]["low"] == pytest.approx(2 / 8)
        assert ours["busy_ratio"]["high"] == pytest.approx(3 / 8)
        everyone, speech, vision_waits = found["observed_waits"]
        assert (vision_waits["key"], vision_waits["p90_s"]) == ("vision", pytest.approx(35))
        assert vision_waits["p50_s"] == pytest.approx(1 + 9 * 10 / 40)
        assert speech["p90_s"] == everyone["p90_s"] == {"missing": "not reached"}
        assert "p90 queue wait of speech: > 1 min (p50 > 1 min)" in text
        assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in page.read_text()

        report("--prometheus", url)
        alone = " ".join(capsys.readouterr().out.split())
        # In a week, gauges are looked at every five minutes, which is longer than this Prometheus lives.
        assert "allocated GPU-hours by gpuprof_device_seconds_total (87.5 % of them seen)" in alone
        assert "fleet: Prometheus at http://127.0.0.1" in alone
        assert "rows were read" not in alone
        with pytest.raises(PrometheusError, match=r"refused: .*parse error"):
            query(url, "sum(", at_s=time.time())
        assert query(url, "absent_metric", at_s=time.time()) == []


def dcgm_hours(row: dict[str, float]) -> float:
    return row["gpu_hours"] * row["coverage_ratio"]


def test_each_failure_is_one_sentence(tmp_path: Path) -> None:
    silent = threading.Event()
    cases: list[tuple[Callable[[http.server.BaseHTTPRequestHandler], None], str]] = [
        (says("<html>hello</html>"), "is no Prometheus"),
        (says('{"status": "success", "data": {"result": [{"metric": {}}]}}'), "is no Prometheus"),
        (says('{"status": "error", "error": "query timed out"}', 503), "refused: query timed out"),
        (says("nothing here", 404), "refused: Not Found"),
        (lambda _: (silent.wait(5), None)[1], "did not answer within 0.2 s"),
        (lambda handler: handler.connection.close(), "cannot be"),
    ]
    for reply, words in cases:
        silent.clear()
        with answering(reply) as port:
            with pytest.raises(PrometheusError, match=words) as failed:
                query(f"http://ann:secret@127.0.0.1:{port}", "up", at_s=0, limit_s=0.2)
            silent.set()
        assert "secret" not in str(failed.value)
    with pytest.raises(PrometheusError, match="cannot be reached: Connection refused"):
        query(f"http://127.0.0.1:{port}", "up", at_s=0)
    for url in ("prometheus:9090", "file:///etc/passwd", "http://", "http://[x"):
        with pytest.raises(PrometheusError, match=r"is no address|cannot be asked"):
            query(url, "up", at_s=0)
    with pytest.raises(UsageError, match="nothing to report on"):
        report()


def test_a_report_goes_on_without_prometheus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(says("", 500)) as port:
        mapping = "id=id,gpus=gpus,submit=asked,start=began,end=ended"
        report(recent_jobs(tmp_path, 3), "--map", mapping, "--prometheus", f"http://127.0.0.1:{port}")
    text = " ".join(capsys.readouterr().out.split())
    assert "0.2 GPU-hours allocated by 1 job" in text
    assert f"The Prometheus at http://127.0.0.1:{port} refused: Internal Server Error" in text


def test_a_name_and_password_are_sent() -> None:
    seen: list[str | None] = []

    def reply(handler: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization"))
        says('{"status":"success","data":{"result":[{"metric":{"a":"b"},"value":[0,"NaN"]}]}}')(handler)

    with answering(reply) as port:
        assert query(f"http://ann:se%40cret@127.0.0.1:{port}", "up", at_s=0) == []
    assert seen == ["Basic YW5uOnNlQGNyZXQ="]  # ann:se@cret


def test_quantiles_of_buckets() -> None:
    inf = float("inf")
    waits = waits_of_buckets("a", {1.0: 0, 10.0: 50, 60.0: 90, inf: 100})
    assert (waits.p50_s, waits.p90_s, waits.jobs) == (10, 60, 100)
    assert waits.p99_s == Missing("not reached")
    assert waits.longest_s == 60
    assert waits_of_buckets("a", {}).p90_s == Missing("no job")
    assert waits_of_buckets("a", {1.0: 0, inf: 0}).p50_s == Missing("no job")
