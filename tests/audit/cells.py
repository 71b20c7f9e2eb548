"""A small notebook whose loop saves and resumes, right or with one fault planted."""

from __future__ import annotations

from typing import Any

from tests.trials.notebook import Notebook

#: 12 samples, 3 steps an epoch; dropout draws from the process's random state in each step.
SETUP = """
import os, json, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
torch.manual_seed(0)
class Items(Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.full((3,), float(i))
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
def falling(step): return 0.9 ** step
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, falling)
loader = DataLoader(Items(), 4, shuffle=True)
epochs = 4
from jupyter_gpuprof import Checkpointer
"""

OURS = """
with Checkpointer("checkpoints", model=model, optimizer=optimizer, schedule=schedule, loader=loader) as ck:
    start = ck.resume()
    for epoch in range(start.epoch, epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            schedule.step()
            ck.step()
"""


def notebook(setup: str = "", **names: Any) -> Notebook:
    return Notebook(SETUP + setup, **names)


#: Functions of the person's own; the file PLANTED plants a fault in them.
OWN_SETUP = """
def planted(): return open("PLANTED").read()
generator = torch.Generator()
import numpy
class Drawn(Items):
    def __getitem__(self, i):
        return super().__getitem__(i) + (numpy.random.rand() if planted() == "augmentation" else 0)
loader = DataLoader(Drawn(), 4, shuffle=True, generator=generator)
first_epoch = skip = 0
random = None
def state():
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(), "random": torch.get_rng_state(),
            "epoch": epoch, "batch": i + 1}
def put(state):
    global first_epoch, skip, random
    model.load_state_dict(state["model"])
    if planted() != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    if planted() != "schedule":
        schedule.load_state_dict(state["schedule"])
    random = None if planted() == "random" else state["random"]
    first_epoch, skip = divmod(3 * state["epoch"] + state["batch"], 3)
    if planted() == "position":
        skip = 0
def save(path):
    if planted() == "pointer":
        name = f"{path}-{3 * epoch + i}"
        with open(path, "w") as file:
            file.write(name)
        torch.save(state(), name)
    elif planted() == "raises":
        raise OSError("full")
    elif planted() == "shard":
        whole = state()
        torch.save({k: whole.pop(k) for k in ("model", "batch", "epoch")}, path + "-0")
        torch.save(whole, path + "-1")
    else:
        now = state()
        if planted() == "second":
            now["batch"] = i + 1 - (skip if epoch == first_epoch else 0)
        torch.save(now, path + ".tmp")
        os.replace(path + ".tmp", path)
def load(path):
    if planted() == "pointer":
        with open(path) as file:
            path = file.read()
    put({**torch.load(path + "-0"), **torch.load(path + "-1")} if planted() == "shard" else torch.load(path))
"""

OWN = """
if planted() == "shuffle":
    generator.manual_seed(5)
for epoch in range(first_epoch, epochs):
    if planted() != "shuffle":
        generator.manual_seed(epoch)
    for i, x in enumerate(loader):
        if epoch == first_epoch and i < skip:
            continue
        if random is not None:
            torch.set_rng_state(random)
            random = None
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        schedule.step()
"""
