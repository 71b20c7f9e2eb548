"""What the kernel does about the devices it holds: keep, release, the reaper in the kernel, GPU-hours."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof.notebook import output
from jupyter_gpuprof.notebook.parsing import Command, option, parser_of

if TYPE_CHECKING:
    from jupyter_gpuprof.notebook.magics import GpuprofMagics


def _keep(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.records.policy import Policy
    from jupyter_gpuprof.session.devices.keep import end_keeps, keep, on_keep, parse_span

    on_keep(_tell_server)
    if args.span in ("off", "0"):
        print("gpuprof: the device is kept no longer" if end_keeps() else "gpuprof: no keep was in force")
        return
    asked_s = parse_span(args.span)
    keep(asked_s, why=args.why)
    most = ", or as long as the reaper's keep_max allows" if asked_s > Policy().keep_max_s else ""
    print(f"gpuprof: the device is kept for {args.span}{most}" + (f": {args.why}" if args.why else ""))


def _tell_server(kept: Any) -> None:
    from jupyter_gpuprof.session.devices.kernelreports import report_now

    report_now()


def _release(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.session.devices.release import offload_device, release_device
    from jupyter_gpuprof.views.release_html import release_html
    from jupyter_gpuprof.views.release_text import release_text

    shell = magics.ip
    if args.suspend:
        from jupyter_gpuprof.session.devices.suspend import suspend_device
        from jupyter_gpuprof.views.suspend_html import suspend_html
        from jupyter_gpuprof.views.suspend_text import suspend_text

        suspension = suspend_device(shell, told=_restored)
        return output.show(suspend_text(suspension), suspend_html(suspension))
    if args.offload:
        report = offload_device(shell.user_ns, shell, returned=_returned)
    else:
        report = release_device(shell.user_ns, shell)
    return output.show(release_text(report), release_html(report))


def _returned(report: Any) -> None:
    from jupyter_gpuprof.views.release_text import return_line

    print(return_line(report))


def _restored(report: Any) -> None:
    from jupyter_gpuprof.views.suspend_text import restore_line

    print(restore_line(report), flush=True)


def _reaper(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.session.devices.keep import parse_span
    from jupyter_gpuprof.session.devices.kernelreaper import (
        KernelReaper,
        kernel_policy,
        reaper_status,
        turn_off,
        turn_on,
    )
    from jupyter_gpuprof.views.release_text import note_line, reaper_text

    if args.word == "on":
        policy = kernel_policy(parse_span(args.after), args.action)
        turn_on(
            KernelReaper(
                policy,
                magics.ip,
                tell=lambda note: print(note_line(note)),
                returned=_returned,
                restored=_restored,
            )
        )
    elif args.word == "off":
        turn_off()
    print(reaper_text(reaper_status()))


def _ledger(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.session.devices.keep import parse_span
    from jupyter_gpuprof.session.devices.ledger import ledger_report
    from jupyter_gpuprof.views.ledger_html import ledger_html
    from jupyter_gpuprof.views.ledger_text import ledger_text

    since_s = None if args.since is None else parse_span(args.since)
    report = ledger_report(args.by, since_s, args.price)
    output.show(ledger_text(report), ledger_html(report))
    if report.days and args.figure:
        from jupyter_gpuprof.views.ledger_figure import ledger_page

        output.show_page(ledger_page(report), "GPU-hours over days", "The GPU-hours over days, to zoom into.")


def stand_down(shell: Any) -> None:
    """The extension goes: no reaper stays on, and what was moved to the host comes back."""
    if "jupyter_gpuprof.session.devices.kernelreaper" in sys.modules:
        sys.modules["jupyter_gpuprof.session.devices.kernelreaper"].turn_off()
    if "jupyter_gpuprof.session.devices.release" in sys.modules:
        sys.modules["jupyter_gpuprof.session.devices.release"].bring_back(shell.user_ns)


DEVICE_COMMANDS: dict[str, Command] = {
    "keep": Command(parser_of("keep", option("span"), option("--why", default="")), _keep),
    "release": Command(
        parser_of(
            "release", option("--offload", action="store_true"), option("--suspend", action="store_true")
        ),
        _release,
        interrupted="what was freed until then stays free, and all else is as it was",
    ),
    "ledger": Command(
        parser_of(
            "ledger",
            option("--by", choices=("notebook", "device", "user", "day"), default="notebook"),
            option("--since", default=None, metavar="SPAN"),
            option("--price", type=float, default=None),
            option("--figure", action="store_true"),
        ),
        _ledger,
    ),
    "reaper": Command(
        parser_of(
            "reaper",
            option("word", nargs="?", choices=("on", "off", "status"), default="status"),
            option("--after", default="30m", metavar="SPAN"),
            option("--action", choices=("warn", "free", "offload", "suspend", "shutdown"), default="warn"),
        ),
        _reaper,
    ),
}
