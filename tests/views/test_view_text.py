from __future__ import annotations

import dataclasses

import pytest

from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Device, Memory, Overhead, Remedy, Steps, Verdict
from jupyter_gpuprof.views.share_lines import share_bar
from jupyter_gpuprof.views.text import compare_text, history_text, run_text

REPORT = """\
gpuprof: resnet18 on thumbnails

INPUT-BOUND (strong), also host-bound
For 60.4 % of the time the device stands idle because the next batch is not there.
  - Input wait is 60.4 % [58.1, 62.9] of the wall time, the limit is 10 %
  - The loader has no workers: each batch is made while the device waits

Where the time goes
  device compute   33.1 %  [30.9, 35.2]  ███████████████████▌
  input wait       60.4 %  [58.1, 62.9]  ███████████████████████████████████▋
  epoch start       5.2 %    [4.4, 6.1]  ███▏
  other host work   1.3 %    [1.1, 1.6]  ▊
  none seen: validation, checkpoint
  The share of device compute includes the host gap.
  not measured: communication (one device), copies and host gap (needs a kernel window)

What to try
  1. Give the loader 4 workers: num_workers=4                               12.1 ms -> 4.8 ms (2.5x)
     A batch costs 7.2 ms of host time; four workers make one every 1.8 ms, hidden by the device
  2. pin_memory=True                                                      12.1 ms -> 11.5 ms (1.05x)
     Copies from pinned memory overlap with the device
  3. Keep decoded images nearby                              not predicted: decoding was not sampled
     Decodes once

Doubts
  - Only 2.5 s were measured; profile 10 s or more.

Near misses
  - Host-bound: 6.5 % of the limit of 20 %

Steps     200 counted, 10 warm-up, 0 failed; 200 optimizer steps
          typical 12.0 ms, mean 12.1 ms; 2.51 s in all, after 840 ms of warm-up
Memory    peak 1.2 GiB allocated, 1.6 GiB reserved (1 % of the device)
Loader    train_loader (training): 210 batches of 64, 0 workers; waited 1.53 s, 1.52 s of it exposed
Device    NVIDIA H200 (cuda), 140 GiB; timed on the device
Overhead  45.0 µs per step, 0.4 % of the time of the steps

Notes
  - The kernel window was skipped: another profiler was on.
"""

BARE = """\
gpuprof: mlp
SIMULATED device: no real hardware was measured

UNCLEAR
Only 14 steps were counted, 20 are needed.

Where the time goes
  compute (CPU)    33.1 %  [30.9, 35.2]  ██████████▎
  epoch start       5.2 %    [4.4, 6.1]  █▋
  other host work   1.3 %    [1.1, 1.6]  ▍
  none seen: validation, checkpoint
  The share of compute (CPU) includes the host gap.
  not measured: communication (one device), input wait (no loader seen),
  copies and host gap (needs a kernel window)

What to try
  1. Profile more steps                              -> 20.0 ms per step
     20 are enough

Steps     14 counted, 3 warm-up, 1 failed; 13 optimizer steps
          typical n/a (fewer than 20 steps), mean n/a (fewer than 20
          steps); 400 ms in all, after 100 ms of warm-up
Device    SIMULATED device, not real hardware: cpu; timed on the host
          clock, read from a stored trace
Overhead  not measured: a stored trace
"""

COMPARISON = """\
gpuprof: before and after

                 resnet18 on thumbnails         resnet18, 4 workers  change
label              input-bound (strong)  correctly sized (moderate)
mean step                       12.1 ms                      4.8 ms  2.5x faster
device compute                   33.1 %                      85.0 %  +51.9 points
input wait                       60.4 %                       7.0 %  -53.4 points
epoch start                       5.2 %                       5.5 %  +0.3 points, intervals overlap
validation                        0.0 %                       0.0 %  0.0 points
checkpoint                        0.0 %                       0.0 %  0.0 points
other host work                   1.3 %                       1.3 %  0.0 points
"""

HISTORY = """\
run                   when                  name                    label               mean step  input wait
20260131-093000-a1b2  2026-01-31 09:30 UTC  mlp                     unclear, SIMULATED        n/a         n/a
20260131-094500-c3d4  2026-01-31 09:45 UTC  resnet18, 4 workers     correctly sized        4.8 ms       7.0 %
20260131-093000-a1b2  2026-01-31 09:30 UTC  resnet18 on thumbnails  input-bound           12.1 ms      60.4 %
"""


@pytest.fixture(scope="session")
def faster(make_run):
    run = make_run()
    return dataclasses.replace(
        run,
        run_id="20260131-094500-c3d4",
        name="resnet18, 4 workers",
        started_at="2026-01-31T09:45:00Z",
        steps=dataclasses.replace(run.steps, mean_s=0.00484),
        shares=dataclasses.replace(
            run.shares,
            device_compute=Estimate(0.85, 0.83, 0.87),
            exposed_input=Estimate(0.07, 0.06, 0.08),
            between=dataclasses.replace(run.shares.between, epoch_start=Estimate(0.055, 0.046, 0.065)),
        ),
        verdict=Verdict("correctly sized", "moderate", "the device works 85 % of the time."),
    )


@pytest.fixture(scope="session")
def bare(make_run):
    """A run of the CPU of which little is known."""
    unknown = Missing("fewer than 20 steps")
    run = make_run(name="mlp")
    return dataclasses.replace(
        run,
        device=Device("cpu", "cpu", 1, Missing("main memory"), simulated=True),
        clock="host",
        source="trace",
        steps=Steps(14, 3, 1, 13, unknown, unknown, 0.4, 0.1),
        shares=dataclasses.replace(run.shares, exposed_input=Missing("no loader seen")),
        verdict=Verdict("unclear", "none", "only 14 steps were counted, 20 are needed."),
        remedies=(Remedy("more", "profile more steps", 0.02, "20 are enough"),),
        overhead=Overhead(Missing("a stored trace"), Missing("a stored trace")),
        memory=Memory(Missing("not in the trace"), Missing("not in the trace")),
        loaders=(),
        notes=(),
    )


def test_the_whole_report(make_run):
    assert run_text(make_run()) == REPORT


def test_the_report_of_little(bare):
    assert run_text(bare, width=72) == BARE


def test_before_and_after(make_run, faster):
    assert compare_text(make_run(), faster) == COMPARISON


def test_before_and_after_of_different_things(make_run, bare):
    text = compare_text(make_run(), bare)
    assert "SIMULATED device, not real hardware: mlp." in text
    assert "The devices differ: 1 x NVIDIA H200 and 1 x cpu." in text
    assert "The clocks differ: device and host." in text
    assert "device compute / compute (CPU)" in text
    assert "n/a" in text


@pytest.mark.parametrize(
    ("after_s", "change"), [(0.01211, "the same"), (0.0242, "2.0x slower"), (0.00605, "2.0x faster")]
)
def test_change_of_the_step(make_run, after_s, change):
    run = make_run()
    after = make_run(steps=dataclasses.replace(run.steps, mean_s=after_s))
    assert change in compare_text(run, after)


def test_history(make_run, faster, bare):
    assert history_text([bare, faster, make_run()]) == HISTORY
    assert history_text([]) == "No runs yet.\n"


@pytest.mark.parametrize("width", [10, 48, 60, 100, 160])
def test_no_line_is_wider_than_asked(make_run, bare, width):
    for run in (make_run(), bare):
        assert max(len(line) for line in run_text(run, width).splitlines()) <= max(width, 48)


def test_nothing_to_terminals_but_text(make_run):
    text = run_text(make_run(name="\x1b[2Jgone\u202e", notes=("\x07bell",)))
    assert "gpuprof: [2Jgone\n" in text
    assert all(character.isprintable() or character == "\n" for character in text)


def test_simulated_is_said_twice(make_run):
    text = run_text(make_run(device=Device("cuda", "Fake GPU", 8, 2**36, simulated=True)))
    assert "\nSIMULATED device: no real hardware was measured\n" in text
    assert "SIMULATED device, not real hardware: 8 x Fake GPU (cuda), 64.0 GiB each" in text


def test_a_share_that_is_not_a_number_is_not_measured(make_run):
    run = make_run()
    shares = dataclasses.replace(run.shares, copies=Estimate(float("nan"), 0, 0))
    assert "copies (not a number)" in run_text(dataclasses.replace(run, shares=shares))


def test_compute_on_another_device_by_the_host_clock_is_not_called_the_cpu(make_run):
    assert "compute (host clock)" in run_text(make_run(clock="host"))


def test_a_known_gap_is_not_said_to_be_in_the_compute_share(make_run):
    run = make_run()
    shares = dataclasses.replace(run.shares, host_gap=Estimate(0.1, 0.1, 0.1))
    assert "includes the host gap" not in run_text(dataclasses.replace(run, shares=shares))


@pytest.mark.parametrize(
    ("share", "bar"),
    [(0, ""), (1, "████"), (0.5, "██"), (0.53125, "██▏"), (0.001, "▏"), (1.5, "████"), (-1, "")],
)
def test_share_bar(share, bar):
    assert share_bar(share, 4) == bar
