"""A data set as people write it: files, a Compose, a logger."""

from __future__ import annotations

import logging
import random
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return x * self.factor


class Flip:
    def __call__(self, x: Any) -> Any:
        return x[::-1].copy() if random.random() < 0.5 else x


class ToTensor:
    def __call__(self, x: Any) -> Any:
        return torch.from_numpy(x)


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, x: Any) -> Any:
        for step in self.transforms:
            x = step(x)
        return x


class Files(Dataset):
    """Files of numbers; `made` counts how many were read."""

    def __init__(self, root: Path, *steps: Any) -> None:
        self.files = sorted(map(str, root.glob("*.txt")))
        self.transform = Compose(list(steps))
        self.log = logging.getLogger("files")
        self.id = uuid.uuid4()
        self.made = 0

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        self.made += 1
        self.log.debug("reading %s", i)
        return self.transform(np.loadtxt(self.files[i])), i


def write_files(root: Path, count: int = 20) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        (root / f"{i:03}.txt").write_text(" ".join(str(i + j) for j in range(5)))
    return root
