"""From the site's files to the report over its fleet, and to what another policy would bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.planning.claimtime import grace_note
from jupyter_gpuprof.planning.fleetoutcome import outcome_of, play, recorded, verdict_of
from jupyter_gpuprof.planning.fleetreport import fleet_report
from jupyter_gpuprof.planning.fleetstate import Played
from jupyter_gpuprof.planning.poolsearch import limits_of, search_pool, what_if
from jupyter_gpuprof.planning.workload import Work, workload
from jupyter_gpuprof.probes.jobfiles import read_jobs
from jupyter_gpuprof.records.fleet import Job, JobRecords
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy
from jupyter_gpuprof.records.fleetreplay import FleetComparison, Outcome, Search, WhatIf
from jupyter_gpuprof.records.fleetreport import FleetReport
from jupyter_gpuprof.records.ledger import Loss
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.session.devices.ledger import ledger_report
from jupyter_gpuprof.store.ledgerjobs import ledger_jobs

#: The first bytes of a ledger's file.
_SQLITE = b"SQLite format 3"
#: What a word in place of a file stands for.
LEDGER = "ledger"


def read_fleet(
    paths: Sequence[Path],
    *,
    zone: str = "",
    columns: Sequence[str] = (),
    mapping: Mapping[str, str] | None = None,
    team: str = "",
) -> JobRecords:
    """The jobs of all files together; see ``probes.jobfiles.read_jobs``.

    Args:
        paths: files of schedulers, ledgers of ours among them; "ledger" is the one in use.
        zone, columns, mapping, team: how to read the others.

    Raises:
        UsageError: nothing could be read.
        LedgerError: a ledger cannot be read.
    """
    ledgers = [path for path in paths if _is_ledger(path)]
    others = [path for path in paths if path not in ledgers]
    parts = [ledger_jobs(None if str(path) == LEDGER else path) for path in ledgers]
    if others:
        parts.append(read_jobs(others, zone=zone, columns=columns, mapping=mapping, team=team))
    if len(parts) == 1:
        return parts[0]
    untils = [float(part.until_s) for part in parts if not isinstance(part.until_s, Missing)]
    return JobRecords(
        sources=tuple(source for part in parts for source in part.sources),
        jobs=tuple(job for part in parts for job in part.jobs),
        rows=sum(part.rows for part in parts),
        refused=tuple(refused for part in parts for refused in part.refused),
        until_s=max(untils) if untils else Missing("the records have no times"),
        notes=tuple(note for part in parts for note in part.notes),
        series=tuple(one for part in parts for one in part.series),
    )


def report_fleet(
    records: JobRecords, *, paths: Sequence[Path] = (), reserved: Mapping[str, int], price: Number
) -> FleetReport:
    """The report; a ledger among the files adds where the allocated time was lost.

    Args:
        records: of `read_fleet`.
        paths: the files.
        reserved: GPUs that are reserved for each team.
        price: of a GPU-hour.
    """
    ledger = next((path for path in paths if _is_ledger(path)), None)
    losses: Sequence[Loss] = ()
    if ledger is not None:
        cost = None if isinstance(price, Missing) else float(price)
        losses = ledger_report(price=cost, path=None if str(ledger) == LEDGER else ledger).losses
    return fleet_report(records, reserved=reserved, price=price, losses=losses)


def compare_policies(
    records: JobRecords,
    policy: FleetPolicy,
    *,
    against: str = "",
    gpus_today: int | None = None,
    search: bool = False,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> FleetComparison:
    """What the policy would bring.

    Args:
        records: of `read_fleet`.
        policy: the new one.
        against: "today" (the recorded waits) or "reserved" (each team in its guarantee alone); by default
            today, if the records tell when jobs started.
        gpus_today: the size of the pool before, if it is another.
        search: look for the smallest pool that keeps each team's p90, and judge that one.
        seed: of what is drawn by chance.
        progress: told each size that a search tries.

    Raises:
        UsageError: no job could be replayed, or the comparison makes no sense.
    """
    works, refused = workload(records.jobs, policy)
    if not works:
        why = f" ({refused[0].reason})" if refused else ""
        raise UsageError(f"None of {len(records.jobs)} jobs can be replayed{why}.")
    before = before_of(works, policy, against, gpus_today, seed)
    found: Search | Missing = Missing("not asked for")
    chosen = policy
    if search:
        found = search_pool(works, policy, limits_of(policy, before[0]), seed=seed, progress=progress)
        if not isinstance(found.gpus, Missing):
            chosen = policy.sized(int(found.gpus))
    played = play(works, chosen, seed=seed)
    after = (outcome_of(works, played, chosen), played)
    notes = _notes(records.jobs, works, policy, after[0])
    return FleetComparison(
        before[0], after[0], verdict_of(works, before, after, seed=seed), tuple(refused), tuple(notes), found
    )


def before_of(
    works: Sequence[Work], policy: FleetPolicy, against: str, gpus_today: int | None, seed: int
) -> tuple[Outcome, Played]:
    """What there is: the records, or a replay of reservations.

    Raises:
        UsageError: the records do not tell when jobs started, or nothing is reserved.
    """
    told = sum(work.start_s == work.start_s for work in works)  # not NaN
    kind = against or ("today" if told == len(works) else "reserved")
    size = policy.gpus if gpus_today is None else gpus_today
    if kind == "today":
        if told < len(works):
            raise UsageError(
                f"Of {len(works)} jobs only {told} tell when they started.", "Compare --against reserved."
            )
        played = recorded(works)
        return outcome_of(works, played, _as_recorded(policy, size), "today"), played
    if not any(team.guarantee for _, team in policy.teams):
        raise UsageError("The policy guarantees nothing, so nothing is reserved.", "Give teams a guarantee.")
    reserved = policy.sized(size).reserved()
    played = play(works, reserved, seed=seed)
    return outcome_of(works, played, reserved, "reserved"), played


def _as_recorded(policy: FleetPolicy, gpus: int) -> FleetPolicy:
    """The pool that was paid for, at the policy's price."""
    return FleetPolicy("today", gpus, price=policy.price)


def try_sizes(
    records: JobRecords,
    policy: FleetPolicy,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[WhatIf, ...]:
    """The grid of the what-if page; see ``planning.poolsearch.what_if``."""
    works, _ = workload(records.jobs, policy)
    return what_if(works, policy, seed=seed, progress=progress)


def _notes(jobs: Sequence[Job], works: Sequence[Work], policy: FleetPolicy, after: Outcome) -> list[str]:
    note = grace_note(policy, policy.checkpoint.save_s)
    notes = [note] if note else []
    loose = [name for name, kind in policy.classes if not kind.preemptible]
    if loose:
        notes.append(f"jobs of {', '.join(loose)} never give way: T_claim does not hold for what they borrow")
    unnamed = sorted({work.team for work in works} - {name for name, _ in policy.teams})
    if unnamed and policy.teams:
        shown = ", ".join(name or "(no team)" for name in unnamed[:5])
        count = f"{len(unnamed)} teams are" if len(unnamed) > 1 else "1 team is"
        notes.append(f"{count} not in the policy, and only borrow: {shown}")
    if any(not isinstance(job.gpus, Missing) and job.gpus % 1 for job in jobs):
        notes.append("fractions of a GPU were rounded up to whole ones")
    running = sum(job.state == "running" for job in jobs)
    if running:
        notes.append(f"{running} jobs still run; they are replayed as if they ended now")
    if after.never:
        notes.append(f"{after.never} jobs could never be placed or never ended")
    if not policy.nodes:
        notes.append("GPUs are counted together; what does not fit on machines shows with pool: nodes")
    if not policy.gang:
        notes.append("without gang scheduling nobody gives way, and machines are not looked at")
    return notes


def _is_ledger(path: Path) -> bool:
    if str(path) == LEDGER and not path.exists():
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def parse_pairs(words: Sequence[str], what: str) -> dict[str, str]:
    """``a=b`` or ``a=b,c=d`` as a table.

    Raises:
        UsageError: something else.
    """
    found: dict[str, str] = {}
    for pair in (pair for word in words for pair in word.split(",") if pair):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"{pair!r} is no {what}.", "Write name=value.")
        found[key.strip()] = value.strip()
    return found


def reservations(words: Sequence[str], policy: FleetPolicy | None) -> dict[str, int]:
    """GPUs reserved for each team, from ``team=8`` and from a policy's guarantees.

    Raises:
        UsageError: a number cannot be read.
    """
    found = {name: team.guarantee for name, team in policy.teams if team.guarantee} if policy else {}
    for team, number in parse_pairs(words, "reservation").items():
        if not number.isdigit():
            raise UsageError(f"{number!r} is no number of GPUs.", "For example --reserved vision=8.")
        found[team] = int(number)
    return found


def priced(policy: FleetPolicy, price: float | None) -> FleetPolicy:
    """The policy at another price, if one is given."""
    return policy if price is None else dataclasses.replace(policy, price=price)
