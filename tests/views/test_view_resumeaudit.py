"""The report of a resume audit says the same in text and in HTML."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import pytest

from jupyter_gpuprof.notebook.output import bundle_of
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.resumeaudit import Case, ResumeAudit
from jupyter_gpuprof.views.record import record_text

WORDS = (
    "The first step that differs is 2 (epoch 0, batch 1) in its samples: the samples are those that the "
    "epoch began with; the position in the loader is likely missing."
)
AUDIT = ResumeAudit(
    audit_id="2026-12-01-a1b2c3",
    run_id="2026-12-01-aaaaaa",
    run_name="resnet",
    started_at="2026-12-01T10:00:00+00:00",
    cell_digest="d",
    how="the cell itself",
    steps=8,
    epoch_steps=3,
    cases=(
        Case("in the middle of epoch 0", ("SIGKILL after step 1",), 1, 7, "differs", 2, ("samples",),
             "loader position", WORDS),
        Case("exactly at the end of epoch 0", ("SIGKILL after step 3",), 3, 5, "identical"),
        Case("while it saves, writing latest", ("SIGKILL in the save after step 3",),
             Missing("it did not go on"), 0, "differs", Missing("it did not go on"), (), "half-written file",
             "Half of latest was written, and the resumed run failed."),
    ),
    outcome="differs",
    sentence=f"2 of 3 interruptions did not go on as the straight run. {WORDS}",
    notes=("Two straight runs do not agree in their losses: these were not compared.",),
)  # fmt: skip


def plain(html: str) -> str:
    text = re.sub(r"<style>.*?</style>", "", html, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_both_say_it_all() -> None:
    bundle = bundle_of(AUDIT)
    for told in (" ".join(bundle["text/plain"].split()), plain(bundle["text/html"])):
        for words in (
            "Does not go on as it was", "resnet", WORDS, "in the middle of epoch 0",
            "differs at step 2", "loader position", "Interrupted while it saves", "3 to an epoch",
            "the cell itself", "the resume audit failed", "2026-12-01-a1b2c3", *AUDIT.notes,
        ):  # fmt: skip
            assert words in told, words
    assert "Interrupted exactly" not in bundle["text/plain"]
    assert "SIGKILL after step 1" in bundle["text/html"]


@pytest.mark.parametrize("width", [48, 80, 120])
def test_no_line_is_too_wide(width: int) -> None:
    assert max(map(len, record_text(AUDIT, width=width).splitlines())) <= width


def test_foreign_words_stay_words_and_nothing_is_loaded() -> None:
    html = bundle_of(dataclasses.replace(AUDIT, run_name="<script>x</script>"))["text/html"]
    assert "<script" not in html
    assert not re.search(r"https?://(?!www\.w3\.org)", html)
