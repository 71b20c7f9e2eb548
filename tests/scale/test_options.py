"""What is asked for, the order of the jobs, and what the rounds of a job are worth."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.session.reruns.job import Round
from jupyter_gpuprof.session.reruns.launch import TOLD, _last_words
from jupyter_gpuprof.session.reruns.scaleoptions import LIMIT_S, interleaved, parse_counts, scale_options
from jupyter_gpuprof.session.reruns.tally import judge


def test_counts_come_smallest_first() -> None:
    assert parse_counts(["8", "1", "4"]) == (1, 4, 8)


@pytest.mark.parametrize("words", [["0"], ["-2"], ["1", "two"], ["1.5"], []])
def test_counts_that_are_none(words: list[str]) -> None:
    with pytest.raises(OptionError, match="whole numbers from 1 on"):
        parse_counts(words)


def test_a_count_twice() -> None:
    with pytest.raises(OptionError, match="comes twice in 1 2 2"):
        parse_counts(["1", "2", "2"])


def test_what_drifts_hits_all_counts_alike() -> None:
    assert list(interleaved((1, 2, 4), 3)) == [1, 2, 4, 4, 2, 1, 1, 2, 4]


def arguments(**changed: object) -> SimpleNamespace:
    usual = {
        "mode": "weak", "steps": None, "repeats": 3, "timeout": None, "raw": False, "allow_writes": False,
        "least_gain": 1.6, "least_efficiency": 0.7, "price": None,
    }  # fmt: skip
    return SimpleNamespace(**{**usual, **changed})


def test_options_of_a_door() -> None:
    options = scale_options((1, 2), arguments(raw=True, price=0.0))
    assert (options.raw, options.limit_s, options.price_per_hour) == (True, LIMIT_S, 0.0)
    assert scale_options((1,), arguments()).raw is None  # the source tells


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"repeats": 0}, "--repeats takes 1 or more"),
        ({"timeout": 0.0}, "--timeout takes seconds above 0"),
        ({"timeout": float("nan")}, "--timeout takes seconds above 0"),
        ({"price": -1.0}, "--price takes"),
        ({"price": float("nan")}, "--price takes"),
        ({"least_gain": 1.0}, "--least-gain takes"),
        ({"least_efficiency": 1.2}, "--least-efficiency"),
    ],
)
def test_options_that_make_no_sense(changed: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        scale_options((1, 2), arguments(**changed))


GOOD = Round("measured", step_s=(0.01,))
NO_STEP = Round("no step")
LOST = Round("failed", error="RuntimeError: [gloo/pair.cc:534] Connection closed by peer [127.0.0.1]:5")
BROKEN = Round("failed", error="ValueError: mine")
FULL = Round("out of memory", error="OutOfMemoryError: too much")


@pytest.mark.parametrize(
    ("rounds", "ended", "words", "outcome"),
    [
        ([GOOD, GOOD], "", "", ("measured", "")),
        ([NO_STEP, NO_STEP], "", "", ("failed", "no training step was counted")),
        ([LOST, BROKEN], "", "rank 1 ended with 1", ("failed", "ValueError: mine")),
        ([LOST, FULL], "it took longer", "", ("out of memory", "OutOfMemoryError: too much")),
        ([LOST], "", "rank 1 was ended by SIGKILL", ("failed", "rank 1 was ended by SIGKILL")),
        ([GOOD], "", "", ("failed", "1 of 2 ranks ended without a word")),
        ([GOOD, GOOD], "it took longer", "", ("failed", "it took longer")),
        ([], "it took longer", "", ("failed", "it took longer")),
        # A rank that has left its round is done, however its process ends.
        ([GOOD, GOOD], "", "rank 1 ended with 1", ("measured", "")),
    ],
)
def test_what_a_job_is_worth(rounds: list[Round], ended: str, words: str, outcome: tuple[str, str]) -> None:
    assert judge(rounds, 2, ended, words) == outcome


LAUNCHER = """\
{own}
W1201 10:27:17.801000 16612 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 16654
Traceback (most recent call last):
  File "torch/distributed/run.py", line 1032, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 16607)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 16608)
"""


def test_last_words() -> None:
    assert _last_words(LAUNCHER.format(own="", code=-9)) == "rank 1 was ended by SIGKILL"
    words = _last_words(LAUNCHER.format(own="Traceback\nImportError: no torch\n", code=1))
    assert words == "rank 1 ended with 1: ImportError: no torch"
    assert _last_words(LAUNCHER.format(own="UserWarning: so what", code=TOLD)) == ""
    assert _last_words("no module named torch\n") == "no module named torch"
    assert _last_words("") == ""
