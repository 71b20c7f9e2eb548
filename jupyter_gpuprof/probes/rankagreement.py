"""What the ranks of a job must agree on: whether a save is due now, and which checkpoint to take."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import machine
from jupyter_gpuprof.probes.resumestate import launched_ranks


class Ranks:
    """This process among the ranks of its job; alone where torch.distributed is not in use.

    Made on all ranks at the same place. A flag is exchanged on the host while the next step runs, so nothing
    of the device waits, and what one rank asked for happens on all of them one step later.

    Raises:
        UsageError: a launcher started several ranks, and they have no process group yet.
    """

    def __init__(self) -> None:
        torch = machine.import_torch()
        dist = torch.distributed if torch is not None and torch.distributed.is_available() else None
        self.rank, self.world = 0, 1
        self._asked: tuple[Any, Any] | None = None
        #: Of all ranks, by way of the host; None where this process is alone.
        self.group: Any = None
        if dist is None or not dist.is_initialized():
            if launched_ranks() > 1:
                raise UsageError(
                    f"{launched_ranks()} ranks were launched, and they cannot agree on a step yet.",
                    "Call torch.distributed.init_process_group() before.",
                )
            return
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(backend="gloo") if self.world > 1 else None

    def highest(self, flag: int) -> int:
        """The highest flag of all ranks at the step before; that of this step is on its way.

        Args:
            flag: this rank's, now.
        """
        if self.world == 1:
            return flag
        import torch
        import torch.distributed as dist

        before = self._wait()
        value = torch.tensor([flag], dtype=torch.int32)
        work = dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.group, async_op=True)
        self._asked = work, value
        return before

    def slowest(self, seconds: float) -> float:
        """The most of all ranks; none goes on before all have come here."""
        if self.world == 1:
            return seconds
        import torch
        import torch.distributed as dist

        value = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.group)
        return float(value)

    def forget(self) -> None:
        """Let no flag be on its way; called by all ranks at the same step."""
        self._wait()

    def same(self, value: Any) -> Any:
        """What rank 0 has, on all ranks."""
        if self.world == 1:
            return value
        import torch.distributed as dist

        self._wait()
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def close(self) -> None:
        """Nothing is on its way any more."""
        try:
            self._wait()
        except RuntimeError:  # another rank is gone
            pass

    def _wait(self) -> int:
        if self._asked is None:
            return 0
        (work, value), self._asked = self._asked, None
        work.wait()
        return int(value)
