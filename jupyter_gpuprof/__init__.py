"""A profiler for training jobs that lives in the notebook.

``%load_ext jupyter_gpuprof``, then ``%%gpuprof`` on top of a training cell; or from Python::

    from jupyter_gpuprof import profile, report

    with profile(name="baseline") as p:
        train()
    print(report(p.run))

Importing this package imports nothing else; each public name brings what it needs when first used.
"""

from typing import TYPE_CHECKING, Any

from jupyter_gpuprof._version import __version__

if TYPE_CHECKING:
    from jupyter_gpuprof.probes.watch import watch
    from jupyter_gpuprof.records.run import Run
    from jupyter_gpuprof.session.block import profile
    from jupyter_gpuprof.session.cache.cached import cached
    from jupyter_gpuprof.session.checkpoints.checkpointer import Checkpointer
    from jupyter_gpuprof.session.devices.keep import keep
    from jupyter_gpuprof.session.devices.releasehooks import on_release
    from jupyter_gpuprof.session.sweeps.budget import SweepBudget
    from jupyter_gpuprof.store.runs import load_run
    from jupyter_gpuprof.views.text import run_text as report

__all__ = [
    "Checkpointer",
    "Run",
    "SweepBudget",
    "__version__",
    "cached",
    "keep",
    "load_run",
    "on_release",
    "profile",
    "report",
    "watch",
]

_HOMES = {
    "Checkpointer": ("jupyter_gpuprof.session.checkpoints.checkpointer", "Checkpointer"),
    "Run": ("jupyter_gpuprof.records.run", "Run"),
    "SweepBudget": ("jupyter_gpuprof.session.sweeps.budget", "SweepBudget"),
    "cached": ("jupyter_gpuprof.session.cache.cached", "cached"),
    "keep": ("jupyter_gpuprof.session.devices.keep", "keep"),
    "load_run": ("jupyter_gpuprof.store.runs", "load_run"),
    "on_release": ("jupyter_gpuprof.session.devices.releasehooks", "on_release"),
    "profile": ("jupyter_gpuprof.session.block", "profile"),
    "report": ("jupyter_gpuprof.views.text", "run_text"),
    "watch": ("jupyter_gpuprof.probes.watch", "watch"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext jupyter_gpuprof``."""
    from jupyter_gpuprof.notebook.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext jupyter_gpuprof``."""
    from jupyter_gpuprof.notebook.magics import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by the Jupyter server when the extension is enabled."""
    from jupyter_gpuprof.server.app import points

    return points()


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Called by ``jupyter labextension develop``: the panel, where it is built."""
    return [{"src": "labextension", "dest": "jupyter-gpuprof"}]
