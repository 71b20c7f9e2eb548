"""The report of a trial, and the table of predictions."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.views.predictions import summary_words
from jupyter_gpuprof.views.trial_html import predictions_html, trial_html
from jupyter_gpuprof.views.trial_text import predictions_text, trial_text
from jupyter_gpuprof.views.trial_words import headline, result, rounds
from tests.rerun_records import AFTER, BEFORE, FAKE, HOSTILE, TRIAL, a_trial

parse = ElementTree.fromstring
UNPREDICTED = a_trial(settings=("compile=True",), predicted=Missing("no remedy names it"))


def words(html: str) -> str:
    tree = parse(html)
    tree.remove(tree.find("style"))
    return re.sub(r"\s+", " ", " ".join(tree.itertext()))


def hostile_trial():
    variant = dataclasses.replace(BEFORE, sentence=HOSTILE, peak_allocated_bytes=Missing(HOSTILE))
    return a_trial(
        trial_id=HOSTILE,
        run_id=HOSTILE,
        run_name=HOSTILE,
        started_at=HOSTILE,
        device=dataclasses.replace(FAKE, name=HOSTILE, kind=HOSTILE),
        settings=(HOSTILE,),
        order=f"ABBA{HOSTILE}",
        before=variant,
        after=variant,
        predicted_how=HOSTILE,
        lines=(HOSTILE, f"  x\n{HOSTILE}"),
        not_applied=(HOSTILE,),
        notes=(HOSTILE,),
    )


# -- the headline ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "found", "told"),
    [
        ((2.3, 2.1, 2.5), "faster", "2.3x faster (2.1x to 2.5x)"),
        ((1.06, 1.02, 1.1), "faster", "1.06x faster (1.02x to 1.10x)"),
        ((0.5, 0.4, 0.8), "slower", "2.0x slower (1.2x to 2.5x)"),
        ((1.0, 0.97, 1.03), "no gain", "no gain, 1.00x (0.97x to 1.03x)"),
        ((1.01, 1.004, 1.02), "no gain", "no gain, 1.01x (1.00x to 1.02x)"),
        ((1.1, 0.9, 1.3), "cannot tell", "cannot tell, 1.10x (0.90x to 1.3x)"),
        ((1.0, 0.9, 1.02), "cannot tell", "cannot tell, 1.00x (0.90x to 1.02x)"),
    ],
)
def test_the_headline(ratio, found, told):
    trial = a_trial(ratio=Estimate(*ratio))
    assert result(trial) == found
    assert headline(trial) == f"num_workers=4, pin_memory=True: {told}"
    assert told in words(trial_html(trial))
    assert told in trial_text(trial)


def test_a_changed_batch_size_is_compared_per_sample():
    after = dataclasses.replace(AFTER, samples_per_step=128)
    trial = a_trial(settings=("batch_size=128",), unit="sample", after=after)
    assert headline(trial) == "batch_size=128: 2.3x faster per sample (2.1x to 2.5x)"
    text = trial_text(trial)
    assert re.search(r"^batch size +64 +128$", text, re.MULTILINE)
    assert re.search(r"^per sample +189 µs +41.4 µs +2.3x faster per sample$", text, re.MULTILINE)
    assert re.search(r"^mean step +12.1 ms +5.3 ms$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (Estimate(1.0, 0.97, 1.03), "a gain above 3.0 % is unlikely"),
        (Estimate(1.1, 0.9, 1.3), "More steps make it narrower"),
    ],
)
def test_what_to_think_where_it_is_neither(ratio, told):
    trial = a_trial(ratio=ratio)
    assert told in " ".join(trial_text(trial).split())
    assert told in words(trial_html(trial))
    assert "What was changed" in trial_text(trial)
    assert "The interval holds 1" not in trial_text(TRIAL)


# -- the rest of the report --------------------------------------------------------------------------


def test_the_report_says_it_all():
    text, html = " ".join(trial_text(TRIAL).split()), words(trial_html(TRIAL))
    for told in (
        "Predicted 2.6x, measured 2.3x: the prediction lies outside of the measured interval.",
        "Four workers make a batch every 1.8 ms.",
        "verdict input-bound compute-bound changed",
        "mean step 12.1 ms 5.3 ms 2.3x faster",
        "95 % interval 11.8 ms to 12.4 ms 5.2 ms to 5.4 ms",
        "peak memory 2.0 GiB 3.0 GiB 1.5x",
        "input wait 60.0 % 5.0 % -55.0 points",
        "Before: input-bound. For 60 % of the time the device stands idle.",
        "After: compute-bound. The device computes 90 % of the time.",
        "To keep it, write",
        "loader = DataLoader( data, num_workers=4)",
        "al_loader: its sampler cannot be made again",
        "he machine was busy",
        "2026-12-01 10:00 UTC",
    ):
        assert told in text, told
        assert told in html, told
    assert "validation" not in text
    assert "A 12.2 ms, B 5.4 ms, B 5.2 ms, A 12.0 ms (A without the change, B with it)" in text
    assert "A without B with B with A without 12.2 ms 5.4 ms 5.2 ms 12.0 ms" in html


def test_the_rounds_stand_in_the_order_they_ran():
    assert [letter for letter, _ in rounds(a_trial(order="AABB"))] == list("AABB")
    assert rounds(a_trial(order="ABA"))[-1] == ("A", "12.0 ms")
    assert rounds(a_trial(order="AAA"))[-1] == ("A", "n/a")


def test_the_code_keeps_its_indentation():
    tree = parse(trial_html(TRIAL))
    (code,) = [element.find("code").text for element in tree.iter("pre")]
    assert code == "loader = DataLoader(\n    data, num_workers=4)"
    assert "\n    loader = DataLoader(\n        data, num_workers=4)\n" in trial_text(TRIAL)


def test_two_bars_say_their_parts():
    labels = [e.get("aria-label") for e in parse(trial_html(TRIAL)).iter() if e.get("role") == "img"]
    assert len(labels) == 2
    assert "input wait 60.0 %" in labels[0]
    assert "input wait 5.0 %" in labels[1]


def test_on_a_cpu_compute_is_the_cpus():
    device = dataclasses.replace(TRIAL.device, kind="cpu")
    assert "compute (CPU)" in trial_text(a_trial(device=device))


def test_nothing_was_predicted():
    for told in (" ".join(trial_text(UNPREDICTED).split()), words(trial_html(UNPREDICTED))):
        assert "Not predicted: no remedy names it." in told


@pytest.mark.parametrize("paint", [trial_text, trial_html], ids=["text", "html"])
def test_simulated_is_said(paint):
    assert "simulated device" in paint(a_trial(device=FAKE)).lower()
    assert "simulated" not in paint(TRIAL).replace("jp-gpuprof-simulated", "").lower()


def test_what_is_not_there_has_no_heading():
    html = words(trial_html(a_trial(lines=(), not_applied=(), notes=(), before=BEFORE, order="")))
    for head in ("To keep it", "Not applied", "Notes", "Rounds"):
        assert head not in html


# -- predictions -------------------------------------------------------------------------------------


def test_no_prediction_yet():
    assert predictions_text([]) == "No prediction yet.\n"
    assert words(predictions_html([])).strip() == "No prediction yet."
    assert summary_words([UNPREDICTED]) == "No prediction yet."


def test_how_good_predictions_have_been():
    trials = [
        a_trial(ratio=Estimate(2.0, 1.9, 2.1), predicted=3.0),  # half of the gain
        a_trial(ratio=Estimate(1.9, 1.8, 2.1), predicted=2.0),  # nine tenths
        a_trial(ratio=Estimate(2.2, 1.9, 2.5), predicted=2.0),  # more than all of it
        a_trial(ratio=Estimate(1.0, 0.9, 1.1), predicted=1.0),
        a_trial(device=FAKE),
        UNPREDICTED,
    ]
    told = summary_words(trials)
    assert told.startswith("Of 4 predictions, 3 lie within the measured interval.")
    assert "measured over predicted gain (ratio less 1) is 90 %." in told
    assert "1 is not in the median: no gain was predicted." in told
    assert "1 is not counted: the device was simulated." in told
    assert told in words(predictions_html(trials))


def test_one_prediction():
    told = summary_words([a_trial(predicted=2.4)])
    assert told.startswith("Of 1 prediction, 1 lies within the measured interval.")
    assert summary_words([a_trial(device=FAKE)]) == "No prediction on a real device yet."


def test_the_table_of_predictions():
    text = predictions_text([TRIAL, a_trial(predicted=2.5, device=FAKE), UNPREDICTED])
    html = words(predictions_html([TRIAL, a_trial(predicted=2.5, device=FAKE), UNPREDICTED]))
    for told in (" ".join(text.split()), html):
        assert (
            "2026-12-01 resnet18 on thumbnails num_workers=4, pin_memory=True"
            " 2.6x 2.3x 2.1x to 2.5x no 2026" in told
        )
        assert "2.5x 2.3x 2.1x to 2.5x yes (SIMULATED) Not predicted" in told
        assert "compile=True on resnet18 on thumbnails, 2026-12-01 10:00 UTC: measured 2.3x;" in told
        assert "no remedy names it" in told


# -- whatever comes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("paint", [trial_html, lambda t: predictions_html([t, t])], ids=["trial", "table"])
def test_hostile_words_stay_words(paint):
    html = paint(hostile_trial())
    tree, tame = parse(html), parse(paint(TRIAL))
    assert {element.tag for element in tree.iter()} <= {element.tag for element in tame.iter()} | {"p", "b"}
    assert not re.search(r"<script|<img|javascript:|\x00|\u202e", html)
    assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]
    assert "<script>alert('x')</script> & \"q\"" in words(html)
    assert not re.search("\x00|\u202e", trial_text(hostile_trial()))


def test_self_contained():
    for html in (trial_html(TRIAL), predictions_html([TRIAL, UNPREDICTED])):
        assert not re.search(r"https?://|//|@import|url\(|<script|<link", html)


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
ESTIMATES = st.builds(Estimate, FLOATS, FLOATS, FLOATS)
UNKNOWN = st.builds(Missing, st.text(max_size=20))
NUMBERS = st.one_of(UNKNOWN, st.integers(0, 2**60), FLOATS)


@settings(deadline=None, max_examples=60)
@given(
    ESTIMATES, NUMBERS, ESTIMATES, NUMBERS, NUMBERS, st.text(max_size=30), st.sampled_from(["step", "sample"])
)
def test_any_trial_can_be_shown(ratio, predicted, step, size, peak, text, unit):
    variant = dataclasses.replace(
        BEFORE, step_s=step, samples_per_step=size, peak_allocated_bytes=peak, sentence=text
    )
    trial = a_trial(
        ratio=ratio,
        predicted=predicted,
        before=variant,
        unit=unit,
        settings=(text,),
        lines=(text,),
        order=text,
    )
    parse(trial_html(trial))
    parse(predictions_html([trial, TRIAL]))
    assert trial_text(trial)
    assert predictions_text([trial, TRIAL])


@settings(deadline=None, max_examples=30)
@given(st.integers(-5, 200))
def test_no_line_is_wider_than_asked(width):
    for text in (trial_text(TRIAL, width), predictions_text([TRIAL, UNPREDICTED], width)):
        assert max(map(len, text.splitlines())) <= max(width, 48)
