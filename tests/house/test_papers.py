"""What is written must be true: options, the run's JSON, thresholds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from jupyter_gpuprof.analysis.rules import Thresholds
from jupyter_gpuprof.cli.main import _parser
from jupyter_gpuprof.notebook.commands import COMMANDS
from jupyter_gpuprof.notebook.magics import HELP, GpuprofMagics
from jupyter_gpuprof.records import run as records

ROOT = Path(__file__).parents[2]
RUN_RECORDS = [
    value
    for value in vars(records).values()
    if dataclasses.is_dataclass(value) and value.__module__ == records.__name__
]


def magic_options() -> set[str]:
    parsers = [GpuprofMagics.gpuprof.parser, *(command.parser for command in COMMANDS.values())]
    options = (option for parser in parsers for action in parser._actions for option in action.option_strings)
    return {option for option in options if option.startswith("--")}


def test_help_names_every_option_and_command() -> None:
    assert magic_options() == set(re.findall(r"--[a-z][\w-]*", HELP))
    for command in COMMANDS:
        assert command == "status" or f"%gpuprof {command}" in HELP, command


def test_readme_names_every_option_and_command() -> None:
    readme = (ROOT / "README.md").read_text()
    for option in magic_options():
        assert option in readme, option
    for command in COMMANDS:
        assert command in readme, command
    (commands,) = [a for a in _parser()._actions if a.choices]
    for command in commands.choices:
        assert f"jupyter gpuprof {command}" in readme, command


@pytest.mark.parametrize("record", RUN_RECORDS, ids=lambda r: r.__name__)
def test_every_field_of_a_run_is_described(record: type) -> None:
    page = (ROOT / "docs" / "run.md").read_text()
    for field in dataclasses.fields(record):
        assert f"`{field.name}`" in page, f"{record.__name__}.{field.name}"


def test_every_threshold_is_described() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text()
    for field in dataclasses.fields(Thresholds):
        assert f"`{field.name}`" in page, field.name


def test_architecture_names_every_folder() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for folder in sorted(
        p.name for p in (ROOT / "jupyter_gpuprof").iterdir() if (p / "__init__.py").exists()
    ):
        assert f"{folder}/" in page, folder
