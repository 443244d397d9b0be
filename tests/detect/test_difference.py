"""Where two series part, and how often stationary ones seem to."""

import math

import numpy as np
import pytest

from foreshock.detect.difference import first_difference


def noise(rng, rows, rho):
    values = rng.standard_normal(rows + 200)
    for row in range(1, len(values)):
        values[row] += rho * values[row - 1]
    return values[200:]


@pytest.mark.parametrize(("rho", "most"), [(0.0, 1), (0.5, 1), (0.8, 2)])
def test_stationary_pairs_of_100_rows_hardly_ever_seem_to_part(rho, most):
    rng, steps = np.random.default_rng(1), np.arange(100)
    found = [first_difference(steps, noise(rng, 100, rho), steps, noise(rng, 100, rho)) for _ in range(300)]
    assert sum(pair.since_step is not None for pair in found) <= most


def test_a_jump_is_dated_and_sized():
    rng, steps = np.random.default_rng(2), np.arange(1, 201)
    a, b = noise(rng, 200, 0.3), noise(rng, 200, 0.3)
    b[120:] += 4
    found = first_difference(steps, a, steps, b)
    assert 111 <= found.since_step <= 131
    assert found.until_step == 200
    assert found.shift == pytest.approx(4 / math.sqrt(1 / (1 - 0.09)), rel=0.25)


def test_a_stretch_apart_that_ends_is_reported_with_its_end():
    rng, steps = np.random.default_rng(3), np.arange(300)
    a, b = rng.standard_normal((2, 300))
    b[100:160] -= 5
    found = first_difference(steps, a, steps, b)
    assert (found.since_step, found.until_step) == (100, 159)
    assert found.shift < -4


def test_runs_that_are_logged_at_different_steps_are_compared_over_the_steps_that_both_have():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal(200), rng.standard_normal(100) + 5
    found = first_difference(np.arange(200), a, np.arange(100, 300, 2), b)
    assert (found.since_step, found.until_step) == (100, 199)


def test_series_without_noise():
    steps, flat = np.arange(60), np.full(60, 0.5)
    assert first_difference(steps, flat, steps, flat).since_step is None
    found = first_difference(steps, flat, steps, flat + 0.1)
    assert (found.since_step, found.until_step, found.shift) == (0, 59, math.inf)


@pytest.mark.parametrize(("first", "rows"), [(0, 15), (500, 100), (0, 0)])
def test_too_few_common_steps_are_no_verdict(first, rows):
    steps = np.arange(100)
    found = first_difference(steps, np.zeros(100), np.arange(first, first + rows), np.ones(rows))
    assert found.since_step is None
    assert "of 20 rows" in found.reason
