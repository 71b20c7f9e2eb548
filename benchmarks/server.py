"""What the server's side costs: a look at 200 kernels, a look of a real driver's devices, the start.

    python benchmarks/server.py

The driver is the pretended one of tests/fakenvml, read by the real pynvml: 8 devices, 40 kernels.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jupyter_gpuprof.probes.nvml import NvmlReader
from jupyter_gpuprof.probes.processes import ProcessTable
from jupyter_gpuprof.records.sighting import SeenKernel
from jupyter_gpuprof.session.devices.monitor import DeviceMonitor
from jupyter_gpuprof.store.ledger import LedgerWriter
from tests.fakenvml import GIB, FakeNvml, Gpu
from tests.server.loading import loading
from tests.session.test_monitor import World


def scripted(kernels: int = 200) -> float:
    """Processor seconds of a look at so many kernels with a child each, devices and processes scripted."""
    world = World()
    for n in range(kernels):
        world.kernel(f"k{n}", 1000 + n, path=f"{n}.ipynb")
        world.table.add(5000 + n, parent=1000 + n)
    took = []
    for _ in range(20):
        begun = time.process_time()
        world.look()
        took.append(time.process_time() - begun)
    world.monitor.close()
    return min(took)


def real(folder: Path, kernels: int = 40, looks: int = 20) -> float:
    """Processor seconds of a look at 8 devices and so many processes, the ledger being written."""
    naps = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) for _ in range(kernels)]
    try:
        gpus = [Gpu(processes={p.pid: GIB for p in naps[n::8]}, used_bytes=5 * GIB) for n in range(8)]
        nvml = FakeNvml(folder, gpus)
        with nvml.in_process():
            writer = LedgerWriter(folder / "ledger.db")
            monitor = DeviceMonitor(NvmlReader(), ProcessTable(), interval_s=0.2, writer=writer)
            seen = [SeenKernel(f"k{p.pid}", f"{p.pid}.ipynb", "python3", p.pid, 0, 0) for p in naps]
            monitor.tick(seen)
            used = 0.0
            for _ in range(looks):
                time.sleep(0.15)
                begun = time.process_time()
                monitor.tick(seen)
                used += time.process_time() - begun
            monitor.close()
        return used / looks
    finally:
        for nap in naps:
            nap.kill()
            nap.wait()


def main() -> None:
    """Print the figures."""
    print(f"a look at 200 kernels, scripted:          {scripted() * 1e3:6.1f} ms of processor time")
    with tempfile.TemporaryDirectory() as folder:
        print(
            f"a look at 8 devices and 40 kernels, real: {real(Path(folder)) * 1e3:6.1f} ms of processor time"
        )
    with tempfile.TemporaryDirectory() as folder:
        load_s, _ = loading(Path(folder))
    print(f"loading the extension into a server:      {load_s * 1e3:6.1f} ms of processor time")


if __name__ == "__main__":
    main()
