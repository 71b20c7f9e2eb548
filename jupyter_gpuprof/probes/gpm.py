"""The counters of Hopper and newer devices (NVML's GPM): two samples, and what happened in between."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof.probes.nvmlcodes import NO_PERMISSION, ask_alone
from jupyter_gpuprof.records.devices import GpmReading
from jupyter_gpuprof.records.reading import Missing, Number

#: Closer samples give invalid values on Hopper (an NVIDIA engineer in DCGM's issue 310).
APART_S = 0.1
#: Numbers of the counters, all in per cent, in the order of `GpmReading`.
_METRICS = (1, 2, 3, 5, 10)
_FIRST = Missing("counters need two samples: the next reading has them")
_ADMIN_ONLY = Missing("only an administrator may read the counters (RmProfilingAdminOnly)")


class Gpm:
    """The counters of one device.

    Args:
        nvml: the pynvml module.
        handle: the device.
        clock: monotonic nanoseconds.
    """

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], int]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._samples: list[Any] = []  # older, newer
        self._taken_s: float | None = None
        self._reading: GpmReading | Missing = _FIRST
        support = ask_alone(nvml.nvmlGpmQueryDeviceSupport, handle)
        told = support if isinstance(support, Missing) else support.isSupportedDevice
        self.supported = not isinstance(told, Missing) and bool(told)

    def read(self) -> GpmReading | Missing:
        """The counters since the sample before; within 0.1 s of it, what was read last."""
        if not self.supported:
            return Missing("counters need a Hopper or newer device")
        now_s = self._clock() * 1e-9
        if self._taken_s is not None and now_s - self._taken_s < APART_S:
            return self._reading
        while len(self._samples) < 2:
            sample = ask_alone(self._nvml.nvmlGpmSampleAlloc)
            if isinstance(sample, Missing):
                return sample
            self._samples.append(sample)
        self._samples.reverse()  # the oldest is overwritten
        taken = ask_alone(self._nvml.nvmlGpmSampleGet, self._handle, self._samples[1])
        before_s, self._taken_s = self._taken_s, now_s
        if isinstance(taken, Missing):
            self._taken_s = None
            self._reading = _ADMIN_ONLY if taken == NO_PERMISSION else taken
        elif before_s is None:
            self._reading = _FIRST
        else:
            self._reading = self._compare(now_s - before_s)
        return self._reading

    def close(self) -> None:
        """Give the samples back to the driver."""
        while self._samples:
            ask_alone(self._nvml.nvmlGpmSampleFree, self._samples.pop())

    def _compare(self, interval_s: float) -> GpmReading | Missing:
        get = self._nvml.c_nvmlGpmMetricsGet_t()
        get.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        get.numMetrics = len(_METRICS)
        get.sample1, get.sample2 = self._samples
        for place, number in enumerate(_METRICS):
            get.metrics[place].metricId = number
        got = ask_alone(self._nvml.nvmlGpmMetricsGet, get)
        if isinstance(got, Missing):
            return got
        return GpmReading(interval_s, *(_ratio(got.metrics[place]) for place in range(len(_METRICS))))


def _ratio(metric: Any) -> Number:
    if metric.nvmlReturn != 0:
        return Missing("the device does not have this counter")
    if not math.isfinite(metric.value) or not 0.0 <= metric.value <= 100.0:
        return Missing(f"the driver gave {metric.value} %")
    return float(metric.value) / 100.0
