"""A long row of steps in constant memory."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

import numpy as np
from numpy.typing import NDArray

#: Rows kept before neighbours are summed in pairs; a power of two.
CAPACITY = 4096


class StepSeries:
    """Running sums per block of consecutive steps, and a sample of single steps.

    Until `CAPACITY` steps, each step is a block of its own. Then neighbouring blocks are added in
    pairs and the block size doubles, so a million steps need no more memory than four thousand, no
    step is lost, and sums stay exact. The sample thins itself the same way, by dropping every second.

    Args:
        columns: how many numbers a step has.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.steps = 0
        self.block_size = 1
        self._blocks: list[Sequence[float]] = []
        self._partial = [0.0] * columns
        self._in_partial = 0
        self._sample: list[float] = []

    def append(self, row: Sequence[float], duration_s: float) -> None:
        """Add one step: its `columns` numbers, and its duration in seconds for the sample."""
        if self.steps % self.block_size == 0:  # the sample's stride is the block size
            self._sample.append(duration_s)
        self.steps += 1
        if self.block_size == 1:
            self._blocks.append(row)
        else:
            self._partial = list(map(add, self._partial, row))
            self._in_partial += 1
            if self._in_partial < self.block_size:
                return
            self._blocks.append(self._partial)
            self._partial = [0.0] * self.columns
            self._in_partial = 0
        if len(self._blocks) >= CAPACITY:
            self._halve()

    def _halve(self) -> None:
        blocks = np.asarray(self._blocks)
        self._blocks = list((blocks[0::2] + blocks[1::2]).tolist())
        self._sample = self._sample[::2]
        self.block_size *= 2

    def blocks(self) -> NDArray[np.float64]:
        """Sums per block, shape (blocks, columns); an unfinished last block is added to the one before."""
        table = np.asarray(self._blocks, dtype=np.float64).reshape(-1, self.columns)
        if self._in_partial:
            partial = np.asarray(self._partial)[None, :]
            if len(table):
                table[-1] += partial[0]
            else:
                table = partial
        return table

    def sample(self) -> NDArray[np.float64]:
        """Durations in seconds of single steps, evenly spread over the run."""
        return np.asarray(self._sample, dtype=np.float64)

    def total(self) -> NDArray[np.float64]:
        """Sums over all steps, shape (columns,)."""
        return self.blocks().sum(axis=0) if self.steps else np.zeros(self.columns)
