"""Frees the devices of this kernel: what nobody uses, or all, which comes back before the next cell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes import machine, owndevice, release
from jupyter_gpuprof.probes.offload import Moves, Offload
from jupyter_gpuprof.records.release import Held, ReleaseReport

NOTHING_TO_FREE = "No accelerator is in use here: nothing to free."

#: What is away; one per process, since a device is of the process.
_away = Offload()
#: One release, offload or return at a time.
_one = threading.RLock()
_due: list[Any] = []  # the `_Return` that waits for the next cell


def release_device(namespace: dict[str, Any], shell: Any = None) -> ReleaseReport:
    """Free the device memory that nobody uses; no variable of the notebook is touched.

    The last traceback goes, and so do results of cells (``_``, ``Out[5]``) that hold device memory.

    Args:
        namespace: the notebook's variables (``shell.user_ns``).
        shell: the IPython shell; None outside of one.
    """
    return _report("release", namespace, shell, lambda devices: None)


def offload_device(
    namespace: dict[str, Any],
    shell: Any = None,
    *,
    returned: Callable[[ReleaseReport], None] = lambda report: None,
    stop: Callable[[], bool] = lambda: False,
) -> ReleaseReport:
    """Free the device memory of the notebook and lose nothing: tensors move to the host.

    They come back to the same device before the shell's next cell. Without a shell, `bring_back` does it.

    Args:
        namespace: the notebook's variables (``shell.user_ns``).
        shell: the IPython shell; None outside of one.
        returned: is told of each return, and of each that could not be.
        stop: asked before each storage; True leaves the rest where it is.
    """
    with _one:
        try:
            return _report("offload", namespace, shell, lambda devices: _away.take(namespace, devices, stop))
        finally:
            if shell is not None and _away.away_bytes and not _due:
                _due.append(_Return(shell, returned))


def bring_back(namespace: dict[str, Any]) -> ReleaseReport:
    """Bring what is away back to its device; where there is no room it stays on the host, and none is lost.

    Args:
        namespace: the notebook's variables, for the names.
    """
    with _one:
        begun = clock.now_s()
        devices = _away.devices
        moves = _away.give_back(namespace) if devices else Moves()
        if not _away.away_bytes:
            while _due:
                _due.pop().close()
        return _written("return", devices, moves, begun)


def away_bytes() -> int:
    """What is on the host for now."""
    return _away.away_bytes


class _Return:
    """Brings all back before the next cell, and before each one after that until it is done."""

    def __init__(self, shell: Any, returned: Callable[[ReleaseReport], None]) -> None:
        self._shell = shell
        self._returned = returned
        shell.events.register("pre_run_cell", self._before_cell)

    def close(self) -> None:
        """Not any more."""
        self._shell.events.unregister("pre_run_cell", self._before_cell)

    def _before_cell(self, info: Any = None) -> None:
        try:
            self._returned(bring_back(self._shell.user_ns))
        except KeyboardInterrupt:
            self._returned(_left("the return was interrupted; the next cell goes on"))
        except Exception as error:  # ours alone: the cell runs
            self._returned(_left(f"the return failed ({type(error).__name__}: {error})"))


def _left(why: str) -> ReleaseReport:
    return ReleaseReport("return", stayed=(Held("(what is left)", _away.away_bytes, why),), complete=False)


def _report(
    kind: str, namespace: dict[str, Any], shell: Any, move: Callable[[tuple[Any, ...]], Moves | None]
) -> ReleaseReport:
    with _one:
        begun = clock.now_s()
        devices = owndevice.used_devices()
        if not devices:
            return ReleaseReport(kind, remarks=(NOTHING_TO_FREE,))  # type: ignore[arg-type]
        before = sum(map(owndevice.reserved_bytes, devices))
        dropped = release.drop_hidden(namespace, shell, devices[0].type)
        moves = move(devices) or Moves()
        owndevice.empty_cache(devices)
        after = sum(map(owndevice.reserved_bytes, devices))
        return _written(kind, devices, moves, begun, max(before - after, 0), namespace, dropped)


def _written(
    kind: str, devices: tuple[Any, ...], moves: Moves, begun: float, freed: int = 0,
    namespace: dict[str, Any] | None = None, dropped: int = 0,
) -> ReleaseReport:  # fmt: skip
    remarks = list(moves.remarks)
    if dropped:
        what = "1 result of a cell was" if dropped == 1 else f"{dropped} results of cells were"
        remarks.append(f"{what} dropped from Out, since device memory hung on it.")
    return ReleaseReport(
        kind,  # type: ignore[arg-type]
        tuple(map(str, devices)),
        bool(devices) and machine.describe_device(devices[0]).simulated,
        freed,
        sum(map(owndevice.reserved_bytes, devices)),
        release.still_held(namespace, devices) if namespace is not None else (),
        moves.moved,
        moves.stayed,
        moves.complete,
        tuple(remarks),
        clock.now_s() - begun,
    )
