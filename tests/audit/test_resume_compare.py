"""The comparison of trails, on invented ones: what is planted is found, where it was planted, and named."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.resumeaudit import (
    Resumed,
    Straight,
    WriteKill,
    conclude_audit,
    conclude_case,
)
from jupyter_gpuprof.analysis.resumecompare import HIDDEN, VISIBLE, repeatable
from jupyter_gpuprof.errors import RerunError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.resumeaudit import Case, ResumeAudit, SeenStep
from jupyter_gpuprof.session.audit.processes import check_steps
from jupyter_gpuprof.views.resumeaudit_words import case_points

ALL = frozenset(VISIBLE + HIDDEN)


def trail(epochs: int = 3, length: int = 4, seed: int = 0) -> tuple[SeenStep, ...]:
    """A straight run: batches of two, each epoch in an order of its own, all states different."""
    draw, steps = random.Random(seed), list[SeenStep]()
    for epoch in range(epochs):
        order = draw.sample(range(2 * length), 2 * length)
        for i in range(length):
            n = len(steps)
            samples = tuple(map(str, order[2 * i : 2 * i + 2]))
            steps.append(
                SeenStep(
                    epoch, samples, True, f"c{samples}", (f"r{n}",), (f"l{n}",), f"w{n}", f"m{n}", f"z{n}"
                )
            )
    return tuple(steps)


def judged(straight: tuple[SeenStep, ...], made: int, steps: tuple[SeenStep, ...], **options: object) -> Case:
    return conclude_case(
        "then", ("SIGKILL",), Straight(straight, ALL, False), made, [Resumed(steps)], **options
    )


lengths = st.integers(2, 6)


@given(lengths, st.data())
def test_what_goes_on_is_identical_wherever_it_was_saved(length: int, data: st.DataObject) -> None:
    straight = trail(3, length)
    made = data.draw(st.integers(1, 2 * length))
    saved = data.draw(st.integers(1, made))
    case = judged(straight, made, straight[saved:])
    assert (case.outcome, case.went_on_after, case.compared) == (
        "identical",
        saved,
        len(straight) - saved,
    )


@given(lengths, st.data())
def test_a_difference_is_found_where_it_is(length: int, data: st.DataObject) -> None:
    straight = trail(3, length)
    saved = data.draw(st.integers(1, 2 * length))
    at = data.draw(st.integers(saved, len(straight) - 1))
    name = data.draw(st.sampled_from(["rates", "losses", "content"]))
    value = "other" if name == "content" else ("other",)
    steps = list(straight)
    steps[at] = dataclasses.replace(steps[at], **{name: value})
    case = judged(straight, saved, tuple(steps[saved:]))
    if name == "content":
        assert case.outcome == "order identical, augmentation differs"
        return
    assert (case.outcome, case.first_step, case.differs) == ("differs", at + 1, (name,))
    assert case.missing == ("learning rate schedule" if name == "rates" else "unknown")


@given(lengths, st.data())
def test_an_epoch_that_begins_again_is_a_lost_position(length: int, data: st.DataObject) -> None:
    straight = trail(3, length)
    epoch = data.draw(st.integers(0, 1))
    saved = epoch * length + data.draw(st.integers(1, length - 1))
    again = straight[epoch * length : (epoch + 1) * length]
    states = straight[saved : saved + length]
    steps = tuple(
        dataclasses.replace(b, samples=a.samples, content=a.content)
        for a, b in zip(again, states, strict=False)
    )
    case = judged(straight, saved, steps)
    assert (case.missing, case.first_step) == ("loader position", saved + 1)


@given(lengths, st.integers(1, 99))
def test_another_order_of_the_same_samples_is_the_samplers(length: int, seed: int) -> None:
    straight = trail(3, length)
    begin = straight[length : 2 * length]
    moved = list(begin)
    random.Random(seed).shuffle(moved)
    steps = tuple(
        dataclasses.replace(b, samples=a.samples, content=a.content)
        for a, b in zip(moved, begin, strict=True)
    )
    case = judged(straight, length, steps)
    if moved == list(begin):
        assert case.outcome == "identical"
    else:
        assert case.missing in ("sampler or generator state", "loader position")
        assert case.outcome == "differs"


@pytest.mark.parametrize(
    ("name", "missing"), [("weights", "model"), ("moments", "optimizer"), ("random", "random states")]
)
def test_what_was_not_restored_is_named(name: str, missing: str) -> None:
    straight = trail()
    first, second, *rest = straight[5:]
    steps = (
        dataclasses.replace(first, **{name: "other"}),
        dataclasses.replace(second, losses=("other",)),
        *rest,
    )
    case = judged(straight, 5, steps)
    assert (case.outcome, case.first_step, case.missing) == ("differs", 7, missing)


def test_the_first_batch_again_with_a_trained_model_is_a_lost_position() -> None:
    straight = trail()
    first, *rest = straight
    steps = (dataclasses.replace(first, weights=straight[4].weights, losses=("other",)), *rest)
    case = judged(straight, 5, steps)
    assert (case.missing, case.went_on_after, case.first_step) == ("loader position", 0, 1)
    assert "the parameters are those after step 4, and the samples those of step 1" in case.sentence


def test_beginning_anew() -> None:
    straight = trail()
    assert judged(straight, 5, straight, wrote=False).outcome == "not tested"
    found = judged(straight, 5, straight)
    assert (found.outcome, found.missing) == ("differs", "resuming")
    kill = WriteKill("open", "data.pt", cut=False, removed=False)
    assert judged(straight, 5, straight, in_save=kill).missing == "pointer before data"


@pytest.mark.parametrize(
    ("kill", "missing", "words"),
    [
        (WriteKill("open", "a.pt", False, False), "pointer before data", "The file a.pt was not written yet"),
        (WriteKill("rename", "a.pt", False, True), "removed before written", "took something away before"),
        (WriteKill("open", "a.pt", True, False), "half-written file", "Half of a.pt was written"),
    ],
)
def test_a_save_that_was_interrupted(kill: WriteKill, missing: str, words: str) -> None:
    straight = Straight(trail(), ALL, False)
    gone = [Resumed((), "FileNotFoundError: a.pt")]
    case = conclude_case("then", ("SIGKILL",), straight, 5, gone, in_save=kill)
    assert (case.outcome, case.missing) == ("differs", missing)
    assert words in case.sentence
    assert "FileNotFoundError: a.pt" in case.sentence


def test_ends() -> None:
    straight = trail(2)
    ended = Straight(straight, ALL, True)

    def case(made: int, *resumed: Resumed) -> Case:
        return conclude_case("then", ("SIGKILL",), ended, made, resumed)

    assert case(8, Resumed((), "", True)).outcome == "identical"  # all was done
    assert case(5, Resumed((), "", True)).missing == "resuming"
    early = case(5, Resumed(straight[5:7], "", True))
    assert "ended after step 7" in early.sentence
    late = case(5, Resumed((*straight[5:], straight[0]), "", False))
    assert "the resumed one went on" in late.sentence
    failed = case(5, Resumed(straight[5:6], "ValueError: x"))
    assert (failed.outcome, failed.missing) == ("differs", "resuming")
    second = case(2, Resumed(straight[2:3]), Resumed(straight[0:4]))
    assert second.missing == "second resume"


def test_what_two_straight_runs_do_not_agree_on_is_not_compared() -> None:
    straight = trail()
    noisy = tuple(dataclasses.replace(step, losses=(f"other{i}",)) for i, step in enumerate(straight))
    asked = repeatable(straight, noisy)
    assert asked == ALL - {"losses"}
    case = conclude_case("then", (), Straight(straight, asked, False), 5, [Resumed(noisy[5:])])
    assert case.outcome == "identical"
    assert "loss" not in conclude_audit([case], Straight(straight, asked, False))[1]


def test_the_outcome_of_all_and_the_record() -> None:
    straight = Straight(trail(), ALL, False)
    good, none = (
        judged(straight.steps, 5, straight.steps[5:]),
        judged(straight.steps, 1, straight.steps, wrote=False),
    )
    bad = judged(straight.steps, 5, straight.steps)
    assert [conclude_audit(cases, straight)[0] for cases in ([good, none], [none], [good, bad])] == [
        "identical",
        "not tested",
        "differs",
    ]
    for cases, audit in (([good], "passed"), ([none], "never ran"), ([bad], "failed")):
        outcome, sentence = conclude_audit(cases, straight)
        record = ResumeAudit(
            "a", "r", "cell", "2026-12-01T00:00:00", "d", "the cell itself", 12, Missing("none ended"),
            tuple(cases), outcome, sentence,
        )  # fmt: skip
        assert record.audit == audit
        assert ResumeAudit.from_dict(record.to_dict()) == record


def test_a_run_too_short_for_an_epoch_says_so_in_its_sentence() -> None:
    for steps, ended, told in ((trail(1), False, True), (trail(1), True, False), (trail(2), False, False)):
        straight = Straight(steps, ALL, ended)
        good = conclude_case("then", ("SIGKILL",), straight, 2, [Resumed(steps[2:], "", ended)])
        outcome, sentence = conclude_audit([good], straight)
        assert outcome == "identical"
        assert ("No epoch ended within 4 steps" in sentence) is told


def test_a_loop_without_a_loader_is_told_so() -> None:
    one = trail(1, 2)[0]
    with pytest.raises(RerunError, match="trains without a DataLoader"):
        check_steps([dataclasses.replace(one, samples=(), content="")])
    for steps, words in (([], "no training step"), ([one], "one training step, and an audit needs two")):
        with pytest.raises(RerunError, match=words):
            check_steps(steps)


def test_interruptions_that_showed_the_same_are_told_together() -> None:
    straight = Straight(trail(), ALL, False)
    none = judged(straight.steps, 1, straight.steps, wrote=False)
    cases = (dataclasses.replace(none, name="here"), dataclasses.replace(none, name="there"))
    audit = ResumeAudit(
        "a", "r", "cell", "2026-12-01T00:00:00", "d", "the cell itself", 12, 4, cases,
        *conclude_audit(cases, straight),
    )  # fmt: skip
    assert case_points(audit) == [f"Interrupted here; there: {none.sentence}"]
