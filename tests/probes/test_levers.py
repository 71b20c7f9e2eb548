"""Each lever on and off in real models on the CPU, and that looking for them leaves nothing behind."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.probes import hooks
from jupyter_gpuprof.probes.autogradgraph import MOST_NODES
from jupyter_gpuprof.probes.levers import LOOKS, LeverProbe
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.records.levers import KNOWN, Lever
from tests.session.live import steady

os.environ["HF_HUB_OFFLINE"] = "1"

bf16 = torch.bfloat16


def watched(train: Callable[[], None]) -> tuple[dict[str, Lever], Recorder]:
    """What is said of the levers of a training, and its recorder."""
    recorder = Recorder(StepAssembler(), torch.is_grad_enabled)
    hooks.push(recorder)
    try:
        train()
        recorder.finish()
    finally:
        hooks.pop(recorder)
    assert not recorder.failures
    assert not recorder.levers.failure
    levers = recorder.levers.reading(recorder, None)
    assert [lever.id for lever in levers] == [lever.id for lever in KNOWN]
    return {lever.id: lever for lever in levers}, recorder


def levers_of(
    model: nn.Module,
    loss: Callable[[nn.Module, torch.Tensor], torch.Tensor] = lambda model, x: model(x).sum(),
    shape: tuple[int, ...] = (4,),
    *,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    autocast: bool = False,
    accumulate: int = 1,
    batches: int = 8,
    **options: object,
) -> dict[str, Lever]:
    """The levers of a plain loop."""
    stepper = optimizer(model.parameters(), lr=1e-3, **options)
    data = DataLoader([torch.rand(shape) for _ in range(2 * batches)], batch_size=2)

    def train() -> None:
        for i, x in enumerate(data):
            with torch.autocast("cpu", bf16) if autocast else nullcontext():
                value = loss(model, x)
            value.backward()
            if (i + 1) % accumulate == 0:
                stepper.step()
                stepper.zero_grad()

    return watched(train)[0]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def conv(kernel: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, kernel), nn.ReLU(), nn.Conv2d(4, 2, kernel))


class Attention(nn.Module):
    """Self-attention over (batch, heads, sequence, features)."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.project = fused, nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v)
        weights = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
        return F.dropout(weights, 0.1) @ v


# -- one lever at a time --------------------------------------------------------------------------------


@pytest.fixture
def nothing_compiled() -> None:
    """As in a fresh process, whatever other tests compiled in this one."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.counters.clear()


def test_a_plain_loop_has_nothing_on(nothing_compiled: None) -> None:
    found = levers_of(mlp())
    assert {name: lever.state for name, lever in found.items()} == {
        "autocast": "off",
        "tf32": "not applicable",  # a CPU
        "compile": "off",
        "channels_last": "not applicable",
        "sdpa": "not applicable",
        "fused_optimizer": "off",
        "accumulation": "off",
        "activation_checkpointing": "off",
    }
    assert found["autocast"].detail == "matrix products in float32"
    assert found["autocast"].setting == "autocast=bfloat16"
    assert found["fused_optimizer"].detail == "SGD: a loop over the parameters"


def test_autocast() -> None:
    found = levers_of(mlp(), autocast=True)["autocast"]
    assert (found.state, found.detail) == ("on", "matrix products in bfloat16")


def test_autocast_of_convolutions() -> None:
    found = levers_of(conv(), lambda m, x: m(x).float().sum(), (3, 8, 8), autocast=True)
    assert found["autocast"].state == "on"


def test_parameters_in_half_precision() -> None:
    found = levers_of(mlp().to(bf16), lambda m, x: m(x.to(bf16)).sum())["autocast"]
    assert (found.state, found.detail) == ("on", "the parameters are in bfloat16")


def test_without_matrix_products_there_is_nothing_to_cast() -> None:
    scale = nn.LayerNorm(4)
    assert levers_of(scale, lambda m, x: (m(x) ** 2).sum())["autocast"].state == "not applicable"


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("of", ["nothing", "model", "input"])
def test_channels_last(of: str, kernel: int) -> None:
    model = conv(kernel)
    if of == "model":
        model = model.to(memory_format=torch.channels_last)

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x.to(memory_format=torch.channels_last) if of == "input" else x).sum()

    found = levers_of(model, loss, (3, 8, 8))["channels_last"]
    # A kernel of one pixel is both, but what it gives is not.
    assert found.state == ("off" if of == "nothing" else "on")


def test_parameters_of_four_dimensions_are_no_convolution() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.rand(2, 3, 4, 5))
    found = levers_of(model, lambda m, x: (m.weight @ torch.rand(5, 2)).sum())
    assert found["channels_last"].state == "not applicable"


@pytest.mark.parametrize(
    ("optimizer", "options", "state", "detail"),
    [
        (torch.optim.SGD, {"fused": True}, "on", "SGD"),
        (torch.optim.AdamW, {"fused": True}, "on", "AdamW"),
        (torch.optim.AdamW, {}, "off", "AdamW: a loop over the parameters"),
        (torch.optim.Adam, {"foreach": True}, "off", "Adam: foreach"),
        (torch.optim.RMSprop, {}, "not applicable", "RMSprop has no fused form in torch"),
    ],
)
def test_optimizers(
    optimizer: type[torch.optim.Optimizer], options: dict[str, bool], state: str, detail: str
) -> None:
    found = levers_of(mlp(), optimizer=optimizer, **options)["fused_optimizer"]
    assert (found.state, found.detail) == (state, detail)


def test_accumulation() -> None:
    found = levers_of(mlp(), accumulate=4)["accumulation"]
    assert (found.state, found.detail) == ("on", "4.0 backward passes per optimizer step")


def test_several_losses_of_one_batch_are_no_accumulation() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        model(x).sum().backward()
        return model(2 * x).sum()

    assert levers_of(mlp(), loss)["accumulation"].state == "off"


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing(reentrant: bool) -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        inner = checkpoint(model[:2], x.requires_grad_(), use_reentrant=reentrant)
        return model[2](inner).sum()

    found = levers_of(mlp(), loss)
    state = found["activation_checkpointing"]
    assert (state.state, state.detail) == ("on", "reentrant" if reentrant else "not reentrant")
    assert found["accumulation"].state == "off"  # the backward passes inside are part of the one outside
    assert found["autocast"].state == "off"


def test_what_a_reentrant_checkpoint_hides_is_seen_when_it_is_computed_again() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(model, x.requires_grad_(), use_reentrant=True).sum()

    assert levers_of(Attention(fused=True), loss, (2, 5, 8))["sdpa"].state == "on"


def test_looking_does_not_compute_a_checkpoint_again() -> None:
    runs = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return (x * x).exp()

    x = torch.rand(3, requires_grad=True)
    value = checkpoint(inner, x, use_reentrant=False).sum()
    probe = LeverProbe()
    probe.backward(value)
    assert probe.graph.checkpoints == {"not reentrant"}
    assert len(runs) == 1


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
def test_attention(fused: bool, autocast: bool) -> None:
    found = levers_of(Attention(fused), lambda m, x: m(x).float().sum(), (2, 5, 8), autocast=autocast)["sdpa"]
    assert found.state == ("on" if fused else "off")
    if fused:
        assert found.detail.startswith("ScaledDotProduct")


def test_fused_attention_that_falls_back() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = model(x).unflatten(-1, (1, 2, 4))
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1).sum()  # not fused on a CPU

    found = levers_of(nn.Linear(4, 8), loss)["sdpa"]
    assert found.state == "off"
    assert "no fused form" in found.detail


def test_a_classifier_is_no_attention() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return (model(x).softmax(-1) @ torch.rand(1, 2)).sum()

    assert levers_of(mlp(), loss)["sdpa"].state == "not applicable"


@pytest.mark.slow
@pytest.mark.parametrize("autocast", [True, False])
def test_compiled_by_aot(autocast: bool) -> None:
    model = torch.compile(nn.Sequential(mlp(), nn.LayerNorm(1)), backend="aot_eager")
    found = levers_of(model, autocast=autocast)
    assert found["compile"].state == "on"
    # The norm gives float32, so the cast shows only in what the compiled graph keeps.
    assert found["autocast"].state == ("on" if autocast else "off")
    for hidden in ("sdpa", "activation_checkpointing", "channels_last"):
        assert found[hidden].state == "unknown"
    torch._dynamo.reset()


@pytest.mark.slow
def test_captured_but_not_compiled() -> None:
    torch._dynamo.utils.counters.clear()
    assert levers_of(mlp())["compile"].state == "off"
    found = levers_of(torch.compile(mlp(), backend="eager"))
    assert found["compile"].state == "unknown"
    assert found["autocast"].state == "off"
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.parametrize(
    ("capability", "precision", "state", "setting"),
    [
        ((8, 0), "highest", "off", "autocast=bfloat16"),
        ((9, 0), "high", "on", "autocast=bfloat16"),
        ((7, 5), "high", "not applicable", "autocast=float16"),
    ],
)
def test_what_an_nvidia_device_can_do(
    capability: tuple[int, int],
    precision: str,
    state: str,
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def train() -> None:
        model(torch.rand(2, 4)).sum().backward()
        optimizer.step()

    recorder = watched(train)[1]
    told = {lever.id: lever for lever in recorder.levers.reading(recorder, torch.device("cuda"))}
    assert told["tf32"].state == state
    assert told["autocast"].setting == setting
    assert told["fused_optimizer"].detail == "SGD: foreach"  # torch's default there


# -- frameworks -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("precision", "state"), [("bf16-mixed", "on"), ("32-true", "off")])
def test_lightning(precision: str, state: str) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = mlp()

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self.model(batch).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-4, fused=True)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator="cpu",
        enable_checkpointing=False,
        max_epochs=1,
        precision=precision,
        accumulate_grad_batches=2,
        **quiet,
    )
    found, _ = watched(lambda: trainer.fit(Module(), DataLoader(list(torch.rand(8, 4)), batch_size=1)))
    assert found["autocast"].state == state
    assert found["fused_optimizer"].state == "on"
    assert found["accumulation"].state == "on"


def hugging_face(attention: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_embd=8,
        n_layer=2,
        n_head=2,
        n_positions=16,
        vocab_size=32,
        bos_token_id=0,
        eos_token_id=1,
        attn_pdrop=0.0,
        attn_implementation=attention,
    )
    return transformers.GPT2LMHeadModel(config)


def tokens_loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    ids = torch.arange(8)[None]
    return model(input_ids=ids, labels=ids).loss


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("attention", "state"), [("sdpa", "on"), ("eager", "off")])
def test_gpt2(attention: str, state: str) -> None:
    found = levers_of(hugging_face(attention), tokens_loss)
    assert found["sdpa"].state == state
    assert found["activation_checkpointing"].state == "off"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reentrant", [True, False])
def test_gpt2_with_gradient_checkpointing(reentrant: bool) -> None:
    model = hugging_face("sdpa")
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    found = levers_of(model, tokens_loss)
    assert found["activation_checkpointing"].state == "on"
    assert found["sdpa"].state == "on"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("attention", "state"), [("sdpa", "on"), ("eager", "off")])
def test_bert_in_a_trainer(attention: str, state: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=32,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        max_steps=4,
        bf16=True,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
        optim="adamw_torch",
    )
    data = [{"input_ids": torch.arange(8), "labels": torch.tensor(1)} for _ in range(8)]
    trainer = transformers.Trainer(
        transformers.BertForSequenceClassification(config), arguments, train_dataset=data
    )
    found, _ = watched(trainer.train)
    assert found["sdpa"].state == state
    assert found["autocast"].state == "on"
    assert found["accumulation"].state == "on"
    assert found["fused_optimizer"].state == "off"


# -- manners --------------------------------------------------------------------------------------------


def test_no_object_of_the_persons_is_kept() -> None:
    left: list[weakref.ref[object]] = []

    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        left.extend(weakref.ref(thing) for thing in (model, model[0].weight, optimizer))
        for _ in range(6):
            model(torch.rand(2, 4)).sum().backward()
            optimizer.step()

    _, recorder = watched(train)
    gc.collect()
    assert recorder.levers.graph.nodes
    assert [ref() for ref in left] == [None] * 3


def test_looking_ends_after_a_few_steps_and_begins_anew_in_the_next_run() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    looking = []

    def train() -> None:
        for _ in range(LOOKS + 2):
            looking.append(hooks._looking is not None)
            model(torch.rand(2, 4)).sum().backward()
            optimizer.step()

    for _ in range(2):
        looking.clear()
        found, _ = watched(train)
        assert looking == [True] * LOOKS + [False] * 2
        assert found["autocast"].state == "off"
        assert hooks._looking is None


def test_a_run_around_goes_on_looking() -> None:
    def train() -> None:
        levers_of(mlp(), autocast=True)
        levers_of_outer()

    def levers_of_outer() -> None:
        model = mlp()
        model(torch.rand(2, 4)).sum().backward()

    found, _ = watched(train)
    assert found["autocast"].state == "off"  # the inner run's is not the outer one's


def test_another_thread_is_not_looked_at() -> None:
    def train() -> None:
        other = threading.Thread(target=lambda: mlp().to(bf16)(torch.rand(2, 4).to(bf16)).sum().backward())
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        model(torch.rand(2, 4)).sum().backward()
        optimizer.step()
        other.start()
        other.join()

    assert watched(train)[0]["autocast"].state == "off"


def test_without_a_backward_pass_it_is_unknown() -> None:
    found, _ = watched(lambda: None)
    assert {lever.state for lever in found.values()} == {"unknown", "not applicable"}
    assert found["autocast"].detail == "no backward pass was seen"
    assert found["fused_optimizer"].detail == "no optimizer step was seen"


@pytest.mark.parametrize("given", [None, 3, [], (None,), torch.ones(3), [torch.ones(1), "x"]])
def test_nonsense_is_no_failure(given: object) -> None:
    probe = LeverProbe()
    probe.backward(given)
    assert not probe.failure
    probe.optimizer(given)
    assert probe.failure
    assert probe.done


def test_several_roots_and_a_graph_that_is_used_twice() -> None:
    model = mlp()
    a, b = model(torch.rand(2, 4)).sum(), model(torch.rand(2, 4)).to(bf16).sum()

    def train() -> None:
        torch.autograd.backward((a, b), retain_graph=True)
        a.backward()

    assert watched(train)[0]["autocast"].state == "off"


@steady
def test_a_look_at_a_deep_graph_is_short() -> None:
    x = torch.rand(4, 4, requires_grad=True)
    for _ in range(3 * MOST_NODES):
        x = (x @ x).sigmoid()
    value = x.sum()
    LeverProbe().backward(value)
    probe = LeverProbe()
    probe.backward(value)
    assert probe.graph.nodes == MOST_NODES
