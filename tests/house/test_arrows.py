"""The house's rules: arrows go down only, and importing us imports nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_gpuprof

PACKAGE = Path(jupyter_gpuprof.__file__).parent
#: What each folder may import of ours, besides itself, errors, clock and _version.
MAY_IMPORT = {
    "records": set(),
    "analysis": {"records"},
    "planning": {"records"},
    "probes": {"records"},
    "store": {"records"},
    "session": {"records", "analysis", "planning", "probes", "store"},
    "views": {"records"},
    "notebook": {"records", "session", "views", "store"},
    "cli": {"records", "session", "views", "store"},
    "server": {"records", "session", "views", "store"},
}
EVERYWHERE = {"errors", "clock", "_version"}
LIGHT = {"records", "analysis", "planning", "errors.py", "clock.py"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_go_down_only(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    if folder not in MAY_IMPORT:
        return  # __init__, errors, clock, testing
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("jupyter_gpuprof.")}
    assert ours - EVERYWHERE - {folder} <= MAY_IMPORT[folder]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_thinking_needs_numpy_only(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] not in LIGHT:
        return
    foreign = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names)
    assert foreign <= {"numpy", "jupyter_gpuprof", "scipy"}
    assert "scipy" not in {name.split(".")[0] for name in imports(path, top_level=True)}


def test_no_attics() -> None:
    assert not [p for p in sources() if p.stem in {"utils", "common", "helpers", "base", "util", "misc"}]


def loaded_after(code: str) -> set[str]:
    program = f"import sys; before = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_import_is_bare() -> None:
    heavy = {
        "torch",
        "pynvml",
        "psutil",
        "bokeh",
        "IPython",
        "numpy",
        "ipywidgets",
        "jupyter_server",
        "scipy",
    }
    assert not loaded_after("import jupyter_gpuprof") & heavy


def test_load_ext_imports_no_torch_bokeh_or_nvml() -> None:
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "before = set(sys.modules)\n"
        "InteractiveShell.instance().run_line_magic('load_ext', 'jupyter_gpuprof')"
    )
    assert not loaded_after(code) & {"torch", "pynvml", "bokeh", "jupyter_server"}


def test_views_and_records_come_without_torch() -> None:
    code = "import jupyter_gpuprof.views.html, jupyter_gpuprof.views.text, jupyter_gpuprof.records.run"
    assert not loaded_after(code) & {"torch", "psutil", "IPython", "bokeh"}


@pytest.mark.parametrize("name", jupyter_gpuprof.__all__)
def test_public_names_exist_and_are_described(name: str) -> None:
    value = getattr(jupyter_gpuprof, name)
    assert name.startswith("__") or (value.__doc__ and len(value.__doc__) > 20)


def test_no_file_holds_two_ideas() -> None:
    long = {str(p.relative_to(PACKAGE)): n for p in sources() if (n := len(p.read_text().splitlines())) > 430}
    assert not long, "about 400 lines is where a file has become two ideas"
