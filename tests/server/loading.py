"""What loading the extension costs a server that starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# What a server has loaded before it comes to its extensions. Of ours, Python's compiled files are kept in a
# folder, as `pip install` leaves them beside the package; a checkout may have none (PYTHONDONTWRITEBYTECODE).
_PROGRAM = """
import jupyter_server.serverapp, jupyter_server.extension.application, jupyter_server.base.handlers
import jupyter_server.auth.decorator, jupyter_client.session, sqlite3, concurrent.futures, sys, time
sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[1]
begun = time.process_time()
import jupyter_gpuprof; jupyter_gpuprof._jupyter_server_extension_points()
print(time.process_time() - begun, *(name for name in sys.argv[2:] if name in sys.modules))
"""


def loading(compiled: Path, *heavy: str, tries: int = 4) -> tuple[float, set[str]]:
    """The least processor time of several tries in seconds, and which heavy modules were loaded with it.

    Args:
        compiled: an empty folder for the compiled files; the first try fills it and does not count.
        heavy: modules to look for.
        tries: how many count.
    """
    told = []
    for _ in range(1 + tries):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(compiled), *heavy],
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout.split())
    return min(float(words[0]) for words in told[1:]), {name for words in told for name in words[1:]}
