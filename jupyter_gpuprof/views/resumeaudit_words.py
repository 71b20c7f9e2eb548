"""What the report of a resume audit says, the same in text and in HTML."""

from __future__ import annotations

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.resumeaudit import Case, CaseOutcome, ResumeAudit
from jupyter_gpuprof.views.format import clean, counted, known, number, sentence, why

#: The heads of the table of interruptions, in the order of `case_cells`.
CASE_HEADS = ("interrupted", "how", "went on after", "compared", "result", "likely missing or wrong")
_TITLES: dict[CaseOutcome, str] = {
    "identical": "Resumes identically",
    "order identical, augmentation differs": "Order identical, augmentation differs",
    "differs": "Does not go on as it was",
    "not tested": "Could not be tested",
}


def audit_title(audit: ResumeAudit) -> str:
    """The outcome as a title."""
    return _TITLES[audit.outcome]


def case_cells(case: Case) -> tuple[str, ...]:
    """One way of being interrupted, under `CASE_HEADS`."""
    after, first = known(case.went_on_after), known(case.first_step)
    result = case.outcome if first is None else f"differs at step {number(first)}"
    return (
        clean(case.name),
        ", ".join(case.kills),
        "n/a" if after is None else f"step {number(after)}",
        counted(case.compared, "step"),
        result,
        case.missing,
    )


def case_points(audit: ResumeAudit) -> list[str]:
    """What the interruptions that did not go on identically showed; those that showed the same, together."""
    told: dict[str, list[str]] = {}
    for case in audit.cases:
        if case.outcome != "identical":
            told.setdefault(case.sentence, []).append(clean(case.name))
    return [f"Interrupted {'; '.join(names)}: {sentence(words)}" for words, names in told.items()]


def audit_facts(audit: ResumeAudit) -> list[tuple[str, str]]:
    """What else there is to say, each under its name."""
    steps = counted(audit.steps, "step")
    epoch = audit.epoch_steps
    length = f"; {why(epoch)}" if isinstance(epoch, Missing) else f", {number(epoch)} to an epoch"
    return [
        ("Straight run", f"{steps}{length}, made twice"),
        ("Saved by", clean(audit.how)),
        ("For spot", f"the resume audit {audit.audit}"),
    ]
