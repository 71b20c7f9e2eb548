"""Another process's device state through the driver's checkpoint, by way of cuda.core.

Imported late and guarded widely: without a driver, cuda.core raises an error of yet another package, and a
RuntimeError in states that it does not know.
"""

from __future__ import annotations

import os
from typing import Any

from jupyter_gpuprof.records.suspension import ProcessState

_KNOWN: dict[str, ProcessState] = {
    "running": "running",
    "locked": "locked",
    "checkpointed": "checkpointed",
    "failed": "failed",
}


class DriverRefused(Exception):
    """A call of the driver failed, or there is no driver; the message says what."""


class CudaProcess:
    """One process, asked from outside of it.

    Args:
        pid: of the process, which uses CUDA.

    Raises:
        DriverRefused: cuda.core is not installed, or its checkpoint module is missing.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            from cuda.core import checkpoint

            self._process: Any = checkpoint.Process(pid)
        except Exception as error:
            raise _refused(error) from None

    def state(self) -> ProcessState:
        """What the driver says; "busy" for the states in between, which cuda.core does not know.

        Raises:
            DriverRefused: it does not answer.
        """
        if not _exists(self._pid):
            return "gone"
        try:
            return _KNOWN[str(self._process.state)]
        except KeyError:
            return "busy"
        except Exception as error:
            if isinstance(error, RuntimeError) and "Unknown CUDA checkpoint process state" in str(error):
                return "busy"
            raise _refused(error) from None

    def lock(self, timeout_ms: int) -> None:
        """No further calls of the process; waits for the work that was submitted.

        Raises:
            DriverRefused: not within that time, or for another reason.
        """
        self._call("lock", timeout_ms)

    def checkpoint(self) -> None:
        """Device memory to the host, of a locked process.

        Raises:
            DriverRefused: it failed.
        """
        self._call("checkpoint")

    def restore(self) -> None:
        """And back; the process is locked then.

        Raises:
            DriverRefused: it failed.
        """
        self._call("restore")

    def unlock(self) -> None:
        """The process goes on.

        Raises:
            DriverRefused: it failed.
        """
        self._call("unlock")

    def _call(self, name: str, *args: int) -> None:
        try:
            getattr(self._process, name)(*args)
        except Exception as error:
            raise _refused(error) from None


def _refused(error: BaseException) -> DriverRefused:
    words = " ".join(str(error).split()) or type(error).__name__
    return DriverRefused(f"{type(error).__name__}: {words[:200]}")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True
