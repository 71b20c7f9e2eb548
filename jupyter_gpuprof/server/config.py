"""The options of the server, for ``jupyter_server_config.py``; durations in seconds.

c.GpuProfReaper.action = "shutdown"
c.GpuProfReaper.idle_timeout = 3600
c.GpuProfReaper.kernelspecs = {"r": {"action": "warn"}}
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import Any

from traitlets import Any as AnyTrait
from traitlets import Bool, Dict, Enum, Float, Int, List, TraitError, Unicode
from traitlets.config import Config, Configurable

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.ledger import Allocation
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.session.devices.allocation import allocation_here

_HINT = "`python -m jupyter_gpuprof.server --help-all` and docs/server.md list the options."
#: The options of `Policy` that are durations; here they go without the unit in the name.
_DURATIONS = ("idle_timeout", "warn_before", "busy_timeout", "keep_max", "step_wait", "start_grace")
_PLAIN = (
    "enabled", "action", "min_held_bytes", "exempt", "orphans", "dry_run", "cpu_ratio", "device_ratio",
    "hook",
)  # fmt: skip


#: The last is the extension's own, which takes what all extensions take.
_CLASSES = ("GpuProf", "GpuProfReaper", "GpuprofServer")


class GpuProf(Configurable):
    """How the devices are looked at and accounted for."""

    sample_period = Float(1.0, help="Seconds between two looks at the devices.").tag(config=True)
    allocation = Enum(
        ("auto", "visible", "held"),
        "auto",
        help="""Whose a device is that nobody holds: "visible": this server's, as under JupyterHub, Kubernetes
        or Slurm, so that it is reserved and idle; "held": nobody's, as on a shared machine; "auto": by the
        environment.""",
    ).tag(config=True)
    retention_days = Float(400.0, help="For how many days the ledger keeps device seconds.").tag(config=True)
    price = Float(None, allow_none=True, help="Of one device hour, for the ledger.").tag(config=True)

    def detected_allocation(self) -> Allocation:
        """What "auto" means here."""
        if self.allocation == "auto":
            return allocation_here(os.environ)
        return "visible" if self.allocation == "visible" else "held"


class GpuProfReaper(Configurable):
    """What may be done about kernels that hold a device and do nothing with it. Durations in seconds."""

    enabled = Bool(True, help="Decide about holders at all.").tag(config=True)
    action = Enum(
        ("warn", "free", "offload", "suspend", "shutdown"),
        "warn",
        help="""The most that may be done: "warn"; "free": empty the framework's cache in the kernel;
        "offload": move its tensors to host memory until the next cell; "suspend" (experimental): all that the
        process has of its device to host memory by the driver's checkpoint, if everything holds that must;
        "shutdown": free, and if the device is still held, shut the kernel down and end what it started.""",
    ).tag(config=True)
    idle_timeout = Float(
        3600.0, help="How long a kernel is idle before the action, from the end of its last cell."
    ).tag(config=True)
    warn_before = Float(300.0, help="How long before the action the warning comes.").tag(config=True)
    busy_timeout = Float(
        None,
        allow_none=True,
        help="""After how long a cell counts as stalled in which neither processor nor device works (input(),
        a debugger); None: never.""",
    ).tag(config=True)
    min_held_bytes = Int(1, help="Who holds less of a device is left alone.").tag(config=True)
    exempt = List(Unicode(), help="Patterns of notebook paths that are left alone, as teaching/*.").tag(
        config=True
    )
    orphans = Enum(
        ("report", "end"),
        "report",
        help="What to do with processes of dead kernels that still hold a device.",
    ).tag(config=True)
    keep_max = Float(24 * 3600.0, help="The longest that a kernel can be kept by request.").tag(config=True)
    dry_run = Bool(False, help="Say what would be done, and do nothing.").tag(config=True)
    step_wait = Float(30.0, help="How long a step has to show its effect before the next one.").tag(
        config=True
    )
    start_grace = Float(60.0, help="How long a kernel counts as starting.").tag(config=True)
    cpu_ratio = Float(0.05, help="Above this many processor cores a process tree works.").tag(config=True)
    device_ratio = Float(0.01, help="Above this share of the time a device works.").tag(config=True)
    kernelspecs = Dict(help="Other values for kernels of a kernelspec, by its name and the option's.").tag(
        config=True
    )
    hook = AnyTrait(
        None,
        allow_none=True,
        help="""A function of the facts (records.idleness.KernelFacts), asked last before anything is done.
        Only True lets it be done; words are the reason against it. Called in a thread of its own.""",
    ).tag(config=True)

    def policy(self) -> Policy:
        """The options as a policy.

        Raises:
            OptionError: a value makes no sense.
        """
        values = {f"{name}_s": getattr(self, name) for name in _DURATIONS}
        values |= {name: getattr(self, name) for name in _PLAIN}
        specs = {name: _renamed(options) for name, options in self.kernelspecs.items()}
        try:
            return Policy(**values, kernelspecs=specs)
        except OptionError as error:
            message = re.sub(rf"\b({'|'.join(_DURATIONS)})_s\b", r"\1", error.args[0])
            raise OptionError(f"GpuProfReaper.{message}", _HINT) from None


def read_options(config: Config, **kwargs: Any) -> tuple[GpuProf, Policy]:
    """The options of a server.

    Args:
        config: all of its configuration.
        **kwargs: for the Configurables, as ``parent``.

    Raises:
        OptionError: an option does not exist, or its value makes no sense.
    """
    for name in config:
        if name.lower().startswith("gpuprof") and name not in _CLASSES:
            raise OptionError(f"There is no {name}: ours are GpuProf and GpuProfReaper.", _HINT)
    for kind in (GpuProf, GpuProfReaper):
        allowed = kind.class_trait_names(config=True)
        for name in config.get(kind.__name__, {}):
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, 1)
                hint = f"Is {near[0]!r} meant? {_HINT}" if near else _HINT
                raise OptionError(f"{kind.__name__} has no option {name!r}.", hint)
    try:
        general, reaper = GpuProf(config=config, **kwargs), GpuProfReaper(config=config, **kwargs)
    except TraitError as error:
        raise OptionError(f"{str(error).rstrip('.')}.", _HINT) from None
    if not 0.1 <= general.sample_period <= 60:
        raise OptionError(f"GpuProf.sample_period must be 0.1 to 60 s, not {general.sample_period!r}.", _HINT)
    for name in ("retention_days", "price"):
        value = getattr(general, name)
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(f"GpuProf.{name} must be above 0, not {value!r}.", _HINT)
    return general, reaper.policy()


def _renamed(options: Any) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise OptionError(f"GpuProfReaper.kernelspecs takes options by kernelspec, not {options!r}.", _HINT)
    return {f"{name}_s" if name in _DURATIONS else name: value for name, value in options.items()}
