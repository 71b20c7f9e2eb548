"""What a Prometheus tells of the fleet in the time of the records: how busy devices were, and the waits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import PrometheusError
from jupyter_gpuprof.planning.fleetreport import busy_of
from jupyter_gpuprof.planning.histogramwaits import waits_of_buckets
from jupyter_gpuprof.probes.prometheusquery import Sample, query, shown
from jupyter_gpuprof.records.fleetreplay import Waits
from jupyter_gpuprof.records.fleetreport import FleetReport, Observed

_HOUR_S, _WEEK_S = 3600.0, 7 * 86400.0
#: How often gauges are looked at in the whole time.
_LOOKS = 2000

#: Of NVIDIA's DCGM exporter, the better measure first, each with what makes a ratio of it.
_DCGM = (("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.0), ("DCGM_FI_DEV_GPU_UTIL", 0.01))
#: A device that is allocated carries its pod or its job. Where a target has a pod of its own, Prometheus
#: calls the device's `exported_pod`.
_OWNERS = ('exported_pod!=""', 'pod!=""', 'hpc_job!=""')
_TEAMS = {'exported_pod!=""': "exported_namespace", 'pod!=""': "namespace"}

#: Of Kueue, and of those Slurm exporters that have a histogram of waits; by the label that is the team.
_WAITS = (
    ("kueue_admission_wait_time_seconds_bucket", "cluster_queue"),
    ("slurm_job_wait_time_seconds_bucket", "partition"),
    ("slurm_queue_wait_time_seconds_bucket", "partition"),
)


def observed(report: FleetReport, url: str, *, limit_s: float = 10.0) -> FleetReport:
    """The report with what the Prometheus at `url` tells; what it does not tell is a note.

    Args:
        report: whose time is asked about; without dates, it is the last week.
        url: of the Prometheus.
        limit_s: of waiting for each answer. The first that fails ends the matter.

    Raises:
        PrometheusError: it tells nothing, and there are no records.
    """
    ask = _Asking(report, url, limit_s)
    notes: list[str] = []
    busy: list[Observed] = []
    waits: list[Waits] = []
    try:
        busy = [*ask.of_dcgm(), *ask.of_ours()]
        if not busy:
            notes.append(
                "the Prometheus has no metrics of devices (DCGM's or ours) for the time of the records"
            )
        waits = ask.waits()
        if not waits:
            notes.append("the Prometheus has no histogram of queue waits (Kueue's, or a Slurm exporter's)")
    except PrometheusError as error:
        if not report.sources:
            raise
        notes.append(str(error.args[0]).rstrip("."))
    return replace(
        report,
        sources=(*report.sources, f"Prometheus at {shown(url)}"),
        observed=tuple(busy),
        observed_waits=tuple(waits),
        notes=(*report.notes, *notes),
    )


class _Asking:
    def __init__(self, report: FleetReport, url: str, limit_s: float) -> None:
        now_s = clock.unix_ns() * 1e-9
        self.url, self.limit_s = url, limit_s
        self.recorded_h = {"": report.total.gpu_hours} | {
            one.key: one.gpu_hours for one in report.by_team if one.key
        }
        # A report's dates are whole minutes.
        self.until_s = min(_unix_s(report.until) + 60, now_s) if report.until else now_s
        since_s = _unix_s(report.since) if report.since else self.until_s - _WEEK_S
        self.span_s = max(math.ceil(self.until_s - since_s), 1)
        self.step_s = max(math.ceil(self.span_s / _LOOKS), 1)

    def ask(self, expression: str) -> list[Sample]:
        return query(self.url, expression, at_s=self.until_s, limit_s=self.limit_s)

    def gpu_hours(self, kind: str, series: str, by: str) -> dict[str, float]:
        """Hours of a gauge that is looked at every `step_s`: its sum, or how often it was there."""
        looks = f"{kind}_over_time(({series})[{self.span_s}s:{self.step_s}s])"
        grouped = f"sum by ({by}) ({looks})" if by else f"sum({looks})"
        hours = self.step_s / _HOUR_S
        return {one.labels.get(by, ""): one.value * hours for one in self.ask(grouped)}

    def of_dcgm(self) -> list[Observed]:
        """By the better of DCGM's measures."""
        for metric, scale in _DCGM:
            for owner in _OWNERS:
                series = f"{metric}{{{owner}}}"
                if self.gpu_hours("count", series, ""):
                    teams = [_TEAMS[owner]] if owner in _TEAMS else []
                    return [one for by in ("", *teams) for one in self._dcgm(metric, scale, series, by)]
        return []

    def _dcgm(self, metric: str, scale: float, series: str, by: str) -> list[Observed]:
        worked = self.gpu_hours("sum", series, by)
        found = []
        for key, seen_h in sorted(self.gpu_hours("count", series, by).items(), key=lambda item: -item[1]):
            # The records may tell more than Prometheus saw; never less, where both are of the same devices.
            allocated_h = max(seen_h, self.recorded_h.get(key, 0.0))
            busy = busy_of(worked.get(key, 0.0) * scale, seen_h, allocated_h)
            found.append(Observed(metric, key, allocated_h, busy, seen_h / allocated_h))
        return found

    def of_ours(self) -> list[Observed]:
        """By the seconds in each state that servers of ours count."""
        metric = "gpuprof_device_seconds_total"
        each = f"max by (uuid, name, state) (increase({metric}[{self.span_s}s]))"
        hours = {one.labels["state"]: one.value / _HOUR_S for one in self.ask(f"sum by (state) ({each})")}
        allocated_h = sum(value for state, value in hours.items() if state != "free")
        if not allocated_h:
            return []
        seen_h = allocated_h - hours.get("unknown", 0.0)
        busy = busy_of(hours.get("busy", 0.0), seen_h, allocated_h)
        return [Observed(metric, "", allocated_h, busy, seen_h / allocated_h)]

    def waits(self) -> list[Waits]:
        """Of all teams together, then of each."""
        found = []
        for metric, team in _WAITS:
            counts = self.ask(f"sum by ({team}, le) (increase({metric}[{self.span_s}s]))")
            teams = sorted({one.labels.get(team, "") for one in counts})
            if not teams:
                continue
            found.append(waits_of_buckets("", _buckets(counts)))
            for name in teams:
                own = [one for one in counts if one.labels.get(team, "") == name]
                found.append(waits_of_buckets(name, _buckets(own)))
        return [one for one in found if one.jobs]


def _buckets(counts: Sequence[Sample]) -> Mapping[float, float]:
    found: dict[float, float] = {}
    for one in counts:
        bound = float(one.labels.get("le", "nan"))
        found[bound] = found.get(bound, 0.0) + one.value
    return found


def _unix_s(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
