"""How a line after ``%gpuprof WORD`` is parsed, and what is done with it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic_arguments import MagicArgumentParser

if TYPE_CHECKING:
    from jupyter_gpuprof.notebook.magics import GpuprofMagics

#: Asks a command with its parsed arguments.
Act = Callable[["GpuprofMagics", Any], Any]


@dataclass(frozen=True)
class Command:
    """One word after ``%gpuprof``: how its line is parsed, what it does, and what an interrupt leaves."""

    parser: argparse.ArgumentParser
    act: Act
    interrupted: str = "nothing was changed"


def parser_of(name: str, *arguments: tuple[tuple[str, ...], dict[str, Any]]) -> argparse.ArgumentParser:
    """A parser of what stands after the word."""
    parser = MagicArgumentParser(prog=f"%gpuprof {name}", add_help=False)
    for flags, options in arguments:
        parser.add_argument(*flags, **options)
    return parser


def option(*flags: str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One argument of `parser_of`."""
    return flags, options


def outputs() -> tuple[tuple[tuple[str, ...], dict[str, Any]], ...]:
    """``--json`` and ``--html``."""
    return (
        option("--json", type=Path, default=None, metavar="PATH"),
        option("--html", type=Path, default=None, metavar="PATH"),
    )
