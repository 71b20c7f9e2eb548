"""What ``%gpuprof try cache`` puts in the place of a data set: really kept, really read back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from jupyter_gpuprof.session.cache.cached import cached


def kept_for_trial(dataset: Any) -> tuple[Any, str]:
    """The data set, cached in the job's own temporary folder, and how a person writes it.

    Raises:
        CacheRefused: nothing of it can be kept.
    """
    folder = Path(tempfile.gettempdir()) / "gpuprof-derived"
    kept = cached(dataset, split=True, folder=folder)
    return kept, "cached({}, split=True)" if kept.is_split else "cached({})"
