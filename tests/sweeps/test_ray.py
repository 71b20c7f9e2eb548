"""Real Ray Tune, where it is installed: a trial that ends, one that hangs, and none after the cap."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpuprof import SweepBudget

tune = pytest.importorskip("ray.tune", reason="RAY IS NOT INSTALLED: the adapter for Ray Tune is not tested")


@pytest.mark.slow
def test_a_hung_trial_does_not_hold_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import ray

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    except Exception as error:
        warnings.warn(f"RAY DOES NOT START: the adapter is not tested ({error})", stacklevel=1)
        pytest.skip(f"ray does not start here: {error}")
    try:
        budget = SweepBudget(gpu_hours=25 / 3600, study="ray")
        guard = budget.ray("loss", "min")
        assert copy.deepcopy(guard) is guard  # Tune copies what it is given

        def train(config: dict[str, Any]) -> None:
            import time

            for _ in range(5):
                time.sleep(0.05)
                tune.report({"loss": config["x"]})
            if config["x"]:
                time.sleep(600)

        tune.Tuner(
            train,
            param_space={"x": tune.grid_search([0, 1, 2])},
            tune_config=tune.TuneConfig(max_concurrent_trials=1),
            run_config=tune.RunConfig(stop=guard, callbacks=[guard], storage_path=str(tmp_path), verbose=0),
        ).fit()
    finally:
        ray.shutdown()
    first, second = budget.sweep().trials
    assert (first.state, first.params, len(first.points)) == ("completed", "x=0", 5)
    assert (second.state, second.counted) == ("stopped", "assumed")
    assert "is spent" in second.why
    assert 25 <= first.device_s + second.device_s < 120  # type: ignore[operator]
    assert budget.is_over
