"""A policy from its YAML file; what is wrong is named with its line and key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.fleetpolicy import (
    LINES,
    Checkpoint,
    FleetPolicy,
    Line,
    PriorityClass,
    Reclaim,
    Spot,
    Team,
)
from jupyter_gpuprof.session.devices.keep import parse_span

_EXAMPLE = "docs/fleet.md has an example."
#: Letters of a wrong value that are shown.
_MOST_SHOWN = 60
#: GPUs or machines; a replay keeps a list of them.
_MOST = 1_000_000
_NODES_HINT = "Write nodes: [8, 8], or nodes: {count: 2, gpus: 8}."


def load_policy(path: Path) -> FleetPolicy:
    """The policy of the file.

    Raises:
        OptionError: it cannot be read, a key is unknown, or a value makes no sense.
    """
    import yaml  # of jupyter_server

    lines: dict[str, int] = {}
    try:
        text = path.read_text(encoding="utf-8-sig")
        root, data = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
        if root is not None:
            _find_lines(root, "", lines)
    except OSError as error:
        raise OptionError(f"The policy {path} cannot be read: {error.strerror}.", _EXAMPLE) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        at = getattr(error, "problem_mark", None)
        where = f", line {at.line + 1}" if at is not None else ""
        raise OptionError(f"{path.name}{where} is no YAML.", _EXAMPLE) from None
    except _KeyTwiceError as error:
        raise OptionError(f"{path.name}, {error}", "YAML would take the last one alone.") from None
    return _Reader(path, lines).policy(data)


class _KeyTwiceError(Exception):
    """A key is there twice, of which YAML would forget the first."""


def _find_lines(node: Any, path: str, lines: dict[str, int]) -> None:
    if node.id != "mapping":
        return
    names = set()
    for key, value in node.value:
        name = f"{path}.{key.value}".lstrip(".")
        line = key.start_mark.line + 1
        if name in names:
            raise _KeyTwiceError(f"line {line}, {name} is there twice, first in line {lines[name]}.")
        names.add(name)
        lines[name] = line
        _find_lines(value, name, lines)


class _Reader:
    def __init__(self, path: Path, lines: Mapping[str, int]) -> None:
        self.path, self.lines = path, lines

    def policy(self, data: object) -> FleetPolicy:
        top = self.table(
            data, "", "pool", "spot", "teams", "classes", "line", "gang", "aging", "reclaim", "checkpoint"
        )
        pool = self.table(top.get("pool"), "pool", "gpus", "nodes", "price")
        nodes = self.nodes(pool.get("nodes"))
        gpus = self.value(pool, "pool", "gpus", self.count, sum(nodes))
        try:
            return FleetPolicy(
                name=self.path.stem,
                gpus=gpus,
                nodes=nodes,
                teams=self.named(top.get("teams"), "teams", self.team),
                classes=self.named(top.get("classes"), "classes", self.kind),
                line=self.value(top, "", "line", self.kind_of_line, "skip"),
                gang=self.value(top, "", "gang", self.flag, True),
                aging_s=self.value(top, "", "aging", self.some_time, math.inf),
                reclaim=self.reclaim(top.get("reclaim")),
                checkpoint=self.checkpoint(top.get("checkpoint")),
                spot=self.spot(top.get("spot")),
                **({"price": self.amount(pool["price"], "pool.price")} if "price" in pool else {}),
            )
        except OptionError as error:
            if str(error).startswith(self.path.name):
                raise
            raise OptionError(
                f"{self.path.name}: {error.args[0]}", vars(error).get("hint", _EXAMPLE)
            ) from None

    def team(self, data: object, where: str) -> Team:
        found = self.table(data, where, "guarantee", "borrow", "p90")
        team = Team(
            self.value(found, where, "guarantee", self.count, 0),
            self.value(found, where, "borrow", self.count, None),
        )
        if "p90" not in found:
            return team
        return Team(team.guarantee, team.borrow, self.span(found["p90"], f"{where}.p90"))

    def kind(self, data: object, where: str) -> PriorityClass:
        found = self.table(data, where, "priority", "preemptible")
        priority = found.get("priority", 0)
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise self.wrong(f"{where}.priority", "a whole number", priority)
        return PriorityClass(priority, self.value(found, where, "preemptible", self.flag, True))

    def reclaim(self, data: object) -> Reclaim:
        names = ("cycle", "notice", "grace", "teardown", "start")
        found = self.table(data, "reclaim", *names)
        return Reclaim(*(self.value(found, "reclaim", name, self.span, 0.0) for name in names))

    def checkpoint(self, data: object) -> Checkpoint:
        found = self.table(data, "checkpoint", "interval", "save", "resume")
        return Checkpoint(
            self.value(found, "checkpoint", "interval", self.span, None),
            self.value(found, "checkpoint", "save", self.span, Checkpoint().save_s),
            self.value(found, "checkpoint", "resume", self.span, 0.0),
        )

    def spot(self, data: object) -> Spot:
        found = self.table(data, "spot", "gpus", "between", "notice", "price")
        return Spot(
            self.value(found, "spot", "gpus", self.count, 0),
            self.value(found, "spot", "between", self.some_time, math.inf),
            self.value(found, "spot", "notice", self.span, 0.0),
            self.value(found, "spot", "price", self.amount, Spot().price),
        )

    def nodes(self, data: object) -> tuple[int, ...]:
        if data is None:
            return ()
        if isinstance(data, list):
            return tuple(self.count(size, "pool.nodes") for size in data)
        if not isinstance(data, dict):
            raise OptionError(f"{self.at('pool.nodes')} has no machines.", _NODES_HINT)
        found = self.table(data, "pool.nodes", "count", "gpus")
        if len(found) < 2:
            raise OptionError(f"{self.at('pool.nodes')} needs count and gpus.", _NODES_HINT)
        count, gpus = (self.count(found[name], f"pool.nodes.{name}") for name in ("count", "gpus"))
        return (gpus,) * count

    def named(
        self, data: object, where: str, read: Callable[[object, str], Any]
    ) -> tuple[tuple[str, Any], ...]:
        if data is None:
            return ()
        if not isinstance(data, dict):
            raise self.wrong(where, "names with their values", data)
        return tuple((str(name), read(value, f"{where}.{name}")) for name, value in data.items())

    def table(self, data: object, where: str, *known: str) -> Mapping[str, Any]:
        if data is None:
            return {}
        if not isinstance(data, dict):
            raise self.wrong(where or "the policy", "keys with their values", data)
        for key in data:
            if key not in known:
                name = f"{where}.{key}".lstrip(".")
                raise OptionError(f"{self.at(name)} is not known.", f"There are: {', '.join(known)}.")
        return data

    def value(
        self,
        data: Mapping[str, Any],
        where: str,
        name: str,
        read: Callable[[object, str], Any],
        default: Any,
    ) -> Any:
        return default if data.get(name) is None else read(data[name], f"{where}.{name}".lstrip("."))

    def kind_of_line(self, data: object, where: str) -> Line:
        if data not in LINES:
            raise self.wrong(where, ", ".join(LINES[:-1]) + f" or {LINES[-1]}", data)
        return cast("Line", data)

    def count(self, data: object, where: str) -> int:
        if not isinstance(data, int) or isinstance(data, bool) or not 0 <= data <= _MOST:
            raise self.wrong(where, f"a whole number from 0 to {_MOST:,}", data)
        return data

    def amount(self, data: object, where: str) -> float:
        if not isinstance(data, (int, float)) or isinstance(data, bool) or not 0 <= data < math.inf:
            raise self.wrong(where, "a number from 0 on", data)
        return float(data)

    def flag(self, data: object, where: str) -> bool:
        if not isinstance(data, bool):
            raise self.wrong(where, "true or false", data)
        return data

    def span(self, data: object, where: str) -> float:
        try:
            return float(parse_span(str(data)))
        except OptionError:
            raise self.wrong(where, "a time such as 90s, 30m or 2h", data) from None

    def some_time(self, data: object, where: str) -> float:
        span_s = self.span(data, where)
        if not span_s:
            raise self.wrong(where, "a time above 0", data)
        return span_s

    def at(self, where: str) -> str:
        line = self.lines.get(where)
        return f"{self.path.name}, {f'line {line}, ' if line else ''}{where}"

    def wrong(self, where: str, wanted: str, data: object) -> OptionError:
        shown = repr(data)
        if len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}..."
        return OptionError(f"{self.at(where)} takes {wanted}, not {shown}.", _EXAMPLE)
