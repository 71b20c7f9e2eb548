from __future__ import annotations

import pytest

from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.views import format as f
from jupyter_gpuprof.views.live import live_text

NO_NUMBER = [Missing("why"), None, float("nan"), float("inf"), Estimate(float("nan"), 0, 1)]


@pytest.mark.parametrize("write", [f.percent, f.points, f.seconds, f.byte_size, f.ratio, f.number])
@pytest.mark.parametrize("reading", NO_NUMBER)
def test_no_number_is_not_zero(write, reading):
    assert write(reading) == "n/a"


@pytest.mark.parametrize(
    ("share", "digits", "words"),
    [
        (0.1234, 1, "12.3 %"),
        (Estimate(0.5, 0.4, 0.6), 1, "50.0 %"),
        (1, 0, "100 %"),
        (0, 1, "0.0 %"),
        (0.0004, 1, "<0.1 %"),
        (0.0005, 1, "0.1 %"),
        (0.004, 0, "<1 %"),
        (-0.00001, 1, "0.0 %"),
    ],
)
def test_percent(share, digits, words):
    assert f.percent(share, digits) == words


def test_interval():
    assert f.interval(Estimate(0.6, 0.581, 0.629)) == "[58.1, 62.9]"
    assert f.interval(Missing("why")) == f.interval(0.5) == ""
    assert f.interval(Estimate(0.5, float("nan"), 1.0)) == ""


@pytest.mark.parametrize(("change", "words"), [(0.012, "+1.2"), (-0.5, "-50.0"), (0, "0.0"), (-1e-6, "0.0")])
def test_points(change, words):
    assert f.points(change) == f"{words} points"


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (0, "0 s"),
        (45e-6, "45.0 µs"),
        (850e-6, "850 µs"),
        (0.0121, "12.1 ms"),
        (0.0048, "4.8 ms"),
        (0.341, "341 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (3.42, "3.42 s"),
        (9.996, "10.0 s"),
        (61.2, "61.2 s"),
        (119.7, "2 min 0 s"),
        (340, "5 min 40 s"),
        (7260, "2 h 1 min"),
        (-0.5, "-500 ms"),
    ],
)
def test_seconds(duration, words):
    assert f.seconds(duration) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (2048, "2.0 KiB"),
        (40 * 2**20, "40.0 MiB"),
        (1023.9 * 2**20, "1.0 GiB"),
        (2**41, "2.0 TiB"),
    ],
)
def test_byte_size(size, words):
    assert f.byte_size(size) == words


@pytest.mark.parametrize(
    ("factor", "words"), [(2.5, "2.5x"), (1.05, "1.05x"), (0.91, "0.91x"), (0.5, "0.5x"), (123, "123x")]
)
def test_ratio(factor, words):
    assert f.ratio(factor) == words


def test_counts_and_settings():
    assert [f.number(64), f.number(12000), f.number(2.5)] == ["64", "12,000", "2.5"]
    assert [f.counted(1, "batch"), f.counted(2000, "batch"), f.counted(0, "step")] == [
        "1 batch",
        "2,000 batches",
        "0 steps",
    ]
    assert [f.yes_no(True), f.yes_no(False), f.yes_no(Missing("why"))] == ["yes", "no", "n/a"]


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("2026-01-31T09:30:59+00:00", "2026-01-31 09:30 UTC"),
        ("2026-01-31T09:30:59Z", "2026-01-31 09:30 UTC"),
        ("2026-01-31T11:30:00+02:00", "2026-01-31 09:30 UTC"),
        ("2026-01-31T09:30:59", "2026-01-31 09:30 UTC"),
        ("0001-01-01T00:00:00+02:00", "0001-01-01T00:00:00+02:00"),
        ("long\nago", "long ago"),
    ],
)
def test_moment(moment, words):
    assert f.moment(moment) == words


def test_clean_drops_what_could_harm_a_terminal():
    assert f.clean("a\x1b[31mred\x00\r\n b\u202egnp\u2028c\ud800") == "a [31mred b gnp c"
    assert f.clean("Größe 模型 α") == "Größe 模型 α"


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("the loader", "The loader"),
        ("host-bound: near", "Host-bound: near"),
        ("pin_memory=True", "pin_memory=True"),
        ("num_workers=4 helps", "num_workers=4 helps"),
        ("", ""),
    ],
)
def test_sentence_leaves_code_alone(words, written):
    assert f.sentence(words) == written


def test_shorten():
    assert f.shorten("abcdef", 6) == "abcdef"
    assert f.shorten("abc defg", 5) == "abc…"


@pytest.mark.parametrize(
    ("share", "warmup", "end"),
    [(0.62, False, "input wait 62 %"), (None, False, "input wait n/a"), (0.62, True, "warming up")],
)
def test_live_text(share, warmup, end):
    assert live_text(120, 34.06, share, warmup) == f"gpuprof: step 120, 34.1 steps/s, {end}"
