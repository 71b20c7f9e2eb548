"""What a kernel lets go of when asked, what it says of the rest, and what a person may ask beforehand."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.probes import owndevice
from jupyter_gpuprof.probes.reachable import Walk
from jupyter_gpuprof.records.release import Held, ReleaseReport
from jupyter_gpuprof.session.devices import keep as keeping
from jupyter_gpuprof.session.devices import release, releasehooks
from jupyter_gpuprof.testing import FakeClock
from jupyter_gpuprof.views.release_html import release_html
from jupyter_gpuprof.views.release_text import release_text, return_line
from tests import simdevice


def on_sim(test: Any) -> Any:
    why = simdevice.why_not()
    return pytest.mark.slow(pytest.mark.skipif(why is not None, reason=str(why))(test))


class Shell:
    """As much of a shell as a release needs."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}


# -- where there is no accelerator ---------------------------------------------------------------------


def test_without_an_accelerator_there_is_nothing_to_free() -> None:
    for report in (release.release_device({}, None), release.offload_device({}, None)):
        assert report.devices == ()
        assert report.freed_bytes == 0
        assert "No accelerator is in use here: nothing to free." in release_text(report)
    assert "Nothing is away" in return_line(release.bring_back({}))
    assert owndevice.own_reports(0.0) == ()


@pytest.mark.slow
def test_without_torch_too_and_it_is_not_imported_for_it() -> None:
    program = (
        "import sys; from jupyter_gpuprof.session.devices import release\n"
        "print(release.release_device({}, None).remarks[0], release.offload_device({}).complete)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "No accelerator is in use here: nothing to free. True\n"


# -- on the simulated device ---------------------------------------------------------------------------

MIB = 1 << 20


def hidden_references() -> dict[str, Any]:
    """A traceback, results of cells and the allocator's cache keep memory that no variable names."""
    torch = simdevice.load() and __import__("torch")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance(colors="nocolor")
    cells = [
        "import torch",
        "def fail():\n    big = torch.ones(1 << 18, device='sim')\n    big[1 << 20]",
        "fail()",
        "torch.ones(1 << 19, device='sim')",
        "'a result to keep'",
        "kept = torch.ones(3 << 18, device='sim'); model = torch.nn.Module()",
        "model.weight = torch.nn.Parameter(torch.ones(1 << 18, device='sim'))",
        "gone = torch.ones(1 << 18, device='sim')",
        "del gone",
    ]
    with capture_output():
        for cell in cells:
            shell.run_cell(cell, store_history=True)
    before = torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()
    report = release.release_device(shell.user_ns, shell)
    told = {
        "before": before,
        "freed": report.freed_bytes,
        "reserved": report.reserved_bytes,
        "held": [[held.name, held.size_bytes] for held in report.still_held],
        "results": sorted(shell.user_ns["_oh"].values()),
        "names": [name for name in ("_4", "_5") if name in shell.user_ns],
        "again": release.release_device(shell.user_ns, shell).freed_bytes,
        "text": release_text(report),
        "driver's": owndevice.reserved_bytes(torch.device("sim", 0)),
    }
    shell.run_cell("7 * 6", store_history=True)  # the shell works on
    told["next result"] = shell.user_ns["_"]
    return told


@on_sim
def test_release_drops_what_nobody_asked_to_keep() -> None:
    told = simdevice.run(hidden_references)
    allocated, reserved = told["before"]
    assert allocated == 7 * MIB  # 1 in the traceback, 2 in Out, 3 kept, 1 of the model
    assert reserved >= 8 * MIB  # and what was deleted
    assert told["freed"] == reserved - 4 * MIB
    assert told["reserved"] == told["driver's"] == 4 * MIB
    assert told["held"] == [["kept", 3 * MIB], ["model", MIB]]
    assert told["results"] == ["a result to keep"]
    assert told["names"] == ["_5"]
    assert told["again"] == 0
    assert "MiB of sim:0 freed; 4.0 MiB still held." in told["text"]
    assert "1 result of a cell" in told["text"]
    assert told["next result"] == 42


def what_is_reported() -> list[Any]:
    import torch

    simdevice.load()
    one = torch.ones(1 << 18, device="sim:1")
    (report,) = owndevice.own_reports(5.0)
    assert one.device.index == 1
    return [
        report.device_index,
        report.allocated_bytes,
        report.reserved_bytes,
        report.training_active,
        report.at_s,
        owndevice.busy_ratio(),
        simdevice.spin(300) or owndevice.busy_ratio(),
    ]


@on_sim
def test_what_the_kernel_says_of_itself() -> None:
    assert simdevice.run(what_is_reported) == [1, MIB, MIB, False, 5.0, 0.0, 0.0]


# -- the way to an object ------------------------------------------------------------------------------


class Marker:
    """What is looked for."""


class Module:
    """Named as torch's are."""

    def __init__(self, **parts: Any) -> None:
        self._parameters = {name: part for name, part in parts.items() if isinstance(part, Marker)}
        self._modules = {name: part for name, part in parts.items() if isinstance(part, Module)}


def paths(**names: Any) -> list[str]:
    return [path for _, path, _ in Walk(names, lambda thing: isinstance(thing, Marker))]


def test_paths_are_written_as_a_person_would() -> None:
    weight, state = Marker(), Marker()
    model = Module(head=Module(weight=weight), **{"0": Module(bias=Marker())})
    optimizer = {weight: {"momentum": state}}
    assert paths(optimizer=optimizer, model=model) == [
        "model.head.weight",
        "model[0].bias",
        "optimizer[model.head.weight]['momentum']",
    ]


def test_the_walk_calls_nothing_and_stops_at_modules() -> None:
    class Trap:
        hidden = Marker()

        def __init__(self) -> None:
            self.kept = Marker()

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __iter__(self) -> Any:
            raise AssertionError("iterated")

        __len__ = __bool__ = __eq__ = __hash__ = __repr__ = __iter__  # type: ignore[assignment]

    sys.modules[__name__].global_marker = Marker()  # type: ignore[attr-defined]
    loop: list[Any] = [Trap()]
    loop.append(loop)
    assert paths(loop=loop, module=sys.modules[__name__], _=Marker()) == ["loop[0].kept", "_"]


# -- what a person may ask for -------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(clock, "now_ns", fake)
    yield fake
    keeping.end_keeps()


def test_keep_for_a_time_and_for_a_block(fake: FakeClock) -> None:
    heard: list[Any] = []
    keeping.on_keep(heard.append)
    assert keeping.current_keep() is None
    keeping.keep("2m", why="a long evaluation")
    with keeping.keep(why="a thread"):
        asked = keeping.current_keep()
        assert asked is not None
        assert asked.why == "a thread"
        assert asked.until_s == float("inf")
    asked = keeping.current_keep()
    assert asked is not None
    assert (asked.since_s, asked.until_s, asked.why) == (0.0, 120.0, "a long evaluation")
    fake.advance(121)
    assert keeping.current_keep() is None
    assert [keep and keep.why for keep in heard] == ["a long evaluation", "a thread", "a long evaluation"]
    keeping._listeners.remove(heard.append)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1.5h", 5400), ("7d", 604800)],
)
def test_spans(words: str, seconds: float) -> None:
    assert keeping.parse_span(words) == seconds


@pytest.mark.parametrize("words", ["", "soon", "2x", "-3m", "3m!", "h"])
def test_what_is_no_span(words: str) -> None:
    with pytest.raises(OptionError):
        keeping.parse_span(words)
    with pytest.raises(OptionError):
        keeping.keep(0)


def test_release_hooks_run_within_their_time() -> None:
    done: list[str] = []
    stuck = threading.Event()

    @releasehooks.on_release
    def first() -> None:
        done.append("first")

    @releasehooks.on_release(limit_s=0.05)
    def hangs() -> None:
        stuck.wait(30)

    @releasehooks.on_release
    def fails() -> None:
        raise ValueError("no room")

    releasehooks.on_release(first)  # twice is once, and now the last
    try:
        begun = time.perf_counter()
        said = releasehooks.call_release_hooks()
        assert time.perf_counter() - begun < 5
    finally:
        stuck.set()
        for hook in (first, hangs, fails):
            releasehooks.forget_release(hook)
    assert done == ["first"]
    assert said == (
        "fails (on_release) failed (ValueError: no room).",
        "hangs (on_release) did not end within 0.05 s.",
    )
    assert releasehooks.call_release_hooks() == ()
    deadline = time.monotonic() + 5
    while any("on_release" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < deadline


# -- how it is shown -----------------------------------------------------------------------------------


def test_a_report_shows_what_matters_and_harms_nobody() -> None:
    held = tuple(Held(f"<b>v{i}", (40 - i) << 20, "<why>") for i in range(30))
    report = ReleaseReport("offload", ("cuda:0",), False, 3 << 30, 1 << 20, (), held, held[:2], False)
    text, html = release_text(report), release_html(report)
    assert "3.0 GiB of cuda:0 freed" in text
    assert "18 more" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "<b>v0" not in html
    assert "&lt;b&gt;v0" in html
    assert "<script" not in html
