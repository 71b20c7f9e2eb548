"""Any of our saved records as its report."""

from __future__ import annotations

from jupyter_gpuprof.records.batch import BatchCurve
from jupyter_gpuprof.records.resumeaudit import ResumeAudit
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.scaling import Scaling
from jupyter_gpuprof.records.trial import Trial
from jupyter_gpuprof.views.batch_html import batch_html
from jupyter_gpuprof.views.batch_text import batch_text
from jupyter_gpuprof.views.html import page, run_page
from jupyter_gpuprof.views.resumeaudit_html import audit_html
from jupyter_gpuprof.views.resumeaudit_text import audit_text
from jupyter_gpuprof.views.scaling_html import scaling_page
from jupyter_gpuprof.views.scaling_text import scaling_text
from jupyter_gpuprof.views.text import run_text
from jupyter_gpuprof.views.trial_html import trial_html
from jupyter_gpuprof.views.trial_text import trial_text

Record = Run | Trial | BatchCurve | Scaling | ResumeAudit


def record_text(record: Record, width: int = 100) -> str:
    """The report as plain text, no line wider than `width`."""
    if isinstance(record, Run):
        return run_text(record, width)
    if isinstance(record, Trial):
        return trial_text(record, width)
    if isinstance(record, ResumeAudit):
        return audit_text(record, width)
    return batch_text(record, width) if isinstance(record, BatchCurve) else scaling_text(record, width)


def record_page(record: Record) -> str:
    """The report as a page of its own."""
    if isinstance(record, Run):
        return run_page(record)
    if isinstance(record, Scaling):
        return scaling_page(record)
    if isinstance(record, ResumeAudit):
        return page(audit_html(record), f"gpuprof: {record.run_name}")
    fragment = trial_html(record) if isinstance(record, Trial) else batch_html(record)
    return page(fragment, f"gpuprof: {record.run_name}")
