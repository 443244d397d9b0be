from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foreshock.detect.series_change import MINIMUM_BASELINE, MINIMUM_RECENT, series_change
from foreshock.errors import InputError

BASELINE = (30, 59)


def ar1(seed: int, n: int, rho: float) -> NDArray[np.float64]:
    noise = np.random.default_rng(seed).standard_normal(n)
    for step in range(1, n):
        noise[step] = rho * noise[step - 1] + math.sqrt(1 - rho * rho) * noise[step]
    return noise


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 0.9])
def test_share_of_stationary_runs_called_a_move(rho: float) -> None:
    steps = np.arange(150)
    moved = [series_change(steps, ar1(seed, 150, rho), BASELINE).moved for seed in range(300)]
    assert np.mean(moved) <= 0.06


def test_a_shift_is_found_with_its_step_ratio_and_size() -> None:
    steps = np.arange(200)
    values = 1 + 0.05 * ar1(1, 200, 0.3) + 0.5 * (steps >= 100)
    change = series_change(steps, values, BASELINE)
    assert change.moved is True  # a plain value, so that JSON takes it
    assert change.since_step is not None
    assert abs(change.since_step - 100) <= 10
    assert change.ratio == pytest.approx(1.5, abs=0.05)
    assert change.shift > 5
    assert change.reason == ""


def test_a_move_that_was_undone_is_no_move() -> None:
    steps = np.arange(300)
    values = 1 + 0.05 * ar1(2, 300, 0.3) + 0.5 * ((steps >= 100) & (steps < 180))
    change = series_change(steps, values, BASELINE)
    assert not change.moved
    assert change.since_step is None


def test_a_loss_around_zero_is_judged_by_its_scale() -> None:
    steps, noise = np.arange(150), 0.02 * ar1(3, 150, 0.2)
    still = series_change(steps, noise, BASELINE)
    assert not still.moved
    assert math.isnan(still.ratio)
    assert still.reason == ""
    moved = series_change(steps, noise - 0.06 * (steps >= 90), BASELINE)
    assert moved.moved
    assert moved.shift < -1


@given(st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_unit_and_origin_do_not_matter(unit: float, origin: float) -> None:
    steps = np.arange(120)
    values = ar1(4, 120, 0.4) + 2.0 * (steps > 80)
    expected = series_change(steps, values, BASELINE)
    found = series_change(steps, unit * (values + origin), BASELINE)
    assert found.moved == expected.moved
    assert found.since_step == expected.since_step
    assert found.shift == pytest.approx(expected.shift, rel=1e-6)


@pytest.mark.parametrize("value", [3.0, 0.1, 1e300, -1e-300])
def test_a_constant_series_has_not_moved(value: float) -> None:
    still = series_change(np.arange(120), np.full(120, value), BASELINE)
    assert not still.moved
    assert still.ratio == pytest.approx(1)
    assert still.shift == 0
    assert series_change(np.arange(120), np.zeros(120), BASELINE).moved is False


def test_a_step_without_noise_is_a_move() -> None:
    steps = np.arange(120)
    jump = series_change(steps, np.where(steps < 80, 3.0, 2.0), BASELINE)
    assert jump.moved
    assert jump.since_step == 80


def test_values_that_are_not_finite_are_left_out() -> None:
    steps, values = np.arange(150), ar1(5, 150, 0.3)
    holes = np.insert(values, [0, 40, 150], [math.nan, math.inf, -math.inf])
    hole_steps = np.insert(steps, [0, 40, 150], [0, 40, 149])
    assert series_change(hole_steps, holes, BASELINE) == series_change(steps, values, BASELINE)


@pytest.mark.parametrize(("n", "what"), [(0, "the baseline"), (45, "the baseline"), (70, "follow the baseline")])
def test_too_short_a_series_cannot_be_judged(n: int, what: str) -> None:
    change = series_change(np.arange(n), np.zeros(n), BASELINE)
    assert not change.moved
    assert change.since_step is None
    assert math.isnan(change.ratio)
    assert what in change.reason


def test_minimum_lengths_suffice() -> None:
    n = MINIMUM_BASELINE + MINIMUM_RECENT
    assert series_change(np.arange(n), ar1(6, n, 0), (0, MINIMUM_BASELINE - 1)).reason == ""


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="3 steps and 2 values"):
        series_change([1, 2, 3], [0.0, 1.0], BASELINE)
