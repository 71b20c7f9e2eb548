"""A writer of its own process: ``python ledger_child.py FILE USER TICKS``; says each tick once it is in."""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_gpuprof.records.ledger import LedgerRow
from jupyter_gpuprof.store.ledger import LedgerWriter


def main(path: str, user: str, ticks: str) -> None:
    ledger = LedgerWriter(Path(path), timeout_s=5.0)
    for tick in range(int(ticks)):
        rows = [LedgerRow(490_000 + tick // 3600, "GPU-1", "H200", "busy", 1.0, 1, user=user)]
        while not ledger.add(rows):
            rows = []  # they wait in there
        print(tick + 1, flush=True)
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
