"""Curves against published tables, against the laws they were made by, and against odd points."""

from __future__ import annotations

import math
import random
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.planning.scaling import Conclusion, conclude_scaling, point
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.scaling import AmdahlFit, FitCurve, ScalingPoint, UslFit

#: TensorFlow's benchmarks of May 2017, images/s on a DGX-1 (P100) with 1, 2, 4 and 8 devices: the row, the
#: efficiency at 8 and Amdahl's s of its least-squares fit, and the count that is worth it.
DGX1 = {
    "InceptionV3 synthetic": ((142, 284, 569, 1131), 0.996, 0.000, 8),
    "ResNet-50 synthetic": ((219, 422, 852, 1734), 0.990, 0.010, 8),
    "ResNet-152 synthetic": ((91.8, 181, 356, 716), 0.975, 0.008, 8),
    "AlexNet synthetic": ((2987, 5658, 10509, 17822), 0.746, 0.049, 8),
    "VGG16 synthetic": ((154, 295, 584, 1081), 0.877, 0.023, 8),
    "ResNet-50 real": ((218, 425, 853, 1630), 0.935, 0.012, 8),
    "VGG16 real": ((154, 284, 534, 898), 0.729, 0.057, 8),
    "VGG16 synthetic, batch 32": ((144, 281, 549, 820), 0.712, 0.038, 4),
    "VGG16 real, batch 32": ((144, 253, 457, 690), 0.599, 0.099, 4),
}
#: The same on many nodes with K80s, and NVIDIA's own of ResNet-50 v1.5 from 1 to 8.
OTHERS = {
    "InceptionV3 on K80": {1: 29.7, 8: 229, 16: 459, 32: 902, 64: 1783},
    "ResNet-50 on K80": {1: 52.4, 8: 378, 16: 751, 32: 1388, 64: 2744},
    "ResNet-152 on K80": {1: 19.4, 8: 146, 16: 291, 32: 565, 64: 981},
    "A100 TF32": {1: 938, 8: 7248},
    "A100 mixed": {1: 2470, 8: 16621},
    "V100-16GB FP32": {1: 367, 8: 2855},
    "V100-16GB mixed": {1: 1200, 8: 8322},
    "V100-32GB FP32": {1: 356, 8: 2766},
    "V100-32GB mixed": {1: 1156, 8: 8056},
}
ALEXNET_REAL = {1: 2890, 2: 4448, 4: 7105}
COUNTS = (1, 2, 4, 8)


def concluded(throughput: dict[int, float], **options: object) -> Conclusion:
    return conclude_scaling([point(n, [t]) for n, t in throughput.items()], "weak", **options)


def dgx1(row: str) -> dict[int, float]:
    return dict(zip(COUNTS, DGX1[row][0], strict=True))


def repeated(throughput: dict[int, float], noise: float = 0.002, repeats: int = 3) -> list[ScalingPoint]:
    """Points whose repeats scatter evenly around the throughput."""
    around = np.linspace(-1, 1, repeats)
    return [point(n, [t * (1 + noise * r) for r in around]) for n, t in throughput.items()]


# -- published tables ------------------------------------------------------------------------------


@pytest.mark.parametrize("row", DGX1)
def test_published_rows(row: str) -> None:
    _, efficiency, serial, worth = DGX1[row]
    done = concluded(dgx1(row))
    assert done.points[-1].efficiency == pytest.approx(efficiency, abs=5e-4)
    assert isinstance(done.fit.amdahl, AmdahlFit)
    assert done.fit.amdahl.serial.value == pytest.approx(serial, abs=5e-4)
    assert done.worth_it_count == worth
    assert done.verdict.label == ("scales" if worth == 8 else "not worth more")


@pytest.mark.parametrize("row", DGX1)
def test_published_rows_have_no_knee(row: str) -> None:
    single = concluded(dgx1(row)).fit.usl
    assert isinstance(single, Missing)
    assert "repeats" in single.reason


@pytest.mark.parametrize("row", ["InceptionV3 synthetic", "ResNet-50 synthetic", "ResNet-152 synthetic"])
def test_repeats_alone_make_no_knee(row: str) -> None:
    """These rows gain efficiency somewhere: whether they bend depends on the count left out."""
    usl = conclude_scaling(repeated(dgx1(row)), "weak").fit.usl
    assert isinstance(usl, Missing)
    assert "no peak can be told" in usl.reason


@pytest.mark.parametrize("table", OTHERS)
def test_other_tables_scale(table: str) -> None:
    counts = OTHERS[table]
    done = concluded(counts)
    assert done.verdict.label == "scales"
    assert done.worth_it_count == max(counts)
    (first, *_, last) = done.points
    assert last.efficiency == pytest.approx(counts[last.count] / counts[1] / last.count)
    assert first.efficiency == 1


def test_alexnet_waits_for_input() -> None:
    done = concluded(ALEXNET_REAL, synthetic=dgx1("AlexNet synthetic"))
    shares = [p.exposed_input for p in done.points]
    assert [round(share.value, 2) for share in shares] == [0.03, 0.21, 0.32]
    assert done.verdict.label == "input-bound"
    assert done.worth_it_count == 1
    assert done.verdict.sentence == (
        "input-bound: stops improving at 1 (2 devices bring 1.5x over 1 at twice the cost); "
        "waiting for input grows from 3.2 % of the time at 1 to 21 % at 2"
    )
    assert not any("already waits for input" in doubt for doubt in done.verdict.doubts)
    # The same loss, with nothing known of where it goes, is given no cause.
    assert concluded(ALEXNET_REAL).verdict.label == "not worth more"


def test_alexnet_on_one_device_is_not_input_bound() -> None:
    done = concluded({1: 2890}, synthetic=dgx1("AlexNet synthetic"))
    assert done.verdict.label == "unclear"
    assert not any("input" in words for words in (*done.verdict.reasons, *done.verdict.doubts))


def test_vgg16_batch_32_is_mixed() -> None:
    done = concluded(dgx1("VGG16 real, batch 32"), synthetic=dgx1("VGG16 synthetic, batch 32"))
    assert done.points[-1].exposed_input.value == pytest.approx(0.16, abs=0.005)
    assert done.verdict.label == "communication-bound"
    assert "mixed, since input counts as well" in done.verdict.sentence
    # The time lost per sample: 1/0.599 - 1, of it (1 - 690/820)/0.599 waiting for input.
    lost, waiting = 1 / 0.599 - 1, (1 - 690 / 820) / 0.599
    assert f"waiting for input explains {100 * waiting / lost:.0f} %" in " ".join(done.verdict.reasons)
    assert any("Communication was not measured" in doubt for doubt in done.verdict.doubts)


def test_the_sentence_to_send() -> None:
    done = concluded({1: 100, 2: 190, 4: 340, 8: 374})
    assert done.worth_it_count == 4
    assert done.verdict.sentence == "stops improving at 4: 8 devices bring 1.1x over 4 at twice the cost"
    assert (
        "each device beyond 4 adds 8.50 samples/s, 8.5 % of what the first one does" in done.verdict.reasons
    )


# -- causes ----------------------------------------------------------------------------------------


def share(value: float, doubt: float = 0.01) -> Estimate:
    return Estimate(value, max(value - doubt, 0.0), value + doubt)


def lossy(waiting: Estimate | Missing, communication: Estimate | Missing) -> list[ScalingPoint]:
    """8 devices at half of their efficiency."""
    return [
        point(1, [100, 101, 99], exposed_input=share(0.02), exposed_communication=Missing("one device")),
        point(4, [390, 394, 386], exposed_input=share(0.02), exposed_communication=share(0.03)),
        point(8, [400, 404, 396], exposed_input=waiting, exposed_communication=communication),
    ]


@pytest.mark.parametrize(
    ("waiting", "communication", "label"),
    [
        (share(0.48), share(0.04), "input-bound"),
        (share(0.03), share(0.45), "communication-bound"),
        (share(0.03), Missing("not measured"), "communication-bound"),
        (share(0.03), share(0.05), "not worth more"),
        (Missing("no loader"), Missing("not measured"), "not worth more"),
        (Missing("no loader"), share(0.45), "communication-bound"),
        (share(0.48, 0.5), share(0.04), "not worth more"),  # the interval allows no growth at all
    ],
)
def test_the_cause_is_what_grew(waiting, communication, label) -> None:
    done = conclude_scaling(lossy(waiting, communication), "weak")
    assert (done.verdict.label, done.worth_it_count) == (label, 4)
    assert "8 devices bring 1.0" in done.verdict.sentence


def test_what_cpu_processes_lose_is_not_called_communication() -> None:
    done = conclude_scaling(lossy(share(0.03), Missing("none")), "weak", ranks="CPU processes")
    assert done.verdict.label == "not worth more"
    assert "8 CPU processes bring" in done.verdict.sentence
    assert "not devices" in done.verdict.doubts[0]


def test_a_loader_that_all_ranks_share() -> None:
    """It gives 100 samples/s whatever asks for them, of 500 that a device could do."""
    points = [point(n, [100.0, 101.0, 99.0], exposed_input=share(1 - 100 / 500 / n)) for n in (1, 2)]
    done = conclude_scaling(points, "strong", ranks="CPU processes")
    assert done.verdict.label == "input-bound"
    assert any("already waits for input for 80 % of the time" in doubt for doubt in done.verdict.doubts)


# -- the worth-it count ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("throughput", "worth"),
    [
        ({1: 100, 2: 160, 4: 280}, 4),  # 1.6x and 0.7 just suffice
        ({1: 100, 2: 159, 4: 318}, 1),  # a gap in the chain ends it
        ({1: 100, 3: 253, 9: 560}, 3),  # 1.65x a doubling, but an efficiency of 0.62
        ({1: 100, 3: 210, 9: 590}, 1),  # 2.1 ** (1 / log2(3)) = 1.597
        ({2: 200, 4: 390}, 4),
        ({1: 100, 2: 195, 3: 280, 4: 350}, 4),  # 4 over 2: 1.79x
        ({1: 100, 2: 195, 3: 200, 4: 210}, 2),
        ({1: 100, 2: 90}, 1),
        ({1: 100, 2: 230, 4: 520}, 4),
    ],
)
def test_worth_it_count(throughput: dict[int, float], worth: int) -> None:
    assert concluded(throughput).worth_it_count == worth


def test_limits_can_be_set() -> None:
    row = dgx1("VGG16 synthetic, batch 32")
    assert concluded(row, least_gain=1.4).worth_it_count == 8
    assert concluded(row, least_gain=1.4, least_efficiency=0.8).worth_it_count == 4
    assert "at least 1.4x" in concluded(row, least_gain=1.4).rule


def test_intervals_that_allow_both_are_unclear() -> None:
    points = [point(1, [100, 100, 100]), point(2, [150, 160, 170])]
    done = conclude_scaling(points, "weak")
    assert done.verdict.label == "unclear"
    assert isinstance(done.worth_it_count, Missing)
    assert done.verdict.sentence.startswith(
        "unclear whether 2 devices are worth it: the last doubling brings 1.60x"
    )


def test_costs() -> None:
    done = concluded({1: 100, 2: 160, 4: 200}, price_per_device_hour=3.6)
    assert [(row.count, row.time_ratio, row.cost_ratio) for row in done.costs] == [
        (1, 1.0, 1.0),
        (2, 0.625, 1.25),
        (4, 0.5, 2.0),
    ]
    # A device second costs 0.001, so a million samples cost 1000 s x devices / throughput x 1e3.
    assert [row.money_per_million_samples for row in done.costs] == pytest.approx([10, 12.5, 20])
    assert (
        "cheapest result: 1 device, 10.0 per million samples; cheapest time: 2 devices, 12.5"
        in done.verdict.reasons
    )
    assert any("a million samples cost 50.0 on it instead of 10.0" in words for words in done.verdict.reasons)
    assert isinstance(concluded({1: 1, 2: 2}).costs[0].money_per_million_samples, Missing)


# -- points ----------------------------------------------------------------------------------------


def test_interval_over_repeats_is_students() -> None:
    p = point(2, [10, 12, 14])
    assert (p.throughput, p.repeats) == (12, (10.0, 12.0, 14.0))
    assert p.high - 12 == pytest.approx(4.303 * 2 / math.sqrt(3), rel=1e-3)
    assert point(2, [1, 9]).low == 0  # never below nothing


def test_a_single_repeat_has_the_interval_of_its_run() -> None:
    assert (point(1, [10]).low, point(1, [10]).high) == (10, 10)
    within = point(1, [10], within=Estimate(10, 9, 12))
    assert (within.low, within.high) == (9, 12)


def test_points_that_were_not_measured() -> None:
    done = conclude_scaling(
        [
            point(16, [], outcome="skipped", why="this machine has 8 devices"),
            point(8, [], outcome="out of memory", why="CUDA out of memory"),
            point(4, [390]),
            point(2, [], outcome="failed", why="rank 1 died with signal 9"),
            point(1, [100]),
            point(32, []),
        ],
        "weak",
    )
    assert [p.count for p in done.points] == [1, 2, 4, 8, 16, 32]
    assert done.worth_it_count == 4
    assert done.verdict.sentence == (
        "still improving at 4: 4 devices bring 3.9x over 1, with an efficiency of 0.97; "
        "8 devices: out of memory"
    )
    assert done.verdict.doubts[:3] == (
        "2 devices: failed: rank 1 died with signal 9.",
        "8 devices: out of memory: CUDA out of memory.",
        "16 devices: skipped: this machine has 8 devices.",
    )
    assert done.points[-1].throughput == Missing("not measured yet")


@pytest.mark.parametrize("points", [[], [point(1, [5])], [point(1, [5]), point(2, [], outcome="failed")]])
def test_fewer_than_two_points(points: list[ScalingPoint]) -> None:
    done = conclude_scaling(points, "strong")
    assert done.verdict.label == "unclear"
    assert isinstance(done.worth_it_count, Missing)
    assert isinstance(done.fit.amdahl, Missing)
    assert isinstance(done.fit.curve, Missing)


def test_without_a_count_of_one() -> None:
    serial = 0.1
    at = {n: 1 / (serial + (1 - serial) / n) for n in (2, 4, 8)}
    done = concluded(at)
    assert done.points[0].efficiency == 1
    assert "1 device was not measured: efficiency is against 2." in done.verdict.doubts
    assert done.fit.amdahl.serial.value == pytest.approx(serial)  # of one device all the same
    assert done.fit.curve.speedup[0] == pytest.approx(1)
    assert isinstance(conclude_scaling(repeated({**at, 16: 5.0}), "weak").fit.usl, Missing)


def test_nothing_processed_is_no_point_of_the_curve() -> None:
    done = concluded({1: 0.0, 2: 10, 4: 20})
    assert isinstance(done.points[0].efficiency, Missing)
    assert done.worth_it_count == 4
    assert "1 device: nothing was processed." in done.verdict.doubts


def test_superlinear() -> None:
    done = concluded({1: 100, 2: 300, 4: 800})
    assert done.fit.amdahl.serial == Estimate(0.0, 0.0, 0.0)
    assert done.worth_it_count == 4
    assert any("More than n times" in doubt for doubt in done.verdict.doubts)


def test_modes_are_told_apart() -> None:
    row = dgx1("VGG16 real")
    weak = conclude_scaling(repeated(row), "weak").verdict
    strong = conclude_scaling(repeated(row), "strong").verdict
    assert any(
        doubt.startswith("Weak scaling: the batch of all devices together grows") for doubt in weak.doubts
    )
    assert any(reason.startswith("strong scaling: each of 8 devices gets 1/8") for reason in strong.reasons)
    assert not any("strong" in words for words in (*weak.reasons, *weak.doubts))


# -- the laws --------------------------------------------------------------------------------------


def test_the_curve_is_dashed_beyond_what_was_measured() -> None:
    curve = concluded(dgx1("VGG16 real")).fit.curve
    assert isinstance(curve, FitCurve)
    assert (curve.counts[0], curve.measured_to, curve.counts[-1]) == (1, 8, 16)
    assert all(
        low <= value <= high for low, value, high in zip(curve.low, curve.speedup, curve.high, strict=True)
    )
    at = dict(zip(curve.counts, curve.speedup, strict=True))
    assert at[8.0] == pytest.approx(1 / (0.05741 + (1 - 0.05741) / 8), rel=1e-4)


def test_two_single_points_leave_the_law_open() -> None:
    assert concluded({1: 100, 2: 150}).fit.amdahl.serial == Estimate(pytest.approx(1 / 3), 0.0, 1.0)


def test_without_scipy_there_is_no_knee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    usl = conclude_scaling(repeated(dgx1("VGG16 real")), "weak").fit.usl
    assert isinstance(usl, Missing)
    assert "scipy is not installed" in usl.reason


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 1), st.sampled_from([(1, 2, 4, 8), (1, 2), (2, 4, 8), (1, 3, 5, 64)]))
def test_amdahls_fraction_is_recovered(serial: float, counts: tuple[int, ...]) -> None:
    done = conclude_scaling(repeated({n: 7 / (serial + (1 - serial) / n) for n in counts}, 1e-6), "weak")
    found = done.fit.amdahl.serial
    assert found.value == pytest.approx(serial, abs=1e-6)
    assert found.low <= found.value <= found.high


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 0.1), st.floats(0.004, 0.05), st.integers(0, 10**6))
def test_gunthers_peak_is_recovered_within_its_doubt(a: float, b: float, seed: int) -> None:
    pytest.importorskip("scipy")
    noise = np.random.default_rng(seed).normal(1, 0.001, (4, 3))
    points = [
        point(n, list(1000 * n / (1 + a * (n - 1) + b * n * (n - 1)) * noise[i]))
        for i, n in enumerate(COUNTS)
    ]
    usl = conclude_scaling(points, "weak").fit.usl
    assert isinstance(usl, UslFit)
    peak = math.sqrt((1 - a) / b)
    # 95 % intervals of three repeats: twice as wide holds for nearly all.
    value, low, high = usl.peak_count.value, usl.peak_count.low, usl.peak_count.high
    assert value - 2 * (value - low) - 0.02 <= peak <= value + 2 * (high - value) + 0.02


CURVES = st.dictionaries(
    st.sampled_from([1, 2, 3, 4, 6, 8, 16]),
    st.lists(st.floats(1, 1000), min_size=1, max_size=3),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=40)
@given(CURVES, st.integers(-10, 10), st.randoms(use_true_random=False))
def test_neither_the_unit_nor_the_order_matters(
    curve: dict[int, list[float]], power: int, chance: random.Random
) -> None:
    scale = 2.0**power
    points = [point(n, repeats) for n, repeats in curve.items()]
    scaled = [point(n, [scale * t for t in repeats]) for n, repeats in curve.items()]
    chance.shuffle(scaled)
    one, other = conclude_scaling(points, "weak"), conclude_scaling(scaled, "weak")
    assert one.verdict.label == other.verdict.label
    assert one.verdict.sentence == other.verdict.sentence
    assert one.worth_it_count == other.worth_it_count
    assert one.fit == other.fit
    assert one.costs == other.costs


@settings(deadline=None, max_examples=60)
@given(CURVES)
def test_any_curve_has_a_verdict_of_finite_numbers(curve: dict[int, list[float]]) -> None:
    done = conclude_scaling(
        [point(n, repeats) for n, repeats in curve.items()], "strong", price_per_device_hour=2
    )
    assert "nan" not in " ".join((done.verdict.sentence, *done.verdict.reasons, *done.verdict.doubts))
    if isinstance(done.fit.curve, FitCurve):
        assert np.isfinite([done.fit.curve.speedup, done.fit.curve.low, done.fit.curve.high]).all()
