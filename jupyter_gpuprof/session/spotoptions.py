"""The options of ``%gpuprof spot`` and ``jupyter gpuprof spot``: one table for both doors."""

from __future__ import annotations

from typing import Any

#: Flags, and what ``add_argument`` takes with them.
SPOT_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--between",),
        {"metavar": "TIME", "help": "mean time between interruptions of this job, such as 6h"},
    ),
    (("--rate",), {"type": float, "metavar": "N", "help": "interruptions in an hour, instead"}),
    (("--interruptions",), {"type": int, "metavar": "K", "help": "how many were seen, instead, and"}),
    (("--over",), {"metavar": "TIME", "help": "in how long a time"}),
    (
        ("--restart",),
        {
            "metavar": "TIME",
            "help": "from an interruption until training runs again (loading is added where measured)",
        },
    ),
    (("--checkpoint",), {"metavar": "TIME", "help": "for how long a checkpoint stops training"}),
    (("--stall",), {"metavar": "TIME", "help": "for how long a checkpoint in the background stops it, and"}),
    (("--durable",), {"metavar": "TIME", "help": "how long it takes until it is safe"}),
    (("--interval",), {"metavar": "TIME", "help": "the interval that the loop saves at today"}),
    (("--notice",), {"metavar": "TIME", "help": "warning before an interruption, such as 120s"}),
    (("--price-ratio",), {"type": float, "metavar": "F", "help": "the spot price over that on demand"}),
    (("--price",), {"type": float, "metavar": "P", "help": "of a device for an hour, on demand"}),
    (("--spot-price",), {"type": float, "metavar": "P", "help": "the same on spot capacity"}),
    (("--devices",), {"type": int, "default": 1, "metavar": "N", "help": "how many the job runs on"}),
    (("--work",), {"metavar": "TIME", "help": "computing that is left to do, such as 40h"}),
    (("--deadline",), {"metavar": "TIME", "help": "how long until it must be done"}),
    (("--release",), {"action": "store_true", "help": "this run is not to be disturbed"}),
    (
        ("--audit",),
        {"choices": ("passed", "failed"), "help": "what a resume audit of the job came to"},
    ),
)
