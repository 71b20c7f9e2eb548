"""What a replay keeps of each job while it waits, runs or gives way, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from jupyter_gpuprof.planning.fleetnodes import Needs, Places
from jupyter_gpuprof.planning.workload import Work


@dataclass(slots=True, eq=False)
class Waiting:
    """A job in the queue, or on its way back to it.

    Args:
        key: its place in the line.
        left_s: work that is not done, or not kept.
        since_s: from when on it waits; waited_s: before that.
    """

    index: int
    work: Work
    needs: Needs
    priority: int
    preemptible: bool
    key: tuple[float, float, int]
    left_s: float
    since_s: float
    waited_s: float = 0.0
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Placed:
    """A job on its GPUs.

    Args:
        end_s: when it will have worked all its time; infinite once it is to be stopped before.
        claim: for whom it must give way.
    """

    job: Waiting
    places: Places
    is_spot: bool
    start_s: float
    end_s: float
    claim: Claim | None = None

    @property
    def gpus(self) -> int:
        """How many it holds."""
        return self.job.work.gpus


@dataclass(slots=True, eq=False)
class Claim:
    """A job whose GPUs are set aside, or will be handed over.

    Args:
        due: GPUs that are still to come, by machine.
        victims: who has not given way yet.
        given: GPUs set aside so far, and since when: the sums of GPUs and of GPUs times the moment.
    """

    job: Waiting
    places: Places
    decided_s: float
    due: dict[int, int]
    victims: list[Placed]
    given: tuple[float, float] = (0.0, 0.0)


@dataclass
class Played:
    """What came of it; lists are by the position of the job in the workload.

    Args:
        wait_s: in the queue, all attempts together; NaN for what never finished.
        start_s: of the first attempt; end_s: when its work was done; NaN if never.
        preempted: how often it was stopped.
        claims_s: of each claim, from the decision until the job runs.
        held_s: GPU seconds held by jobs. They are work done once, `lost_s` (work to be redone) and
            `overhead_s` (stopping and resuming).
        spot_s: those held on spot capacity.
        idle_claimed_s: GPU seconds set aside for claims, held by nobody.
        interruptions: of jobs on spot capacity.
    """

    wait_s: list[float]
    start_s: list[float]
    end_s: list[float]
    preempted: list[int]
    claims_s: list[float] = field(default_factory=list)
    held_s: float = 0.0
    lost_s: float = 0.0
    overhead_s: float = 0.0
    spot_s: float = 0.0
    idle_claimed_s: float = 0.0
    interruptions: int = 0
