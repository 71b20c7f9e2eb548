"""Asks a Prometheus server, by its HTTP API (`/api/v1/query`)."""

from __future__ import annotations

import base64
import http.client
import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof.errors import PrometheusError

#: An answer larger than this is none of ours.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Sample:
    """One series of an answer, with its value at the moment asked for."""

    labels: Mapping[str, str]
    value: float


def query(url: str, expression: str, *, at_s: float, limit_s: float = 10.0) -> list[Sample]:
    """The value of an expression; series without a number (NaN) are left out.

    Args:
        url: of the server, with the path before ``/api``, and ``name:password@``, if there are.
        expression: PromQL, of a kind that gives an instant vector.
        at_s: the moment, in seconds since 1970.
        limit_s: of waiting for each byte of the answer; the server gives up at it, too.

    Raises:
        PrometheusError: there is no such server, it is too slow, or does not answer with a vector.
    """
    words = {"query": expression, "time": f"{at_s:.3f}", "timeout": f"{limit_s:g}s"}
    data = urllib.parse.urlencode(words).encode()
    try:
        address = urllib.parse.urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise PrometheusError(
                f"{url!r} is no address of a Prometheus.", "Such as http://prometheus:9090."
            )
        request = urllib.request.Request(f"{shown(url).rstrip('/')}/api/v1/query", data=data)
        if address.username:
            pair = f"{urllib.parse.unquote(address.username)}:{urllib.parse.unquote(address.password or '')}"
            request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
        with urllib.request.urlopen(request, timeout=limit_s) as reply:
            text = reply.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            said = _said(error.read(1 << 16))
        raise PrometheusError(f"The Prometheus at {shown(url)} refused: {said or error.reason}.") from None
    except TimeoutError:
        raise PrometheusError(
            f"The Prometheus at {shown(url)} did not answer within {limit_s:g} s."
        ) from None
    except urllib.error.URLError as error:
        why = getattr(error.reason, "strerror", None) or error.reason
        if isinstance(error.reason, TimeoutError):
            why = f"no answer within {limit_s:g} s"
        raise PrometheusError(f"The Prometheus at {shown(url)} cannot be reached: {why}.") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PrometheusError(f"The Prometheus at {shown(url)} cannot be asked: {error}.") from None
    return _samples(text, url)


def _samples(text: bytes, url: str) -> list[Sample]:
    try:
        found = [
            Sample({str(k): str(v) for k, v in one["metric"].items()}, float(one["value"][1]))
            for one in json.loads(text)["data"]["result"]
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise PrometheusError(f"What answers at {shown(url)} is no Prometheus.") from None
    return [one for one in found if not math.isnan(one.value)]


def _said(text: bytes) -> str:
    """The server's own words of what is wrong."""
    try:
        answer: Any = json.loads(text)
        return str(answer["error"]).rstrip(".")
    except (ValueError, KeyError, TypeError):
        return ""


def shown(url: str) -> str:
    """The address without a name and a password."""
    return re.sub(r"//[^/@]*@", "//", url)
