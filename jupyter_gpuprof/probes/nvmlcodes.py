"""What the driver's error codes mean: a value that is missing, or a connection that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jupyter_gpuprof.records.reading import Missing

T = TypeVar("T")

#: Nothing to read on this machine, which is not an error.
NO_DRIVER = {9: "the NVIDIA driver is not loaded", 12: "there is no NVIDIA driver on this machine"}
#: The device is gone until somebody resets it.
LOST = {15: "the device fell off the bus", 16: "the device must be reset"}
#: The call has no answer; others may have. Code 0 is pynvml's error for an answer of no items.
UNTOLD = {
    code: Missing(reason)
    for code, reason in {
        0: "the driver answered with nothing",
        2: "the driver does not know the question",
        3: "the device does not support it",
        4: "the driver does not tell this user",
        6: "the driver has none",
        7: "the driver's list changed while it was read",
        13: "the driver is too old to tell",
        21: "the driver has no data",
        25: "the driver has another version of the call",
        26: "the driver no longer tells",
        27: "the driver is not ready to tell",
    }.items()
}
NOTHING, NO_PERMISSION, NOT_FOUND = UNTOLD[0], UNTOLD[4], UNTOLD[6]
_BROKEN = {
    1: "the connection to the driver was closed",
    10: "the driver timed out",
    17: "the operating system blocked the call",
    18: "the driver was updated and not reloaded",
    20: "the driver is out of memory",
    999: "the driver gives an unknown error, as when a container lost its devices",
}


class Broken(Exception):
    """The connection, or one device, cannot be used until the next init.

    Args:
        code: of the driver; None where something else went wrong in the call.
        reason: in words.
    """

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def ask(call: Callable[..., T], *args: object) -> T | Missing:
    """What a call of pynvml returns, or why it has no answer.

    Raises:
        Broken: with any code that does not mean that this one answer is missing.
    """
    try:
        return call(*args)
    except Exception as error:
        untold = UNTOLD.get(_code(error))
        if untold is None:
            raise as_broken(error) from error
        return untold


def ask_alone(call: Callable[..., T], *args: object) -> T | Missing:
    """As `ask`, for what a device can do without: some drivers fail in one call for ever.

    Raises:
        Broken: the device is lost.
    """
    try:
        return ask(call, *args)
    except Broken as broken:
        if broken.code in LOST:
            raise
        return Missing(broken.reason)


def as_broken(error: Exception) -> Broken:
    """Any error of a call to the driver, in words."""
    if isinstance(error, Broken):
        return error
    code = _code(error)
    if code < 0:
        return Broken(None, f"the call failed ({type(error).__name__}: {error})")
    words = NO_DRIVER.get(code) or LOST.get(code) or _BROKEN.get(code) or "the driver reports an error"
    return Broken(code, f"{words} (NVML error {code})")


def _code(error: Exception) -> int:
    code = getattr(error, "value", None)  # of pynvml.NVMLError
    return code if isinstance(code, int) else -1
