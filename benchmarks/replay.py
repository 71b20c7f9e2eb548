"""The replay's speed and memory: 100,000 jobs on 1,000 GPUs, shared by 20 teams.

    python benchmarks/replay.py [--jobs 100000] [--gpus 1000] [--line skip|fifo|backfill] [--nodes 8]

Jobs come as a Poisson process that fills the pool to `--load`, of 1 to 64 GPUs, with run times spread over
three powers of ten and time limits in four steps; the teams' guarantees are 60 % of
the pool. The target is 10 s on one core.

Measured on 2 cores on which eight others worked (processor time): 5.3 s with "skip", 4.4 s with "fifo", 6.9 s
with "backfill", 16 s with "backfill" on machines of 8 GPUs, with 50,000 to 60,000 preemptions each;
100 bytes for each job's answer and what runs and waits at one time.
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc

from jupyter_gpuprof.planning.replay import replay
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import Checkpoint, FleetPolicy, PriorityClass, Reclaim, Team

SIZES, WEIGHTS = (1, 2, 4, 8, 16, 32, 64), (50, 15, 12, 15, 5, 2, 1)
LIMITS = (600.0, 3600.0, 4 * 3600.0, 12 * 3600.0)
TEAMS = 20
TARGET_S = 10.0


def trace(jobs: int, gpus: int, load: float, seed: int = 0) -> list[Work]:
    draw = random.Random(seed)
    sizes = draw.choices(SIZES, WEIGHTS, k=jobs)
    runs = [10 ** draw.uniform(1.5, 4.5) for _ in range(jobs)]
    work_s = sum(size * run for size, run in zip(sizes, runs, strict=True))
    rate = load * gpus * jobs / work_s
    works, at_s = [], 0.0
    for i, (size, run) in enumerate(zip(sizes, runs, strict=True)):
        at_s += draw.expovariate(rate)
        team = f"team{min(int(draw.expovariate(0.2)), TEAMS - 1)}"
        kind = draw.choices(("", "release"), (95, 5))[0]
        limit = next(limit for limit in LIMITS if limit >= run)
        works.append(Work(str(i), team, kind, at_s, size, max(size // 8, 1), run, limit))
    return works


def policy(gpus: int, line: str, node_gpus: int) -> FleetPolicy:
    return FleetPolicy(
        "benchmark", gpus, nodes=(node_gpus,) * (gpus // node_gpus) if node_gpus else (),
        teams=tuple((f"team{i}", Team(int(0.6 * gpus / TEAMS))) for i in range(TEAMS)),
        classes=(("release", PriorityClass(100, preemptible=False)),),
        line=line, reclaim=Reclaim(1, 0, 120, 5, 10), checkpoint=Checkpoint(1800, 60, 120),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--line", default="skip")
    parser.add_argument("--nodes", type=int, default=0, help="GPUs of a machine; 0 to count them together")
    args = parser.parse_args()
    works, rules = trace(args.jobs, args.gpus, args.load), policy(args.gpus, args.line, args.nodes)
    begun = time.process_time()
    played = replay(works, rules)
    took_s = time.process_time() - begun
    waited, stopped = sum(wait > 0 for wait in played.wait_s), sum(played.preempted)
    slowest_s = max(played.claims_s, default=0.0)
    print(
        f"{args.jobs} jobs on {args.gpus} GPUs, {args.line}: {took_s:.1f} s, {took_s / TARGET_S:.0%} of 10 s"
    )
    print(
        f"  {waited} waited, {stopped} preemptions, {len(played.claims_s)} claims, at most {slowest_s:.0f} s"
    )
    if args.jobs > 20_000:
        works = works[:20_000]
    tracemalloc.start()
    played = replay(works, rules)
    peak = tracemalloc.get_traced_memory()[1]
    print(f"  {peak / 2**20:.1f} MiB for {len(works)} jobs, {peak / len(works):.0f} bytes each")


if __name__ == "__main__":
    main()
