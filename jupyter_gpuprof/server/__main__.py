"""``python -m jupyter_gpuprof.server``: a server with the extension; ``--help-all`` lists its options.

``jupyter server --help-all`` prints before it looks for extensions, and so knows of none.
"""

from __future__ import annotations

from jupyter_gpuprof.server.app import GpuprofServer

if __name__ == "__main__":
    GpuprofServer.launch_instance()
