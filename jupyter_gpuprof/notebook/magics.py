"""The ``%%gpuprof`` and ``%gpuprof`` magics."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display
from traitlets import Unicode

from jupyter_gpuprof.errors import GpuprofError
from jupyter_gpuprof.notebook import output
from jupyter_gpuprof.notebook.commands import run_line
from jupyter_gpuprof.notebook.devicecommands import stand_down
from jupyter_gpuprof.notebook.rewrite import CellRewriter, take_first_line

# What a run needs (numpy, the analysis, the painters) is imported with the first run, inside the
# functions: %load_ext stays quick.
if TYPE_CHECKING:
    from jupyter_gpuprof.records.run import Run
    from jupyter_gpuprof.session.reruns.cell import Cell

HELP = """\
%%gpuprof [options]        profile this cell, unchanged
%gpuprof                   status: devices, last run, version, what is switched on
%gpuprof last              the last run's report
%gpuprof try [CHANGE...]   rerun the last profiled cell with and without a change, and compare
%gpuprof batch             rerun it at other batch sizes: what fits, and what it brings
%gpuprof scale 1 2 4 8     rerun it on so many devices: what more of them are worth
%gpuprof checkpoint --to FOLDER   what saving and loading the trained state costs
%gpuprof audit             interrupt it in fresh processes: does it go on as it would have gone on
%gpuprof spot              is the job safe on interruptible capacity, and at which interval
%gpuprof sweep STUDY       GPU-hours of a sweep, and those of trials that were losing; --live follows it
%gpuprof release           free this kernel's device now; --offload loses nothing
%gpuprof keep 2h           let no reaper touch it for so long; --why "long eval"; keep off ends it
%gpuprof reaper on         watch over idle devices in this kernel; off, status
%gpuprof ledger            where the GPU-hours went, as the Jupyter server saw them
%gpuprof history           the runs that were saved
%gpuprof compare A B       two runs side by side; A and B are run ids, names, files or "last"
%gpuprof show RUN          the report of a run id, name or file; of a trial or a curve by its id or file;
                           show scale, show batch, show try, show audit: the last that this command gave
%gpuprof trace FILE...     the verdict on stored traces: files, archives, folders of ranks
%gpuprof timeline RUN      its gpu ops, to zoom into
%gpuprof help              this text

Options of %%gpuprof (and of %gpuprof trace: --name, --json, --html, --timeline):
  --name N                 how to call the run
  --warmup auto|K          steps to leave out at the beginning (default: auto)
  --steps N                end the cell cleanly after N counted steps
  --json PATH              also write the run as JSON
  --html PATH              also write the report as an HTML page
  --timeline PATH          also write the gpu ops as an HTML page to zoom into
  --quiet                  show nothing; the run is saved all the same
  --no-live                no live line while the cell runs
  --kernels auto|off|K     steps of the gpu op window (on a CPU only if asked for)

Options of %gpuprof try, batch and scale (which run in fresh processes and change nothing of yours):
  --steps N                counted steps of each round (default: about eight seconds of them)
  --timeout S              end a round after S seconds (default: 300)
  --allow-writes           also rerun a cell that writes files
  --json PATH, --html PATH as above
  --figure                 of batch, spot, ledger and sweep: also a figure to zoom into
  --grow 1,2,4             of batch: multiples of the batch size
  --until-memory 90%       of batch: the share of the memory that may be filled
  --mode weak|strong       of scale: keep the batch of each device, or that of all together
  --repeats 3              of scale: measure each count so often
  --raw                    of scale: the cell distributes its work by itself
  --least-gain 1.6, --least-efficiency 0.7, --price P   of scale: what makes a count worth it
  --on slurm, --partition P, --account A, --gpus-per-node G, --time MINUTES   of scale: where it runs
  --predictions            of history: how good the predictions of changes have been

Options of %gpuprof ledger, release, keep and reaper:
  --by notebook|device|user|day, --since 7d, --price P   of ledger
  --offload                of release: to host memory, and back before the next cell
  --suspend                of release: the same for all that the process has of its device (experimental)
  --why TEXT               of keep: shown to whoever wonders
  --after 30m, --action warn|free|offload|suspend|shutdown   of reaper on

Options of %gpuprof checkpoint, audit and spot (docs/spot.md says what each is):
  --save NAME, --load NAME, --repeats 5   of checkpoint, and of audit: your own functions
  --folder NAME            of audit: the folder of the loop's checkpoints, or the variable that holds it
  --between 6h | --rate N | --interruptions K --over T   how often the job is interrupted
  --restart T, --checkpoint T, --stall T, --durable T, --interval T, --notice T   instead of what was measured
  --price-ratio F, --price P, --spot-price P, --devices N, --work T, --deadline T, --release
  --audit passed|failed    instead of what %gpuprof audit came to

Options of %gpuprof sweep (docs/sweeps.md): STUDY is a variable, STORAGE::NAME, or a SweepBudget's study
  --cap GPU_HOURS          what this cap would have done
  --live                   follow the study until it stands still, or is interrupted

Changes that can be tried: num_workers=4 prefetch_factor=4 pin_memory=True persistent_workers=True
  batch_size=128 autocast=bfloat16 compile=True channels_last=True tf32=True fused=True foreach=True
  cudnn_benchmark=True cache (the samples computed once and read back, by
  jupyter_gpuprof.cached); without any, the top remedy of the last run.
%%gpuprof? says more.
"""


@magics_class
class GpuprofMagics(Magics):
    """Profile a training cell: what the step is bound by, and what fixes it."""

    prices = Unicode(
        help="What devices cost in an hour, in your currency: H100=2.50,A100-80GB=1.80. "
        "Without prices no money is printed."
    ).tag(config=True)

    def __init__(self, shell: Any) -> None:
        super().__init__(shell, parent=shell)
        self.ip: Any = shell
        self._cells: list[_Cell] = []
        self._raw = ""  # the text of the cell that runs
        self.last_cell: tuple[Cell, Run] | None = None  # what was profiled last, and the run it gave
        self._value: Any = None

    # -- called from the rewritten cell ----------------------------------------------------------

    @property
    def profiling(self) -> bool:
        """Whether a cell is being profiled."""
        return bool(self._cells)

    @property
    def StopProfiling(self) -> type[BaseException]:
        """What ends a cell with ``--steps``."""
        from jupyter_gpuprof.session.profile import StopProfiling

        return StopProfiling

    def begin(self, line: str) -> None:
        """The cell begins."""
        args = self._parse(self.ip.var_expand(line, depth=1))
        if args.words:
            raise UsageError(f"%%gpuprof takes no {args.words[0]!r}: only options. See %gpuprof help.")
        try:
            cell = _Cell(args, self.ip)
            cell.session.start()
        except Exception as error:  # ours alone: the person's cell runs
            print(
                f"gpuprof: this cell runs without a profile ({type(error).__name__}: {error}).",
                file=sys.stderr,
            )
            return
        self._cells.append(cell)

    def stopped(self) -> None:
        """The cell was ended by ``--steps``."""
        if self._cells:
            self._cells[-1].session.stopped_by_limit()

    def end(self) -> None:
        """The cell ended, however."""
        if self._cells:
            cell = self._cells.pop()
            cell.session.ended_with(sys.exc_info()[1])  # called from a finally
            run = cell.finish()
            if run is not None and not self._cells:
                self._remember(run)

    def before_cell(self, info: Any) -> None:
        """IPython is about to run a cell."""
        if not self._cells:
            self._raw = info.raw_cell or ""

    def after_cell(self, result: Any) -> None:
        """IPython ran a cell: a server that started this kernel may want to know what it holds."""
        if "JPY_PARENT_PID" in os.environ and "torch" in sys.modules:
            from jupyter_gpuprof.session.devices.kernelreports import report_now

            report_now()

    def _remember(self, run: Run) -> None:
        """What was profiled, for whoever wants to rerun it."""
        from jupyter_gpuprof.records.reading import Missing
        from jupyter_gpuprof.session.reruns.cell import Cell

        mean = None if isinstance(run.steps.mean_s, Missing) else float(run.steps.mean_s)
        self.last_cell = (Cell(self._raw, run.run_id, run.name, mean), run)

    def keep(self, value: Any) -> None:
        """The value of the cell's last expression."""
        self._value = value

    def take(self) -> Any:
        """That value, to be shown; forgotten here."""
        value, self._value = self._value, None
        return value

    def _parse(self, line: str) -> Any:
        from jupyter_gpuprof.session.profile import Options
        from jupyter_gpuprof.session.window import parse_kernels

        try:
            args = parse_argstring(self.gpuprof, line)
        except ValueError as error:  # a quote that is not closed
            raise UsageError(f"The options cannot be read: {error}.") from None
        try:
            kernels = parse_kernels(args.kernels)
            args.options = Options(args.name, args.warmup, args.steps, kernels, prices=self.prices)
        except GpuprofError as error:
            raise UsageError(str(error)) from None
        return args

    # -- the magics ------------------------------------------------------------------------------

    @magic_arguments()
    @argument(
        "words",
        nargs="*",
        help="Of %%gpuprof only: a command and what it takes; see %%gpuprof help.",
    )
    @argument("--name", default="", help="How to call the run.")
    @argument(
        "--warmup",
        type=lambda text: _steps_or(text, "auto"),
        default=None,
        metavar="auto|K",
        help="Steps to leave out at the beginning.",
    )
    @argument("--steps", type=int, default=None, help="End the cell cleanly after so many counted steps.")
    @argument("--json", type=Path, default=None, metavar="PATH", help="Also write the run as JSON.")
    @argument("--html", type=Path, default=None, metavar="PATH", help="Also write the report as HTML.")
    @argument(
        "--timeline",
        type=Path,
        default=None,
        metavar="PATH",
        help="Also write the gpu ops as an HTML page to zoom into.",
    )
    @argument("--quiet", action="store_true", help="Show nothing; the run is saved all the same.")
    @argument("--no-live", action="store_true", help="No live line while the cell runs.")
    @argument(
        "--kernels",
        default="auto",
        metavar="auto|off|K",
        help="Steps of the gpu op window; on a CPU only if asked for.",
    )
    @line_cell_magic
    def gpuprof(self, line: str = "", cell: str | None = None) -> Any:  # fmt: skip
        """Profile this cell, unchanged: what the step is bound by, and what fixes it.

        ``%gpuprof`` without a cell shows the status; ``%gpuprof help`` lists what else it can show.
        """
        if cell is None:
            return run_line(self, line)
        if not cell.strip():
            raise UsageError("There is nothing to profile: put the training loop below %%gpuprof.")
        return self._run_directly(line, cell)

    def _run_directly(self, line: str, cell: str) -> Any:
        """Somebody called the magic as a function, so IPython does not run the cell: we do."""
        shell = self.ip
        tree = shell.transform_ast(shell.compile.ast_parse(shell.transform_cell(f"%%gpuprof {line}\n{cell}")))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(shell.compile(tree, "<profiled cell>", "exec"), shell.user_ns)
        if last is None:
            return None
        return eval(shell.compile(ast.Expression(last.value), "<profiled cell>", "eval"), shell.user_ns)


class _Cell:
    """One profiled cell: its session, its live line, what to write at the end."""

    def __init__(self, args: Any, shell: Any) -> None:
        from jupyter_gpuprof.session.profile import Session

        self._args = args
        live = not (args.quiet or args.no_live)
        self._line = output.LiveLine(shell) if live else None
        self.session = Session(
            args.options,
            progress=self._line.show if self._line else None,
            file_names=lambda: cell_names(shell),
        )
        for path in (args.json, args.html, args.timeline):
            why = output.unwritable(path)
            if why:
                self.session.note(f"{path} cannot be written: {why}.")
                print(f"gpuprof: {path} cannot be written: {why}. The cell runs on.", file=sys.stderr)

    def finish(self) -> Run | None:
        """Show and write the report; a failure of ours is one line, the cell's own result stays."""
        from jupyter_gpuprof.views.marks import run_mark

        try:
            run = self.session.finish()
            if self._line is not None:
                self._line.finish(f"gpuprof: {run.steps.counted} steps, {run.verdict.label}")
            if not self._args.quiet:
                display(output.bundle_of(run), metadata=run_mark(run), raw=True)
            output.write_outputs(run, self._args)
            return run
        except Exception as error:
            print(f"gpuprof: the report failed ({type(error).__name__}: {error}).", file=sys.stderr)
            return None


def cell_names(shell: Any) -> dict[str, str]:
    """What IPython calls its cells' files, by the names they are compiled under."""
    counts = getattr(shell.compile, "_filename_map", {})
    return {file: f"cell [{count}]" for file, count in counts.items()}


def _steps_or(text: str, word: str) -> int | None:
    """A number of steps, or None for `word`."""
    return None if text == word else int(text)


def load(shell: Any) -> None:
    """What ``%load_ext jupyter_gpuprof`` does; doing it twice is the same as once."""
    if "GpuprofMagics" in shell.magics_manager.registry:
        return
    magics = GpuprofMagics(shell)
    shell.register_magics(magics)
    shell.events.register("pre_run_cell", magics.before_cell)
    shell.events.register("post_run_cell", magics.after_cell)
    shell.input_transformers_cleanup.append(take_first_line)
    shell.ast_transformers.append(CellRewriter(lambda: magics.profiling))
    output.register(shell)


def unload(shell: Any) -> None:
    """What ``%unload_ext jupyter_gpuprof`` does."""
    magics = shell.magics_manager.registry.pop("GpuprofMagics", None)
    if magics is not None:
        shell.events.unregister("pre_run_cell", magics.before_cell)
        shell.events.unregister("post_run_cell", magics.after_cell)
    for known in shell.magics_manager.magics.values():
        known.pop("gpuprof", None)
    if take_first_line in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(take_first_line)
    shell.ast_transformers[:] = [t for t in shell.ast_transformers if not isinstance(t, CellRewriter)]
    output.unregister(shell)
    stand_down(shell)
