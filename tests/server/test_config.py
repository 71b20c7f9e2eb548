"""The options of the server: what they mean, and that nothing wrong passes."""

from __future__ import annotations

import pytest
from traitlets.config import Config

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.server.config import GpuProf, GpuProfReaper, read_options
from jupyter_gpuprof.views.policy_text import policy_line


def options(general: dict | None = None, **reaper: object):
    config = Config()
    config.GpuProf.update(general or {})
    config.GpuProfReaper.update(reaper)
    return read_options(config)


def test_the_defaults_are_those_of_the_policy_and_only_warn():
    general, policy = options()
    assert policy == Policy()
    assert (policy.action, policy.busy_timeout_s, policy.orphans) == ("warn", None, "report")
    assert (general.sample_period, general.retention_days, general.price) == (1.0, 400.0, None)


def test_every_option_of_the_policy_can_be_set():
    ours = {name.removesuffix("_s") for name in Policy.__dataclass_fields__}
    assert set(GpuProfReaper.class_trait_names(config=True)) == ours


def test_values_arrive_with_their_units():
    def hook(facts: object) -> bool:
        return True

    _, policy = options(
        idle_timeout=60.0, warn_before=10.0, action="shutdown", busy_timeout=30.0, min_held_bytes=2**30,
        exempt=["teaching/*"], orphans="end", keep_max=3600.0, dry_run=True, hook=hook,
        kernelspecs={"r": {"action": "warn", "idle_timeout": 5.0}},
    )  # fmt: skip
    assert policy == Policy(
        idle_timeout_s=60, warn_before_s=10, action="shutdown", busy_timeout_s=30, min_held_bytes=2**30,
        exempt=("teaching/*",), orphans="end", keep_max_s=3600, dry_run=True, hook=hook,
        kernelspecs={"r": {"action": "warn", "idle_timeout_s": 5.0}},
    )  # fmt: skip
    assert policy.for_kernelspec("r").idle_timeout_s == 5
    line = policy_line(policy)
    for words in ("dry run", "action shutdown", "idle timeout 60.0 s", "from 1.0 GiB", "teaching/*", "hook"):
        assert words in line
    assert policy_line(Policy(enabled=False)) == "the reaper is off"


@pytest.mark.parametrize(
    ("reaper", "words"),
    [
        ({"idle_timout": 3}, "GpuProfReaper has no option 'idle_timout'. Is 'idle_timeout' meant?"),
        ({"action": "kill"}, "action"),
        ({"idle_timeout": -1.0}, "GpuProfReaper.idle_timeout must be"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
        ({"exempt": 5}, "exempt"),
        ({"kernelspecs": {"r": {"orphans": "end"}}}, "kernelspecs['r'] has no option 'orphans'"),
        ({"kernelspecs": {"r": {"idle_timeout": 0.0}}}, "idle_timeout must be above 0"),
        ({"kernelspecs": {"r": 5}}, "kernelspecs"),
        ({"hook": "yes"}, "hook takes a function"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(reaper: dict, words: str):
    with pytest.raises(OptionError) as error:
        options(**reaper)
    assert words in str(error.value)
    assert "docs/server.md" in str(error.value)
    assert "_s " not in str(error.value)


@pytest.mark.parametrize(
    "general",
    [{"sample_period": 0.0}, {"sample_period": 1e9}, {"price": -1.0}, {"retention_days": 0.0}, {"x": 1}],
)
def test_the_general_options_are_checked_too(general: dict):
    with pytest.raises(OptionError, match="GpuProf"):
        options(general)


def test_a_class_that_is_none_of_ours_is_no_silence():
    config = Config()
    config.GpuprofReaper.idle_timeout = 5.0
    with pytest.raises(OptionError, match="There is no GpuprofReaper: ours are"):
        read_options(config)


def test_allocation_by_the_environment(monkeypatch: pytest.MonkeyPatch):
    for name in ("JUPYTERHUB_USER", "JUPYTERHUB_API_TOKEN", "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert GpuProf().detected_allocation() == "held"
    assert GpuProf(allocation="visible").detected_allocation() == "visible"
    monkeypatch.setenv("JUPYTERHUB_USER", "ann")
    assert GpuProf().detected_allocation() == "visible"
    assert GpuProf(allocation="held").detected_allocation() == "held"
