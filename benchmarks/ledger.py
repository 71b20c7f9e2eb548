"""The ledger's speed: a tick's insert, the report over 90 days, what a row takes, and a tick of the reaper.

    python benchmarks/ledger.py [--days 90] [--devices 8]

Each hour has five states for two notebooks on each device. The report and the decisions are the least
processor time of several tries, the rest medians of time passed; the ratio beside it is the share of its
target: 2 ms for a tick's insert, 0.5 s for the report, 50 ms for 200 kernels.

Measured on 2 cores shared with other work: 0.6 ms for an insert of 120 rows, 0.23 to 0.26 s for the report,
8 ms for the decisions, 140 bytes a row.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_gpuprof.analysis.accounting import account
from jupyter_gpuprof.analysis.idleness import decide
from jupyter_gpuprof.analysis.ledger_report import report
from jupyter_gpuprof.records.idleness import KernelFacts, Process, Tick, Work
from jupyter_gpuprof.records.ledger import DeviceSample, Holding, LedgerRow
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.store.ledger import LedgerWriter, ledger_sums
from jupyter_gpuprof.views.ledger_text import ledger_text

STATES = ("busy", "input_stall", "host_idle", "held_idle", "reserved_idle")
FIRST = 490_000


def uuid(device: int) -> str:
    return f"GPU-{device}e4b9c1a-7d20-4c55-9a61-0f3d2b8c7e1{device}"


def history(days: int, devices: int) -> list[LedgerRow]:
    return [
        LedgerRow(
            hour, uuid(device), "NVIDIA H200", state, 360.0, 360, f"user{who}",
            f"projects/p{(hour // 5 + who) % 40}/train.ipynb", measure="gr_active",
        )
        for hour in range(FIRST, FIRST + 24 * days)
        for device in range(devices)
        for state in STATES
        for who in range(2)
    ]  # fmt: skip


def median_s(work: Callable[[], object], repeats: int) -> float:
    took = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def least_s(work: Callable[[], object], repeats: int) -> float:
    """Of processor time: what other programs do meanwhile is not the work's."""
    took = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)


def say(what: str, seconds: float, target_s: float) -> None:
    print(f"{what:<44} {seconds * 1e3:9.2f} ms   {seconds / target_s:5.2f} of the target")


def tick_rows(devices: int, now_s: float) -> list[LedgerRow]:
    holdings = tuple(Holding(f"user{i}", f"{i}.ipynb", "active", "r", input_ratio=0.2) for i in range(5))
    samples = [
        DeviceSample(uuid(i), "NVIDIA H200", "gr_active", 0.5, 2**36, holdings) for i in range(devices)
    ]  # fmt: skip
    return account(samples, {}, ended_unix_s=now_s, passed_s=1.0, interval_s=1.0, allocation="visible")


def reaper_tick(kernels: int) -> Callable[[], object]:
    facts = [
        KernelFacts(
            str(i), f"{i}.ipynb", "python3", Process(i, 1.0, 1), 0.0, 3, 0, 0, 5.0, False,
            Work(cpu_s=1.0, process_busy_ratio=0.0, driver_bytes=2**30),
        )
        for i in range(kernels)
    ]  # fmt: skip
    policy = Policy(action="shutdown", exempt=("prod/*", "*/keep/*"))
    watches = [decide(one, None, policy, Tick(100.0, 100.0, 10.0))[0] for one in facts]
    tick = Tick(110.0, 110.0, 10.0)
    return lambda: [decide(one, watch, policy, tick) for one, watch in zip(facts, watches, strict=True)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--days", type=int, default=90)
    options.add_argument("--devices", type=int, default=8)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = LedgerWriter(path)
        rows = history(chosen.days, chosen.devices)
        for at in range(0, len(rows), 15_000):
            assert ledger.add(rows[at : at + 15_000]), ledger.trouble
        ledger.close()
        print(f"{len(rows):,} rows, {path.stat().st_size / len(rows):.0f} bytes each")
        ledger = LedgerWriter(path)
        ledger.add([])
        now_s = (FIRST + 24 * chosen.days) * 3600.0
        batch = tick_rows(chosen.devices, now_s)
        say(f"insert of a tick ({len(batch)} rows)", median_s(lambda: ledger.add(batch), 200), 2e-3)
        for by in ("notebook", "device", "user", "day"):

            def show(by: str = by) -> object:
                sums, devices = ledger_sums(by, path=path)
                return ledger_text(report(sums, by, devices=devices, price=2.5))

            say(f"report by {by}, with opening the file", least_s(show, 5), 0.5)
        ledger.close()
    say("decisions for 200 kernels", least_s(reaper_tick(200), 20), 50e-3)
    say("accounting of a tick", median_s(lambda: tick_rows(chosen.devices, now_s), 200), 2e-3)


if __name__ == "__main__":
    main()
