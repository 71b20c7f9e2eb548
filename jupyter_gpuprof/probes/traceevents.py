"""Trace events to a `RankTrace`: what each event is, by category and name."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.analysis.intervals import union
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.tracejson import Event
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device
from jupyter_gpuprof.records.trace import GpuOps, Marks, OpKind, RankTrace
