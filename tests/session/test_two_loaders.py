"""Several loaders in one loop: where one of them ends the pass, the others' passes are over, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from jupyter_gpuprof import Checkpointer


def loop(
    folder: Path, lengths: tuple[int, int], *, seed: int = 0, stop_at: int = 0, looks: bool = False
) -> list[list[int]]:
    """What each step of three epochs saw; with `stop_at` it ends after that step, which is saved."""
    torch.manual_seed(seed)
    a, b = (DataLoader(range(length), batch_size=2, shuffle=True) for length in lengths)
    check = DataLoader(range(4), batch_size=2)
    seen, now = [], {"epoch": 0}
    with Checkpointer(folder, every=1, async_=False, a=a, b=b, check=check, now=now) as ck:
        ck.resume()
        if looks:
            next(iter(a))
            list(check)
        for now["epoch"] in range(now["epoch"], 3):  # noqa: B020
            for x, y in zip(a, b, strict=False):
                seen.append([*x.tolist(), *y.tolist(), int(torch.randint(1000, ()))])
                ck.step()
                if ck.step_count == stop_at:
                    return seen
    return seen


@pytest.mark.parametrize("lengths", [(8, 8), (8, 12), (12, 8)])
@pytest.mark.parametrize("stop_at", [2, 4, 6, 8])
def test_resumed_it_sees_what_the_straight_run_sees(
    tmp_path: Path, lengths: tuple[int, int], stop_at: int
) -> None:
    whole = loop(tmp_path / "straight", lengths)
    assert len(whole) == 12
    first = loop(tmp_path / "killed", lengths, stop_at=stop_at)
    assert [*first, *loop(tmp_path / "killed", lengths, seed=99)] == whole


def test_a_look_at_a_batch_and_a_check_before_it_goes_on_end_no_pass(tmp_path: Path) -> None:
    whole = loop(tmp_path / "straight", (8, 8))
    first = loop(tmp_path / "killed", (8, 8), stop_at=2)
    assert [*first, *loop(tmp_path / "killed", (8, 8), seed=99, looks=True)] == whole
