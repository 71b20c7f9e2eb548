"""A profiler for training jobs that lives in the notebook."""

from jupyter_gpuprof._version import __version__

__all__ = ["__version__"]
