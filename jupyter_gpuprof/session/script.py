"""Profile a script, unchanged, as ``python script.py args`` would run it."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.session.loops import WATCH_LOOP, wrap_training_loops
from jupyter_gpuprof.session.profile import Session, StopProfiling


def run_script(script: Path, arguments: Sequence[str], session: Session) -> tuple[Run, BaseException | None]:
    """Run a script as ``__main__`` under a session.

    Args:
        script: the file.
        arguments: its ``sys.argv[1:]``.
        session: a session that has not been started.

    Returns:
        The run, and what the script raised (SystemExit and KeyboardInterrupt too), its traceback
        beginning in the script.

    Raises:
        UsageError: the script cannot be read or is no Python.
    """
    try:
        tree = ast.parse(script.read_bytes(), filename=str(script))
    except OSError as error:
        raise UsageError(f"{script} cannot be read: {error.strerror}.") from None
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{script} is no Python that runs here: {error}.") from None
    code = compile(wrap_training_loops(tree, WATCH_LOOP), str(script), "exec", dont_inherit=True)
    raised: BaseException | None = None
    with _as_main(script, arguments) as main:
        session.start()
        try:
            exec(code, main.__dict__)
        except StopProfiling:
            session.stopped_by_limit()
        except BaseException as error:
            raised = error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
        if not isinstance(raised, SystemExit):
            session.ended_with(raised)
        run = session.finish()
    return run, raised


@contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[types.ModuleType]:
    """A fresh ``__main__`` for the script, and the old one back afterwards."""
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    kept = sys.modules["__main__"], sys.argv, sys.path[:]
    sys.modules["__main__"] = main
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield main
    finally:
        sys.modules["__main__"], sys.argv = kept[0], kept[1]
        sys.path[:] = kept[2]
