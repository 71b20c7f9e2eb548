"""Offload and return on the simulated device: what training gives must not change by a bit.

The truth is the same program without the journey. Each function below runs in a process of its own and
gives what is to be compared; losses travel as hexadecimal, which loses no bit.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import simdevice

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(simdevice.why_not() is not None, reason=str(simdevice.why_not())),
]


def sim() -> Any:
    """The device, whose tensors can be given other memory in place, as CUDA's can.

    torch allows it for the accelerators it knows; a backend of its own may allow it in this way.
    """
    import torch

    simdevice.load()
    torch.set_num_threads(1)
    library = torch.library.Library("aten", "IMPL")
    library.impl("_has_compatible_shallow_copy_type", lambda one, other: True, "PrivateUse1")
    sim.library = library  # type: ignore[attr-defined]  # it holds while the object lives
    return torch


def journey(names: dict[str, Any]) -> list[Any]:
    """There and back; nothing of what went may be on the device in between."""
    import torch

    from jupyter_gpuprof.session.devices import release

    report = release.offload_device(names)
    after = torch.accelerator.memory_allocated()
    back = release.bring_back(names)
    assert report.complete, report
    assert back.complete, back
    assert release.away_bytes() == 0
    assert report.moved_bytes == back.moved_bytes
    return [report, after]


def programme(kind: str, travel: Callable[[dict[str, Any]], Any]) -> list[str]:
    """Train a model with everything that is awkward to move; the losses, bit for bit."""
    import torch
    from torch import nn

    torch.manual_seed(3)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(12, 8)
            self.conv = nn.Conv2d(1, 4, 3, padding=1).to(memory_format=torch.channels_last)
            self.norm = nn.BatchNorm2d(4)
            self.mix = nn.Linear(32, 8)
            self.out = nn.Linear(8, 12)
            self.out.weight = self.embed.weight  # tied
            self.frozen = nn.Parameter(torch.randn(8), requires_grad=False)

        def forward(self, x: Any) -> Any:
            h = self.embed(x).unsqueeze(1).unsqueeze(1).to(memory_format=torch.channels_last)
            h = self.norm(self.conv(h)).flatten(1)
            return self.out(torch.tanh(self.mix(h)) * self.frozen)

    model = Net()
    for module in model.modules():  # the device has no in-place conversion: each parameter is made there
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                there = nn.Parameter(parameter.detach().to("sim"), requires_grad=parameter.requires_grad)
                module._parameters[name] = there
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = buffer.to("sim")
    model.out.weight = model.embed.weight
    if kind == "adam":
        optimizer: Any = torch.optim.Adam(model.parameters(), 1e-2, amsgrad=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, nesterov=True)
    scale = torch.full((), 256.0, device="sim")
    average = {"a": {"b": [model.mix.weight.detach().clone()]}, "n": 3}
    row = model.mix.weight.detach()[2]  # shares the parameter's memory
    transposed = torch.randn(6, 5, device="sim").t()
    wide = torch.randn(1, 4, device="sim").expand(3, 4)
    first = model.embed.weight
    names = {
        "model": model, "optimizer": optimizer, "scale": scale, "average": average, "row": row,
        "transposed": transposed, "wide": wide,
    }  # fmt: skip
    losses = []
    for step in range(12):
        x = torch.randint(12, (6,)).to("sim")
        loss = nn.functional.cross_entropy(model(x), x)
        (loss * scale).backward()
        losses.append(loss.item())
        del loss
        if step % 3 == 1:  # a gradient is there, and not used yet
            travel(names)
        if step % 2:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= scale
            optimizer.step()
            optimizer.zero_grad()
            scale *= 1.5
            average["a"]["b"][0].lerp_(model.mix.weight.detach(), 0.1)  # type: ignore[index]
    assert model.out.weight is model.embed.weight is first
    assert row.tolist() == model.mix.weight[2].tolist()
    assert row.untyped_storage().data_ptr() == model.mix.weight.untyped_storage().data_ptr()
    assert transposed.stride() == (1, 5)
    assert wide.stride() == (0, 1)
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    assert all(p.is_leaf and p.device.type == "sim" for p in model.parameters())
    assert optimizer.param_groups[0]["params"][0] in list(model.parameters())
    left = [model.norm.running_var, average["a"]["b"][0], transposed, wide, scale]  # type: ignore[index]
    return [value.hex() for value in losses] + [
        value.hex() for tensor in left for value in tensor.cpu().flatten().tolist()
    ]


def there_and_back(kind: str) -> dict[str, Any]:
    sim()
    seen: list[Any] = []

    def travel(names: dict[str, Any]) -> None:
        seen.append(journey(names))

    moved = programme(kind, travel)
    gc.collect()
    stayed_at_home = programme(kind, lambda names: None)
    return {
        "same": moved == stayed_at_home,
        "losses": len(set(moved[:12])),
        "trips": len(seen),
        "moved": min(report.moved_bytes for report, _ in seen),
        "names": sorted({held.name for report, _ in seen for held in report.moved}),
        "left": max(after for _, after in seen),
    }


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_training_goes_on_bit_for_bit(kind: str) -> None:
    told = simdevice.run(there_and_back, kind)
    assert told["same"]
    assert told["losses"] == 12  # it trained at all
    assert told["trips"] == 4
    assert told["moved"] > 4 * (12 * 8 + 32 * 8) * 3
    assert told["names"] == ["average", "model", "optimizer", "scale", "transposed", "wide"]
    assert told["left"] <= 512  # the batch, which is of no variable


def live_graph() -> dict[str, Any]:
    """A graph that is not used up: its own tensors stay, and its gradients are those of no journey."""
    torch = sim()

    def gradients(travel: bool) -> Any:
        torch.manual_seed(5)
        weight = torch.nn.Parameter(torch.randn(64, 64, device="sim"))
        x = torch.randn(32, 64, device="sim", requires_grad=True)
        spare = torch.randn(100, device="sim")
        loss = (torch.nn.functional.linear(x, weight).relu() ** 2).sum()
        names = {"weight": weight, "x": x, "loss": loss, "spare": spare}
        report = None
        if travel:
            from jupyter_gpuprof.session.devices import release

            report = release.offload_device(names)
            assert spare.device.type == "cpu"
            assert release.bring_back(names).complete
        loss.backward()
        again = (torch.nn.functional.linear(x, weight).sum()).backward  # a new graph on the same leaves
        again()
        return [weight.grad.tolist(), x.grad.tolist(), spare.tolist()], report

    travelled, report = gradients(True)
    at_home, _ = gradients(False)
    return {
        "same": travelled == at_home,
        "stayed": [[held.name, held.size_bytes, held.why] for held in report.stayed],
        "moved": [held.name for held in report.moved],
        "nameless": sum(held.size_bytes for held in report.still_held if held.name.startswith("(")),
    }


def test_what_a_live_graph_needs_stays_and_is_named() -> None:
    told = simdevice.run(live_graph)
    assert told["same"]
    assert "spare" in told["moved"]
    stayed = {name: (size, why) for name, size, why in told["stayed"]}
    assert stayed["weight"][0] == 64 * 64 * 4
    assert "live graph" in stayed["weight"][1]
    assert told["nameless"] >= 32 * 64 * 4  # what relu and the square keep


def stubborn() -> dict[str, Any]:
    """What cannot be moved is left as it is, with its reason."""
    torch = sim()
    from jupyter_gpuprof.session.devices import release

    held = torch.ones(10, device="sim")
    storage = held.untyped_storage()
    hooked = torch.nn.Parameter(torch.ones(20, device="sim"))
    node = torch.autograd.graph.get_gradient_edge(hooked).node
    node.register_hook(lambda *_: None)
    hidden = [torch.ones(30, device="sim")]
    conjugated = torch.randn(7, dtype=torch.complex64).to("sim").conj()
    with torch.inference_mode():
        inference = torch.ones(5, device="sim")
    plain = torch.ones(40, device="sim")
    names = {"held": held, "hooked": hooked, "conjugated": conjugated, "inference": inference, "plain": plain}
    report = release.offload_device(names)
    devices = {name: tensor.device.type for name, tensor in names.items()}
    flags = [inference.is_inference(), release.bring_back(names).complete, inference.is_inference()]
    assert storage.nbytes() == 40
    assert hidden[0].device.type == "sim"
    return {
        "devices": devices,
        "flags": flags,
        "stayed": {one.name: one.why for one in report.stayed},
        "home": {tensor.device.type for tensor in names.values()} == {"sim"},
    }


def test_what_cannot_be_moved_is_named() -> None:
    told = simdevice.run(stubborn)
    assert told["devices"] == {
        "held": "sim", "hooked": "sim", "conjugated": "sim", "inference": "cpu", "plain": "cpu",
    }  # fmt: skip
    assert all(told["flags"])
    assert told["home"]
    assert "storage itself" in told["stayed"]["held"]
    assert "conjugated" in told["stayed"]["conjugated"]
    assert "accumulator" in told["stayed"]["hooked"]
    assert "variables" in told["stayed"]["(no variable leads to it)"]


def hidden_places() -> list[str]:
    """Attributes, closures, defaults, generators, views without a name of their own: all are found."""
    torch = sim()
    from jupyter_gpuprof.session.devices import release

    class Trainer:
        __slots__ = ("kept",)

        @property
        def trap(self) -> Any:
            raise AssertionError("a property was called")

    def make(size: int) -> Any:
        return torch.ones(size, device="sim")

    default = make(2)

    def closed(tensor: Any = default) -> Any:
        inner = make(3)
        return lambda: inner

    def steps() -> Iterator[Any]:
        local = make(4)
        yield local

    trainer, generator = Trainer(), steps()
    trainer.kept = {"deep": ([make(5)],)}
    next(generator)
    del default
    names = {"trainer": trainer, "closed": closed, "inner": closed(), "generator": generator}
    report = release.offload_device(names)
    assert closed.__defaults__[0].device.type == "cpu"  # type: ignore[index]
    assert names["inner"]().device.type == "cpu"
    assert trainer.kept["deep"][0][0].device.type == "cpu"
    assert release.bring_back(names).complete
    assert names["inner"]().device.type == "sim"
    return sorted(held.name for held in report.moved)


def test_tensors_are_found_wherever_they_hide() -> None:
    assert simdevice.run(hidden_places) == ["closed", "generator", "inner", "trainer"]


def short_of_memory() -> dict[str, Any]:
    torch = sim()
    from jupyter_gpuprof.probes import hostmemory
    from jupyter_gpuprof.session.devices import release

    names = {"a": torch.arange(1 << 18, device="sim"), "b": torch.arange(1 << 18, device="sim") * 2}
    names["view"] = names["a"][5:]
    told: dict[str, Any] = {}
    free_bytes, hostmemory.free_bytes = hostmemory.free_bytes, lambda: 1 << 20
    refused = release.offload_device(names)
    hostmemory.free_bytes = free_bytes
    told["refused"] = [refused.moved_bytes, refused.complete, refused.stayed[0].why]
    assert release.offload_device(names).complete

    simdevice.set_capacity(3 << 20)  # 4 MiB are away
    back = release.bring_back(names)
    told["full"] = [back.moved_bytes, back.complete, back.stayed[0].why]
    told["usable"] = [names["a"].device.type, int(names["view"][0]), release.away_bytes()]
    names["a"][5] = -7  # a cell that works on the host
    names["late"] = names["a"].view(512, 512)
    del names["b"]
    back = release.bring_back(names)
    told["later"] = [back.moved_bytes, back.complete, names["a"].device.type, int(names["view"][0])]
    told["late"] = [names["late"].device.type, int(names["late"].flatten()[5])]
    names["view"][0] = 11
    told["shared"] = int(names["late"].flatten()[5])
    return told


def test_too_little_memory_loses_nothing() -> None:
    told = simdevice.run(short_of_memory)
    assert told["refused"][:2] == [0, False]
    assert "1.00 MiB of memory free, and 4.00 MiB" in told["refused"][2]
    assert told["full"][:2] == [0, False]
    assert "3.00 MiB free, and 4.00 MiB are needed" in told["full"][2]
    assert told["usable"] == ["cpu", 5, 4 << 20]
    assert told["later"] == [2 << 20, True, "sim", -7]  # what was deleted meanwhile needs no room
    assert told["late"] == ["sim", -7]
    assert told["shared"] == 11


def interrupted() -> dict[str, Any]:
    """An interrupt after each possible number of storages, in both directions."""
    torch = sim()
    from jupyter_gpuprof.probes import offload
    from jupyter_gpuprof.session.devices import release

    signal.signal(signal.SIGINT, signal.default_int_handler)
    look_at = offload._look_at
    told: dict[str, Any] = {"consistent": True, "raised": 0}

    @contextmanager
    def interrupt_at(count: int) -> Iterator[None]:
        seen = 0

        def look(*args: Any) -> str:
            nonlocal seen
            seen += 1
            if seen == count:
                signal.raise_signal(signal.SIGINT)  # in the middle of the exchange
            return look_at(*args)

        offload._look_at = look
        try:
            yield
        except KeyboardInterrupt:
            told["raised"] += 1
        finally:
            offload._look_at = look_at

    def consistent(names: dict[str, Any]) -> bool:
        pairs = [(names[f"t{i}"], names[f"v{i}"]) for i in range(4)]
        return all(
            tensor.device == view.device
            and tensor.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
            and tensor.tolist() == [float(i)] * 8
            for i, (tensor, view) in enumerate(pairs)
        )

    for count in range(1, 5):
        names: dict[str, Any] = {}
        for i in range(4):
            names[f"t{i}"] = torch.full((8,), float(i), device="sim")
            names[f"v{i}"] = names[f"t{i}"][2:]
        with interrupt_at(count):
            release.offload_device(names)
        told["consistent"] &= consistent(names)
        away = sum(names[f"t{i}"].device.type == "cpu" for i in range(4))
        told["consistent"] &= away == count and release.away_bytes() == count * 32
        report = release.offload_device(names)
        told["consistent"] &= report.complete and release.away_bytes() == 4 * 32 and consistent(names)
        with interrupt_at(count):
            release.bring_back(names)
        told["consistent"] &= consistent(names) and release.away_bytes() == (4 - count) * 32
        told["consistent"] &= release.bring_back(names).complete and consistent(names)
    return told


def test_an_interrupt_leaves_each_tensor_moved_or_not() -> None:
    assert simdevice.run(interrupted) == {"consistent": True, "raised": 8}


def before_the_next_cell() -> dict[str, Any]:
    sim()
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_gpuprof.session.devices import release
    from jupyter_gpuprof.views.release_text import release_text, return_line

    shell = InteractiveShell.instance(colors="nocolor")
    lines: list[str] = []
    shell.user_ns["offload"] = lambda: release.offload_device(
        shell.user_ns, shell, returned=lambda report: lines.append(return_line(report))
    )
    told: dict[str, Any] = {}
    shell.run_cell("import torch\nt = torch.ones(1 << 18, device='sim')", store_history=True)
    shell.run_cell("report = offload(); where = t.device.type", store_history=True)
    told["inside"] = shell.user_ns["where"]
    told["text"] = release_text(shell.user_ns["report"])
    told["before"] = list(lines)
    shell.run_cell("where = t.device.type", store_history=True, silent=True)  # no cell of the person's
    told["silent"] = shell.user_ns["where"]
    simdevice.set_capacity(1000)
    shell.run_cell("where = t.device.type; total = float(t.sum())", store_history=True)
    told["full"] = [shell.user_ns["where"], shell.user_ns["total"], lines[-1]]
    simdevice.set_capacity(1 << 30)
    shell.run_cell("where = t.device.type", store_history=True)
    told["next"] = [shell.user_ns["where"], lines[-1]]
    count = len(lines)
    shell.run_cell("where = t.device.type", store_history=True)
    told["more lines"] = len(lines) - count
    return told


def test_it_comes_back_before_the_next_cell_and_says_so() -> None:
    told = simdevice.run(before_the_next_cell)
    assert told["inside"] == "cpu"
    assert "1.0 MiB of sim:0 freed; 1.0 MiB of tensors are on the host" in told["text"]
    assert "SIMULATED" in told["text"]
    assert told["before"] == []
    assert told["silent"] == "cpu"
    assert told["full"][:2] == ["cpu", float(1 << 18)]
    assert "1.0 MiB stay on the host, and the next cell tries again: sim:0 has" in told["full"][2]
    assert told["next"][0] == "sim"
    assert "1.0 MiB came back to sim:0" in told["next"][1]
    assert told["more lines"] == 0
