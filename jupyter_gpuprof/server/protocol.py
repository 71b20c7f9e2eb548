"""What the REST routes ask the server's monitor: plain JSON values, each method and key written down here.

Everywhere: a number that is not known is ``{"missing": why}``. Keys end in their units; ``*_ago_s`` and
``*_in_s`` count from the moment of the answer, so that no clock need be compared; ``*_unix_s`` are dates.
Reading methods are synchronous and never wait for a driver or a kernel; `status`, `devices`, `holders` and
`reaper` only look into memory, and count as readers, which keeps the sampler awake for a while. `audit`,
`ledger`, `runs` and `run` read SQLite: call them in another thread than the event loop's.
"""

from __future__ import annotations

from typing import Any, Protocol

#: Grows when a key is removed or changes its meaning; new keys do not change it.
PROTOCOL_VERSION = 1

Json = dict[str, Any]


class Monitor(Protocol):
    """The devices, the holders, the ledger and the reaper of one server.

    Errors are leaves of `errors.GpuprofError`: `HolderNotFound` and `RunNotFound` (404), `ReleaseRefused`
    (409: what is asked for would touch work in progress or what is not ours), `OptionError` (400),
    `LedgerError` (503).
    """

    def status(self) -> Json:
        """Whether it works, and by which settings.

        - ``protocol``, ``version``: int, str.
        - ``devices``: ``{state: "ok"|"no device"|"unknown", reason, driver, count, simulated: bool}``.
        - ``sampling``: ``{awake, period_s, looks, look_ago_s, look_took_s}``; the last two may be missing.
        - ``allocation``: ``"visible"|"held"``.
        - ``kernels``: how many this server has.
        - ``reaper``: the effective policy, see `reaper`.
        - ``ledger``: ``{trouble, remarks: [str], lost_s}``; trouble is ``""`` while it is written.
        - ``warnings``: ``[str]``, sentences for a person: two cullers, an error in the configuration.
        """
        ...

    def devices(self) -> Json:
        """The devices as of the last look.

        - ``state``, ``reason``, ``driver``, ``look_ago_s``: as above.
        - ``devices``: list of ``{index, uuid, name, state: "ok"|"lost"|"unknown", reason, mig,
          total_bytes, used_bytes, reserved_bytes, utilisation_ratio, used_includes_reserved,
          gpm: {interval_s, active_ratio, sm_ratio, occupancy_ratio, tensor_ratio, dram_ratio} | {missing},
          holders: [{holder_id, kernel_id, path, held_bytes, orphan: bool}],
          unattributed: {held_bytes, why, processes: [{pid, used_bytes, why}]} | null}``.
        """
        ...

    def holders(self) -> Json:
        """Every kernel of this server, whether it holds a device or not, and what is left of dead ones.

        - ``look_ago_s``.
        - ``holders``: list of ``{holder_id (the kernel's id), kernel_id, path (str, "" without a session),
          kernelspec, remote: bool, pid: int|null,
          state: "training"|"running a cell"|"waiting for input"|"background work"|"idle"|
          "finished and holding"|"starting"|"remote"|"unknown",
          holds: bool (some device memory, as far as is known), held_bytes (of all devices),
          devices: [{uuid, name, held_bytes, allocated_bytes, reserved_bytes, work_ratio, pids: [int]}],
          cpu_s, open_requests, connections: int (websockets; shown, never a veto), idle_s,
          keep: {until_in_s, why} | null,
          reaper: a decision, see `reaper`}``.
        - ``orphans``: list of ``{orphan_id, pid, kernel_id, path, gone_ago_s, certain: bool (recorded while
          its kernel lived, and ours), held_bytes, devices: [{uuid, name, held_bytes}], state,
          reaper: a decision}``.
        - ``unattributed``: list of ``{device_uuid, held_bytes, why, processes: [{pid, used_bytes, why}]}``.
        """
        ...

    def reaper(self) -> Json:
        """The policy and what it decides now.

        - ``policy``: the effective values: ``{enabled, idle_timeout_s, warn_before_s, action,
          busy_timeout_s: number|null, min_held_bytes, exempt: [str], orphans: "report"|"end", keep_max_s,
          dry_run, step_wait_s, start_grace_s, cpu_ratio, device_ratio,
          kernelspecs: {name: {option: value}}, hook: bool}``.
        - ``decisions``: one for each holder and orphan: ``{holder_id, action, activity, reason, sentence,
          vetoes: [str], evidence: [str], idle_s, due_in_s, next_action, dry_run, steps: [{action, ago_s}],
          acting: str (what is being done right now, or "")}``; `Action`, `Activity` and `Reason` are the
          literals of records/idleness.py.
        - ``warnings``: as in `status`.
        """
        ...

    def audit(self, limit: int = 100) -> Json:
        """What was done, newest first.

        - ``rows``: list of ``{audit_id, at (ISO 8601, UTC), holder_id, path, action (`Action`, or "keep",
          "release", "end descendants", "verify"), by ("reaper" or a user's name), outcome ("done",
          "would be done", "cancelled", "failed", "released", "not released"), sentence, evidence: [str],
          device_uuids: [str], freed_bytes}``.
        """
        ...

    def ledger(self, by: str = "notebook", since_s: float | None = None, price: float | None = None) -> Json:
        """The GPU-hours: ``records.ledger.LedgerReport.to_dict()``.

        Args:
            by: "notebook", "device", "user" or "day".
            since_s: only the last so many seconds; None for all.
            price: of one device hour.
        """
        ...

    def runs(self, limit: int = 100) -> Json:
        """The saved runs, newest first: ``{"runs": [{run_id, name, started_at, label, wall_s, steps}]}``."""
        ...

    def run(self, run_id: str) -> Json:
        """One run: ``records.run.Run.to_dict()``. `run_id` is one, its beginning, a name or "last"."""
        ...

    async def keep(self, holder_id: str, hours: float, why: str = "", by: str = "") -> Json:
        """Leave a kernel alone for so long, by at most the policy's maximum; 0 hours end a keep.

        A keep that was made in the kernel itself stands beside it, and is ended there only.

        Returns ``{holder_id, keep: {until_in_s, why} | null (what holds now), ended: bool (it is kept by
        nothing now), asked_s, granted_s}``.

        Args:
            holder_id: the kernel's id.
            hours: from now on.
            why: words for the audit.
            by: the user's name.
        """
        ...

    async def release(self, holder_id: str, action: str = "free", by: str = "") -> Json:
        """Free the device that an idle kernel holds, at a person's request.

        Returns ``{holder_id, action, outcome, sentence, freed_bytes, still_held: [{name, bytes}]}``; it may
        take as long as a shutdown (a minute).

        Args:
            holder_id: the kernel's id.
            action: "free", "offload", "suspend" or "shutdown"; the last also needs `write` on kernels.
            by: the user's name.
        """
        ...

    async def end_orphan(self, orphan_id: str, by: str = "") -> Json:
        """End what is left of a dead kernel, if it is certainly ours.

        Returns ``{orphan_id, outcome, sentence, freed_bytes}``.

        Args:
            orphan_id: from `holders`.
            by: the user's name.
        """
        ...
