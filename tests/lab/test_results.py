from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from foreshock.lab.plan import ORIGINAL, RunPlan
from foreshock.lab.results import MEASURES, bootstrap_mean, read_results
from foreshock.run import merge_pair


@pytest.fixture
def plan(tmp_path):
    return RunPlan("tiny", "fixed", 1, 210, tmp_path / "fixed-1", tmp_path)


def test_parts_begin_after_the_burn_in_and_are_equally_long(plan, write_run):
    write_run(plan)
    (result,) = read_results([plan])
    assert result.burn_in == 52
    assert [result.steps_of(part) for part in ("early", "middle", "late")] == [(55, 84), (115, 144), (181, 210)]


def test_measures_are_those_of_the_part(plan, write_run):
    write_run(plan)
    (result,) = read_results([plan])
    late = merge_pair(result.parts["late"], "policy/ref")
    assert MEASURES["p95 post-tool"](result, "late") == late.quantile(0.95, "post_tool").value
    reward = result.run.series["reward"].values[180:210]
    assert MEASURES["reward"](result, "late") == pytest.approx(reward.mean())
    assert MEASURES["α"](result, "early") == pytest.approx(0.5)


def test_an_alarm_has_a_step_and_a_lead_only_where_an_aggregate_moved(plan, write_run):
    write_run(plan)
    (result,) = read_results([plan])
    assert 60 < result.alarm < 210
    assert result.moved == {}
    assert result.lead is None


def test_a_run_that_is_too_short_has_no_parts(tmp_path, write_run):
    plan = RunPlan("tiny", "fixed", 0, 12, tmp_path / "short", tmp_path)
    write_run(plan)
    (result,) = read_results([plan])
    assert result.parts == {}
    assert result.alarm is None


def test_a_second_run_directory_is_a_result_of_its_own(tmp_path, write_run):
    plan = RunPlan("tiny", "fixed", 0, 60, tmp_path / "a", tmp_path)
    write_run(plan)
    write_run(RunPlan("tiny", "constrained", 0, 60, tmp_path / "a" / ORIGINAL, tmp_path))
    assert [result.arm for result in read_results([plan])] == ["fixed", "fixed, original reference"]


def test_the_interval_is_the_percentile_bootstrap_of_the_mean():
    values = np.array([0.3, 0.9, 0.5, 0.55, 0.7])
    mean, low, high = bootstrap_mean(values.tolist())
    oracle = stats.bootstrap((values,), np.mean, method="percentile", rng=1).confidence_interval
    assert mean == pytest.approx(values.mean())
    assert low == pytest.approx(oracle.low, abs=0.01)
    assert high == pytest.approx(oracle.high, abs=0.01)


def test_one_seed_has_no_interval_and_no_seed_no_mean():
    assert bootstrap_mean([0.5, math.nan])[0] == 0.5
    assert math.isnan(bootstrap_mean([0.5])[1])
    assert math.isnan(bootstrap_mean([math.nan])[0])
