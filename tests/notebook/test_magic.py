"""The cell behaves as without us, and a report comes out."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest

from jupyter_gpuprof import load_run
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.store.database import database_path

LOOP = "for x, y in DataLoader(Slow(), batch_size=2):\n    loss = train_step(x, y)\n"

pytestmark = pytest.mark.alone


def test_last_expression_is_shown_and_kept(cells) -> None:
    result = cells.run("%%gpuprof\n" + LOOP + "6 * 7\n")
    assert result.result == 42
    assert cells.shell.user_ns["_"] == 42
    assert cells.shell.user_ns["Out"][result.execution_count] == 42
    assert "INPUT-BOUND" in cells.report()


def test_semicolon_hides_the_last_value(cells) -> None:
    cells.run("%%gpuprof --quiet\n" + LOOP + "6 * 7;\n")
    assert "42" not in cells.stdout


def test_names_of_the_cell_stay_and_none_of_ours_comes(cells) -> None:
    before = set(cells.shell.user_ns)
    cells.run("%%gpuprof --quiet\n" + LOOP + "answer = 42\n")
    new = {name for name in set(cells.shell.user_ns) - before if not name.startswith("_")}
    assert new == {"x", "y", "loss", "answer"}


def test_top_level_await(cells) -> None:
    result = cells.run(
        "%%gpuprof\nimport asyncio\nawait asyncio.sleep(0)\n" + LOOP + "await asyncio.sleep(0, 7)\n"
    )
    assert result.success
    assert result.result == 7
    assert "INPUT-BOUND" in cells.report()


def test_exception_gives_report_and_exception_with_the_cells_own_line(cells) -> None:
    result = cells.run("%%gpuprof\n" + LOOP + "1 / 0\n")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "INPUT-BOUND" in cells.report()
    assert "----> 4 1 / 0" in cells.stdout
    assert "jupyter_gpuprof" not in cells.stdout.partition("ZeroDivisionError")[2]


def test_keyboard_interrupt_gives_report(cells) -> None:
    source = "%%gpuprof\n" + LOOP.replace("loss =", "if optimizer.state.get('n', 0): pass\n    loss =")
    result = cells.run(source + "raise KeyboardInterrupt\n")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert "INPUT-BOUND" in cells.report()


def test_syntax_error_gives_no_report(cells) -> None:
    result = cells.run("%%gpuprof\nfor x in\n    pass\n")
    assert isinstance(result.error_before_exec, SyntaxError)
    assert not cells.report()
    assert "line 2" in str(result.error_before_exec)


@pytest.mark.parametrize("order", ["%%time\n%%gpuprof\n", "%%gpuprof\n%%time\n"])
def test_time_magic_above_and_below(cells, order: str) -> None:
    result = cells.run(order + LOOP + "43\n")
    assert result.result == 43
    assert "Wall time" in cells.stdout
    assert "INPUT-BOUND" in cells.report()


def test_capture_magic_above(cells) -> None:
    cells.run("%%capture out\n%%gpuprof\n" + LOOP)
    cells.run("print(out.outputs[-1].data['text/plain'])")
    assert "INPUT-BOUND" in cells.stdout


def test_called_as_a_function(cells) -> None:
    result = cells.run(f"get_ipython().run_cell_magic('gpuprof', '--name direct', {LOOP + '5'!r})")
    assert result.result == 5
    assert load_run("direct").verdict.label == "input-bound"


def test_cell_that_defines_and_calls_functions(cells) -> None:
    source = "%%gpuprof --name f\ndef train():\n" + "".join(f"    {line}\n" for line in LOOP.splitlines())
    cells.run(source + "    return 11\ntrain()\n")
    assert cells.shell.user_ns["_"] == 11
    assert load_run("f").verdict.label == "input-bound"


def test_future_import_in_the_cell(cells) -> None:
    assert cells.run("%%gpuprof --quiet\nfrom __future__ import annotations\n" + LOOP).success


def test_display_inside(cells) -> None:
    cells.run("%%gpuprof\n" + LOOP + "display('shown')\n")
    assert any("shown" in str(o.data) for o in cells.outputs)


def test_steps_ends_the_cell_cleanly_after_exactly_so_many(cells) -> None:
    result = cells.run(
        "%%gpuprof --steps 20\nfor x, y in DataLoader(Slow(400), batch_size=2):\n    train_step(x, y)\n"
    )
    assert result.success
    run = load_run("last")
    assert run.steps.counted == 20
    assert "ended after 20 counted steps" in cells.report()


def test_warmup_is_as_asked(cells) -> None:
    cells.run("%%gpuprof --warmup 7 --quiet\n" + LOOP)
    assert load_run("last").steps.warmup == 7
    assert load_run("last").steps.counted == 23


def test_quiet_shows_nothing_but_saves(cells) -> None:
    cells.run("%%gpuprof --quiet --name hush\n" + LOOP)
    assert not cells.outputs
    assert not cells.stdout.strip()
    assert load_run("hush").name == "hush"


def test_json_and_html_are_written(cells, tmp_path: Path) -> None:
    cells.run(f"%%gpuprof --json {tmp_path / 'r.json'} --html {tmp_path / 'r.html'}\n" + LOOP)
    written = Run.from_dict(json.loads((tmp_path / "r.json").read_text()))
    assert written == load_run("last")
    assert "<!doctype html>" in (tmp_path / "r.html").read_text().lower()


def test_unwritable_path_is_said_and_the_cell_runs(cells, tmp_path: Path) -> None:
    result = cells.run(f"%%gpuprof --json {tmp_path}/no/r.json\n" + LOOP + "8\n")
    assert result.result == 8
    assert "there is no folder" in cells.stderr
    assert "INPUT-BOUND" in cells.report()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--steps -3", "cannot end after -3 steps"),
        ("--steps many", "invalid int value"),
        ("--warmup -1", "cannot be -1 steps"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
        ("last", "takes no 'last'"),
    ],
)
def test_bad_options_are_one_sentence_and_run_nothing(cells, options: str, sentence: str) -> None:
    result = cells.run(f"%%gpuprof {options}\nran = True\n")
    assert not result.success
    assert sentence in str(result.error_in_exec)
    assert "ran" not in cells.shell.user_ns
    assert "Traceback" not in cells.stdout + cells.stderr


def test_nested_magic_counts_nothing_twice(cells) -> None:
    cell = "%%gpuprof --quiet --name inner\n" + LOOP.replace("loss = ", "")
    inner = f"get_ipython().run_cell({cell!r})\n"
    cells.run("%%gpuprof --quiet --name outer\n" + LOOP + inner + LOOP)
    outer, inner_run = load_run("outer"), load_run("inner")
    assert inner_run.steps.counted + inner_run.steps.warmup == 30
    assert outer.steps.counted + outer.steps.warmup == 60
    assert outer.steps.total_s + outer.steps.warmup_s < 2.6 * inner_run.steps.total_s + 1.0


def test_status_history_compare_show(cells) -> None:
    cells.run("%%gpuprof --quiet --name a\n" + LOOP)
    cells.run("%%gpuprof --quiet --name b\n" + LOOP)
    cells.run("%gpuprof")
    assert "b: input-bound" in cells.stdout
    assert "nothing of ours is in torch" in cells.stdout
    cells.run("%gpuprof history")
    assert "input-bound" in cells.outputs[0].data["text/plain"]
    cells.run("%gpuprof compare a b")
    assert "input wait" in cells.outputs[0].data["text/plain"]
    assert cells.run("run = %gpuprof last").success
    assert cells.shell.user_ns["run"].name == "b"
    cells.run("%gpuprof help")
    assert "--no-live" in cells.stdout


@pytest.mark.parametrize(
    ("line", "sentence"), [("nonsense", "does not know"), ("show nowhere", "holds no run")]
)
def test_unknown_words_are_one_sentence(cells, line: str, sentence: str) -> None:
    result = cells.run(f"%gpuprof {line}")
    assert sentence in str(result.error_in_exec)


def test_run_is_shown_as_its_report(cells) -> None:
    cells.run("%%gpuprof --quiet\n" + LOOP)
    cells.run("%gpuprof last")
    data, _ = cells.shell.display_formatter.format(load_run("last"))
    assert "INPUT-BOUND" in data["text/plain"]
    assert data["text/html"].count("<script") == 0


def test_broken_ledger_is_moved_aside_and_said(cells) -> None:
    database_path().write_bytes(b"this is no database, " * 400)
    result = cells.run("%%gpuprof\n" + LOOP + "9\n")
    assert result.result == 9
    assert "ledger was damaged" in cells.report()
    assert load_run("last").verdict.label == "input-bound"
    assert list(database_path().parent.glob("*.broken-*"))


def test_locked_ledger_keeps_the_cell(cells, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr("jupyter_gpuprof.session.profile.save_run", refuse)
    result = cells.run("%%gpuprof\n" + LOOP + "9\n")
    assert result.result == 9
    assert "could not be saved" in cells.report()


def test_cell_without_steps_says_so(cells) -> None:
    result = cells.run("%%gpuprof\n1 + 1\n")
    assert result.result == 2
    assert "No training step was seen" in cells.report()


def test_empty_cell_says_what_to_do(cells) -> None:
    result = cells.run("%%gpuprof\n\n")
    assert "nothing to profile" in str(result.error_in_exec)


def test_plain_loop_over_a_list_is_seen(cells) -> None:
    cells.run("batches = [(torch.randn(2, 8), torch.tensor([0, 1])) for _ in range(40)]")
    cells.run(
        "%%gpuprof --quiet\nfor epoch in range(2):\n    for x, y in batches:\n        train_step(x, y)\n"
    )
    run = load_run("last")
    assert run.steps.counted + run.steps.warmup == 80
    assert run.shares.exposed_input.value < 0.1
    assert run.loaders[0].name == "line 3"


def test_no_torch_installed_leaves_the_cell_alone(cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_gpuprof.probes.machine.import_torch", lambda: None)
    monkeypatch.setattr("jupyter_gpuprof.probes.hooks._install", lambda: None)
    result = cells.run("%%gpuprof\n1 + 2\n")
    assert result.result == 3
    assert "is not installed here" in cells.report()


def test_the_cell_ends_soon_after_the_training(cells) -> None:
    cells.run("%%gpuprof\n" + LOOP + "ended = time.perf_counter()\n")
    assert time.perf_counter() - cells.shell.user_ns["ended"] < 2.0  # a hang, not a benchmark


def test_load_twice_unload_leaves_nothing(cells) -> None:
    cells.run("%load_ext jupyter_gpuprof")
    cells.run("%unload_ext jupyter_gpuprof")
    assert "gpuprof" not in cells.shell.magics_manager.magics["cell"]
    assert not [t for t in cells.shell.ast_transformers if "gpuprof" in type(t).__module__]
    cells.run("%load_ext jupyter_gpuprof")
    assert cells.run("%%gpuprof --quiet\n" + LOOP + "1\n").result == 1


def test_a_failure_of_ours_at_first_leaves_the_cell_alone(cells, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise NameError("ours")

    monkeypatch.setattr("jupyter_gpuprof.session.profile.Session.start", fail)
    result = cells.run("%%gpuprof\n" + LOOP + "3\n")
    assert result.result == 3
    assert "runs without a profile (NameError: ours)" in cells.stderr


def test_trace_and_timeline_of_a_stored_trace(cells, tmp_path: Path) -> None:
    trace = Path(__file__).parents[1] / "data" / "traces" / "ddp_a100_rank3.json.gz"
    result = cells.run(f"%gpuprof trace {trace} --name ddp --json {tmp_path / 'r.json'}")
    assert result.result.verdict.label == "communication-bound"
    assert json.loads((tmp_path / "r.json").read_text())["name"] == "ddp"
    cells.run("%gpuprof timeline ddp")
    assert "srcdoc" in cells.outputs[0].data["text/html"]
    assert "No such" not in cells.stderr
    cells.run("%%gpuprof --quiet --name plain\n" + LOOP)
    failed = cells.run("%gpuprof timeline plain")
    assert "no timeline" in str(failed.error_in_exec)


@pytest.mark.parametrize("body", ["return 5", "break", "yield 3", "def f(a, a): pass"])
def test_what_the_compiler_refuses_leaves_nothing_on(cells, body: str) -> None:
    result = cells.run(f"%%gpuprof\n{body}\n")
    assert isinstance(result.error_before_exec or result.error_in_exec, SyntaxError)
    cells.run("%gpuprof")
    assert "Profiling: off" in cells.stdout


def test_an_unclosed_quote_is_one_sentence(cells) -> None:
    result = cells.run('%%gpuprof --name "abc\n1\n')
    assert "options cannot be read" in str(result.error_in_exec)


def test_a_cells_own_step_method_is_left_to_the_compiler(cells) -> None:
    source = (
        "%%gpuprof --quiet\n"
        "class Cell(torch.nn.Module):\n    def step(self, h): return h + 1\n"
        "cells = [Cell() for _ in range(3)]\n"
        "def forward(h):\n    for c in cells:\n        h = c.step(h)\n    return h\n"
        "for _ in range(2):\n    optimizer.step()\n"
        "torch.compile(forward, fullgraph=True, backend='eager')(torch.zeros(2)).tolist()\n"
    )
    assert cells.run(source).result == [3.0, 3.0]
    cells.run("torch._dynamo.reset()")
