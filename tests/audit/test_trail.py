"""What the trail sees of a loop, and that it changes nothing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from jupyter_gpuprof.probes.digests import batch_digest, sample_digests, state_digest
from jupyter_gpuprof.probes.trail import Trail
from jupyter_gpuprof.records.resumeaudit import SeenStep


class Items(Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.rand(3) + random.random() + float(np.random.rand())


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        yield from (torch.full((3,), float(i)) for i in range(8))


def train(data: Any, shuffle: bool, workers: int = 0, skip: int = 0) -> dict[str, Any]:
    """Two epochs with dropout and augmentation, validation between them; all that it computed."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    options = {"multiprocessing_context": "fork", "persistent_workers": True} if workers else {}
    loader = DataLoader(data, 4, shuffle=shuffle, num_workers=workers, **options)
    other = DataLoader(Stream(), 4)
    losses, batches = [], []
    for _ in range(2):
        for i, x in enumerate(loader):
            if i < skip:
                continue
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            batches.append(x)
        with torch.no_grad():
            losses += [model(x).sum().item() for x in other]
    weights = [p.detach().clone() for p in model.parameters()]
    return {"losses": losses, "batches": batches, "weights": weights, "random": torch.get_rng_state()}


def followed(*args: Any, **options: Any) -> tuple[dict[str, Any], list[SeenStep], list[int]]:
    steps, boundaries = list[SeenStep](), list[int]()
    trail = Trail(lambda number, step: steps.append(step), boundaries.append)
    trail.start()
    try:
        return train(*args, **options), steps, boundaries
    finally:
        trail.stop()


def test_the_run_is_the_same_bit_by_bit() -> None:
    for workers in (0, 2):
        plain = train(Items(), True, workers)
        seen, steps, _ = followed(Items(), True, workers)
        assert seen["losses"] == plain["losses"]
        assert all(torch.equal(a, b) for a, b in zip(seen["weights"], plain["weights"], strict=True))
        assert torch.equal(seen["random"], plain["random"])
        assert len(steps) == 6
        training = plain["losses"][:3] + plain["losses"][5:8]
        assert [float.fromhex(step.losses[0]) for step in steps] == training
        assert [step.epoch for step in steps] == [0, 0, 0, 1, 1, 1]
        assert all(sorted(sum((s.samples for s in steps[e : e + 3]), ()), key=int) == [*map(str, range(12))]
                   for e in (0, 3))  # fmt: skip
        assert [step.content for step in steps] == [batch_digest(x) for x in plain["batches"]]
        assert {step.rates for step in steps} == {((0.01).hex(),)}
        assert len({step.weights for step in steps}) == len({step.moments for step in steps}) == 6


def test_batches_without_a_backward_pass_are_no_steps() -> None:
    _, steps, boundaries = followed(Items(), False, skip=2)
    assert [step.samples for step in steps] == [("8", "9", "10", "11")] * 2
    assert sorted(set(boundaries)) == [0, 1, 2]


def test_samples_of_a_stream_are_known_by_their_content() -> None:
    _, steps, _ = followed(Stream(), False)
    assert [len(step.samples) for step in steps] == [4, 4, 4, 4]
    assert steps[0].samples == steps[2].samples == sample_digests(torch.arange(4.0)[:, None].expand(4, 3))
    assert not any(step.indexed for step in steps)


def test_digests_tell_bits_kinds_and_shapes_apart() -> None:
    x = torch.arange(6.0)
    alike = [
        x,
        x.reshape(2, 3),
        x.double(),
        x.bfloat16(),
        torch.nextafter(x, x + 1),
        {"x": x},
        [x],
        (x,),
        x.numpy(),
    ]
    assert len({batch_digest(one) for one in alike}) == len(alike)
    assert batch_digest({"a": x, "b": [1, "c"]}) == batch_digest({"a": x.clone(), "b": [1, "c"]})
    large = torch.zeros(1000, 1000)
    before = state_digest([large])
    assert state_digest([large.clone()]) == before
    assert state_digest([large + 1]) != before
