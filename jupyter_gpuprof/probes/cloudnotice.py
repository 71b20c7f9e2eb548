"""Whether the cloud has announced that it will take this machine back: asked of its metadata service."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

#: The metadata service of all three clouds.
ADDRESS = "http://169.254.169.254"
_TIMEOUT_S = 1.0
_DMI = Path("/sys/class/dmi/id")


def cloud_here(dmi: Path = _DMI) -> str:
    """ "aws", "gcp" or "azure" by what the machine's firmware says; "" outside of them."""
    words = ""
    for name in ("sys_vendor", "product_name", "bios_vendor"):
        try:
            words += (dmi / name).read_text(errors="replace").lower()
        except OSError:
            continue
    if "amazon" in words:
        return "aws"
    if "google" in words:
        return "gcp"
    return "azure" if "microsoft" in words else ""


def announced(cloud: str, address: str = ADDRESS) -> str:
    """What was announced, in a few words; "" if nothing was, or the service does not answer.

    Args:
        cloud: from `cloud_here`.
        address: of the metadata service.
    """
    try:
        return _ASK[cloud](address)
    except (OSError, ValueError, KeyError):
        return ""


def _aws(address: str) -> str:
    """`spot/instance-action` is 404 until an interruption is set, two minutes ahead (EC2 User Guide)."""
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _get(f"{address}/latest/api/token", lifetime, method="PUT")
    found = _get(f"{address}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    action = json.loads(found)
    return f"AWS will {action['action']} the instance at {action['time']}"


def _gcp(address: str) -> str:
    found = _get(f"{address}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return "Google Cloud preempts the instance" if found.strip() == "TRUE" else ""


def _azure(address: str) -> str:
    found = _get(f"{address}/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    events = json.loads(found)["Events"]
    kinds = [event["EventType"] for event in events if event["EventType"] in ("Preempt", "Terminate")]
    return f"Azure has scheduled: {kinds[0]}" if kinds else ""


_ASK = {"aws": _aws, "gcp": _gcp, "azure": _azure}


def _get(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    asked = urllib.request.Request(url, headers=dict(headers), method=method)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by way of a proxy
    with direct.open(asked, timeout=_TIMEOUT_S) as answer:
        text: str = answer.read(65536).decode()
        return text
